//! Rows from the records that Xen makes meanwhile: `xentrace` reads Xen's buffers, and this reads
//! `xentrace`.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::Flock;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use vtax_sys::signals::Signals;
use vtax_sys::state;
use vtax_sys::terminal::Error;
use vtax_sys::tree::Tree;

use super::columns::COLUMNS;
use super::import::{self, GuestClock, Imported, Rows, Survey};
use super::spool::spool;
use super::trace::{Records, TraceError};
use crate::record::clock::Pair;
use crate::record::files;
use crate::record::skew::Skew;

/// How long it waits between two looks.
const LOOK: Duration = Duration::from_millis(200);
const REMEDY: &str = "record in dom0, as root, with the toolstack of the running Xen";
/// Held while Xen's buffers are read, and until Xen traces no more.
const HELD: &str = "/run/vtax/xentrace";
/// Longer than a [`Guard`] needs.
const FREE_WITHIN: Duration = Duration::from_secs(15);
const PAGE: u64 = 4096;

#[derive(Debug, Clone)]
pub struct LiveOptions {
    /// The program `xentrace`.
    pub xentrace: PathBuf,
    pub every: Duration,
    /// Bytes of Xen's buffer for each CPU.
    pub buffer: u64,
    /// A file for the trace itself.
    pub raw: Option<PathBuf>,
    /// A guest's clock minus this machine's, to keep with the rows.
    pub guest_clock: Option<Skew>,
}

/// Record all classes of Xen's records until a signal asks for the end.
///
/// `out/intervals.arrows` exists once the first record has come. When this returns, Xen traces no
/// more. Fails when `xentrace` cannot be started or ends without a record, when somebody else reads
/// Xen's buffers, when the processor's rate is unknown, and when the files cannot be written.
pub fn record(options: &LiveOptions, out: &Path) -> Result<Imported, Error> {
    let tsc_hz =
        rate(&Tree::host()).ok_or_else(|| failed(&"/proc/cpuinfo has no rate of the processor"))?;
    let ticks = import::ticks(tsc_hz, options.every)?;
    let raw = options.raw.as_deref().map(|path| {
        let file = File::create(path);
        file.map_err(|error| files::failed(path, error))
    });
    let raw = raw.transpose()?;
    let held = hold()?;
    let guard = Guard::start(&options.xentrace, &held)?;
    let begin = Pair::now();
    let (mut tracer, output) = match start(options) {
        Ok(started) => started,
        Err(error) => {
            guard.end(true);
            return Err(error);
        }
    };
    // A program that starts later would inherit that they are blocked.
    let signals = Signals::take(&[]).map_err(|errno| failed(&errno.desc()))?;
    let (reader, spooler) = spool(output, signals, raw);
    let pid = Pid::from_raw(tracer.id().cast_signed());
    // xentrace turns tracing off, and writes what is in Xen's buffers.
    let spooler = std::thread::spawn(move || {
        spooler.run(|| {
            let _ = kill(pid, Signal::SIGTERM);
        })
    });
    let mut records = Records::new(reader);
    let survey = Survey {
        begin: begin.tsc,
        begin_ns: begin.monotonic_ns,
        known: [true; COLUMNS],
    };
    let rows = follow(&mut records, out, survey, tsc_hz, ticks);
    let cut_off = records.cut_off;
    // Without rows nobody reads any more.
    drop(records);
    let read = spooler.join();
    let ended = tracer.wait();
    let well = ended.as_ref().is_ok_and(std::process::ExitStatus::success);
    guard.end(well);
    let clocks = [begin, Pair::now()];
    let rows = rows?;
    if let Ok(Err(error)) = read {
        let path = options.raw.as_deref().unwrap_or(&options.xentrace);
        return Err(files::failed(path, error));
    }
    rows.finish(options.every, cut_off, |found| Imported {
        clocks: Some(clocks),
        guest_clock: options.guest_clock.map(|exchange| GuestClock {
            skew_ns: exchange.within_ns,
            exchange,
        }),
        warnings: ended_badly(well, &ended),
        ..found
    })
}

fn ended_badly(well: bool, ended: &io::Result<std::process::ExitStatus>) -> Vec<String> {
    let how = match ended {
        _ if well => return Vec::new(),
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    };
    vec![format!(
        "xentrace ended by itself ({how}): its last records are missing"
    )]
}

/// Waits for a recording that was killed.
fn hold() -> Result<Flock<File>, Error> {
    let deadline = Instant::now() + FREE_WITHIN;
    loop {
        match state::try_hold_folder(Path::new(HELD)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if Instant::now() > deadline {
                    let remedy = "wait for its end";
                    return Err(Error::failure("xentrace", "another recording runs", remedy));
                }
                std::thread::sleep(LOOK);
            }
            held => return held.map_err(|error| Error::failure(HELD, error, REMEDY)),
        }
    }
}

/// A process that turns Xen's tracing off when this one ends without having said that it is off.
///
/// `xentrace` turns it off only when a signal ended it; not when it is killed, or cannot write
/// because its reader was killed. A second one turns it off after a second.
struct Guard {
    shell: Child,
    input: Option<ChildStdin>,
}

/// `$0` is xentrace. It fails while the first one still runs.
const GUARDING: &str = r#"trap '' INT TERM HUP
read off && exit
i=0
until "$0" -D -e all -T 1 /dev/null || [ $i -ge 50 ]; do i=$((i+1)); sleep 0.2; done"#;

impl Guard {
    /// It holds what `held` holds.
    fn start(xentrace: &Path, held: &File) -> Result<Self, Error> {
        let failed = |error| Error::failure("sh", error, REMEDY);
        let mut shell = Command::new("sh")
            .args(["-c", GUARDING])
            .arg(xentrace)
            .stdin(Stdio::piped())
            .stdout(held.try_clone().map_err(failed)?)
            .stderr(Stdio::null())
            // Ctrl-C is not for it.
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let input = shell.stdin.take();
        Ok(Self { shell, input })
    }

    /// Returns when tracing is off; `off`: it is.
    fn end(mut self, off: bool) {
        if let Some(mut input) = self.input.take().filter(|_| off) {
            let _ = input.write_all(b"off\n");
        }
        let _ = self.shell.wait();
    }
}

fn follow(
    records: &mut Records<impl Read>,
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
    let begin = survey.begin;
    let mut rows = Rows::begin(out, survey, tsc_hz, ticks)?;
    while let Some(taken) = record {
        // Xen tells of a loss with the next record, which may be long after an earlier recording.
        if taken.lost().is_none_or(|lost| lost.first_tsc >= begin) {
            rows.take(&taken)?;
        }
        record = next()?;
    }
    Ok(rows)
}

/// Records from before are thrown away (`-D`).
fn start(options: &LiveOptions) -> Result<(Child, ChildStdout), Error> {
    let mut line = Command::new(&options.xentrace);
    let pages = options.buffer.div_ceil(PAGE);
    // Without a file it prints how it is used.
    line.args(["-D", "-e", "all", "-S", &pages.to_string()])
        .arg("/proc/self/fd/1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let program = || options.xentrace.display().to_string();
    let started = line.spawn();
    let mut tracer = started.map_err(|error| Error::failure(program(), error, REMEDY))?;
    let output = tracer.stdout.take();
    output
        .map(|output| (tracer, output))
        .ok_or_else(|| failed(&"xentrace has no output"))
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
    fn a_loss_before_the_recording_is_none_of_it() {
        let mut file = Encoder::default();
        file.cpu(0);
        for (now, first) in [(5000, 3000), (7000, 6000)] {
            file.record(0x1f001, Some(now), &[7, 0x7fff, first, 0]);
        }
        let folder = tempfile::tempdir().unwrap();
        let survey = Survey {
            begin: 4000,
            begin_ns: 0,
            known: [true; COLUMNS],
        };
        let mut records = Records::new(&file.0[..]);
        let rows = follow(&mut records, folder.path(), survey, 1_000_000, 2000).unwrap();
        let imported = rows.finish(Duration::from_millis(2), false, |found| found);
        assert_eq!(imported.unwrap().lost_records, 7);
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
            begin_ns: 0,
            known: [true; COLUMNS],
        };
        let mut empty = Records::new(&[][..]);
        let refused = follow(&mut empty, &out, survey(), 1_000_000, 2000).err();
        assert!(refused.unwrap().to_string().contains("without a record"));
        assert!(!out.exists());
        let mut records = Records::new(&file.0[..]);
        let rows = follow(&mut records, &out, survey(), 1_000_000, 2000).unwrap();
        assert!(out.join("intervals.arrows").exists());
        let imported = rows.finish(Duration::from_millis(2), false, |found| found);
        let imported = imported.unwrap();
        assert_eq!((imported.records, imported.rows), (10, 5));
    }
}
