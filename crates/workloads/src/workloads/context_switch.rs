//! `context-switch`: a token goes round a ring of processes on one CPU.

use std::hint::black_box;
use std::io::{ErrorKind, PipeReader, PipeWriter, Read, Write, pipe};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Map;

use crate::bound::Bound;
use crate::cast;
use crate::meter::{Meter, Usage};
use crate::options::{Kind, OptionSpec, SEED};
use crate::pattern;
use crate::workload::{Description, Job, Outcome, Workload};
use crate::workloads::memory::{map, word_of};
use crate::workloads::process::{FORK_REMEDY, wait};
use vtax_sys::calls::children::fork_and_run;
use vtax_sys::calls::memory::Region;
use vtax_sys::terminal::Error;

/// Rounds between two looks at the clock.
const BATCH: u64 = 16;

/// Passes a token round.
#[derive(Debug)]
pub struct ContextSwitch;

static DESCRIPTION: Description = Description {
    name: "context-switch",
    summary: "Passes a token round between processes over pipes on one CPU; each reads one word \
              of each of its own pages before it passes the token on",
    stresses: "CR3 loads and the TLB refills after them: a shadow page table looked up or rebuilt \
               at each, intercepted under shadow paging, not under nested paging",
    unit: "rounds",
    default_bound: Bound::Count(20_000),
    options: &[
        OptionSpec {
            name: "processes",
            kind: Kind::Number(2, 256),
            default: Some("2"),
            help: "Processes in the round",
        },
        OptionSpec {
            name: "pages",
            kind: Kind::Number(1, 1 << 20),
            default: Some("16"),
            help: "Pages that each process reads at its turn",
        },
        SEED,
    ],
};

impl Workload for ContextSwitch {
    fn description(&self) -> &'static Description {
        &DESCRIPTION
    }

    fn run(&self, job: &mut Job<'_>) -> Result<Outcome, Error> {
        share_one_cpu();
        let processes = job.parameters.number("processes");
        let pages = job.parameters.number("pages");
        let seed = job.parameters.number("seed");
        let bytes = pages * cast::count(crate::PAGE_BYTES);
        job.context.require_memory(bytes * processes)?;
        let member = Member::new(map(job, bytes, false)?, seed);
        let ring = Ring::start(&member, processes)?;
        let (usage, token) = ring.run(&member, job)?;
        let rounds = job.limit.done();
        let mut details = Map::new();
        details.insert("switches".into(), (rounds * processes).into());
        Ok(Outcome {
            usage,
            operations: rounds,
            checksum: Some(token),
            verified: token == token_after(seed, pages, processes, rounds),
            details,
        })
    }
}

/// On two CPUs the processes would wake each other up instead of taking turns.
///
/// Where this fails, there is only one CPU, or the kernel has no affinity.
fn share_one_cpu() {
    let this = Pid::from_raw(0);
    let Ok(current) = sched_getaffinity(this) else {
        return;
    };
    let first = (0..CpuSet::count()).find(|cpu| current.is_set(*cpu).unwrap_or(false));
    let mut set = CpuSet::new();
    if first.is_some_and(|cpu| set.set(cpu).is_ok()) {
        let _ = sched_setaffinity(this, &set);
    }
}

/// A process of the ring, with its work for a turn.
struct Member {
    pages: Region,
    seed: u64,
}

impl Member {
    fn new(mut pages: Region, seed: u64) -> Self {
        write_pages(&mut pages, seed);
        Self { pages, seed }
    }

    /// A copy for after the fork: separate pages with the same content.
    fn own(&self) -> Option<Self> {
        let pages = self.pages.words().len() * 8 / crate::PAGE_BYTES;
        Some(Self::new(Region::map(pages).ok()?, self.seed))
    }

    fn turn(&self, token: u64) -> u64 {
        let words = black_box(self.pages.words());
        let pages = cast::count(words.len() * 8 / crate::PAGE_BYTES);
        (0..pages).fold(token, |token, page| {
            pattern::mix(token ^ words[word_of(page)])
        })
    }
}

fn write_pages(region: &mut Region, seed: u64) {
    let words = region.words_mut();
    for page in 0..cast::count(words.len() * 8 / crate::PAGE_BYTES) {
        words[word_of(page)] = pattern::word(seed, page);
    }
}

/// The token after this many rounds, computed without processes.
fn token_after(seed: u64, pages: u64, processes: u64, rounds: u64) -> u64 {
    (0..rounds * processes).fold(seed, |token, _| {
        (0..pages).fold(token, |token, page| {
            pattern::mix(token ^ pattern::word(seed, page))
        })
    })
}

/// A message in the pipes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Baton {
    Token(u64),
    /// Pass this on, and end.
    Stop,
}

impl Baton {
    fn send(self, to: &mut PipeWriter) -> std::io::Result<()> {
        let (kind, token) = match self {
            Self::Token(token) => (1, token),
            Self::Stop => (0, 0),
        };
        let mut bytes = [kind; 9];
        bytes[1..].copy_from_slice(&token.to_le_bytes());
        to.write_all(&bytes)
    }

    fn receive(from: &mut PipeReader) -> std::io::Result<Self> {
        let mut bytes = [0; 9];
        from.read_exact(&mut bytes)?;
        let [kind, token @ ..] = bytes;
        match kind {
            1 => Ok(Self::Token(u64::from_le_bytes(token))),
            0 => Ok(Self::Stop),
            _ => Err(ErrorKind::InvalidData.into()),
        }
    }
}

/// The life of a child: its turns until the token says stop.
///
/// The end of its input means that the previous process is gone; the next process then sees the end
/// of its own input, and so on to the first process.
fn serve(member: &Member, from: &mut PipeReader, to: &mut PipeWriter) -> u8 {
    let Some(member) = member.own() else {
        return 1;
    };
    loop {
        let Ok(baton) = Baton::receive(from) else {
            return 1;
        };
        let (next, last) = match baton {
            Baton::Token(token) => (Baton::Token(member.turn(token)), false),
            Baton::Stop => (Baton::Stop, true),
        };
        if next.send(to).is_err() {
            return 1;
        }
        if last {
            return 0;
        }
    }
}

/// The other processes, with the pipes to the first and from the last.
struct Ring {
    children: Vec<Pid>,
    output: PipeWriter,
    input: PipeReader,
}

impl Ring {
    fn start(member: &Member, processes: u64) -> Result<Self, Error> {
        let (input, output) = new_pipe()?;
        let mut ring = Self {
            children: Vec::new(),
            output,
            input,
        };
        for _ in 1..processes {
            let (input, mut output) = new_pipe()?;
            let mut from = std::mem::replace(&mut ring.input, input);
            let child = fork_and_run(|| serve(member, &mut from, &mut output))
                .map_err(|errno| Error::system("fork", errno, FORK_REMEDY))?;
            ring.children.push(child);
        }
        Ok(ring)
    }

    fn run(mut self, member: &Member, job: &mut Job<'_>) -> Result<(Usage, u64), Error> {
        let meter = Meter::start();
        let mut token = member.seed;
        while let Some(rounds) = job.limit.grant(BATCH) {
            for _ in 0..rounds {
                token = self.round(member.turn(token))?;
            }
        }
        self.pass(Baton::Stop)?;
        // The children's time counts once they have been waited for.
        for child in std::mem::take(&mut self.children) {
            wait(child)?;
        }
        Ok((meter.stop(), token))
    }

    fn round(&mut self, token: u64) -> Result<u64, Error> {
        match self.pass(Baton::Token(token))? {
            Baton::Token(token) => Ok(token),
            Baton::Stop => Err(lost(&ErrorKind::InvalidData.into())),
        }
    }

    fn pass(&mut self, baton: Baton) -> Result<Baton, Error> {
        baton.send(&mut self.output).map_err(|error| lost(&error))?;
        Baton::receive(&mut self.input).map_err(|error| lost(&error))
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        for child in std::mem::take(&mut self.children) {
            let _ = kill(child, Signal::SIGKILL);
            let _ = wait(child);
        }
    }
}

fn new_pipe() -> Result<(PipeReader, PipeWriter), Error> {
    pipe().map_err(|error| Error::input_output("pipe", &error, "see ulimit -n"))
}

fn lost(error: &std::io::Error) -> Error {
    Error::input_output("a process of the round", error, "see the kernel's messages")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(seed: u64) -> Member {
        Member::new(Region::map(3).unwrap(), seed)
    }

    #[test]
    fn the_token_took_every_turn() {
        let member = member(4);
        let mut ring = Ring::start(&member, 3).unwrap();
        let token = (0..5).fold(4, |token, _| ring.round(member.turn(token)).unwrap());
        assert_eq!(token, token_after(4, 3, 3, 5));
        assert_ne!(token, token_after(4, 3, 2, 5));
        assert_eq!(ring.pass(Baton::Stop).unwrap(), Baton::Stop);
    }

    #[test]
    fn a_wrong_page_shows_in_the_token() {
        let mut member = member(4);
        member.pages.words_mut()[word_of(2)] ^= 1;
        assert_ne!(member.turn(4), token_after(4, 3, 1, 1));
    }

    #[test]
    fn a_process_that_dies_is_an_error_and_no_hang() {
        let member = member(4);
        let mut ring = Ring::start(&member, 4).unwrap();
        kill(ring.children[1], Signal::SIGKILL).unwrap();
        assert!(ring.round(1).is_err());
    }
}
