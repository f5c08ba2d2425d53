//! Looking at one guest: whether it can be handed to another QEMU, and what that QEMU needs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::switch::arguments::{Arguments, Backend, resolve};
use crate::switch::error::SwitchError;
use crate::switch::inheritance::{cgroups, limits, mask};
use crate::switch::passed;
use crate::switch::qmp::Qmp;
use vtax_sys::kvm::PagingMode;
use vtax_sys::process::{Descriptor, is_kvm, is_plain};
use vtax_sys::tree::Tree;

/// CPU features that KVM offers only with nested paging (arch/x86/kvm/cpuid.c, svm.c, vmx.c).
const NEED_NESTED: [&str; 6] = ["pku", "pks", "la57", "npt", "vmx-ept", "sev"];
/// The character device through which libvirt speaks QMP.
const LIBVIRT_MONITOR: &str = "charmonitor";
/// CPU models that take whatever the host offers in its current mode.
const FOLLOWS_HOST: [&str; 2] = ["host", "max"];

/// A guest as the journal keeps it: everything that is needed to start its QEMU again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestPlan {
    /// Its name, or `guest`.
    pub name: String,
    /// The process number of the QEMU that ran the guest when the switch began.
    pub pid: i32,
    /// When that QEMU started, see [`Tree::start_ticks`].
    pub start_ticks: u64,
    /// The program's file.
    pub program: PathBuf,
    /// The command line, including the program's name.
    pub command_line: Vec<String>,
    pub environment: Vec<String>,
    pub folder: PathBuf,
    /// Real user and group.
    pub user: (u32, u32),
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Resource limits: number, soft, hard.
    pub limits: Vec<(u32, u64, u64)>,
    pub mask: u32,
    /// Files that a process writes itself into to join the same control groups.
    pub cgroups: Vec<PathBuf>,
    pub qmp: PathBuf,
    /// Descriptors that the QEMU inherited when it started.
    pub inherited: Vec<i32>,
    /// The number now of each descriptor that `-add-fd` gave it, see [`passed::sets`].
    #[serde(default)]
    pub sets: Vec<Option<i32>>,
    /// Descriptors that the new QEMU gets from these files, opened anew.
    #[serde(default)]
    pub fresh: Vec<(i32, PathBuf)>,
    /// Memory without a file: object and descriptor.
    pub memory: Vec<(String, i32)>,
    /// Tap devices that would vanish with their last user: name and descriptor.
    pub taps: Vec<(String, i32)>,
    /// The guest ran; a guest that its owner paused stays paused.
    pub running: bool,
}

/// A guest that can be switched, and the connection to its QEMU.
#[derive(Debug)]
pub struct Guest {
    pub plan: GuestPlan,
    pub qmp: Qmp,
    /// What the guest will lose.
    pub warnings: Vec<String>,
}

/// The processes that use KVM.
pub fn users(tree: &Tree) -> Vec<i32> {
    let uses = |pid: &i32| {
        tree.descriptors(*pid)
            .iter()
            .any(|descriptor| is_kvm(&descriptor.target))
    };
    tree.processes().into_iter().filter(uses).collect()
}

/// Examine the process `pid`, without changing anything. Fails with `Refused` when the process is
/// not a QEMU, when its QMP socket does not answer in time, or when the guest cannot be handed to
/// another QEMU as it is.
pub fn look(
    tree: &Tree,
    pid: i32,
    from: PagingMode,
    patience: Duration,
) -> Result<Guest, SwitchError> {
    let candidate = Candidate::new(tree, pid)?;
    candidate.unmanaged()?;
    candidate.same_world()?;
    let mut qmp = candidate.control(patience)?;
    let mut ask = |command: &str, arguments: Value| {
        qmp.call(command, arguments, patience)
            .map_err(|error| candidate.refused(error, "look at this QEMU: it does not answer"))
    };
    let status = ask("query-status", json!({}))?;
    let memory = ask("query-memdev", json!({}))?;
    let migration = ask("query-migrate", json!({}))?;
    let devices = ask("qom-list", json!({"path": "/machine/peripheral"}))?;
    let objects = ask("qom-list", json!({"path": "/objects"}))?;
    let cpus = ask("query-cpus-fast", json!({}))?;
    let sets = ask("query-fdsets", json!({}))?;
    let chardevs = ask("query-chardev", json!({}))?;
    let features = if from == PagingMode::Nested {
        needing_nested(&cpus, &mut ask)
    } else {
        Vec::new()
    };
    let running = candidate.running(&status)?;
    candidate.restartable()?;
    candidate.unblocked(&migration)?;
    candidate.as_started(&devices)?;
    candidate.as_started(&objects)?;
    candidate.features(&features)?;
    let memory = candidate.memory(&memory)?;
    let sets = passed::sets(&candidate.arguments, &sets)
        .map_err(|reason| candidate.refused(reason, "start it with all its descriptors"))?;
    let plan = candidate.plan(running, memory, sets)?;
    let warnings = candidate.losses(&chardevs);
    Ok(Guest {
        plan,
        qmp,
        warnings,
    })
}

fn needing_nested(
    cpus: &Value,
    ask: &mut impl FnMut(&str, Value) -> Result<Value, SwitchError>,
) -> Vec<&'static str> {
    let first = cpus.get(0).and_then(|cpu| cpu.get("qom-path")).cloned();
    let Some(path) = first else {
        return Vec::new();
    };
    let mut has = |name: &str| {
        // A feature that this QEMU does not know cannot be on.
        ask("qom-get", json!({"path": path, "property": name})).is_ok_and(|on| on == json!(true))
    };
    // A guest without SVM or VMX has no use for the nested paging that its CPU model lists.
    let nests = has("svm") || has("vmx");
    NEED_NESTED
        .into_iter()
        .filter(|name| has(name) && (nests || !["npt", "vmx-ept", "sev"].contains(name)))
        .collect()
}

struct Candidate<'a> {
    tree: &'a Tree,
    pid: i32,
    name: String,
    command_line: Vec<String>,
    arguments: Arguments,
    descriptors: Vec<Descriptor>,
    folder: PathBuf,
}

impl<'a> Candidate<'a> {
    fn new(tree: &'a Tree, pid: i32) -> Result<Self, SwitchError> {
        let command_line = tree
            .strings(&format!("/proc/{pid}/cmdline"))
            .unwrap_or_default();
        let program = command_line.first().map_or("", String::as_str);
        let stem = program.rsplit('/').next().unwrap_or(program);
        if !(stem.starts_with("qemu") || stem == "kvm") {
            return Err(SwitchError::refused(
                format!("process {pid} ({stem})"),
                "it uses /dev/kvm and is not a QEMU that vtax can hand over",
                "end it first",
            ));
        }
        let arguments = Arguments::parse(command_line.get(1..).unwrap_or_default());
        let name = arguments.name().unwrap_or_else(|| "guest".into());
        let folder = tree.link(&format!("/proc/{pid}/cwd")).unwrap_or_default();
        Ok(Self {
            tree,
            pid,
            name,
            command_line,
            arguments,
            descriptors: tree.descriptors(pid),
            folder: folder.into(),
        })
    }

    fn refused(&self, reason: impl ToString, remedy: &str) -> SwitchError {
        SwitchError::refused(format!("{} (pid {})", self.name, self.pid), reason, remedy)
    }

    /// libvirt would take the old QEMU's end for the guest's, and knows nothing of the new one.
    fn unmanaged(&self) -> Result<(), SwitchError> {
        if !self.arguments.has_id(LIBVIRT_MONITOR) {
            return Ok(());
        }
        let name = &self.name;
        Err(self.refused(
            "it is a domain of libvirt, which would take its old QEMU's end for its own",
            &format!("`virsh managedsave {name}`, switch, and `virsh start {name}`"),
        ))
    }

    /// The new QEMU is started from here, so this process and the guest must see the same files,
    /// network and processes.
    fn same_world(&self) -> Result<(), SwitchError> {
        for space in ["mnt", "net", "pid", "user", "ipc"] {
            let of = |process: &str| self.tree.link(&format!("/proc/{process}/ns/{space}"));
            if of(&self.pid.to_string()) != of("self") {
                return Err(self.refused(
                    format!("it is in another {space} namespace"),
                    "run vtax in that container or with nsenter",
                ));
            }
        }
        let label = |process: &str| self.tree.text(&format!("/proc/{process}/attr/current"));
        if label(&self.pid.to_string()) != label("self") {
            return Err(self.refused(
                "it has another security label than this program",
                "run vtax with that label, or the guest without",
            ));
        }
        if self
            .tree
            .link(&format!("/proc/{}/root", self.pid))
            .as_deref()
            != Some("/")
        {
            return Err(self.refused("it has another root folder", "start it without chroot"));
        }
        Ok(())
    }

    fn control(&self, patience: Duration) -> Result<Qmp, SwitchError> {
        const REMEDY: &str = "start it with -qmp unix:PATH,server=on,wait=off, for vtax alone";
        let mut reason = "it has no QMP socket".to_owned();
        for path in self.arguments.qmp_sockets() {
            match self.connect(&path, patience) {
                Ok(qmp) => return Ok(qmp),
                Err(error) => reason = error,
            }
        }
        Err(self.refused(reason, REMEDY))
    }

    fn connect(&self, path: &Path, patience: Duration) -> Result<Qmp, String> {
        let path = resolve(&self.folder, path);
        // A second client of a socket is greeted only after the first has gone.
        let qmp = Qmp::connect(&path, patience)
            .map_err(|error| format!("{}: {error} (is it in use?)", path.display()))?;
        let peer = qmp.peer().map_err(|error| error.to_string())?;
        if peer == self.pid {
            Ok(qmp)
        } else {
            Err(format!("{} belongs to process {peer}", path.display()))
        }
    }

    fn running(&self, status: &Value) -> Result<bool, SwitchError> {
        match status.get("status").and_then(Value::as_str) {
            Some("running") => Ok(true),
            // The clock of a guest that was restored is given to KVM when it first runs. Before
            // that, QEMU saves KVM's own time since the new VM was made (kvmclock_pre_save in
            // hw/i386/kvm/clock.c: nothing has set runstate_paused yet): the clock would go back.
            Some("paused")
                if self.arguments.own_monitor().is_some()
                    && self.tree.guest_ticks(self.pid).unwrap_or(0) == 0 =>
            {
                Err(self.refused(
                    "it was switched while it was paused and has not run since",
                    "let it run before it is switched again",
                ))
            }
            Some("paused" | "prelaunch") => Ok(false),
            other => Err(self.refused(
                format!("it is in the state {}", other.unwrap_or("unknown")),
                "wait until it runs, or end it",
            )),
        }
    }

    fn restartable(&self) -> Result<(), SwitchError> {
        if let Some((option, why)) = self.arguments.not_again() {
            return Err(self.refused(format!("-{option}: {why}"), "start it without that option"));
        }
        if self.arguments.taps().contains(&None) {
            return Err(self.refused("one of its tap devices has no name", "give it ifname=NAME"));
        }
        let model = self.arguments.cpu().unwrap_or_default();
        let follows = FOLLOWS_HOST.contains(&model.split(',').next().unwrap_or_default());
        if follows
            && !model
                .split(',')
                .any(|part| part == "pku=off" || part == "-pku")
        {
            return Err(self.refused(
                "its CPU model follows the host's paging mode",
                "start it with a named model such as -cpu EPYC, or with pku=off",
            ));
        }
        Ok(())
    }

    /// Connections that end with this QEMU because no other process can continue them.
    fn losses(&self, chardevs: &Value) -> Vec<String> {
        let is_connected = |id: &String| {
            let mut list = chardevs.as_array().into_iter().flatten();
            let found = list.find(|one| one.get("label").and_then(Value::as_str) == Some(id));
            let address = found.and_then(|one| one.get("filename")?.as_str());
            address.is_some_and(|address| !address.starts_with("disconnected:"))
        };
        let networks = self.arguments.inner_networks().into_iter();
        let sockets = self.arguments.own_sockets().into_iter();
        let networks = networks.map(|what| format!("the connections through {what} end"));
        let sockets = sockets
            .filter(is_connected)
            .map(|id| format!("the connection of the character device {id} ends"));
        networks
            .chain(sockets)
            .map(|loss| format!("{} (pid {}): {loss}", self.name, self.pid))
            .collect()
    }

    fn unblocked(&self, migration: &Value) -> Result<(), SwitchError> {
        let reasons = migration.get("blocked-reasons").and_then(Value::as_array);
        if let Some(reason) = reasons.and_then(|list| list.first()) {
            return Err(self.refused(
                format!(
                    "its state cannot be saved: {}",
                    reason.as_str().unwrap_or("")
                ),
                "unmount or remove that device",
            ));
        }
        match migration.get("status").and_then(Value::as_str) {
            Some(
                "active" | "setup" | "device" | "pre-switchover" | "wait-unplug" | "cancelling",
            ) => Err(self.refused("it is being migrated", "wait until that is done")),
            _ => Ok(()),
        }
    }

    /// Devices and objects that were added later are not in the command line.
    fn as_started(&self, list: &Value) -> Result<(), SwitchError> {
        let added = list.as_array().into_iter().flatten().find_map(|entry| {
            let is_child = entry.get("type")?.as_str()?.starts_with("child<");
            let name = entry.get("name")?.as_str()?;
            (is_child && !self.arguments.has_id(name)).then(|| name.to_owned())
        });
        match added {
            // The board's own memory is handled as memory.
            Some(name) if !name.contains(".ram") => Err(self.refused(
                format!("{name} was added after its start"),
                "remove it, or start the guest with it",
            )),
            _ => Ok(()),
        }
    }

    fn features(&self, features: &[&str]) -> Result<(), SwitchError> {
        match features.first() {
            Some(feature) => Err(self.refused(
                format!("its CPU has {feature}, which shadow paging does not support"),
                &format!("start it with {feature}=off in -cpu"),
            )),
            None => Ok(()),
        }
    }

    /// Objects of memory without a file, with their descriptors.
    fn memory(&self, list: &Value) -> Result<Vec<(String, i32)>, SwitchError> {
        const REMEDY: &str = "start it with -object memory-backend-memfd,id=ram,size=SIZE,share=on \
                              -machine ...,memory-backend=ram";
        let list = list.as_array().map_or(&[][..], Vec::as_slice);
        let backends = self.arguments.backends();
        if list.is_empty() {
            return Err(self.refused("its memory is its own (no memory backend)", REMEDY));
        }
        for entry in list {
            let id = entry.get("id").and_then(Value::as_str).unwrap_or_default();
            let shared = entry.get("share") == Some(&json!(true));
            let Some(backend) = backends.iter().find(|backend| backend.id == id) else {
                return Err(self.refused(format!("its memory {id} is its own"), REMEDY));
            };
            if !shared {
                return Err(self.refused(format!("its memory {id} has no share=on"), REMEDY));
            }
            self.file_is_there(backend)?;
        }
        self.memory_descriptors(&backends)
    }

    fn file_is_there(&self, backend: &Backend) -> Result<(), SwitchError> {
        let Some(file) = &backend.file else {
            return Ok(());
        };
        let path = resolve(&self.folder, file).to_string_lossy().into_owned();
        let number = path.strip_prefix("/proc/self/fd/");
        let is_kept = if let Some(number) = number.and_then(|text| text.parse::<i32>().ok()) {
            self.has(number)
        } else {
            // QEMU closes the file after mapping it, so only the map tells.
            let maps = self.tree.text(&format!("/proc/{}/maps", self.pid));
            let ends = format!(" {path}");
            maps.is_some_and(|maps| maps.lines().any(|line| line.ends_with(&ends)))
        };
        if is_kept {
            return Ok(());
        }
        Err(self.refused(
            format!("the file of its memory {} is not at {path}", backend.id),
            "let mem-path name a file, not a folder, and keep the file",
        ))
    }

    fn has(&self, number: i32) -> bool {
        self.descriptors
            .iter()
            .any(|descriptor| descriptor.number == number)
    }

    /// QEMU makes memfds in the order of its options.
    fn memory_descriptors(&self, backends: &[Backend]) -> Result<Vec<(String, i32)>, SwitchError> {
        let wanted: Vec<&Backend> = backends.iter().filter(|one| one.file.is_none()).collect();
        let found: Vec<i32> = self
            .descriptors
            .iter()
            .filter(|one| one.target.starts_with("/memfd:memory-backend-memfd"))
            .map(|one| one.number)
            .collect();
        // After a switch the command line gives the memfds by their descriptors.
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        if wanted.len() != found.len() {
            return Err(self.refused(
                format!(
                    "it has {} memfd objects and {} memfds",
                    wanted.len(),
                    found.len()
                ),
                "report this: vtax cannot tell its memory apart",
            ));
        }
        Ok(wanted
            .into_iter()
            .zip(found)
            .map(|(backend, number)| (backend.id.clone(), number))
            .collect())
    }

    fn plan(
        &self,
        running: bool,
        memory: Vec<(String, i32)>,
        sets: Vec<Option<i32>>,
    ) -> Result<GuestPlan, SwitchError> {
        let (tree, pid) = (self.tree, self.pid);
        let gone = || self.refused("it has ended", "try again");
        let program = tree.link(&format!("/proc/{pid}/exe")).ok_or_else(gone)?;
        if !is_plain(&program) {
            return Err(self.refused(
                format!("its program {program} was replaced"),
                "restart the guest with the current program",
            ));
        }
        let ids = |name: &str| tree.status(pid, name).and_then(|ids| ids.first().copied());
        let sockets = self.arguments.qmp_sockets();
        let qmp = sockets.first().map(|path| resolve(&self.folder, path));
        Ok(GuestPlan {
            name: self.name.clone(),
            pid,
            start_ticks: tree.start_ticks(pid).ok_or_else(gone)?,
            program: program.into(),
            command_line: self.command_line.clone(),
            environment: tree
                .strings(&format!("/proc/{pid}/environ"))
                .ok_or_else(gone)?,
            folder: self.folder.clone(),
            user: (ids("Uid").ok_or_else(gone)?, ids("Gid").ok_or_else(gone)?),
            groups: tree.status(pid, "Groups").unwrap_or_default(),
            limits: limits(tree.text(&format!("/proc/{pid}/limits")).as_deref()),
            mask: mask(tree, pid),
            cgroups: cgroups(tree, pid),
            qmp: qmp.ok_or_else(gone)?,
            inherited: passed::numbers(&self.arguments, &self.descriptors, &sets),
            sets,
            fresh: passed::vhosts(&self.arguments, &self.descriptors),
            memory,
            taps: passed::taps(pid, &self.descriptors),
            running,
        })
    }
}
