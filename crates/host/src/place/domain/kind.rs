//! Finds out what a process is, by its program and command line.

use vtax_sys::tree::Tree;

use crate::place::domain::process::{Process, Processes};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Qemu,
    /// The kernel of user-mode Linux.
    UserMode,
    /// gVisor's kernel.
    Sentry,
    /// gVisor's gofer, which gives a guest access to files.
    Gofer,
    Virtiofsd,
    Switch,
    /// A guest's network in user space.
    UserNetwork,
    /// A tool of Xen.
    Dom0,
    /// The monitor of a container: `conmon`, `runsc run`.
    Monitor,
    /// bubblewrap: it holds a guest only if one is below it.
    Box,
}

const QEMU: [&str; 2] = ["kvm", "qemu-kvm"];
/// Not `qemu-x86_64`, which runs one program on another architecture.
const QEMU_SYSTEM: &str = "qemu-system-";
const SWITCHES: [&str; 4] = ["vde_switch", "vde_plug", "slirpvde", "uml_switch"];
const NETWORKS: [&str; 6] = [
    "passt",
    "passt.avx2",
    "pasta",
    "pasta.avx2",
    "slirp4netns",
    "libslirp-helper",
];
const XEN_TOOLS: [&str; 5] = [
    "xenstored",
    "oxenstored",
    "xenconsoled",
    "xl",
    "libxl-save-helper",
];
/// How arguments of user-mode Linux's kernel, and of few other programs, begin; two such arguments
/// identify it.
const OF_USER_MODE: [&str; 12] = [
    "mem=",
    "umid=",
    "uml_dir=",
    "ubd",
    "root=",
    "rootfstype=",
    "init=",
    "con=",
    "con0=",
    "ssl",
    "eth0=",
    "vec0:",
];

/// What a process is; `None`: it does not work for guests.
pub fn kind(tree: &Tree, process: &Process) -> Option<Kind> {
    let program = process.program();
    // The box has the guest's command line after its own.
    let found = match program {
        "bwrap" => Kind::Box,
        "conmon" => Kind::Monitor,
        "virtiofsd" => Kind::Virtiofsd,
        "runsc-sandbox" => Kind::Sentry,
        "runsc-gofer" => Kind::Gofer,
        "runsc" => return gvisor(process),
        _ if is_qemu(program) => Kind::Qemu,
        _ if SWITCHES.contains(&program) => Kind::Switch,
        _ if NETWORKS.contains(&program) => Kind::UserNetwork,
        _ if is_user_mode(program, process) => Kind::UserMode,
        _ if XEN_TOOLS.contains(&program) && tree.exists("/proc/xen") => Kind::Dom0,
        _ => return None,
    };
    Some(found)
}

fn is_qemu(program: &str) -> bool {
    program.starts_with(QEMU_SYSTEM) || QEMU.contains(&program)
}

fn is_user_mode(program: &str, process: &Process) -> bool {
    let named = program.contains("linux") || program.contains("uml");
    let own = |argument: &&String| OF_USER_MODE.iter().any(|own| argument.starts_with(own));
    named && process.arguments.iter().skip(1).filter(own).count() >= 2
}

/// `runsc` is one program; the subcommand says what it does.
fn gvisor(process: &Process) -> Option<Kind> {
    process.arguments.iter().skip(1).find_map(|word| {
        Some(match word.as_str() {
            "boot" => Kind::Sentry,
            "gofer" => Kind::Gofer,
            "run" | "start" | "create" | "wait" => Kind::Monitor,
            _ => return None,
        })
    })
}

impl Kind {
    /// Does a guest run in this process?
    pub fn is_guest(self) -> bool {
        matches!(self, Self::Qemu | Self::UserMode | Self::Sentry)
    }
}

/// A guest's name: the name that it was given, otherwise its process number.
pub fn guest_name(kind: Kind, process: &Process) -> String {
    let given = match kind {
        Kind::Qemu => process.option("-name").and_then(qemu_name),
        Kind::Sentry => sandbox_name(process),
        Kind::Monitor => process.option("-n").or_else(|| process.option("--name")),
        _ => None,
    };
    let given = given.filter(|name| !name.is_empty());
    given.map_or_else(|| process.pid.to_string(), str::to_owned)
}

/// `-name NAME`, or `guest=NAME` among other keys.
fn qemu_name(value: &str) -> Option<&str> {
    let keys = || value.split(',');
    keys()
        .find_map(|part| part.strip_prefix("guest="))
        .or_else(|| keys().next().filter(|first| !first.contains('=')))
}

/// The container's name is the last argument.
fn sandbox_name(process: &Process) -> Option<&str> {
    let last = process.arguments.last()?;
    (!last.starts_with('-')).then_some(last)
}

/// The guest that a helper serves: the only guest whose command line names one of the helper's
/// paths, or whose process the helper names.
pub fn served<'a>(
    helper: &Process,
    guests: &'a [(i32, Kind, String)],
    processes: &Processes,
) -> Option<&'a str> {
    let mut found = guests.iter().filter(|(pid, ..)| {
        let guest = processes.get(*pid);
        guest.is_some_and(|guest| names(helper, guest))
    });
    let (_, _, only) = found.next()?;
    found.next().is_none().then_some(only)
}

fn names(helper: &Process, guest: &Process) -> bool {
    let number = guest.pid.to_string();
    let words = helper.arguments.iter().skip(1);
    let mut values = words.map(|word| word.rsplit_once('=').map_or(word.as_str(), |(_, it)| it));
    values.any(|value| value == number || (is_socket(value) && guest_has(guest, value)))
}

/// A path with at least two parts: `/` and `/dev` are on many command lines.
fn is_socket(value: &str) -> bool {
    value.starts_with('/') && value.trim_end_matches('/').matches('/').count() >= 2
}

fn guest_has(guest: &Process, path: &str) -> bool {
    let words = guest.arguments.iter().skip(1);
    let mut parts = words.flat_map(|word| word.split([',', '=', ':']));
    // vde: the switch makes a folder, or a file `ctl` in it.
    parts.any(|part| {
        let rest = part.strip_prefix(path.trim_end_matches('/'));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}
