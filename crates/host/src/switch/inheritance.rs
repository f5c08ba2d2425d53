//! What a process passes on to its children, and what another process must be given to be like it.

use std::path::PathBuf;

use vtax_sys::tree::Tree;

/// The resource limits in the text of `/proc/PID/limits`: number, soft, hard.
///
/// The lines are found by name: they are in the order of the numbers only by chance.
pub fn limits(text: Option<&str>) -> Vec<(u32, u64, u64)> {
    const NAMES: [(&str, u32); 16] = [
        ("Max cpu time", libc::RLIMIT_CPU),
        ("Max file size", libc::RLIMIT_FSIZE),
        ("Max data size", libc::RLIMIT_DATA),
        ("Max stack size", libc::RLIMIT_STACK),
        ("Max core file size", libc::RLIMIT_CORE),
        ("Max resident set", libc::RLIMIT_RSS),
        ("Max processes", libc::RLIMIT_NPROC),
        ("Max open files", libc::RLIMIT_NOFILE),
        ("Max locked memory", libc::RLIMIT_MEMLOCK),
        ("Max address space", libc::RLIMIT_AS),
        ("Max file locks", libc::RLIMIT_LOCKS),
        ("Max pending signals", libc::RLIMIT_SIGPENDING),
        ("Max msgqueue size", libc::RLIMIT_MSGQUEUE),
        ("Max nice priority", libc::RLIMIT_NICE),
        ("Max realtime priority", libc::RLIMIT_RTPRIO),
        ("Max realtime timeout", libc::RLIMIT_RTTIME),
    ];
    let number = |word: &str| match word {
        "unlimited" => Some(libc::RLIM_INFINITY),
        word => word.parse().ok(),
    };
    let lines = text.unwrap_or_default().lines();
    lines
        .filter_map(|line| {
            let (name, resource) = NAMES.into_iter().find(|(name, _)| line.starts_with(name))?;
            let mut words = line.strip_prefix(name)?.split_ascii_whitespace();
            Some((resource, number(words.next()?)?, number(words.next()?)?))
        })
        .collect()
}

/// The umask of a process; the usual one where the kernel does not say.
pub fn mask(tree: &Tree, pid: i32) -> u32 {
    let status = tree
        .text(&format!("/proc/{pid}/status"))
        .unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    mask.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok())
        .unwrap_or(0o022)
}

/// The `cgroup.procs` of every control group that contains the process and is mounted.
pub fn cgroups(tree: &Tree, pid: i32) -> Vec<PathBuf> {
    let text = tree
        .text(&format!("/proc/{pid}/cgroup"))
        .unwrap_or_default();
    text.lines()
        .filter_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?);
            let file = if controllers.is_empty() {
                ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
                    .into_iter()
                    .map(|root| format!("{root}{path}/cgroup.procs"))
                    .find(|file| tree.exists(file))?
            } else {
                format!("/sys/fs/cgroup/{controllers}{path}/cgroup.procs")
            };
            tree.exists(&file).then(|| tree.path(&file))
        })
        .collect()
}
