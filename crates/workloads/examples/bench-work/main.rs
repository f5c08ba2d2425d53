//! Does amounts of work on request and reports how long each took.
//!
//! One line of standard input is one amount; the answer is one line of JSON. The process stays
//! while recorders come and go, so that comparisons use the same code at the same addresses.

mod guest;
mod loops;
mod spin;
mod sys;

use std::io::{self, BufRead, Write};
use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, ValueEnum};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::alarm;
use serde::Serialize;

use guest::{Guest, Instruction};
use loops::{Chase, Pipe};
use spin::Stolen;

/// An amount of work that takes longer than this ends the process, so that it never hangs.
const LIMIT_S: u32 = 60;

/// Do amounts of work, one for each line of standard input
///
/// Each answer is a line of JSON: the amount done, and the wall and CPU time that it took.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// What the work is
    #[arg(value_enum)]
    kind: Kind,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    /// Arithmetic in registers; the amount is in rounds
    Cpu,
    /// A chain of dependent loads over 64 MiB; the amount is in loads
    Memory,
    /// One byte into a pipe and out again; the amount is in bytes
    Syscall,
    /// Reading the clock, to find when something else ran here; the amount is in milliseconds
    Spin,
    /// A guest that writes to a port, which its monitor handles; the amount is in writes
    GuestPort,
    /// A guest that asks for CPUID, which KVM handles; the amount is in requests
    GuestCpuid,
    /// A guest that only counts, which KVM handles where it emulates; the amount is in steps
    GuestCount,
}

/// Why no work could be done.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("{0}")]
    Guest(#[from] guest::Error),
    #[error("pipe: {0}")]
    Pipe(nix::Error),
    #[error("clock: {0}")]
    Clock(nix::Error),
    #[error("standard input or output: {0}")]
    Stream(#[from] io::Error),
    #[error("{0:?} is not an amount of work")]
    Amount(String),
}

#[derive(Debug, Serialize)]
struct Answer {
    done: u64,
    wall_ns: u64,
    cpu_ns: u64,
    #[serde(flatten)]
    stolen: Option<Stolen>,
}

enum Work {
    Cpu,
    Memory(Chase),
    Syscall(Pipe),
    Spin,
    Guest(Guest),
}

impl Work {
    fn prepare(kind: Kind) -> Result<Self, Error> {
        let guest = |instruction| Ok(Self::Guest(Guest::new(instruction)?));
        match kind {
            Kind::Cpu => Ok(Self::Cpu),
            Kind::Memory => Ok(Self::Memory(Chase::new())),
            Kind::Syscall => Pipe::new().map(Self::Syscall).map_err(Error::Pipe),
            Kind::Spin => Ok(Self::Spin),
            Kind::GuestPort => guest(Instruction::Port),
            Kind::GuestCpuid => guest(Instruction::Cpuid),
            Kind::GuestCount => guest(Instruction::Count),
        }
    }

    /// Do at least this much work; returns how much was done, and what a spinning loop saw.
    fn carry_out(&mut self, amount: u64) -> Result<(u64, Option<Stolen>), Error> {
        match self {
            Self::Cpu => loops::arithmetic(amount),
            Self::Memory(chase) => chase.follow(amount),
            Self::Syscall(pipe) => pipe.pass(amount).map_err(Error::Pipe)?,
            Self::Spin => return Ok((amount, Some(spin::watch(amount)))),
            Self::Guest(guest) => return Ok((guest.run(amount)?, None)),
        }
        Ok((amount, None))
    }
}

fn cpu_ns() -> Result<u64, Error> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_err(Error::Clock)?;
    let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
    Ok(seconds * 1_000_000_000 + u64::try_from(time.tv_nsec()).unwrap_or(0))
}

fn answer(work: &mut Work, amount: u64) -> Result<Answer, Error> {
    alarm::set(LIMIT_S);
    let (cpu, wall) = (cpu_ns()?, Instant::now());
    let (done, stolen) = work.carry_out(amount)?;
    let wall_ns = u64::try_from(wall.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let cpu_ns = cpu_ns()? - cpu;
    alarm::cancel();
    Ok(Answer {
        done,
        wall_ns,
        cpu_ns,
        stolen,
    })
}

fn serve(kind: Kind) -> Result<(), Error> {
    let mut work = Work::prepare(kind)?;
    let mut output = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let line = line?;
        let amount = line.trim().parse().map_err(|_| Error::Amount(line))?;
        let answer = answer(&mut work, amount)?;
        serde_json::to_writer(&mut output, &answer).map_err(io::Error::from)?;
        writeln!(output)?;
        output.flush()?;
    }
    Ok(())
}

fn main() -> ExitCode {
    match serve(Arguments::parse().kind) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-work: {error}");
            ExitCode::FAILURE
        }
    }
}
