//! Rows from the records that Xen makes meanwhile: `xentrace` reads Xen's buffers, and this reads
//! `xentrace`.

use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use vtax_sys::calls::processor;
use vtax_sys::signals::Signals;
use vtax_sys::terminal::Error;
use vtax_sys::tree::Tree;

use super::import::{self, Imported, Rows, Survey};
use super::timeline::COLUMNS;
use super::trace::{Records, TraceError};

/// How long a look for a signal lasts at most.
const LOOK: Duration = Duration::from_millis(200);
const REMEDY: &str = "record in dom0, as root, with the toolstack of the running Xen";

#[derive(Debug, Clone)]
pub struct LiveOptions {
    /// The program `xentrace`.
    pub xentrace: PathBuf,
    pub every: Duration,
}

/// Record all classes of Xen's records until a signal asks for the end.
///
/// `out/intervals.arrows` exists once the first record has come. Fails when `xentrace` cannot be
/// started or ends without a record, when the processor's rate is unknown, and when the files cannot be
/// written.
pub fn record(options: &LiveOptions, out: &Path) -> Result<Imported, Error> {
    let tsc_hz =
        rate(&Tree::host()).ok_or_else(|| failed(&"/proc/cpuinfo has no rate of the processor"))?;
    let ticks = import::ticks(tsc_hz, options.every)?;
    let begin = processor::time_stamp_counter();
    let mut tracer = start(&options.xentrace)?;
    // A program that starts later would inherit that they are blocked.
    let signals = Signals::take(&[]).map_err(|errno| failed(&errno.desc()))?;
    let output = tracer.stdout.take();
    let ending = end_at_signal(signals, &tracer)?;
    let read = output.map(|output| {
        let mut records = Records::new(BufReader::new(output));
        let known = [true; COLUMNS];
        let rows = follow(&mut records, out, Survey { begin, known }, tsc_hz, ticks)?;
        rows.finish(options.every, records.cut_off, None)
    });
    // Its output has ended, so it ends.
    let ended = tracer.wait();
    drop(ending);
    match (read, ended) {
        (Some(read), Ok(_)) => read,
        (_, Err(error)) => Err(failed(&error)),
        (None, Ok(_)) => Err(failed(&"xentrace has no output")),
    }
}

fn follow(
    records: &mut Records<impl std::io::Read>,
    out: &Path,
    survey: Survey,
    tsc_hz: u64,
    ticks: u64,
) -> Result<Rows, Error> {
    let mut next = || match records.next_record() {
        Err(TraceError::NotATrace) => Err(failed(&"xentrace ended without a record")),
        other => other.map_err(|error| failed(&error)),
    };
    let mut record = next()?;
    let mut rows = Rows::begin(out, survey, tsc_hz, ticks)?;
    while let Some(taken) = record {
        rows.take(&taken)?;
        record = next()?;
    }
    Ok(rows)
}

/// Records from before are thrown away (`-D`).
fn start(program: &Path) -> Result<Child, Error> {
    let mut line = Command::new(program);
    // Without a file it prints how it is used.
    line.args(["-D", "-e", "all", "/proc/self/fd/1"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    line.spawn()
        .map_err(|error| Error::failure(program.display().to_string(), error, REMEDY))
}

/// A thread that lets the tracer end when a signal comes; it ends with the tracer.
struct Ending(
    Option<std::thread::JoinHandle<()>>,
    std::sync::mpsc::Sender<()>,
);

fn end_at_signal(signals: Signals, tracer: &Child) -> Result<Ending, Error> {
    let pid = i32::try_from(tracer.id()).map_err(|error| failed(&error))?;
    let (sender, ended) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        use std::sync::mpsc::TryRecvError::Empty;
        while ended.try_recv() == Err(Empty) {
            if !matches!(signals.wait_until(Instant::now() + LOOK), Ok(None)) {
                // xentrace writes what is in Xen's buffers, and turns tracing off.
                let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
                return;
            }
        }
    });
    Ok(Ending(Some(thread), sender))
}

impl Drop for Ending {
    fn drop(&mut self) {
        // The thread has ended already after a signal.
        let _ = self.1.send(());
        if let Some(thread) = self.0.take() {
            let _ = thread.join();
        }
    }
}

/// Ticks per second of the time stamp counter, as Xen tells dom0's kernel, to the kHz.
fn rate(tree: &Tree) -> Option<u64> {
    let text = tree.text("/proc/cpuinfo")?;
    let line = text.lines().find(|line| line.starts_with("cpu MHz"))?;
    let mhz = line.split_once(':')?.1.trim();
    let (whole, part) = mhz.split_once('.')?;
    let khz: u64 = format!("{whole}{part:0<3.3}").parse().ok()?;
    (khz > 0).then_some(khz * 1000)
}

fn failed(reason: &dyn std::fmt::Display) -> Error {
    Error::failure("xentrace", reason, REMEDY)
}

#[cfg(test)]
mod tests {
    use super::super::trace::encoder::Encoder;
    use super::*;

    #[test]
    fn the_rate_is_read_to_the_kilohertz() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("proc")).unwrap();
        for (text, known) in [
            (
                "processor : 0\ncpu MHz\t\t: 2299.999\n",
                Some(2_299_999_000),
            ),
            ("cpu MHz\t\t: 2300.5\n", Some(2_300_500_000)),
            ("cpu MHz\t\t: unknown\n", None),
            ("processor : 0\n", None),
        ] {
            std::fs::write(folder.path().join("proc/cpuinfo"), text).unwrap();
            assert_eq!(rate(&Tree::at(folder.path())), known, "{text}");
        }
    }

    #[test]
    fn rows_begin_with_the_first_record() {
        let mut file = Encoder::default();
        file.cpu(0);
        for step in 0..10_u64 {
            file.record(0x20f_2001, Some(1000 * step), &[]);
        }
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        let survey = || Survey {
            begin: 0,
            known: [true; COLUMNS],
        };
        let mut empty = Records::new(&[][..]);
        let refused = follow(&mut empty, &out, survey(), 1_000_000, 2000).err();
        assert!(refused.unwrap().to_string().contains("without a record"));
        assert!(!out.exists());
        let mut records = Records::new(&file.0[..]);
        let rows = follow(&mut records, &out, survey(), 1_000_000, 2000).unwrap();
        assert!(out.join("intervals.arrows").exists());
        let imported = rows.finish(Duration::from_millis(2), false, None).unwrap();
        assert_eq!((imported.records, imported.rows), (10, 5));
    }
}
