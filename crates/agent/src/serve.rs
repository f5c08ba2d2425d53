//! Answering requests on a channel (PROTOCOL.md).

use std::os::fd::OwnedFd;
use std::time::Duration;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use serde::Serialize;
use serde_json::{Map, Value, json};
use vtax_sys::clock::monotonic_ns;
use vtax_sys::clock::time_stamp_counter;

use crate::VERSION;
use crate::channel::{Channel, ChannelSpec};
use crate::clock::ClockRequest;
use crate::counters;
use crate::facts::{self, Facts};
use crate::frame::{self, Line};
use crate::launch::{Launch, make_folder, output_file};
use crate::parts::{Joined, Joiner};
use crate::request::{self, Operation, PROTOCOL, RequestError, RunRequest};
use crate::root::mounts::Deferred;
use crate::run_answer::RunAnswer;
use crate::supervise::{RunError, Supervisor, Terms};
use crate::surroundings::{self, Home};
use crate::swap::{self, SwapOptions};
use crate::transfer;
use vtax_sys::confine::{Confinement, Limits, Refused};
use vtax_sys::cpu_list;
use vtax_sys::reason;
use vtax_sys::terminal::Error;
use vtax_sys::tree::Tree;

#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Where requests come from.
    pub channel: ChannelSpec,
    /// CPUs to run commands on; `None`: as the agent was started.
    pub cpus: Option<Vec<usize>>,
    /// Limits for commands.
    pub limits: Limits,
    /// Swap for commands.
    pub swap: Option<SwapOptions>,
    /// End when nothing came for this long; `None`: only when the channel closes.
    pub lease: Option<Duration>,
}

/// Why the session ended without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// `halt` was asked for and answered.
    Halted,
    /// The channel closed.
    Closed,
}

/// Serve until `halt`, the end of the channel, or a signal. No process that it started is left.
///
/// Fails when the CPUs cannot be used, when the channel cannot be opened, when a process does not
/// end, and with `Interrupted` when a signal ends the agent.
pub fn serve(options: &ServeOptions) -> Result<Ending, Error> {
    // Before anything else: the agent must be able to do what its options ask for.
    if let Some(cpus) = &options.cpus {
        pin(cpus)?;
    }
    let opened = Channel::open(&options.channel).and_then(|channel| match options.lease {
        Some(lease) => channel.with_lease(lease),
        None => Ok(channel),
    });
    let channel = opened.map_err(|error| {
        Error::misuse(
            "channel",
            reason(&error),
            "give --channel fd:N or the path of a device",
        )
    })?;
    // Dropped after the session: the processes whose memory is swapped out have ended by then.
    let _swap = options.swap.as_ref().map(swap::made).transpose()?;
    Session::new(channel, options.limits, Surroundings::Machine)?.serve()
}

/// A guest whose first process is this process.
#[derive(Debug)]
pub struct Guest {
    /// Where requests come from.
    pub channel: Channel,
    /// What the request `enter` mounts.
    pub deferred: Option<Deferred>,
    /// The mount namespace of commands; `None`: this process's own.
    pub mounts: Option<OwnedFd>,
}

/// Serve a guest.
///
/// Fails when the kernel refuses to make the agent the parent of orphans, when a process does not
/// end, and with `Interrupted` when a signal ends the agent.
pub fn serve_guest(guest: Guest) -> Result<Ending, Error> {
    let surroundings = Surroundings::Guest(guest.deferred);
    let mut session = Session::new(guest.channel, Limits::default(), surroundings)?;
    session.supervisor.run_in(guest.mounts);
    session.serve()
}

/// Keep this process, and so every command, on `cpus`.
///
/// Fails when one of `cpus` does not exist, or when this process may not use it.
pub fn pin(cpus: &[usize]) -> Result<(), Error> {
    let refused = |reason: &str| {
        Error::misuse(
            "--cpus",
            reason,
            "name CPUs of this machine that this process may use",
        )
    };
    let this = Pid::from_raw(0);
    let mut wanted = CpuSet::new();
    for cpu in cpus {
        wanted
            .set(*cpu)
            .map_err(|_| refused(&format!("there is no CPU {cpu}")))?;
    }
    sched_setaffinity(this, &wanted).map_err(|_| refused("none of them can be used"))?;
    // The kernel silently leaves out CPUs that do not exist.
    match sched_getaffinity(this) {
        Ok(got) if got == wanted => Ok(()),
        _ => Err(refused("some of them cannot be used")),
    }
}

/// The CPUs whose steal time counts for a command; `None` where there is no steal clock.
pub fn steal_cpus(facts: &Facts, tree: &Tree) -> Option<Vec<usize>> {
    if facts.clock.steal_clock != Some(true) {
        return None;
    }
    let own = tree.text("/proc/self/status")?;
    cpu_list::parse(vtax_sys::tree::field(&own, "Cpus_allowed_list")?).ok()
}

struct Session {
    channel: Channel,
    supervisor: Supervisor,
    refused: Refused,
    parts: Joiner,
    surroundings: Surroundings,
    tree: Tree,
}

enum Surroundings {
    /// A machine that is not the agent's own: its mounts and its clock are left alone.
    Machine,
    /// A guest whose first process is the agent, with what the request `enter` mounts.
    Guest(Option<Deferred>),
}

/// What follows a request besides its answer.
enum Next {
    Continue(Value),
    Halt(Value),
    End(RunError),
}

impl Session {
    fn new(channel: Channel, limits: Limits, surroundings: Surroundings) -> Result<Self, Error> {
        let tree = Tree::host();
        let cpus = steal_cpus(&facts::gather(&tree), &tree);
        let (confinement, refused) = Confinement::new(&tree, limits);
        let supervisor = Supervisor::new(tree.clone(), cpus, confinement).map_err(failed)?;
        Ok(Self {
            channel,
            supervisor,
            refused,
            parts: Joiner::default(),
            surroundings,
            tree,
        })
    }

    fn serve(mut self) -> Result<Ending, Error> {
        let ending = self.answer_requests();
        // The control group can only be removed when it is empty.
        self.supervisor.kill_all().map_err(failed)?;
        ending
    }

    fn answer_requests(&mut self) -> Result<Ending, Error> {
        let hello = self.hello();
        if self.channel.send(&hello).is_err() {
            return Ok(Ending::Closed);
        }
        loop {
            while let Some(line) = self.channel.next_line() {
                let (frame, halt) = match self.handle(&line) {
                    Next::Continue(frame) => (frame, false),
                    Next::Halt(frame) => (frame, true),
                    Next::End(RunError::Signal(signal)) => return Err(Error::Interrupted(signal)),
                    Next::End(_) => return Ok(Ending::Closed),
                };
                let sent = self.channel.send(&frame);
                if halt {
                    return Ok(Ending::Halted);
                }
                if sent.is_err() {
                    return Ok(Ending::Closed);
                }
            }
            if !self.supervisor.idle(&mut self.channel).map_err(failed)? {
                return match self.supervisor.ending_signal() {
                    Some(signal) => Err(Error::Interrupted(signal)),
                    None => Ok(Ending::Closed),
                };
            }
        }
    }

    fn hello(&self) -> Value {
        let mut hello = json!({
            "agent": VERSION,
            "protocol": PROTOCOL,
            "uptime_s": facts::uptime_s(&self.tree),
        });
        for (field, reason) in [
            ("memory_limit_error", &self.refused.memory),
            ("process_limit_error", &self.refused.processes),
        ] {
            if let Some(reason) = reason {
                hello[field] = json!(reason);
            }
        }
        json!({"hello": hello})
    }

    fn handle(&mut self, line: &Line) -> Next {
        let object = match frame::object(line) {
            Ok(object) => object,
            Err(reason) => return Next::Continue(RequestError::Frame(reason).frame(None)),
        };
        if !Joiner::is_part(&object) {
            return self.handle_request(object);
        }
        let joined = match self.parts.add(&object) {
            Ok(Joined::Held(bytes)) => return Next::Continue(json!({ "part": bytes })),
            Ok(Joined::Whole(line)) => frame::object(&line).map_err(RequestError::Frame),
            Err(error) => Err(error),
        };
        match joined {
            Ok(object) => self.handle_request(object),
            Err(error) => Next::Continue(error.frame(None)),
        }
    }

    fn handle_request(&mut self, object: Map<String, Value>) -> Next {
        let id = match request::id(&object) {
            Ok(id) => id,
            Err(error) => return Next::Continue(error.frame(None)),
        };
        match request::operation(object) {
            Ok(operation) => self.carry_out(id, &operation),
            Err(error) => Next::Continue(error.frame(Some(id))),
        }
    }

    fn carry_out(&mut self, id: u64, operation: &Operation) -> Next {
        match operation {
            Operation::Ping => Next::Continue(request::success(id, &json!({}))),
            Operation::Facts => {
                let facts = facts::gather(&self.tree);
                Next::Continue(request::success(id, &json!(facts)))
            }
            Operation::Push(push) => Next::Continue(answered(id, transfer::push(push))),
            Operation::Pull(pull) => Next::Continue(answered(id, transfer::pull(pull))),
            Operation::List(list) => Next::Continue(answered(id, transfer::list(list))),
            Operation::Enter => Next::Continue(match self.enter() {
                Ok(answer) => request::success(id, &answer),
                Err(error) => error.frame(Some(id)),
            }),
            Operation::Clock(clock) => Next::Continue(match self.set_clock(*clock) {
                Ok(answer) => request::success(id, &answer),
                Err(error) => error.frame(Some(id)),
            }),
            Operation::Counters => Next::Continue(answered(
                id,
                counters::read(&self.tree).map_err(|error| error.to_string()),
            )),
            Operation::Time => Next::Continue(request::success(id, &clock())),
            Operation::Halt => Next::Halt(request::success(id, &json!({}))),
            Operation::Run(run) => self.run_command(id, run),
        }
    }

    fn run_command(&mut self, id: u64, request: &RunRequest) -> Next {
        match self.run(id, request) {
            Ok(answer) => Next::Continue(request::success(id, &json!(answer))),
            Err(error @ (RunError::Signal(_) | RunError::Closed)) => Next::End(error),
            Err(error) => Next::Continue(run_error(request, error).frame(Some(id))),
        }
    }

    fn enter(&mut self) -> Result<Value, RequestError> {
        let Surroundings::Guest(Some(deferred)) = &mut self.surroundings else {
            return Err(RequestError::Request(
                "enter: only a guest with vtax.lower=initramfs puts mounts off".into(),
            ));
        };
        match deferred.enter() {
            Ok(mounted) => Ok(json!({ "mounted": mounted })),
            Err(error) => Err(RequestError::System(error.to_string())),
        }
    }

    fn set_clock(&self, clock: ClockRequest) -> Result<Value, RequestError> {
        if matches!(self.surroundings, Surroundings::Machine) {
            let reason = "clock: only a guest whose first process this is has its clock set";
            return Err(RequestError::Request(reason.into()));
        }
        clock.set().map_err(RequestError::System)?;
        Ok(json!({}))
    }

    fn run(&mut self, id: u64, request: &RunRequest) -> Result<RunAnswer, RunError> {
        let (launch, _home) = launch(request).map_err(RunError::System)?;
        let terms = Terms {
            timeout: request.timeout(),
            leave: request.leave,
            count: request.count,
        };
        self.channel.announce_as(request.announce.then_some(id));
        self.supervisor.run(launch, terms, &mut self.channel)
    }
}

/// Both clocks of this machine, read one after the other.
fn clock() -> Value {
    json!({"monotonic_ns": monotonic_ns(), "tsc": time_stamp_counter()})
}

/// The answer to an operation that the machine may refuse.
fn answered(id: u64, result: Result<impl Serialize, String>) -> Value {
    match result {
        Ok(answer) => request::success(id, &json!(answer)),
        Err(reason) => RequestError::System(reason).frame(Some(id)),
    }
}

/// Make the folders and the output files of a request; the error names what failed and why.
fn launch(request: &RunRequest) -> Result<(Launch, Option<Home>), String> {
    let cwd = &request.cwd;
    let results = request.results.as_ref().unwrap_or(cwd);
    make_folder(results)
        .map_err(|error| format!("mkdir {}: {}", results.display(), reason(&error)))?;
    if !cwd.is_dir() {
        return Err(format!(
            "working folder {}: it is not a folder here",
            cwd.display()
        ));
    }
    let output = |name: &str| {
        output_file(results, name)
            .map_err(|error| format!("open {}: {}", results.join(name).display(), reason(&error)))
    };
    let stdin = surroundings::input(results, request.stdin.as_deref())
        .map_err(|error| format!("standard input: {}", reason(&error)))?;
    let home = request.home.then(|| Home::make(results)).transpose();
    let home = home.map_err(|error| format!("home folder: {}", reason(&error)))?;
    let own_home = home
        .as_ref()
        .map(|home| ("HOME".into(), home.path().into()));
    let launch = Launch {
        argv: request.argv.iter().map(Into::into).collect(),
        env: request
            .env
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .filter(|(name, _)| !(request.home && name == "HOME"))
            .chain(own_home)
            .collect(),
        cwd: cwd.clone(),
        stdin,
        stdout: output(&request.stdout)?.into(),
        stderr: output(&request.stderr)?.into(),
        file_limit_bytes: Some(request.output_limit_bytes),
    };
    Ok((launch, home))
}

fn run_error(request: &RunRequest, error: RunError) -> RequestError {
    match error {
        RunError::Spawn(reason) => RequestError::Spawn {
            program: request.argv[0].clone(),
            reason,
        },
        other => RequestError::System(other.to_string()),
    }
}

fn failed(error: RunError) -> Error {
    Error::failure("serve", error, "this is a fault of the machine, see dmesg")
}
