//! Which events this machine has, and why not.

use nix::errno::Errno;

use crate::record::btf::Tracepoints;
use crate::record::perf::{self, Request};
use crate::record::sources::calls::CLOCK_EVENT;
use crate::record::sources::{Event, Origin};
use vtax_sys::calls::processor::kvm_features;
use vtax_sys::tree::Tree;

/// Tracepoints that every kernel has but only x86's code passes: elsewhere they count nothing.
const SILENT: &[&str] = if cfg!(target_arch = "x86_64") {
    &[]
} else {
    &["tlb_flush"]
};

/// Why clock readings cannot be counted.
const HAVE_VDSO: &str = "programs read clocks without a system call: their vDSO is not taken away";

/// Looks events up on this machine.
#[derive(Debug)]
pub struct Machine {
    tracepoints: Result<Tracepoints, String>,
    cpu: u32,
    /// The vDSO is taken away from the command's programs.
    pub without_vdso: bool,
}

impl Machine {
    /// Examine the machine of this tree; perf events are tried on `cpu`.
    pub fn look(tree: &Tree, cpu: u32) -> Self {
        Self {
            tracepoints: Tracepoints::find(tree),
            cpu,
            without_vdso: false,
        }
    }

    /// The CPU on which perf events are tried.
    pub fn cpu(&self) -> u32 {
        self.cpu
    }

    /// Why no program at all can be attached.
    pub fn without_types(&self) -> Option<&str> {
        self.tracepoints.as_ref().err().map(String::as_str)
    }

    /// Is there a tracepoint of this name?
    pub fn has(&self, tracepoint: &str) -> bool {
        let known = self.tracepoints.as_ref();
        known.is_ok_and(|tracepoints| tracepoints.has(tracepoint))
    }

    /// The reason why an event cannot be recorded here.
    pub fn lacks(&self, event: &Event) -> Option<String> {
        match &event.origin {
            Origin::Counted { tracepoints, .. } => {
                if let Some(reason) = self.without_types() {
                    return Some(reason.to_owned());
                }
                if event.name == CLOCK_EVENT && !self.without_vdso {
                    return Some(HAVE_VDSO.into());
                }
                let absent = tracepoints
                    .iter()
                    .find(|name| !self.has(name) || SILENT.contains(name))?;
                Some(absent_tracepoint(absent))
            }
            Origin::Perf(request) => self.cannot_open(*request),
            Origin::Steal => self
                .without_types()
                .map_or_else(no_steal_clock, |reason| Some(reason.to_owned())),
        }
    }

    /// The reason why a perf event cannot be opened on a CPU.
    pub fn cannot_open(&self, request: Request) -> Option<String> {
        let errno = perf::open(request, self.cpu, None).err()?;
        Some(explain(errno))
    }
}

fn absent_tracepoint(name: &str) -> String {
    if SILENT.contains(&name) {
        format!("on this architecture the kernel never passes the tracepoint {name}")
    } else if name.starts_with("kvm_") {
        format!("this kernel has no tracepoint {name}: is the module kvm loaded?")
    } else {
        format!("this kernel has no tracepoint {name}")
    }
}

/// Zero without a steal clock would look like a machine without steal time.
fn no_steal_clock() -> Option<String> {
    const STEAL_TIME: u32 = 1 << 5; // KVM_FEATURE_STEAL_TIME
    match kvm_features() {
        Some(features) if features & STEAL_TIME != 0 => None,
        Some(_) => Some("the hypervisor does not report steal time".into()),
        None => Some("no hypervisor that is known to report steal time".into()),
    }
}

/// `perf_event_open(2)`, "ERRORS", for counters of a CPU.
fn explain(errno: Errno) -> String {
    match errno {
        Errno::ENOENT | Errno::ENODEV => "this machine has no such counter (no PMU?)".into(),
        Errno::EOPNOTSUPP => {
            "the PMU cannot count this (with a mediated vPMU only the guest itself can: record \
             there, vtax record --from guest)"
                .into()
        }
        Errno::EACCES | Errno::EPERM => {
            "not permitted: needs CAP_PERFMON, or kernel.perf_event_paranoid at 0 or below".into()
        }
        other => format!("perf_event_open: {}", other.desc()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::sources;

    #[test]
    fn without_type_information_the_reason_is_given_for_each_event() {
        let root = tempfile::tempdir().unwrap();
        let machine = Machine::look(&Tree::at(root.path()), 0);
        let events = sources::all();
        let switches = events
            .iter()
            .find(|event| event.name == "sched.switches")
            .unwrap();
        assert!(
            machine
                .lacks(switches)
                .unwrap()
                .contains("no type information")
        );
    }
}
