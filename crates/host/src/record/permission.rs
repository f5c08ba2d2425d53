//! What this process may do, and exactly what it lacks.

use vtax_sys::tree::{Tree, field};

/// Bits of `CapEff` (include/uapi/linux/capability.h).
const CAPABILITIES: [(&str, u32); 2] = [("CAP_PERFMON", 38), ("CAP_BPF", 39)];
/// `CAP_SYS_ADMIN` includes both of them.
const SYS_ADMIN: u32 = 21;
const LOCKDOWN: &str = "/sys/kernel/security/lockdown";

/// Why a recording is forbidden on this machine, and the remedy; `None`: nothing is known to forbid
/// it.
pub fn missing(tree: &Tree) -> Option<(String, String)> {
    let status = tree.text("/proc/self/status")?;
    let effective = u64::from_str_radix(field(&status, "CapEff")?, 16).ok()?;
    let has = |bit: u32| effective >> bit & 1 == 1;
    let lacking: Vec<&str> = CAPABILITIES
        .iter()
        .filter(|(_, bit)| !has(*bit) && !has(SYS_ADMIN))
        .map(|(name, _)| *name)
        .collect();
    if !lacking.is_empty() {
        return Some((
            format!(
                "this process lacks {}{}",
                lacking.join(" and "),
                settings(tree)
            ),
            format!(
                "run it as root, or: setcap cap_bpf,cap_perfmon=ep {}",
                program()
            ),
        ));
    }
    locked_down(tree)
}

/// This program's path, which need not be on the user's PATH.
fn program() -> String {
    std::env::current_exe().map_or_else(
        |_| "vtax-host".to_owned(),
        |path| path.display().to_string(),
    )
}

/// The settings that would allow less privileged recordings elsewhere, with their values on this
/// machine.
fn settings(tree: &Tree) -> String {
    let value = |name: &str| {
        let text = tree.text(&format!("/proc/sys/kernel/{name}"));
        text.unwrap_or_else(|| "absent".to_owned())
    };
    format!(
        " (kernel.perf_event_paranoid is {}, kernel.unprivileged_bpf_disabled is {})",
        value("perf_event_paranoid"),
        value("unprivileged_bpf_disabled"),
    )
}

/// Confidentiality lockdown forbids programs from reading kernel memory (`kernel_lockdown(7)`).
fn locked_down(tree: &Tree) -> Option<(String, String)> {
    let text = tree.text(LOCKDOWN)?;
    text.contains("[confidentiality]").then(|| {
        (
            format!("the kernel is locked down ({LOCKDOWN}: confidentiality)"),
            "boot with lockdown=integrity or without lockdown".to_owned(),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn machine(effective: &str, lockdown: Option<&str>) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = Tree::at(root.path()).path(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put(
            "proc/self/status",
            &format!("Name:\tx\nCapEff:\t{effective}\n"),
        );
        put("proc/sys/kernel/perf_event_paranoid", "2\n");
        if let Some(text) = lockdown {
            put(LOCKDOWN, text);
        }
        root
    }

    #[test]
    fn the_lacking_capability_is_named_with_the_settings() {
        let root = machine("0000004000000000", None);
        let (reason, _) = missing(&Tree::at(root.path())).unwrap();
        assert!(reason.contains("lacks CAP_BPF ("), "{reason}");
        assert!(reason.contains("perf_event_paranoid is 2"), "{reason}");
        assert!(
            reason.contains("unprivileged_bpf_disabled is absent"),
            "{reason}"
        );
        let root = machine("0000000000000000", None);
        assert!(
            missing(&Tree::at(root.path()))
                .unwrap()
                .0
                .contains("CAP_PERFMON and CAP_BPF")
        );
    }

    #[test]
    fn enough_is_enough() {
        for effective in ["000000c000000000", "0000000000200000", "000001ffffffffff"] {
            assert_eq!(
                missing(&Tree::at(machine(effective, None).path())),
                None,
                "{effective}"
            );
        }
    }

    #[test]
    fn lockdown_is_named() {
        let root = machine(
            "000001ffffffffff",
            Some("none integrity [confidentiality]\n"),
        );
        assert!(
            missing(&Tree::at(root.path()))
                .unwrap()
                .0
                .contains("locked down")
        );
        let root = machine(
            "000001ffffffffff",
            Some("none [integrity] confidentiality\n"),
        );
        assert_eq!(missing(&Tree::at(root.path())), None);
    }
}
