//! The subcommands `switch` and `recover`: the command line of the library vtax-switch.

use std::fmt::Write as _;
use std::path::PathBuf;

use serde::Serialize;
use vtax_switch::{Fault, Observer, Options, Report, SwitchError, Target};

use vtax_cli::Error;
use vtax_sys::kvm::PagingMode;

#[derive(Debug, Clone)]
pub struct SwitchOptions {
    /// The library's options.
    pub options: Options,
    /// Only say what would be done.
    pub dry_run: bool,
}

/// What a subcommand prints: JSON, or lines for people.
#[derive(Debug)]
pub struct Output {
    pub json: serde_json::Value,
    pub text: String,
}

/// Says phases and warnings on the standard error.
#[derive(Debug)]
pub struct Lines;

impl Observer for Lines {
    fn phase(&mut self, _name: &str) {}

    fn warning(&mut self, text: &str) {
        eprintln!("vtax-agent: warning: {text}");
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

/// Switch, or with `dry_run` only say what would be done.
///
/// Fails when the switch is refused, and when a step fails: the message then says whether every
/// guest runs on.
pub fn switch(request: &SwitchOptions) -> Result<Output, Error> {
    if request.dry_run {
        return look(&request.options);
    }
    let report = vtax_switch::switch(&request.options, &mut Lines).map_err(explain)?;
    output(&report, text(&report))
}

fn look(options: &Options) -> Result<Output, Error> {
    let plan = vtax_switch::plan(options).map_err(explain)?;
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
    output(&dry, lines)
}

/// Bring an unfinished switch to an end.
///
/// Fails when the state folder or the plan in it cannot be used, and when a guest cannot be brought
/// back: the message then has the commands that do it by hand.
pub fn recover(state_dir: Option<PathBuf>) -> Result<Output, Error> {
    let folder = state_dir.unwrap_or_else(|| PathBuf::from(vtax_switch::STATE_DIR));
    let report =
        vtax_switch::recover(&folder, vtax_switch::PATIENCE, &mut Lines).map_err(explain)?;
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
    output(&report, lines)
}

/// Every fault that `--fault` takes, one per line.
pub fn faults() -> String {
    Fault::all().join("\n")
}

/// The library's options from the words of the command line.
pub fn options(
    to: Target,
    state_dir: Option<PathBuf>,
    module_path: Option<PathBuf>,
    fault: Option<Fault>,
) -> Options {
    let mut options = Options::to(to);
    if let Some(folder) = state_dir {
        options.state_dir = folder;
    }
    options.module_path = module_path;
    options.fault = fault;
    options
}

fn output(value: &impl Serialize, text: String) -> Result<Output, Error> {
    let json = serde_json::to_value(value)
        .map_err(|error| Error::failure("output", error, "report this as a bug"))?;
    Ok(Output { json, text })
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
