//! A new QEMU, held under ptrace: first before it touches anything that it shares with the running
//! guest, then before it opens `/dev/kvm`; then it is let go.
//!
//! Only its main thread is traced: until `/dev/kvm` is open no other thread opens anything, and
//! the first hold also ends at a second thread.

#[cfg_attr(target_arch = "x86_64", path = "hold/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "hold/aarch64.rs")]
mod calls;

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::switch::error::Failure;
use crate::switch::sys::{self, Child, Waiting};

/// The longest path that matters.
const MAX_PATH_BYTES: usize = 4096;

/// Where a held process stands.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Stage {
    /// The process is made, with this number; its program does not run yet.
    Made(i32),
    /// Held before its first touch; the call that it was about to make.
    BeforeTouch(&'static str),
    /// Held before it opens `/dev/kvm`.
    BeforeKvm,
    /// Let go.
    Free,
}

#[derive(Debug, Clone, Copy)]
enum Order {
    Begin,
    ToKvm,
    LetGo,
}

/// A process under ptrace; killed when this is dropped before the process was let go.
#[derive(Debug)]
pub struct Held {
    pub pid: i32,
    process: Option<OwnedFd>,
    orders: Option<Sender<Order>>,
    stages: Receiver<Result<Stage, String>>,
    tracer: Option<JoinHandle<()>>,
}

impl Held {
    /// Make the process; its program does not run yet.
    ///
    /// Fails when the process cannot be forked or traced, or when that takes longer than
    /// `patience`.
    pub fn make(child: Child, patience: Duration) -> Result<Self, Failure> {
        let (orders, their_orders) = channel();
        let (their_stages, stages) = channel();
        // Every ptrace request must come from the thread that attached.
        let tracer = std::thread::spawn(move || trace(child, &their_orders, &their_stages));
        let mut held = Self {
            pid: 0,
            process: None,
            orders: Some(orders),
            stages,
            tracer: Some(tracer),
        };
        match held.stage(patience)? {
            Stage::Made(pid) => {
                held.pid = pid;
                held.process = Some(sys::pidfd_open(pid).map_err(Failure::call("pidfd_open"))?);
            }
            other => return Err(Failure::Other(format!("the new QEMU is {other:?}"))),
        }
        Ok(held)
    }

    /// Run the program until it would touch what it shares; says what it was about to call.
    ///
    /// Fails when the process ends, has been run before, or does not come that far in time.
    pub fn run_to_touch(&mut self, patience: Duration) -> Result<&'static str, Failure> {
        self.order(Order::Begin)?;
        match self.stage(patience)? {
            Stage::BeforeTouch(call) => Ok(call),
            other => Err(Failure::Other(format!("the new QEMU is {other:?}"))),
        }
    }

    /// Let it go on until it would open `/dev/kvm`; [`Held::at_kvm`] waits for that.
    ///
    /// Fails when an earlier step failed: the process is no longer traced.
    pub fn go_to_kvm(&mut self) -> Result<(), Failure> {
        self.order(Order::ToKvm)
    }

    /// Wait until it would open `/dev/kvm`.
    ///
    /// Fails when the process ends or does not come that far in time.
    pub fn at_kvm(&mut self, patience: Duration) -> Result<(), Failure> {
        self.stage(patience).map(drop)
    }

    /// Let it go for good.
    ///
    /// Fails when the process has ended, or when it cannot be detached in time.
    pub fn let_go(mut self, patience: Duration) -> Result<(), Failure> {
        self.order(Order::LetGo)?;
        self.stage(patience)?;
        self.orders = None;
        if let Some(tracer) = self.tracer.take() {
            // A panic in that thread has been printed already.
            let _ = tracer.join();
        }
        Ok(())
    }

    fn order(&self, order: Order) -> Result<(), Failure> {
        let sent = self.orders.as_ref().map(|orders| orders.send(order));
        match sent {
            Some(Ok(())) => Ok(()),
            _ => Err(Failure::Other("the new QEMU ended".into())),
        }
    }

    fn stage(&self, patience: Duration) -> Result<Stage, Failure> {
        match self.stages.recv_timeout(patience) {
            Ok(Ok(stage)) => Ok(stage),
            Ok(Err(reason)) => Err(Failure::Other(reason)),
            Err(RecvTimeoutError::Timeout) => Err(Failure::Late(
                "the new QEMU's start".into(),
                patience.as_secs(),
            )),
            Err(RecvTimeoutError::Disconnected) => {
                Err(Failure::Other("the new QEMU's tracer ended".into()))
            }
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Without orders the tracer ends, and the process that it traces ends with it.
        self.orders = None;
        if let Some(tracer) = self.tracer.take() {
            if let Some(process) = &self.process {
                // An error means that the process has ended, which is the goal.
                let _ = sys::pidfd_kill(process.as_fd(), libc::SIGKILL);
            }
            let _ = tracer.join();
        }
    }
}

fn trace(child: Child, orders: &Receiver<Order>, stages: &Sender<Result<Stage, String>>) {
    if let Err(reason) = traced(child, orders, stages) {
        // When the caller gave up, nobody listens.
        let _ = stages.send(Err(reason));
    }
}

fn traced(
    child: Child,
    orders: &Receiver<Order>,
    stages: &Sender<Result<Stage, String>>,
) -> Result<(), String> {
    let waiting = sys::make(&child).map_err(|errno| format!("fork: {}", errno.desc()))?;
    let pid = Pid::from_raw(waiting.pid);
    ptrace::seize(
        pid,
        Options::PTRACE_O_EXITKILL | Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_TRACEEXEC,
    )
    .map_err(|errno| format!("ptrace: {}", errno.desc()))?;
    let shared: BTreeSet<i32> = child
        .descriptors
        .iter()
        .map(|(_, number)| *number)
        .collect();
    // Copies here would keep the monitor's other end open after QEMU ended.
    drop(child);
    let mut tracee = Tracee {
        pid,
        gate: Some(waiting),
        shared,
        threads: 0,
        entered: false,
    };
    let _ = stages.send(Ok(Stage::Made(pid.as_raw())));
    while let Ok(order) = orders.recv() {
        let stage = match order {
            Order::Begin => tracee.run_to_touch().map(Stage::BeforeTouch),
            Order::ToKvm => tracee.run_to_kvm().map(|()| Stage::BeforeKvm),
            Order::LetGo => tracee.let_go().map(|()| Stage::Free),
        };
        let ended = stage.is_err() || stage == Ok(Stage::Free);
        let _ = stages.send(stage);
        if ended {
            break;
        }
    }
    tracee.reap();
    Ok(())
}

struct Tracee {
    pid: Pid,
    gate: Option<Waiting>,
    /// Numbers of the descriptors that the process has in common with the running guest's QEMU.
    shared: BTreeSet<i32>,
    threads: u32,
    /// The process is between the two stops of a system call.
    entered: bool,
}

/// One system call that is about to be made.
struct Call {
    number: libc::c_long,
    arguments: [u64; 3],
}

impl Tracee {
    fn run_to_touch(&mut self) -> Result<&'static str, String> {
        let gate = self.gate.take().ok_or("it was started twice")?;
        gate.go()
            .map_err(|errno| format!("its gate: {}", errno.desc()))?;
        // The child's own calls before exec are not QEMU's.
        loop {
            match self.wait()? {
                WaitStatus::PtraceEvent(_, _, event) if event == libc::PTRACE_EVENT_EXEC => {
                    // The next stop is at the end of this execve.
                    self.entered = true;
                    break;
                }
                WaitStatus::PtraceEvent(_, signal, _) | WaitStatus::Stopped(_, signal) => {
                    self.resume(Some(signal))?;
                }
                _ => self.resume(None)?,
            }
        }
        self.until(Tracee::touches)
    }

    fn run_to_kvm(&mut self) -> Result<(), String> {
        // The process stops before its first touch, which may be this one.
        let call = self.call()?;
        if self.opens_kvm(&call) {
            return Ok(());
        }
        self.until(|tracee, call| tracee.opens_kvm(call).then_some("open"))
            .map(drop)
    }

    fn let_go(&mut self) -> Result<(), String> {
        ptrace::detach(self.pid, None).map_err(|errno| format!("ptrace: {}", errno.desc()))
    }

    /// Run to the first system call that `wanted` accepts.
    fn until(
        &mut self,
        wanted: impl Fn(&mut Self, &Call) -> Option<&'static str>,
    ) -> Result<&'static str, String> {
        let mut signal = None;
        loop {
            ptrace::syscall(self.pid, signal.take())
                .map_err(|errno| format!("ptrace: {}", errno.desc()))?;
            match self.wait()? {
                WaitStatus::PtraceSyscall(_) => {
                    self.entered = !self.entered;
                    if self.entered {
                        let call = self.call()?;
                        if let Some(name) = wanted(self, &call) {
                            return Ok(name);
                        }
                    }
                }
                WaitStatus::Stopped(_, number) => signal = Some(number),
                _ => {}
            }
        }
    }

    fn wait(&self) -> Result<WaitStatus, String> {
        loop {
            match waitpid(self.pid, Some(WaitPidFlag::__WALL)) {
                Ok(WaitStatus::Exited(_, code)) => {
                    return Err(format!("the new QEMU ended with code {code}"));
                }
                Ok(WaitStatus::Signaled(_, signal, _)) => {
                    return Err(format!("the new QEMU was ended by {signal}"));
                }
                Ok(status) => return Ok(status),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(format!("waitpid: {}", errno.desc())),
            }
        }
    }

    fn resume(&self, signal: Option<Signal>) -> Result<(), String> {
        // SIGTRAP and SIGSTOP here are ptrace's own stops.
        let signal = signal.filter(|signal| ![Signal::SIGTRAP, Signal::SIGSTOP].contains(signal));
        ptrace::cont(self.pid, signal).map_err(|errno| format!("ptrace: {}", errno.desc()))
    }

    fn call(&self) -> Result<Call, String> {
        calls::about_to_be_made(self.pid).map_err(|errno| format!("ptrace: {}", errno.desc()))
    }

    fn opens_kvm(&self, call: &Call) -> bool {
        let [first, second, _] = call.arguments;
        let path = match call.number {
            libc::SYS_openat => second,
            number if Some(number) == calls::OPEN => first,
            _ => return false,
        };
        self.path(path).as_deref() == Some(b"/dev/kvm")
    }

    /// The name of a call that reaches something beyond this process.
    fn touches(&mut self, call: &Call) -> Option<&'static str> {
        let [first, second, third] = call.arguments;
        match call.number {
            number if Some(number) == calls::OPEN => self.opens_for_writing(first, second),
            libc::SYS_openat => self.opens_for_writing(second, third),
            libc::SYS_clone | libc::SYS_clone3 => {
                self.threads += 1;
                (self.threads > 1).then_some("clone")
            }
            // The terminal or tap devices; only TCGETS changes nothing.
            libc::SYS_ioctl => (second != libc::TCGETS && self.is_shared(first)).then_some("ioctl"),
            libc::SYS_read | libc::SYS_readv | libc::SYS_recvmsg | libc::SYS_recvfrom => {
                self.is_shared(first).then_some("read")
            }
            libc::SYS_write | libc::SYS_writev | libc::SYS_sendmsg | libc::SYS_sendto => {
                self.is_shared(first).then_some("write")
            }
            libc::SYS_fcntl => {
                let changes = i32::try_from(second).is_ok_and(|command| {
                    ![
                        libc::F_GETFD,
                        libc::F_GETFL,
                        libc::F_SETFD,
                        libc::F_DUPFD_CLOEXEC,
                    ]
                    .contains(&command)
                });
                (changes && self.is_shared(first)).then_some("fcntl")
            }
            _ => REACHING
                .iter()
                .chain(calls::REACHING)
                .find_map(|(number, name)| (*number == call.number).then_some(*name)),
        }
    }

    fn is_shared(&self, number: u64) -> bool {
        i32::try_from(number).is_ok_and(|number| self.shared.contains(&number))
    }

    fn opens_for_writing(&self, path: u64, flags: u64) -> Option<&'static str> {
        let writing =
            (libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC).unsigned_abs();
        // QEMU only looks whether it can open the last: held there it would do a large part of its
        // start in the pause.
        let harmless = [b"/dev/null".as_slice(), b"/dev/zero", b"/dev/sgx_vepc"];
        (flags & u64::from(writing) != 0
            && !self
                .path(path)
                .is_some_and(|path| harmless.contains(&path.as_slice())))
        .then_some("open")
    }

    /// Read a string from the process's memory.
    fn path(&self, address: u64) -> Option<Vec<u8>> {
        let memory = File::open(format!("/proc/{}/mem", self.pid)).ok()?;
        let mut path = Vec::new();
        // Read to the page's end at most: the next page may not be mapped.
        while path.len() < MAX_PATH_BYTES {
            let at = address.checked_add(path.len() as u64)?;
            let length = usize::try_from(4096 - at % 4096).ok()?;
            let mut bytes = vec![0; length.min(256)];
            let count = memory.read_at(&mut bytes, at).ok()?;
            let bytes = bytes.get(..count)?;
            match bytes.iter().position(|byte| *byte == 0) {
                Some(end) => {
                    path.extend(bytes.get(..end)?);
                    return Some(path);
                }
                None if count == 0 => return None,
                None => path.extend(bytes),
            }
        }
        None
    }

    /// Reap a process that was killed, so that its number is not reused before that.
    fn reap(&self) {
        let _ = waitpid(self.pid, Some(WaitPidFlag::__WALL | WaitPidFlag::WNOHANG));
    }
}

/// Calls that reach beyond the process with any arguments, on every architecture.
const REACHING: [(libc::c_long, &str); 10] = [
    (libc::SYS_bind, "bind"),
    (libc::SYS_listen, "listen"),
    (libc::SYS_connect, "connect"),
    (libc::SYS_accept4, "accept"),
    (libc::SYS_unlinkat, "unlink"),
    (libc::SYS_renameat2, "rename"),
    (libc::SYS_mkdirat, "mkdir"),
    (libc::SYS_mknodat, "mknod"),
    (libc::SYS_ftruncate, "ftruncate"),
    (libc::SYS_kill, "kill"),
];
