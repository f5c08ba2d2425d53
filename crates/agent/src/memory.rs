//! `vtax-agent memory`: runs a command and records the memory that it and the machine use
//! meanwhile.
//!
//! It runs in the machine, because each look from outside would cost a request. A look reads two
//! files of `/proc`.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, raise};
use nix::unistd::Pid;
use serde::Serialize;
use serde_json::{Map, Value, json};
use vtax_sys::calls::children::{End, wait_with_usage};
use vtax_sys::calls::memory::page_bytes;
use vtax_sys::cgroup::locate::{Location, Version, locate};
use vtax_sys::program_counts::TlbCounts;
use vtax_sys::terminal::Error;
use vtax_sys::tree::{Tree, field};

use crate::working_set::WorkingSet;

/// Fields of `/proc/meminfo`.
const MEMORY: [&str; 9] = [
    "MemTotal",
    "MemFree",
    "MemAvailable",
    "SwapTotal",
    "SwapFree",
    "Slab",
    "PageTables",
    "KernelStack",
    "VmallocUsed",
];
/// Fields of `/proc/vmstat`: running totals since the machine started.
const EVENTS: [&str; 5] = ["pswpin", "pswpout", "pgfault", "pgmajfault", "oom_kill"];
/// Names in `/proc/iomem` of the kernel's own image. Only root can read their addresses.
const IMAGE: [&str; 4] = ["Kernel code", "Kernel rodata", "Kernel data", "Kernel bss"];

#[derive(Debug, Clone)]
pub struct MemoryOptions {
    /// Program and arguments; not empty.
    pub argv: Vec<OsString>,
    /// File for the result.
    pub out: PathBuf,
    /// Time from one look to the next.
    pub every: Duration,
    /// Measure the working set, too.
    pub working_set: bool,
}

/// The largest values that were seen while the command ran, in bytes, and the last look.
#[derive(Debug, Default, Serialize)]
struct Seen {
    looks: u64,
    /// Swap of the command's control group, or of all swap devices where it has none, minus what
    /// was in use before.
    swap_bytes: Option<u64>,
    /// What the first process used within a second, the median.
    working_set_bytes: Option<u64>,
    /// The resident set of the first process.
    program_rss_bytes: Option<u64>,
    last: Option<Value>,
}

/// Run the command, write the result, and end as the command ended.
///
/// Fails when the command cannot be started, and when the result cannot be written.
pub fn run(options: &MemoryOptions) -> Result<(), Error> {
    let tree = Tree::host();
    let before = look(&tree);
    let others = resident(&tree);
    let begin = Instant::now();
    let misses = TlbCounts::of_children();
    let child = start(&options.argv)?;
    let (over, ended) = mpsc::channel::<()>();
    let watcher = {
        let (tree, every, base) = (tree.clone(), options.every, swap_used(&tree));
        let working_set = options.working_set.then(|| WorkingSet::of(child));
        thread::spawn(move || watch(&tree, child, every, base, working_set, &ended))
    };
    // This thread waits for nothing else, so the time taken is the command's.
    let (end, usage) = wait_with_usage(child)
        .map_err(|errno| Error::system("wait4", errno, "this is a fault of the machine"))?;
    let wall_s = begin.elapsed().as_secs_f64();
    drop(over);
    let seen = watcher.join().unwrap_or_default();
    let (dtlb_misses, itlb_misses) = misses.read();
    let result = json!({
        "wall_s": wall_s,
        "max_rss_bytes": usage.max_rss_bytes,
        "minor_faults": usage.minor_faults,
        "major_faults": usage.major_faults,
        "dtlb_misses": dtlb_misses,
        "itlb_misses": itlb_misses,
        "seen": seen,
        "before": before,
        "after": look(&tree),
        "own_swap": own_group(&tree).is_some(),
        "image_bytes": image(&tree),
        "modules_bytes": modules(&tree),
        "others_bytes": others,
        "page_bytes": page_bytes(),
    });
    let text = result.to_string();
    fs::write(&options.out, text).map_err(|error| {
        let thing = format!("--out {}", options.out.display());
        Error::input_output(&thing, &error, "choose a file that can be written")
    })?;
    leave(end)
}

/// Start the command with this process's environment, folder and files.
fn start(argv: &[OsString]) -> Result<Pid, Error> {
    let mut command = Command::new(&argv[0]);
    command.args(&argv[1..]);
    let child = command.spawn().map_err(|error| {
        let thing = format!("run {}", argv[0].display());
        Error::input_output(&thing, &error, "check the command line")
    })?;
    Ok(Pid::from_raw(child.id().cast_signed()))
}

/// Look until `ended` says so, or its other side is gone.
fn watch(
    tree: &Tree,
    child: Pid,
    every: Duration,
    base: Option<u64>,
    mut working_set: Option<WorkingSet>,
    ended: &mpsc::Receiver<()>,
) -> Seen {
    let mut seen = Seen::default();
    // The first look comes early: a command may be short.
    let mut wait = every / 10;
    while ended.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
        wait = every;
        let status = tree
            .text(&format!("/proc/{child}/status"))
            .unwrap_or_default();
        // A process that has ended has no resident set: what this look sees does not belong to the
        // command.
        let Some(rss) = bytes(&status, "VmRSS") else {
            continue;
        };
        let used = swap_used(tree).zip(base);
        let used = used.map(|(now, then)| now.saturating_sub(then));
        seen.swap_bytes = seen.swap_bytes.max(used);
        seen.program_rss_bytes = seen.program_rss_bytes.max(Some(rss));
        if let Some(set) = &mut working_set {
            set.look(tree);
        }
        seen.last = Some(look(tree));
        seen.looks += 1;
    }
    seen.working_set_bytes = working_set.and_then(WorkingSet::bytes);
    seen
}

/// What the machine reports about its memory at this moment.
fn look(tree: &Tree) -> Value {
    let meminfo = tree.text("/proc/meminfo").unwrap_or_default();
    let vmstat = tree.text("/proc/vmstat").unwrap_or_default();
    let memory = MEMORY.map(|name| (name.to_owned(), json!(bytes(&meminfo, name))));
    let count = |name| field(&vmstat, name).and_then(|text| text.parse::<u64>().ok());
    let events = EVENTS.map(|name| (name.to_owned(), json!(count(name))));
    json!({
        "memory_bytes": Map::from_iter(memory),
        "events": Map::from_iter(events),
        "stalled_us": stalled(tree),
    })
}

/// The time in which some task of the machine has waited for memory (`/proc/pressure/memory`).
fn stalled(tree: &Tree) -> Option<u64> {
    let text = tree.text("/proc/pressure/memory")?;
    let line = text.lines().find(|line| line.starts_with("some "))?;
    line.rsplit_once("total=")?.1.trim().parse().ok()
}

/// `NAME:   123 kB`, where kB means 1024 bytes (proc(5)).
fn bytes(text: &str, name: &str) -> Option<u64> {
    let number = field(text, name)?.strip_suffix("kB")?.trim();
    number.parse::<u64>().ok()?.checked_mul(1024)
}

/// This process's control group for memory; `None` in the root group.
fn own_group(tree: &Tree) -> Option<Location> {
    locate(tree, "memory").filter(|group| group.parent().is_some())
}

/// What is swapped out of this process's control group; in the root group, what is swapped out of
/// the whole machine.
fn swap_used(tree: &Tree) -> Option<u64> {
    if let Some(group) = own_group(tree) {
        let file = |name| tree.text(&format!("{}/{name}", group.own));
        return match group.version {
            Version::V1 => field(&file("memory.stat")?, "swap")?.parse().ok(),
            Version::V2 => file("memory.swap.current")?.trim().parse().ok(),
        };
    }
    // gVisor's kernel, which the host may swap out, has no such file, and says 0 below.
    if !tree.exists("/proc/swaps") {
        return None;
    }
    let text = tree.text("/proc/meminfo")?;
    bytes(&text, "SwapTotal")?.checked_sub(bytes(&text, "SwapFree")?)
}

/// The parts of the kernel's image; null where the machine does not show addresses.
fn image(tree: &Tree) -> Value {
    let text = tree.text("/proc/iomem").unwrap_or_default();
    let parts = IMAGE.map(|name| (name.to_owned(), json!(region(&text, name))));
    Value::Object(Map::from_iter(parts))
}

/// The kernel's loaded modules: code and data. `None` where the kernel takes none.
fn modules(tree: &Tree) -> Option<u64> {
    let text = tree.text("/proc/modules")?;
    let sizes = text
        .lines()
        .filter_map(|line| line.split(' ').nth(1)?.parse::<u64>().ok());
    Some(sizes.sum())
}

/// The resident sets of all processes, this one's too. A page that several share counts once, a
/// part of it for each; where a process does not show its parts, it counts whole for it.
fn resident(tree: &Tree) -> u64 {
    let bytes_of = |name: &str, file: &str, key: &str| {
        bytes(&tree.text(&format!("/proc/{name}/{file}"))?, key)
    };
    let of = |name: &String| {
        bytes_of(name, "smaps_rollup", "Pss").or_else(|| bytes_of(name, "status", "VmRSS"))
    };
    tree.names("/proc").iter().filter_map(of).sum()
}

/// `  01000000-01e02fff : Kernel code`: the range includes its last address.
fn region(iomem: &str, name: &str) -> Option<u64> {
    let line = iomem.lines().find_map(|line| {
        let (range, what) = line.split_once(" : ")?;
        (what.trim() == name).then_some(range)
    })?;
    let (first, last) = line.trim().split_once('-')?;
    let parse = |text| u64::from_str_radix(text, 16).ok();
    let size = parse(last)?.checked_sub(parse(first)?)?;
    // For all but root every address reads as 0.
    (size > 0).then_some(size + 1)
}

/// End as the command did.
pub fn leave(end: End) -> Result<(), Error> {
    match end {
        End::Exited(code) => std::process::exit(code),
        End::Signaled(number) => {
            if let Ok(signal) = Signal::try_from(number) {
                // A core dump would be of this program.
                let _ = nix::sys::prctl::set_dumpable(false);
                let _ = raise(signal);
            }
            Err(Error::Interrupted(number))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str = "MemTotal: 1000 kB\nMemFree: 400 kB\nSwapTotal: 64 kB\nSwapFree: 4 kB\n";

    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Tree) {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let file = root.path().join("proc").join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        let tree = Tree::at(root.path());
        (root, tree)
    }

    #[test]
    fn what_a_machine_says_is_read_and_what_it_does_not_is_null() {
        let swapless = machine(&[("meminfo", MEMINFO)]);
        assert_eq!(swap_used(&swapless.1), None);
        let pressure = "some avg10=0.00 total=17\nfull avg10=0.00 total=5\n";
        let (_root, tree) = machine(&[
            ("meminfo", MEMINFO),
            ("swaps", "Filename Type Size Used Priority\n"),
            ("vmstat", "pswpin 3\npswpout 5\noom_kill 1\n"),
            ("pressure/memory", pressure),
        ]);
        let seen = look(&tree);
        assert_eq!(seen["memory_bytes"]["MemTotal"], 1_024_000);
        assert_eq!(seen["memory_bytes"]["Slab"], Value::Null);
        assert_eq!(seen["events"]["pswpout"], 5);
        assert_eq!(seen["events"]["pgfault"], Value::Null);
        assert_eq!(seen["stalled_us"], 17);
        assert_eq!(swap_used(&tree), Some(60 << 10));
        let (_root, empty) = machine(&[]);
        assert_eq!(look(&empty)["stalled_us"], Value::Null);
        assert_eq!(swap_used(&empty), None);
    }

    #[test]
    fn modules_and_processes_are_added_up() {
        let (_root, tree) = machine(&[
            (
                "modules",
                "9p 1000 1 - Live 0x0\noverlay 200 0 - Live 0x0 (E)\n",
            ),
            ("1/status", "Name: init\nVmRSS:     3 kB\n"),
            (
                "1/smaps_rollup",
                "1000-2000 ---p 0 00:00 0 [rollup]\nRss: 3 kB\nPss:   2 kB\nPss_Dirty: 1 kB\n",
            ),
            ("2/status", "Name: kthreadd\n"),
            ("77/status", "VmRSS: 4 kB\n"),
        ]);
        assert_eq!(modules(&tree), Some(1200));
        assert_eq!(resident(&tree), (2 + 4) << 10);
        assert_eq!(modules(&machine(&[]).1), None);
    }

    #[test]
    fn swap_is_that_of_the_control_group() {
        let mounted = "31 24 0:27 / /group rw - cgroup cgroup rw,memory\n";
        let (root, tree) = machine(&[
            ("meminfo", MEMINFO),
            ("self/cgroup", "4:memory:/own\n0::/\n"),
            ("self/mountinfo", mounted),
        ]);
        let group = root.path().join("group/own");
        fs::create_dir_all(&group).unwrap();
        fs::write(
            group.join("memory.stat"),
            "cache 8192\nswap 4096\nswapcached 1\n",
        )
        .unwrap();
        assert_eq!(swap_used(&tree), Some(4096));
        let mounted = "31 24 0:27 / /group rw - cgroup2 cgroup2 rw\n";
        fs::write(root.path().join("proc/self/mountinfo"), mounted).unwrap();
        fs::write(root.path().join("proc/self/cgroup"), "0::/own\n").unwrap();
        fs::write(group.join("memory.swap.current"), "12288\n").unwrap();
        assert_eq!(swap_used(&tree), Some(12_288));
        fs::remove_file(group.join("memory.swap.current")).unwrap();
        assert_eq!(swap_used(&tree), None, "the machine's would be of others");
    }

    #[test]
    fn the_image_is_known_only_where_addresses_are_shown() {
        let shown = "00001000-0009ffff : System RAM\n  01000000-01e02fff : Kernel code\n";
        assert_eq!(region(shown, "Kernel code"), Some(0x00e0_3000));
        assert_eq!(region(shown, "Kernel data"), None);
        assert_eq!(
            region("  00000000-00000000 : Kernel code\n", "Kernel code"),
            None
        );
    }
}
