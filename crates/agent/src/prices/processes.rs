//! Processes, threads, and switches between them.

use std::io::{self, Read, Write, pipe};
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, pause};
use vtax_sys::calls::children::{Program, fork_and_run};
use vtax_sys::pinning::stay_on;

use crate::prices::calls_unsafe::Spawn;
use crate::prices::faults::written;
use crate::prices::measure::{Bench, Price};
use crate::prices::{Operation, operation};
use crate::workload::this_program;

/// 16 MiB.
const LARGE_PAGES: u32 = 4096;

// The calls of fork, exec and thread are those that strace shows with glibc 2.36.
pub const TABLE: &[Operation] = &[
    operation("fork", "small process", 7.0, fork).of(0),
    operation("fork", "with 16 MiB touched", 7.0, |bench| {
        let _memory = written(LARGE_PAGES)?;
        fork(bench)
    })
    .of(16 << 20),
    // As exec, of what no kernel executes: what starting a program costs without the program.
    operation("vfork", "small process", 4.0, vfork),
    operation("exec", "this program, by vfork", 36.0, exec),
    operation("thread", "made and joined", 18.0, |bench| {
        bench.each(|| {
            thread::Builder::new()
                .spawn(|| ())?
                .join()
                .map_err(|_| lost())
        })
    }),
    // One way: a write and a read.
    operation("switch", "pipe, one CPU", 2.0, |bench| {
        pipes(bench, bench.cpu()?)
    }),
    operation("switch", "pipe, two CPUs", 2.0, |bench| {
        pipes(bench, bench.other_cpu()?)
    }),
    // One way: a wake and a wait.
    operation("switch", "futex, one CPU", 2.0, futexes),
];

fn fork(bench: &mut Bench) -> io::Result<Price> {
    bench.each(|| waitpid(fork_and_run(|| 0)?, None))
}

fn exec(bench: &mut Bench) -> io::Result<Price> {
    let mut spawn = Spawn::new(this_program(), c"0");
    bench.each(|| match waitpid(spawn.start()?, None)? {
        WaitStatus::Exited(_, 0) => Ok(()),
        _ => Err(io::Error::other("the program that was started failed")),
    })
}

fn vfork(bench: &mut Bench) -> io::Result<Price> {
    let folder = Program {
        path: c"/".to_owned(),
        arguments: Vec::new(),
    };
    let mut spawn = Spawn::new(folder, c"0");
    bench.each(|| waitpid(spawn.start()?, None))
}

/// A child that ends with this value.
pub struct Companion(Pid);

impl Companion {
    /// A child that does nothing until it is ended.
    pub fn waiting() -> io::Result<Self> {
        Ok(Self(fork_and_run(|| {
            loop {
                pause();
            }
        })?))
    }
}

impl Drop for Companion {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGKILL);
        let _ = waitpid(self.0, None);
    }
}

fn lost() -> io::Error {
    io::Error::other("the other side ended")
}

/// A byte goes to a child on `cpu` and comes back.
fn pipes(bench: &Bench, cpu: usize) -> io::Result<Price> {
    let ((mut its_input, mut output), (mut input, mut its_output)) = (pipe()?, pipe()?);
    let mut byte = [0];
    let child = fork_and_run(|| {
        let pinned = stay_on(cpu).is_ok();
        while pinned
            && its_input.read_exact(&mut byte).is_ok()
            && its_output.write_all(&byte).is_ok()
        {}
        1
    })?;
    let _child = Companion(child);
    // Without them here, the end of the child is the end of the input.
    drop((its_input, its_output));
    bench.groups(2, || {
        output.write_all(&byte)?;
        input.read_exact(&mut byte)
    })
}

const MINE: u8 = 0;
const OTHERS: u8 = 1;
const OVER: u8 = 2;

/// Two threads on one CPU take turns: each parks, which is a wait on a futex.
fn futexes(bench: &mut Bench) -> io::Result<Price> {
    bench.cpu()?;
    let (turn, this) = (AtomicU8::new(MINE), thread::current());
    let answer = || {
        loop {
            match turn.load(Ordering::Acquire) {
                MINE => thread::park(),
                OTHERS => {
                    turn.store(MINE, Ordering::Release);
                    this.unpark();
                }
                _ => return,
            }
        }
    };
    thread::scope(|scope| {
        let other = thread::Builder::new().spawn_scoped(scope, answer)?;
        let give = |to| {
            turn.store(to, Ordering::Release);
            other.thread().unpark();
        };
        let price = bench.groups(2, || {
            give(OTHERS);
            while turn.load(Ordering::Acquire) == OTHERS {
                thread::park();
            }
            Ok(())
        });
        give(OVER);
        price
    })
}
