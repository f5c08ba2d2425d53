//! The service domain: threads that work for guests, and the guests' own threads.

pub mod kind;
pub mod process;
mod thread;

use std::collections::BTreeSet;

use vtax_sys::task::Task;
use vtax_sys::tree::{Tree, field};

use crate::place::domain::kind::{Kind, guest_name, kind, served};
use crate::place::domain::process::{Process, Processes};
use crate::place::domain::thread::{kernel_thread, qemu_thread};
use crate::place::role::Role;

/// A thread that works for guests, or belongs to one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    pub pid: i32,
    pub tid: i32,
    /// The name of its process.
    pub process: String,
    /// What it does.
    pub role: Role,
    /// The guest that it serves, where it serves only one.
    pub guest: Option<String>,
    /// What the kernel says about it.
    pub task: Task,
}

impl Member {
    /// The thread's folder in `/proc`.
    pub fn folder(&self) -> String {
        thread_folder(self.pid, self.tid)
    }
}

pub fn thread_folder(pid: i32, tid: i32) -> String {
    format!("/proc/{pid}/task/{tid}")
}

/// A guest's process, its kind, and its name.
type Guest = (i32, Kind, String);

/// Finds the service domain again and again; only new processes are examined closely.
#[derive(Debug, Default)]
pub struct Finder {
    processes: Processes,
}

impl Finder {
    /// The threads that work for guests at this moment. With `roots`, only the threads of these
    /// processes and their descendants, and the kernel's threads for them.
    pub fn find(&mut self, tree: &Tree, roots: &[i32]) -> Vec<Member> {
        self.processes.read(tree);
        let kinds: Vec<(&Process, Kind)> = self
            .processes
            .iter()
            .filter_map(|process| Some((process, kind(tree, process)?)))
            .collect();
        let chosen = (!roots.is_empty()).then(|| self.processes.with_descendants(roots));
        let scene = Scene {
            tree,
            processes: &self.processes,
            guests: guests(&kinds),
            xen: tree.exists("/proc/xen"),
        };
        let mut members = scene.members(&kinds, chosen.as_ref());
        members.sort_by_key(|member| (member.pid, member.tid));
        members
    }

    /// The processes of the last search.
    pub fn processes(&self) -> &Processes {
        &self.processes
    }
}

fn guests(kinds: &[(&Process, Kind)]) -> Vec<Guest> {
    let guests = kinds.iter().filter(|(_, kind)| kind.is_guest());
    let mut guests: Vec<Guest> = guests
        .map(|(process, kind)| (process.pid, *kind, guest_name(*kind, process)))
        .collect();
    // The helper and the processes of user-mode Linux look like its kernel.
    let user_mode: BTreeSet<i32> = guests
        .iter()
        .filter(|(_, kind, _)| *kind == Kind::UserMode)
        .map(|(pid, ..)| *pid)
        .collect();
    let parent = |pid: i32| {
        let found = kinds.iter().find(|(process, _)| process.pid == pid);
        found.map(|(process, _)| process.task.parent)
    };
    guests.retain(|(pid, kind, _)| {
        *kind != Kind::UserMode || !parent(*pid).is_some_and(|above| user_mode.contains(&above))
    });
    guests
}

struct Scene<'a> {
    tree: &'a Tree,
    processes: &'a Processes,
    guests: Vec<Guest>,
    xen: bool,
}

impl Scene<'_> {
    fn members(&self, kinds: &[(&Process, Kind)], chosen: Option<&BTreeSet<i32>>) -> Vec<Member> {
        let mut members = Vec::new();
        let wanted = |pid: i32| chosen.is_none_or(|chosen| chosen.contains(&pid));
        let mut seen = BTreeSet::new();
        let nothing = !kinds.iter().any(|(one, kind)| self.belongs(one, *kind));
        for (process, kind) in kinds {
            seen.insert(process.pid);
            if wanted(process.pid) && self.belongs(process, *kind) {
                members.extend(self.threads(process, *kind));
            }
        }
        let rest = self.processes.iter().filter(|one| !seen.contains(&one.pid));
        for process in rest {
            if process.task.kernel {
                members.extend(self.of_kernel(process, chosen, nothing));
            } else if wanted(process.pid) {
                members.extend(self.inside_guest(process));
            }
        }
        members
    }

    /// Does the process belong to the service domain? Only a box must be around a guest; other
    /// kinds always do.
    fn belongs(&self, process: &Process, kind: Kind) -> bool {
        kind != Kind::Box || !self.below(process.pid).is_empty()
    }

    fn below(&self, pid: i32) -> Vec<&str> {
        let guests = self.guests.iter().filter(|(guest, ..)| {
            let above = self.processes.ancestors(*guest);
            above.iter().any(|one| one.pid == pid)
        });
        guests.map(|(_, _, name)| name.as_str()).collect()
    }

    /// The guest that is this process or the nearest above it.
    fn above(&self, process: &Process) -> Option<&Guest> {
        let own = |pid: i32| self.guests.iter().find(|(guest, ..)| *guest == pid);
        let above = self.processes.ancestors(process.pid);
        own(process.pid).or_else(|| above.iter().find_map(|one| own(one.pid)))
    }

    fn guest_of(&self, process: &Process, kind: Kind) -> Option<String> {
        match kind {
            Kind::Qemu | Kind::UserMode | Kind::Sentry => {
                self.above(process).map(|(_, _, name)| name.clone())
            }
            Kind::Gofer => self.beside(process),
            Kind::Box => only(&self.below(process.pid)),
            Kind::Monitor => only(&self.below(process.pid))
                .or_else(|| Some(guest_name(kind, process)))
                .filter(|name| !name.is_empty()),
            Kind::Virtiofsd | Kind::Switch | Kind::UserNetwork => {
                served(process, &self.guests, self.processes)
                    .or_else(|| self.above(process).map(|(_, _, name)| name.as_str()))
                    .map(str::to_owned)
            }
            Kind::Dom0 => None,
        }
    }

    /// The sandbox that the same process started.
    fn beside(&self, gofer: &Process) -> Option<String> {
        let names: Vec<&str> = self
            .guests
            .iter()
            .filter(|(pid, kind, _)| {
                let sandbox = self.processes.get(*pid);
                let parent = sandbox.map(|one| one.task.parent);
                *kind == Kind::Sentry && parent == Some(gofer.task.parent)
            })
            .map(|(_, _, name)| name.as_str())
            .collect();
        only(&names)
    }

    fn threads(&self, process: &Process, kind: Kind) -> Vec<Member> {
        let guest = self.guest_of(process, kind);
        let threads = self.tree.threads(process.pid).into_iter();
        threads
            .filter_map(|tid| {
                let task = self.tree.task(&thread_folder(process.pid, tid))?;
                let role = self.role(process, kind, tid, &task);
                Some(member(process, tid, role, guest.clone(), task))
            })
            .collect()
    }

    fn role(&self, process: &Process, kind: Kind, tid: i32, task: &Task) -> Role {
        match kind {
            Kind::Qemu => qemu_thread(process.pid == tid, &process.task.name, task),
            Kind::UserMode => self.user_mode(process),
            Kind::Sentry => Role::Sentry,
            Kind::Gofer => Role::Gofer,
            Kind::Virtiofsd => Role::Virtiofsd,
            Kind::Switch => Role::Switch,
            Kind::UserNetwork => Role::UserNetwork,
            Kind::Dom0 => Role::Dom0,
            Kind::Monitor | Kind::Box => Role::Monitor,
        }
    }

    /// User-mode Linux's kernel traces its processes, but not the helpers that wait for files and
    /// terminals; all have the kernel's name.
    fn user_mode(&self, process: &Process) -> Role {
        let kernel = self.guests.iter().any(|(pid, ..)| *pid == process.pid);
        if kernel || self.traced(process.pid) {
            Role::Guest
        } else {
            Role::IoThread
        }
    }

    fn traced(&self, pid: i32) -> bool {
        let status = self.tree.text(&format!("/proc/{pid}/status"));
        let tracer = status.as_deref().and_then(|text| field(text, "TracerPid"));
        tracer.is_some_and(|tracer| tracer != "0")
    }

    /// Processes below a kernel in user space are the guest's.
    fn inside_guest(&self, process: &Process) -> Vec<Member> {
        let Some((_, kind, name)) = self.above(process) else {
            return Vec::new();
        };
        let role = match kind {
            Kind::Sentry => Role::Guest,
            // Since Linux 6.16 they need not be traced.
            Kind::UserMode if process.task.name == "uml-userspace" => Role::Guest,
            Kind::UserMode if self.traced(process.pid) => Role::Guest,
            _ => return Vec::new(),
        };
        let threads = self.tree.threads(process.pid).into_iter();
        threads
            .filter_map(|tid| {
                let task = self.tree.task(&thread_folder(process.pid, tid))?;
                Some(member(process, tid, role, Some(name.clone()), task))
            })
            .collect()
    }

    fn of_kernel(
        &self,
        process: &Process,
        chosen: Option<&BTreeSet<i32>>,
        nothing: bool,
    ) -> Option<Member> {
        let (role, of) = kernel_thread(&process.task.name, self.xen)?;
        let pid = of.as_deref().and_then(|number| number.parse::<i32>().ok());
        let guest = match role {
            Role::Xen => of,
            _ => pid.map(|pid| {
                let known = self.guests.iter().find(|(guest, ..)| *guest == pid);
                known.map_or_else(|| pid.to_string(), |(_, _, name)| name.clone())
            }),
        };
        let wanted = match chosen {
            Some(chosen) => pid.is_some_and(|pid| chosen.contains(&pid)),
            // They serve all guests; where there is no guest they serve nobody.
            None => guest.is_some() || !nothing || self.xen,
        };
        wanted.then(|| member(process, process.pid, role, guest, process.task.clone()))
    }
}

fn only(names: &[&str]) -> Option<String> {
    match names {
        [name] => Some((*name).to_owned()),
        _ => None,
    }
}

fn member(process: &Process, tid: i32, role: Role, guest: Option<String>, task: Task) -> Member {
    Member {
        pid: process.pid,
        tid,
        process: process.task.name.clone(),
        role,
        guest,
        task,
    }
}
