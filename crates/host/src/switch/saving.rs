//! Saving a guest's state with its memory left in place, over QMP.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Value, json};

use crate::switch::error::Failure;
use crate::switch::qmp::{Event, Qmp, QmpError};
use crate::switch::state::{self, Incomplete};

/// The descriptor's name in QEMU.
const NAME: &str = "vtax-switch-state";
/// How often an incomplete state is saved again. About one in seven was incomplete in a guest that
/// does nothing but fault under shadow paging (docs/host.md), so that this many in a row do not
/// occur.
const RETRIES: u32 = 20;
/// How long the guest runs between two of these saves; injecting an exception, and telling QEMU of an
/// end of interrupt, takes microseconds.
const RUN_ON: Duration = Duration::from_millis(5);
/// An end of interrupt that is missing in this many saves in a row never comes: the guest was in
/// that state before, and the switch keeps it.
const SETTLED: u32 = 5;

#[derive(Debug, Clone, Copy)]
pub struct Saved {
    pub bytes: u64,
    /// When QEMU stopped the guest, in microseconds of the real-time clock; `None`: the guest was
    /// already paused.
    pub stopped: Option<i64>,
    /// What earlier, incomplete states lacked.
    pub lacked: Lacked,
    /// How long the guest was paused for the incomplete states, in microseconds.
    pub retries_micros: i64,
}

/// How many of a guest's states lacked something and were not used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Lacked {
    /// The error code of a waiting exception.
    pub error_code: u32,
    /// The end of an interrupt, for QEMU's I/O APIC.
    pub end_of_interrupt: u32,
}

impl Lacked {
    /// How many states were incomplete.
    pub fn states(self) -> u32 {
        self.error_code + self.end_of_interrupt
    }

    fn with(self, found: Incomplete) -> Self {
        match found {
            Incomplete::ErrorCode { .. } => Self {
                error_code: self.error_code + 1,
                ..self
            },
            Incomplete::EndOfInterrupt { .. } => Self {
                end_of_interrupt: self.end_of_interrupt + 1,
                ..self
            },
        }
    }
}

/// The migration capabilities that leave shared memory in place and report the end.
pub fn capabilities(on: bool) -> Value {
    let names = ["x-ignore-shared", "events"];
    let list: Vec<Value> = names
        .into_iter()
        .map(|name| json!({"capability": name, "state": on}))
        .collect();
    json!({"capabilities": list})
}

/// Prepare a QEMU to save into `path`, an empty file that is made here; its guest runs on.
///
/// Fails when the file cannot be made, or when QEMU ends, refuses a command or does not answer in
/// time.
pub fn ready(qmp: &mut Qmp, path: &Path, patience: Duration) -> Result<File, Failure> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .map_err(Failure::file(path))?;
    let commands = [
        qmp.send("migrate-set-capabilities", capabilities(true)),
        // No bandwidth limit: the file is in memory.
        qmp.send("migrate-set-parameters", json!({"max-bandwidth": 0})),
        qmp.send_with("getfd", json!({"fdname": NAME}), Some(file.as_fd())),
    ];
    for command in commands {
        command
            .and_then(|id| qmp.wait(id, patience))
            .map_err(control)?;
    }
    qmp.forget_events();
    Ok(file)
}

/// Begin to save. QEMU itself stops the guest when little is left to save.
///
/// Fails when QEMU's socket does not take the command.
pub fn begin(qmp: &mut Qmp) -> Result<(), Failure> {
    let sent = qmp.send("migrate", json!({"uri": format!("fd:{NAME}")}));
    sent.map(drop).map_err(control)
}

/// Wait until the state is complete and synced.
///
/// Fails when QEMU cannot save the state, ends, or is not done in time, and when the file is empty
/// or cannot be synced.
pub fn complete(qmp: &mut Qmp, file: &File, patience: Duration) -> Result<Saved, Failure> {
    let mut stopped = None;
    let end = qmp.event("the end of saving", patience, |event| {
        if event.name == "STOP" {
            stopped = event.micros;
        }
        has_ended(event)
    });
    let end = end.map_err(control)?;
    if !is_completed(&end) {
        let why = qmp.call("query-migrate", json!({}), patience).ok();
        let why = why.as_ref().and_then(|why| why.get("error-desc")?.as_str());
        let why = why.unwrap_or("no reason given");
        return Err(Failure::Other(format!("QEMU could not save it: {why}")));
    }
    file.sync_all()
        .map_err(|error| Failure::Other(format!("the state file: {error}")))?;
    let about = file
        .metadata()
        .map_err(|error| Failure::Other(format!("the state file: {error}")))?;
    if about.len() == 0 {
        return Err(Failure::Other("QEMU saved nothing".into()));
    }
    Ok(Saved {
        bytes: about.len(),
        stopped,
        lacked: Lacked::default(),
        retries_micros: 0,
    })
}

/// Save the guest again until the state in `path` is complete for its stopped vCPUs.
///
/// Fails when QEMU ends, refuses a command or is not done in time, when the state cannot be read,
/// and when no state is complete. A guest that its owner had paused must not run: the first
/// incomplete state is then the failure.
pub fn until_whole(
    qmp: &mut Qmp,
    path: &Path,
    first: Saved,
    running: bool,
    patience: Duration,
) -> Result<Saved, Failure> {
    let mut saved = first;
    let mut before = None;
    let mut repeated = 0;
    while let Some(found) = lacks(path)? {
        repeated = if before == Some(found) {
            repeated + 1
        } else {
            0
        };
        before = Some(found);
        if repeated == SETTLED && matches!(found, Incomplete::EndOfInterrupt { .. }) {
            break;
        }
        if !running || saved.lacked.states() == RETRIES {
            return Err(refusal(found, running));
        }
        let resumed = run_on(qmp, patience)?;
        thread::sleep(RUN_ON);
        let file = ready(qmp, path, patience)?;
        begin(qmp)?;
        let pause = saved.stopped.zip(resumed).map_or(0, |(from, to)| to - from);
        saved = Saved {
            lacked: saved.lacked.with(found),
            retries_micros: saved.retries_micros + pause,
            ..complete(qmp, &file, patience)?
        };
    }
    Ok(saved)
}

fn lacks(path: &Path) -> Result<Option<Incomplete>, Failure> {
    let stream = fs::read(path).map_err(Failure::file(path))?;
    state::incomplete(&stream).map_err(|error| Failure::Other(error.to_string()))
}

fn refusal(found: Incomplete, running: bool) -> Failure {
    let remedy = if running {
        format!("so it was in {} states in a row: try again", RETRIES + 1)
    } else {
        "its owner paused it there: let it run before it is switched".to_owned()
    };
    Failure::Other(match found {
        Incomplete::ErrorCode { vcpu, exception } => format!(
            "vCPU {vcpu} waits for exception {exception}, whose error code this QEMU cannot save; {remedy}"
        ),
        Incomplete::EndOfInterrupt { pin, vector } => format!(
            "a vCPU has ended interrupt {vector} of I/O APIC pin {pin}, which KVM has not yet told QEMU; {remedy}"
        ),
    })
}

/// Let a guest run in the QEMU that has saved it; returns when it ran on.
fn run_on(qmp: &mut Qmp, patience: Duration) -> Result<Option<i64>, Failure> {
    resume(qmp, patience)?;
    let resumed = qmp.event("the guest's resumption", patience, |event| {
        event.name == "RESUME"
    });
    Ok(resumed.map_err(control)?.micros)
}

/// Stop a guest and save it in one step.
///
/// Fails when the file cannot be written, when QEMU ends, refuses a command or is not done in time,
/// and as [`until_whole`] does when no state is complete.
pub fn stop_and_save(qmp: &mut Qmp, path: &Path, patience: Duration) -> Result<Saved, Failure> {
    qmp.call("stop", json!({}), patience).map_err(control)?;
    let file = ready(qmp, path, patience)?;
    begin(qmp)?;
    let saved = complete(qmp, &file, patience)?;
    until_whole(qmp, path, saved, true, patience)
}

/// Give a guest back to the QEMU that was asked to save it.
///
/// Fails when QEMU ends, refuses a command or does not answer in time, and when the saving does not
/// stop in time.
pub fn give_back(qmp: &mut Qmp, running: bool, patience: Duration) -> Result<(), Failure> {
    qmp.call("migrate_cancel", json!({}), patience)
        .map_err(control)?;
    until_ended(qmp, patience)?;
    qmp.call("migrate-set-capabilities", capabilities(false), patience)
        .map_err(control)?;
    if running {
        resume(qmp, patience)?;
    }
    Ok(())
}

/// Let the guest run. QEMU refuses this between the event of a completed migration and the moment
/// its main loop has finished the migration, and no event marks that moment.
fn resume(qmp: &mut Qmp, patience: Duration) -> Result<(), Failure> {
    let begin = Instant::now();
    loop {
        let state = qmp
            .call("query-status", json!({}), patience)
            .map_err(control)?;
        if state.get("status").and_then(Value::as_str) != Some("finish-migrate") {
            break;
        }
        if begin.elapsed() > patience {
            return Err(Failure::Late(
                "the end of the migration".into(),
                patience.as_secs(),
            ));
        }
        thread::sleep(Duration::from_millis(1));
    }
    qmp.call("cont", json!({}), patience)
        .map(drop)
        .map_err(control)
}

/// A cancelled migration ends a little later.
fn until_ended(qmp: &mut Qmp, patience: Duration) -> Result<(), Failure> {
    let begin = Instant::now();
    loop {
        let state = qmp
            .call("query-migrate", json!({}), patience)
            .map_err(control)?;
        match state.get("status").and_then(Value::as_str) {
            None | Some("none" | "completed" | "failed" | "cancelled") => return Ok(()),
            _ if begin.elapsed() > patience => {
                return Err(Failure::Late(
                    "the end of saving".into(),
                    patience.as_secs(),
                ));
            }
            // Polled, not awaited: a client that reconnects misses earlier events.
            _ => thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Has a migration, outgoing or incoming, ended?
pub fn has_ended(event: &Event) -> bool {
    let ends = ["completed", "failed", "cancelled"];
    status(event).is_some_and(|status| ends.contains(&status))
}

/// Did it succeed?
pub fn is_completed(event: &Event) -> bool {
    status(event) == Some("completed")
}

fn status(event: &Event) -> Option<&str> {
    if event.name == "MIGRATION" {
        event.data.get("status")?.as_str()
    } else {
        None
    }
}

/// A failure of the control socket.
pub fn control(error: QmpError) -> Failure {
    Failure::Qmp("QEMU".into(), error)
}
