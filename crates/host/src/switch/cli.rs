//! The verbs `paging switch` and `paging recover`.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use serde::Serialize;
use vtax_sys::kvm::PagingMode;
use vtax_sys::terminal::{Error, output};

use super::{Fault, Observer, PATIENCE, Report, STATE_DIR, SwitchError, SwitchOptions, Target};

/// Move every running KVM guest of this host to nested or shadow paging, without a restart
///
/// Each guest is paused, its device state saved with its memory left in place, the module (`kvm_amd`
/// or `kvm_intel`) loaded again with npt= or ept=, and the guest brought back on the same memory. It
/// is a transaction: if a step fails, the old mode comes back and every guest runs on. Tried only
/// in an emulated AMD host, with vtax's own guests: not on hardware, nor with libvirt.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vtax paging switch --to shadow --dry-run
  vtax paging switch --to shadow
  vtax paging switch --to other --json

Needs root, and of every guest: shared memory (memory-backend-file or -memfd with share=on) and
a QMP Unix socket. What is missing is said before anything is touched. If vtax is killed on the
way, `vtax paging recover` brings every guest back.")]
pub struct SwitchArguments {
    /// nested, shadow, or other: the mode that is not on
    #[arg(long, value_name = "MODE", required_unless_present = "list_faults",
          value_parser = str::parse::<Target>, add = ArgValueCandidates::new(targets))]
    to: Option<Target>,
    /// Look and say what would be done; touch nothing
    #[arg(long)]
    dry_run: bool,
    /// Where guests' states and the journal are kept, on a tmpfs
    #[arg(long, value_name = "DIR", default_value = STATE_DIR)]
    state_dir: PathBuf,
    /// The module's file [default: the running kernel's]
    #[arg(long, value_name = "FILE")]
    module_path: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Make a step fail, or die in a phase
    #[arg(long, hide = true, value_parser = str::parse::<Fault>)]
    fault: Option<Fault>,
    /// Print every fault and do nothing
    #[arg(long, hide = true)]
    list_faults: bool,
}

/// Bring every guest back after a switch that was killed or failed half-way
///
/// Safe to repeat. Does nothing, and says so, when there is nothing to recover.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  vtax paging recover
  vtax paging recover --state-dir /var/tmp/switch --json")]
pub struct RecoverArguments {
    /// Where the switch kept guests' states and the journal
    #[arg(long, value_name = "DIR", default_value = STATE_DIR)]
    state_dir: PathBuf,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Says phases and warnings on the standard error.
#[derive(Debug)]
struct Lines;

impl Observer for Lines {
    fn phase(&mut self, _name: &str) {}

    fn warning(&mut self, text: &str) {
        eprintln!("vtax: warning: {text}");
    }
}

/// What a switch would do, as JSON.
#[derive(Debug, Serialize)]
struct DryRun {
    from: PagingMode,
    to: PagingMode,
    module: String,
    guests: Vec<DryGuest>,
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct DryGuest {
    pid: i32,
    name: String,
    running: bool,
}

impl SwitchArguments {
    /// Switch, or with `--dry-run` only say what would be done.
    ///
    /// Fails when the switch is refused, and when a step fails: the message then says whether every
    /// guest runs on.
    pub fn carry_out(self) -> Result<(), Error> {
        let Some(to) = self.to.filter(|_| !self.list_faults) else {
            return output::line(&Fault::all().join("\n"));
        };
        let options = SwitchOptions {
            state_dir: self.state_dir,
            module_path: self.module_path,
            fault: self.fault,
            ..SwitchOptions::to(to)
        };
        if self.dry_run {
            return look(&options, self.json);
        }
        let report = super::switch(&options, &mut Lines).map_err(explain)?;
        print(&report, &text(&report), self.json)
    }
}

impl RecoverArguments {
    /// Bring an unfinished switch to an end.
    ///
    /// Fails when the state folder or the plan in it cannot be used, and when a guest cannot be
    /// brought back: the message then has the commands that do it by hand.
    pub fn carry_out(self) -> Result<(), Error> {
        let report = super::recover(&self.state_dir, PATIENCE, &mut Lines).map_err(explain)?;
        let mut lines = match report.mode {
            Some(mode) => format!("recovered: the host is in {mode} paging"),
            None => "nothing to recover".to_owned(),
        };
        for guest in &report.guests {
            let _ = write!(
                lines,
                "\n{} (pid {}): {}",
                guest.name, guest.pid, guest.found
            );
        }
        print(&report, &lines, self.json)
    }
}

fn targets() -> Vec<CompletionCandidate> {
    ["nested", "shadow", "other"]
        .map(CompletionCandidate::new)
        .into()
}

fn look(options: &SwitchOptions, json: bool) -> Result<(), Error> {
    let plan = super::plan(options).map_err(explain)?;
    let guests = plan.guests.iter().map(|guest| DryGuest {
        pid: guest.plan.pid,
        name: guest.plan.name.clone(),
        running: guest.plan.running,
    });
    let dry = DryRun {
        from: plan.from,
        to: plan.to,
        module: plan.module.name.clone(),
        guests: guests.collect(),
        warnings: plan.warnings(),
    };
    let mut lines = format!("{} -> {} by {}, nothing done", dry.from, dry.to, dry.module);
    for guest in &dry.guests {
        let state = if guest.running { "running" } else { "paused" };
        // Writing to a String cannot fail.
        let _ = write!(lines, "\n{} (pid {}): {state}", guest.name, guest.pid);
    }
    for warning in &dry.warnings {
        let _ = write!(lines, "\nwarning: {warning}");
    }
    print(&dry, &lines, json)
}

fn print(value: &impl Serialize, text: &str, json: bool) -> Result<(), Error> {
    if json {
        output::json(value)
    } else {
        output::line(text)
    }
}

fn text(report: &Report) -> String {
    if !report.switched {
        return format!("the host is in {} paging already, nothing done", report.to);
    }
    let mut lines = format!("{} -> {} by {}", report.from, report.to, report.module);
    for phase in &report.phases {
        let _ = write!(lines, "\n  {:<8} {:8.1} ms", phase.name, phase.ms);
    }
    for guest in &report.guests {
        let pause = match guest.pause_ms {
            Some(pause) => format!("paused {pause:.1} ms"),
            None => "stays paused".into(),
        };
        let (before, after) = (guest.pid_before, guest.pid_after);
        let _ = write!(lines, "\n{} (pid {before} -> {after}): {pause}", guest.name);
        if guest.retries > 0 {
            let _ = write!(
                lines,
                ", after {} saves that lacked something (paused {:.1} ms for them): \
                 {} an error code, {} an end of interrupt",
                guest.retries,
                guest.retries_ms,
                guest.lacked.error_code,
                guest.lacked.end_of_interrupt
            );
        }
    }
    if let (Some(reload), Some(multiple)) = (report.reload_ms, report.pause_over_reload) {
        let _ = write!(
            lines,
            "\npause {multiple:.1} x the module reload ({reload:.1} ms)"
        );
    }
    lines
}

fn explain(error: SwitchError) -> Error {
    match error {
        SwitchError::Refused {
            thing,
            reason,
            remedy,
        } => Error::failure(thing, reason, &remedy),
        SwitchError::Undone { step, reason, mode } => Error::failure(
            step,
            reason,
            &format!("the host is in {mode} paging as before and every guest runs on"),
        ),
        SwitchError::Stranded {
            step,
            reason,
            undo,
            by_hand,
        } => Error::failure(
            step,
            format!("{reason}; going back failed too: {undo}"),
            &format!("run `vtax paging recover`, or by hand: {by_hand}"),
        ),
    }
}
