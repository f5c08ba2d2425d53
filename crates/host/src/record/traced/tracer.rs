//! Follows a program and all that it starts: to each program that begins, and to each system call
//! where these are counted.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::resource::{UsageWho, getrusage};
use nix::unistd::Pid;
use vtax_sys::terminal::Error;
use vtax_sys::tree::{Tree, field};

use super::counts::Counts;
use super::ptrace_unsafe::{Call, On, call, resume, wait};
use crate::record::attached::system;
use crate::record::target::End;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e; // AUDIT_ARCH_X86_64, include/uapi/linux/audit.h
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7; // AUDIT_ARCH_AARCH64
/// A stop at a system call, with `PTRACE_O_TRACESYSGOOD`.
const AT_CALL: i32 = libc::SIGTRAP | 0x80;
/// include/uapi/linux/auxvec.h
const AT_NULL: u64 = 0;
const AT_IGNORE: u64 = 1;
const AT_SYSINFO_EHDR: u64 = 33;
const WORD: u64 = 8;
/// More than the kernel tells a program.
const MOST_AUXILIARY: u64 = 64;

/// A program that is traced; all that it started is killed when the tracer ends.
pub struct Tracer {
    /// `None`: only programs are stopped, before they begin.
    counts: Option<Counts>,
    /// Calls that return a number of bytes, by the threads that are in them.
    inside: HashMap<Pid, usize>,
    /// Page faults of the process before the program; `None`: it has not begun.
    faults_before: Option<i64>,
    /// A program kept its vDSO.
    pub kept_vdso: bool,
}

impl Tracer {
    /// Trace a process that is held before its exec.
    ///
    /// Fails with the errno of ptrace.
    pub fn seize(process: Pid, counts: Option<Counts>) -> Result<Self, Errno> {
        let options = Options::PTRACE_O_EXITKILL
            | Options::PTRACE_O_TRACESYSGOOD
            | Options::PTRACE_O_TRACEEXEC
            | Options::PTRACE_O_TRACECLONE
            | Options::PTRACE_O_TRACEFORK
            | Options::PTRACE_O_TRACEVFORK;
        ptrace::seize(process, options)?;
        if counts.is_some() {
            ptrace::interrupt(process)?;
        }
        Ok(Self {
            counts,
            inside: HashMap::new(),
            faults_before: None,
            kept_vdso: false,
        })
    }

    /// Take the vDSO away from all programs, and count, until the process has ended.
    ///
    /// Fails when a program that is counted runs without the rights of its owner because of that.
    pub fn run(&mut self, process: Pid) -> Result<End, Error> {
        loop {
            let (thread, status) = match wait() {
                Err(Errno::EINTR) => continue,
                other => other.map_err(|errno| system("waitpid", errno))?,
            };
            let end = if libc::WIFSTOPPED(status) {
                let on = self.stopped(thread, libc::WSTOPSIG(status), status >> 16)?;
                // A thread that was killed meanwhile says so itself.
                let _ = resume(thread, on);
                continue;
            } else if libc::WIFSIGNALED(status) {
                End::Signal(libc::WTERMSIG(status))
            } else {
                End::ExitCode(libc::WEXITSTATUS(status))
            };
            if thread == process {
                return Ok(end);
            }
            self.inside.remove(&thread);
        }
    }

    /// What was counted of a process that has ended.
    pub fn counted(self) -> Option<Counts> {
        let mut counts = self.counts?;
        let usage = getrusage(UsageWho::RUSAGE_CHILDREN);
        let faults = usage.map_or(0, |usage| usage.minor_page_faults());
        let own = faults - self.faults_before.unwrap_or(faults);
        counts.faulted(u64::try_from(own).unwrap_or(0));
        Some(counts)
    }

    fn stopped(&mut self, thread: Pid, signal: i32, event: i32) -> Result<On, Error> {
        match event {
            0 if signal == AT_CALL => self.at_call(thread),
            0 => return Ok(self.on(signal)),
            libc::PTRACE_EVENT_EXEC => self.executed(thread)?,
            libc::PTRACE_EVENT_STOP if signal != libc::SIGTRAP => return Ok(On::Stopped),
            _ => {}
        }
        Ok(self.on(0))
    }

    fn on(&self, signal: i32) -> On {
        match self.counts {
            Some(_) => On::ToCall(signal),
            None => On::ToStart(signal),
        }
    }

    fn at_call(&mut self, thread: Pid) {
        let Some(counts) = &mut self.counts else {
            return;
        };
        match call(thread) {
            Some((Call::Entry(number, arguments), architecture)) => {
                let number = usize::try_from(number).ok();
                let number = number.filter(|_| architecture == ARCHITECTURE);
                let word = |address| read(thread, address).unwrap_or(0);
                counts.entered(number, arguments, word);
                if let Some(number) = number.filter(|number| counts.has_bytes(*number)) {
                    self.inside.insert(thread, number);
                }
            }
            Some((Call::Exit(result), _)) => {
                if let Some(number) = self.inside.remove(&thread) {
                    counts.returned(number, u64::try_from(result).unwrap_or(0));
                }
            }
            None => {}
        }
    }

    /// A program begins.
    fn executed(&mut self, process: Pid) -> Result<(), Error> {
        if let Some(counts) = &mut self.counts {
            if let Some(program) = without_rights(process) {
                return Err(Error::failure(
                    program,
                    "it is setuid or setgid, and has not its owner's rights while ptrace counts",
                    "count as root, with eBPF",
                ));
            }
            if self.faults_before.is_none() {
                self.faults_before = Some(minor_faults(process));
                counts.begin();
            }
            counts.executed();
        }
        self.kept_vdso |= take_vdso(process).is_none();
        Ok(())
    }
}

fn read(process: Pid, address: u64) -> Option<u64> {
    let place = usize::try_from(address).ok()?;
    ptrace::read(process, std::ptr::without_provenance_mut(place))
        .ok()
        .map(i64::cast_unsigned)
}

/// Take the vDSO away from a program that is about to begin: a C library finds it by its auxiliary
/// vector, behind argc, argv, 0, envp and 0 on the stack (`create_elf_tables` of `fs/binfmt_elf.c`).
///
/// `None` where the program's memory cannot be read or written, and for a 32-bit program.
fn take_vdso(process: Pid) -> Option<()> {
    let stack = ptrace::syscall_info(process).ok()?.stack_pointer;
    let arguments = u32::try_from(read(process, stack)?).ok()?;
    let mut at = stack + WORD * (2 + u64::from(arguments));
    while read(process, at)? != 0 {
        at += WORD;
    }
    let vector = at + WORD;
    for entry in (0..MOST_AUXILIARY).map(|index| vector + 2 * WORD * index) {
        match read(process, entry)? {
            AT_NULL => break,
            AT_SYSINFO_EHDR => {
                let place = usize::try_from(entry).ok()?;
                let place = std::ptr::without_provenance_mut(place);
                return ptrace::write(process, place, AT_IGNORE.cast_signed()).ok();
            }
            _ => {}
        }
    }
    Some(())
}

/// The program of a process, if it would have its owner's rights were it not traced.
fn without_rights(process: Pid) -> Option<String> {
    let tree = Tree::host();
    let file = fs::metadata(format!("/proc/{process}/exe")).ok()?;
    let status = tree.text(&format!("/proc/{process}/status"))?;
    let effective = |name| {
        field(&status, name)?
            .split_whitespace()
            .nth(1)?
            .parse()
            .ok()
    };
    let setuid = file.mode() & libc::S_ISUID != 0 && effective("Uid") != Some(file.uid());
    // Without the permission of the group to run it, the bit means something else.
    let both = libc::S_ISGID | libc::S_IXGRP;
    let setgid = file.mode() & both == both && effective("Gid") != Some(file.gid());
    (setuid || setgid).then(|| {
        tree.link(&format!("/proc/{process}/exe"))
            .unwrap_or_default()
    })
}

/// `proc_pid_stat(5)`: the tenth field, behind a name that may have spaces.
fn minor_faults(process: Pid) -> i64 {
    let stat = Tree::host().text(&format!("/proc/{process}/stat"));
    let found = stat.and_then(|stat| {
        let (_, fields) = stat.rsplit_once(')')?;
        fields.split_whitespace().nth(7)?.parse().ok()
    });
    found.unwrap_or(0)
}
