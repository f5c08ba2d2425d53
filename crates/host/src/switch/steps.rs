//! The steps and phases of a switch, in one table: the report, the journal and fault injection take
//! the names from it.

use std::fmt;
use std::str::FromStr;

/// A part of a switch. The journal records each change of phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// New QEMUs are started and held; guests run.
    Prepare,
    /// Guests are paused and their states saved.
    Save,
    /// The old QEMUs end.
    End,
    /// The module is unloaded.
    Unload,
    /// The module is loaded in the other mode.
    Load,
    /// The new QEMUs read the states.
    Restore,
    /// The guests run on.
    Resume,
    /// Helpers end and the journal is removed.
    Finish,
}

impl Phase {
    /// All phases, in order.
    pub const ALL: [Self; 8] = [
        Self::Prepare,
        Self::Save,
        Self::End,
        Self::Unload,
        Self::Load,
        Self::Restore,
        Self::Resume,
        Self::Finish,
    ];

    /// The name in reports and faults.
    pub fn name(self) -> &'static str {
        match self {
            Self::Prepare => "prepare",
            Self::Save => "save",
            Self::End => "end",
            Self::Unload => "unload",
            Self::Load => "load",
            Self::Restore => "restore",
            Self::Resume => "resume",
            Self::Finish => "finish",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// A step that can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Writing the journal.
    Journal,
    /// Starting the process that keeps a guest's descriptors.
    Keep,
    /// Starting a guest's new QEMU and holding it.
    Start,
    /// Preparing the old QEMU to save.
    Ready,
    /// Saving a guest's state.
    Save,
    /// Checking whether the saved state is complete.
    Check,
    /// Ending a guest's old QEMU.
    End,
    /// Unloading the module.
    Unload,
    /// Loading the module.
    Load,
    /// Checking that the module is in the wanted mode.
    Verify,
    /// Bringing a guest's new QEMU to the point before it opens `/dev/kvm`.
    Hold,
    /// Reading a guest's state.
    Restore,
    /// Letting a guest run.
    Resume,
}

impl Step {
    /// All steps, in order.
    pub const ALL: [Self; 13] = [
        Self::Journal,
        Self::Keep,
        Self::Start,
        Self::Ready,
        Self::Save,
        Self::Check,
        Self::End,
        Self::Unload,
        Self::Load,
        Self::Verify,
        Self::Hold,
        Self::Restore,
        Self::Resume,
    ];

    /// The name in errors and faults.
    pub fn name(self) -> &'static str {
        match self {
            Self::Journal => "journal",
            Self::Keep => "keep",
            Self::Start => "start",
            Self::Ready => "ready",
            Self::Save => "save",
            Self::Check => "check",
            Self::End => "end",
            Self::Unload => "unload",
            Self::Load => "load",
            Self::Verify => "verify",
            Self::Hold => "hold",
            Self::Restore => "restore",
            Self::Resume => "resume",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// A fault to inject, for tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// This step fails for this guest (from 1); for a step without a guest, the first time.
    Fail(Step, usize),
    /// The program kills itself in the middle of this phase.
    Kill(Phase),
}

impl Fault {
    /// Every fault, as `--fault` takes it.
    pub fn all() -> Vec<String> {
        let steps = Step::ALL.into_iter().map(|step| step.name().to_owned());
        let kills = Phase::ALL.into_iter().map(|phase| format!("kill:{phase}"));
        steps.chain(kills).collect()
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown = || format!("no fault `{text}`; see --list-faults");
        if let Some(name) = text.strip_prefix("kill:") {
            let phase = Phase::ALL.into_iter().find(|phase| phase.name() == name);
            return phase.map(Self::Kill).ok_or_else(unknown);
        }
        let (name, guest) = match text.split_once(':') {
            Some((name, number)) => (name, number.parse().map_err(|_| unknown())?),
            None => (text, 1),
        };
        let step = Step::ALL.into_iter().find(|step| step.name() == name);
        step.map(|step| Self::Fail(step, guest)).ok_or_else(unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_fault_is_read() {
        for text in Fault::all() {
            assert!(text.parse::<Fault>().is_ok(), "{text}");
        }
        assert_eq!("save:2".parse(), Ok(Fault::Fail(Step::Save, 2)));
        assert!("save:x".parse::<Fault>().is_err());
        assert!("kill:nothing".parse::<Fault>().is_err());
    }
}
