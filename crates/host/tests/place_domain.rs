//! The service domain in trees of `/proc`: recorded trees (`trees/*.txt`, from this project's own
//! guests), and hand-written trees for what cannot run in the tests.
//!
//! A recorded tree is a text: `@ PATH` before each file, `\0` for a zero byte, `\\` for a backslash.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use tempfile::TempDir;
use vtax_host::place::domain::Finder;
use vtax_sys::tree::Tree;

const KERNEL_THREAD: u32 = 0x0020_0000;

/// Role, guest, process and name of each thread.
type Row = (&'static str, Option<String>, String, String);

fn found(root: &Path, roots: &[i32]) -> Vec<Row> {
    let members = Finder::default().find(&Tree::at(root), roots).into_iter();
    members
        .map(|one| (one.role.name(), one.guest, one.process, one.task.name))
        .collect()
}

fn roles(root: &Path) -> Vec<&'static str> {
    found(root, &[])
        .into_iter()
        .map(|(role, ..)| role)
        .collect()
}

fn recorded(name: &str) -> TempDir {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/trees");
    let text = fs::read_to_string(folder.join(name).with_extension("txt")).unwrap();
    let root = tempfile::tempdir().unwrap();
    for file in text.split("@ proc/").skip(1) {
        let (path, text) = file.split_once('\n').unwrap();
        let text = text.trim_end_matches('\n').replace("\\0", "\0");
        put(
            root.path(),
            &format!("proc/{path}"),
            text.replace("\\\\", "\\").as_bytes(),
        );
    }
    root
}

fn put(root: &Path, path: &str, bytes: &[u8]) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

fn stat(number: i32, name: &str, parent: i32, flags: u32, guest_ticks: u32) -> String {
    format!(
        "{number} ({name}) S {parent} 1 1 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 500 0 0 0 0 0 0 0 0 \
         0 0 0 0 0 0 0 17 0 0 0 0 {guest_ticks} 0"
    )
}

/// A process with these threads (number, name, ticks in guests); the first thread is the process
/// itself.
fn process(root: &Path, parent: i32, arguments: &[&str], threads: &[(i32, &str, u32)]) {
    let (pid, name, _) = threads[0];
    let folder = format!("proc/{pid}");
    put(
        root,
        &format!("{folder}/stat"),
        stat(pid, name, parent, 0, 0).as_bytes(),
    );
    put(
        root,
        &format!("{folder}/cmdline"),
        (arguments.join("\0") + "\0").as_bytes(),
    );
    put(root, &format!("{folder}/status"), b"TracerPid:\t0\n");
    for (tid, name, ticks) in threads {
        let text = stat(*tid, name, parent, 0, *ticks);
        put(root, &format!("{folder}/task/{tid}/stat"), text.as_bytes());
    }
}

fn kernel(root: &Path, pid: i32, name: &str) {
    let text = stat(pid, name, 2, KERNEL_THREAD, 0);
    for path in [
        format!("proc/{pid}/stat"),
        format!("proc/{pid}/task/{pid}/stat"),
    ] {
        put(root, &path, text.as_bytes());
    }
}

#[test]
fn where_nothing_is_virtual_nothing_is_found() {
    assert!(found(recorded("nothing").path(), &[]).is_empty());
    assert!(found(Path::new("/nonexistent"), &[]).is_empty());
}

#[test]
fn qemu_with_tcg_by_the_names_of_its_threads() {
    let all = found(recorded("qemu_tcg").path(), &[]);
    let of = |guest: &str| -> Vec<(&str, &str)> {
        let own = all.iter().filter(|row| row.1.as_deref() == Some(guest));
        own.map(|row| (row.0, row.3.as_str())).collect()
    };
    assert_eq!(
        of("web"),
        [
            ("main-loop", "qemu-system-x86"),
            ("unknown", "qemu-system-x86"),
            ("io-thread", "IO io1"),
            ("vcpu", "CPU 0/TCG"),
            ("vcpu", "CPU 1/TCG"),
        ]
    );
    // Without thread names nothing is guessed.
    let roles: Vec<&str> = of("db").iter().map(|(role, _)| *role).collect();
    assert_eq!(roles, ["main-loop", "unknown", "unknown", "unknown"]);
    assert!(all.iter().any(|row| row.0 == "softirq" && row.1.is_none()));
    assert!(!all.iter().any(|row| row.2.contains("kworker")));
}

#[test]
fn user_mode_linux_and_its_switch() {
    let all = found(recorded("uml_vde").path(), &[]);
    let guest = all.iter().find(|row| row.0 == "guest").unwrap().1.clone();
    let count = |role: &str| all.iter().filter(|row| row.0 == role).count();
    assert_eq!(
        (count("guest"), count("io-thread"), count("switch")),
        (2, 2, 1)
    );
    assert!(
        all.iter()
            .filter(|row| row.0 != "softirq")
            .all(|row| row.1 == guest)
    );
}

#[test]
fn gvisor_by_the_name_of_the_container() {
    let all = found(recorded("gvisor").path(), &[]);
    for role in ["sentry", "gofer", "guest", "monitor"] {
        let own: Vec<&Row> = all.iter().filter(|row| row.0 == role).collect();
        assert!(!own.is_empty(), "{role}");
        assert!(
            own.iter().all(|row| row.1.as_deref() == Some("h3test")),
            "{own:?}"
        );
    }
}

/// A guest as libvirt starts it, with vhost's threads in the kernel, as before Linux 6.4.
fn libvirt(root: &Path) {
    let arguments = [
        "/usr/bin/qemu-system-x86_64",
        "-name",
        "guest=web,debug-threads=on",
        "-accel",
        "kvm",
        "-chardev",
        "socket,id=chr-fs0,path=/run/libvirt/qemu/1-web/fs0.sock",
        "-netdev",
        "stream,id=n,addr.type=unix,addr.path=/run/libvirt/qemu/passt/1-web.socket",
    ];
    let threads = [
        (100, "qemu-system-x86", 0),
        (101, "call_rcu", 0),
        (102, "IO iothread1", 0),
        (103, "CPU 0/KVM", 5),
        (104, "worker", 0),
    ];
    process(root, 1, &arguments, &threads);
    kernel(root, 90, "vhost-100");
    kernel(root, 91, "kvm-pit/100");
    kernel(root, 14, "ksoftirqd/0");
    kernel(root, 15, "kworker/0:1");
    let files = [
        "/usr/libexec/virtiofsd",
        "--socket-path=/run/libvirt/qemu/1-web/fs0.sock",
    ];
    process(root, 1, &files, &[(110, "virtiofsd", 0)]);
    let network = [
        "passt",
        "--one-off",
        "--socket",
        "/run/libvirt/qemu/passt/1-web.socket",
    ];
    process(root, 1, &network, &[(111, "passt.avx2", 0)]);
    process(root, 1, &["/usr/sbin/libvirtd"], &[(112, "libvirtd", 0)]);
}

#[test]
fn libvirt_with_kvm_and_vhost_in_the_kernel() {
    let root = tempfile::tempdir().unwrap();
    libvirt(root.path());
    let all = found(root.path(), &[]);
    let roles: Vec<&str> = all.iter().map(|row| row.0).collect();
    let expected = [
        "softirq",
        "vhost",
        "worker",
        "main-loop",
        "worker",
        "io-thread",
        "vcpu",
        "worker",
        "virtiofsd",
        "user-network",
    ];
    assert_eq!(roles, expected);
    assert!(
        all.iter()
            .skip(1)
            .all(|row| row.1.as_deref() == Some("web")),
        "{all:?}"
    );
}

#[test]
fn only_what_descends_from_a_process_or_serves_it() {
    let root = tempfile::tempdir().unwrap();
    libvirt(root.path());
    process(
        root.path(),
        1,
        &["kvm", "-name", "other"],
        &[(200, "kvm", 0)],
    );
    kernel(root.path(), 92, "vhost-200");
    let all = found(root.path(), &[200]);
    let rows: Vec<(&str, Option<&str>)> = all.iter().map(|row| (row.0, row.1.as_deref())).collect();
    assert_eq!(
        rows,
        [("vhost", Some("other")), ("main-loop", Some("other"))]
    );
}

#[test]
fn kvm_without_names_by_its_time_in_the_guest() {
    let root = tempfile::tempdir().unwrap();
    // Since Linux 6.4 vhost's threads belong to the process.
    let threads = [
        (100, "kvm", 0),
        (101, "kvm", 0),
        (102, "kvm", 77),
        (103, "vhost-100", 0),
    ];
    process(root.path(), 1, &["/usr/bin/kvm", "-m", "1G"], &threads);
    let all = found(root.path(), &[]);
    let roles: Vec<&str> = all.iter().map(|row| row.0).collect();
    assert_eq!(roles, ["main-loop", "unknown", "vcpu", "vhost"]);
    assert!(all.iter().all(|row| row.1.as_deref() == Some("100")));
}

#[test]
fn what_only_looks_like_virtualization_is_left_out() {
    let root = tempfile::tempdir().unwrap();
    let innocent: [(i32, &[&str]); 6] = [
        (
            50,
            &["/usr/bin/bwrap", "--bind", "/", "/", "/usr/bin/firefox"],
        ),
        (51, &["/usr/bin/firefox"]),
        (52, &["qemu-x86_64", "./program"]),
        (53, &["sh", "-c", "linux.uml mem=64M umid=a root=/dev/root"]),
        (54, &["vim", "linux", "mem=1G"]),
        (55, &["xl", "vcpu-list"]),
    ];
    for (pid, arguments) in innocent {
        let parent = if pid == 51 { 50 } else { 1 };
        process(root.path(), parent, arguments, &[(pid, "x", 0)]);
    }
    kernel(root.path(), 14, "ksoftirqd/0");
    assert!(roles(root.path()).is_empty());
    // The same Xen tool on a machine with Xen, and Xen's kernel threads.
    fs::create_dir_all(root.path().join("proc/xen")).unwrap();
    kernel(root.path(), 60, "vif1.0-q0-guest");
    assert_eq!(roles(root.path()), ["softirq", "dom0", "xen"]);
}

#[test]
fn a_container_and_its_network() {
    let root = tempfile::tempdir().unwrap();
    process(
        root.path(),
        1,
        &[
            "/usr/bin/conmon",
            "--api-version",
            "1",
            "-c",
            "0123",
            "-n",
            "web",
        ],
        &[(70, "conmon", 0)],
    );
    process(
        root.path(),
        1,
        &["/usr/bin/slirp4netns", "-c", "71", "tap0"],
        &[(72, "slirp4netns", 0)],
    );
    let all = found(root.path(), &[]);
    assert_eq!((all[0].0, all[0].1.as_deref()), ("monitor", Some("web")));
    assert_eq!((all[1].0, all[1].1.as_deref()), ("user-network", None));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_process_is_answered(
        name in ".{0,15}",
        program in "(qemu-system-|kvm|linux|runsc|bwrap|passt|conmon|vde_switch|.{0,5}).{0,3}",
        rest in proptest::collection::vec("(-name|boot|gofer|mem=1|root=a|umid=|/a/b|.{0,6})", 0..5),
        parents in proptest::collection::vec(1_i32..6, 5),
    ) {
        let root = tempfile::tempdir().unwrap();
        let words: Vec<&str> = std::iter::once(program.as_str())
            .chain(rest.iter().map(String::as_str))
            .collect();
        // Parents may form a circle: processes are read one after the other.
        for (pid, parent) in (1..).zip(parents) {
            process(root.path(), parent, &words, &[(pid, &name, 0), (pid + 10, "CPU 0/KVM", 0)]);
        }
        for (role, guest, ..) in found(root.path(), &[]) {
            prop_assert!(!role.is_empty() && guest.is_none_or(|guest| !guest.is_empty()));
        }
        found(root.path(), &[2]);
    }

    #[test]
    fn any_stat_is_answered(text in "(?s)[\\PC\n]{0,60}", fields in 0_usize..50) {
        let root = tempfile::tempdir().unwrap();
        let whole = stat(7, "qemu", 1, 0, 0);
        let cut: Vec<&str> = whole.split(' ').take(fields).collect();
        for text in [text, cut.join(" ")] {
            put(root.path(), "proc/7/stat", text.as_bytes());
            put(root.path(), "proc/7/cmdline", b"qemu-system-x86_64\xff\0");
            put(root.path(), "proc/7/task/7/stat", text.as_bytes());
            prop_assert!(found(root.path(), &[]).len() <= 1);
        }
    }
}
