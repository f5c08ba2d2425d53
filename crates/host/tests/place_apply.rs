//! Plans on processes of the test itself.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/place.rs"]
mod common;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use common::{Own, answer, complaint, is_empty, run, until};
use vtax_host::place::apply::apply;
use vtax_host::place::cpus::online;
use vtax_host::place::plan::Plan;
use vtax_sys::tree::Tree;

/// A folder for journal and plan.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn state(&self) -> String {
        self.path("state")
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn plan(&self, host: &str, entries: &str) -> String {
        let path = self.path("plan.toml");
        fs::write(&path, format!("format = 1\nhost = {host:?}\n{entries}")).unwrap();
        path
    }

    fn apply(&self, entries: &str) -> serde_json::Value {
        let path = self.plan(&host(), entries);
        answer(&["apply", "--json", "--plan", &path, "--state", &self.state()])
    }

    fn refused(&self, host: &str, entries: &str) -> (Option<i32>, String) {
        let path = self.plan(host, entries);
        complaint(&["apply", "--plan", &path, "--state", &self.state()])
    }

    fn undo(&self) -> serde_json::Value {
        answer(&["undo", "--json", "--state", &self.state()])
    }
}

fn host() -> String {
    answer(&["host", "--json"])["host"]
        .as_str()
        .unwrap()
        .to_owned()
}

fn entry(own: &Own, cpus: &str) -> String {
    let (pid, start) = (own.pid(), own.start_ticks());
    format!(
        "[[thread]]\npid = {pid}\ntid = {pid}\nstart_ticks = {start}\nname = \"sh\"\n\
         role = \"main-loop\"\ncpus = {cpus:?}\n"
    )
}

fn last_cpu() -> String {
    online(&Tree::host()).last().unwrap().to_string()
}

#[test]
fn a_plan_is_applied_once_and_undone_exactly() {
    root_or_skip!();
    let (own, place) = (Own::guest(), Place::new());
    let (before, cpu) = (own.cpus(), last_cpu());
    let applied = place.apply(&entry(&own, &cpu));
    assert_eq!(applied["threads"][0]["before"], before.as_str());
    assert_eq!(own.cpus(), cpu);
    let (code, message) = place.refused(&host(), &entry(&own, &cpu));
    assert_eq!(code, Some(2));
    assert!(message.contains("vtax place apply --undo"), "{message}");
    assert_eq!(place.undo()["threads"], 1);
    assert_eq!(own.cpus(), before);
    assert!(is_empty(Path::new(&place.state())));
    let mode = fs::metadata(place.state()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let (code, message) = complaint(&["undo", "--state", &place.path("never-made")]);
    assert_eq!(code, Some(2));
    assert!(!Path::new(&place.path("never-made")).exists());
    assert!(message.contains("no plan is in force"), "{message}");
}

#[test]
fn threads_that_have_ended_are_left_out() {
    root_or_skip!();
    let (own, other, place) = (Own::guest(), Own::guest(), Place::new());
    let cpu = last_cpu();
    let gone = entry(&other, &cpu);
    drop(other);
    let applied = place.apply(&(entry(&own, &cpu) + &gone));
    assert_eq!(applied["threads"].as_array().unwrap().len(), 1);
    assert_eq!(applied["skipped"][0]["reason"], "it has ended");
    // The number may be reused: the start time decides.
    place.undo();
    let start = own.start_ticks();
    let other = entry(&own, &cpu).replace(&format!("start_ticks = {start}"), "start_ticks = 1");
    let (code, message) = place.refused(&host(), &other);
    assert_eq!(code, Some(1));
    assert!(
        message.contains("all of its threads have ended"),
        "{message}"
    );
}

#[test]
fn what_a_moved_thread_has_started_comes_back_with_it() {
    root_or_skip!();
    let place = Place::new();
    // The process starts a busy one when it is told to.
    let script = "read go; while :; do :; done & while :; do sleep 1; done";
    let mut own = Own::guest_of(script);
    let (before, cpu) = (own.cpus(), last_cpu());
    place.apply(&entry(&own, &cpu));
    own.say("go");
    let tree = Tree::host();
    let child = || {
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", own.pid()));
        let first = children.unwrap().split(' ').next()?.parse::<i32>().ok()?;
        tree.allowed_cpus(&format!("/proc/{first}"))
            .map(|cpus| (first, cpus))
    };
    until("it starts another", || child().is_some());
    let (first, inherited) = child().unwrap();
    assert_eq!(inherited, cpu);
    place.undo();
    assert_eq!(own.cpus(), before);
    assert_eq!(tree.allowed_cpus(&format!("/proc/{first}")), Some(before));
}

#[test]
fn undo_goes_on_without_a_thread_that_has_ended() {
    root_or_skip!();
    let (own, other, place) = (Own::guest(), Own::guest(), Place::new());
    let (before, cpu) = (own.cpus(), last_cpu());
    place.apply(&(entry(&own, &cpu) + &entry(&other, &cpu)));
    let gone = other.pid();
    drop(other);
    let undone = place.undo();
    assert_eq!(undone["ended"].to_string(), format!("[{gone}]"));
    assert_eq!(own.cpus(), before);
}

#[test]
fn what_cannot_be_is_refused_before_anything_moves() {
    root_or_skip!();
    let (own, place) = (Own::guest(), Place::new());
    let innocent = Own::busy();
    let (before, cpu) = (own.cpus(), last_cpu());
    let good = entry(&own, &cpu);
    let interrupt = "[[interrupt]]\nnumber = 4000000000\ncpus = \"0\"\n";
    for (host, entries, word) in [
        ("0123456789abcdef".to_owned(), good.clone(), "for the host"),
        (
            host(),
            good.clone() + &entry(&innocent, &cpu),
            "no part of virtualization",
        ),
        (host(), entry(&own, "8191"), "CPU 8191 is not online"),
        (host(), entry(&own, ""), "names no CPU"),
        (host(), good.clone() + interrupt, "no such interrupt"),
        (host(), good.clone() + "nonsense", "line"),
    ] {
        let (code, message) = place.refused(&host, &entries);
        assert_eq!(code, Some(2), "{message}");
        assert!(message.contains(word), "{message}");
    }
    assert_eq!((own.cpus(), innocent.cpus()), (before.clone(), before));
    assert!(is_empty(Path::new(&place.state())));
}

/// A program that was killed before its first move, or after it, has left a journal.
#[test]
fn the_journal_of_a_killed_program_is_enough_to_undo() {
    root_or_skip!();
    let (own, place) = (Own::guest(), Place::new());
    let (before, cpu) = (own.cpus(), last_cpu());
    place.apply(&entry(&own, &cpu));
    let journal = Path::new(&place.state()).join("journal.json");
    let text = fs::read_to_string(&journal).unwrap();
    place.undo();
    fs::write(&journal, text).unwrap();
    assert_eq!(place.undo()["threads"], 1);
    assert_eq!(own.cpus(), before);
}

/// `/proc/version` stands for an interrupt that the kernel does not move, because it cannot be
/// written.
#[test]
fn a_refused_move_takes_all_back() {
    root_or_skip!();
    let (own, place) = (Own::guest(), Place::new());
    let root = tempfile::tempdir().unwrap();
    let link = |path: &str, to: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(to, path).unwrap();
    };
    let process = format!("proc/{}", own.pid());
    link(&process, &format!("/{process}"));
    link("proc/irq/5/smp_affinity_list", "/proc/version");
    link("sys", "/sys");
    let tree = Tree::at(root.path());
    let entries = entry(&own, &last_cpu()) + "[[interrupt]]\nnumber = 5\ncpus = \"0\"\n";
    let text = format!(
        "format = 1\nhost = {:?}\n{entries}",
        vtax_host::place::host::host(&tree)
    );
    let before = own.cpus();
    let plan = Plan::parse(&text).unwrap();
    let error = apply(&tree, &plan, Path::new(&place.state())).unwrap_err();
    assert!(
        error.to_string().contains("everything was undone"),
        "{error}"
    );
    assert_eq!(own.cpus(), before);
    assert!(is_empty(Path::new(&place.state())));
}

#[test]
fn wakeups_are_counted_where_ebpf_is_allowed() {
    let own = Own::guest_of("while :; do sleep 0.01; done");
    let found = answer(&[
        "threads",
        "--json",
        "--for",
        "300ms",
        "--pid",
        &own.number(),
    ]);
    let wakeups = &found["threads"][0]["wakeups"];
    if wakeups.is_null() {
        eprintln!("skipped: {}", found["notes"]);
        return;
    }
    assert!(wakeups.as_u64().unwrap() > 0, "{found}");
    let softirq = found["cpus"].as_array().unwrap().iter();
    assert!(
        softirq.clone().all(|cpu| cpu["softirq_s"].is_f64()),
        "{found}"
    );
}

#[test]
fn threads_are_found_where_they_are() {
    let own = Own::guest();
    let found = answer(&["threads", "--json", "--for", "50ms", "--pid", &own.number()]);
    let thread = &found["threads"][0];
    assert_eq!(found["threads"].as_array().unwrap().len(), 1, "{found}");
    assert_eq!(thread["role"], "main-loop");
    assert_eq!(thread["guest"], "vtax-test");
    assert_eq!(thread["service"], true);
    assert_eq!(thread["start_ticks"], own.start_ticks());
    assert_eq!(thread["cpus"], own.cpus().as_str());
    assert!(found["window_s"].as_f64().unwrap() >= 0.05);
    let absent = thread["wakeups"].is_null();
    let noted = found["notes"].to_string().contains("eBPF");
    assert_eq!(absent, noted, "{found}");
}

/// The back ends, in the order in which they are preferred.
const NAMES: [&str; 6] = [
    "core-type",
    "cpufreq",
    "emulator",
    "quota",
    "hog",
    "xen-cap",
];

#[test]
fn every_way_has_a_reason_or_is_possible() {
    let found = answer(&["backends", "--json"]);
    let all = found["backends"].as_array().unwrap();
    let names: Vec<_> = all.iter().filter_map(|one| one["name"].as_str()).collect();
    assert_eq!(names, NAMES);
    for one in all {
        assert_eq!(one["possible"], one["reason"].is_null(), "{one}");
        assert!(!one["does_not"].as_str().unwrap().is_empty());
    }
    let text = run(&["backends"]);
    assert!(String::from_utf8(text.stdout).unwrap().contains("xen-cap"));
}

#[test]
fn no_such_process_is_misuse() {
    let (code, message) = complaint(&["threads", "--pid", "2147483647"]);
    assert_eq!(code, Some(2));
    assert!(message.contains("2147483647"), "{message}");
}
