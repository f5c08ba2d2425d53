//! Finds out what a thread does, by its name.

use vtax_sys::task::Task;

use crate::place::role::Role;

/// How the names of QEMU's threads begin with `debug-threads=on` (QEMU's source: calls of
/// `qemu_thread_create`). A thread without its own name has the name of the process.
const OF_QEMU: [(&str, Role); 15] = [
    ("CPU ", Role::Vcpu),
    ("ALL CPUs/", Role::Vcpu),
    ("IO ", Role::IoThread),
    ("vhost-", Role::Vhost),
    ("worker", Role::Worker),
    ("call_rcu", Role::Worker),
    ("SPICE Worker", Role::Worker),
    ("vnc_worker", Role::Worker),
    ("live_migration", Role::Worker),
    ("migration", Role::Worker),
    ("multifd", Role::Worker),
    ("mig/", Role::Worker),
    ("return path", Role::Worker),
    ("iou-wrk-", Role::Worker),
    ("kvm-nx-lpage-re", Role::Worker),
];

/// What a thread of QEMU does. Since Linux 6.4 vhost's threads are among them.
pub fn qemu_thread(first: bool, process: &str, task: &Task) -> Role {
    if first {
        return Role::MainLoop;
    }
    // Only a vCPU of KVM has time in a guest, whatever its name.
    if task.guest_ticks > 0 {
        return Role::Vcpu;
    }
    let own = (task.name != process).then_some(task.name.as_str());
    let known = own.and_then(|name| OF_QEMU.iter().find(|(begin, _)| name.starts_with(begin)));
    known.map_or(Role::Unknown, |(_, role)| *role)
}

/// What a kernel thread does for guests, and for whom according to its name: a process, or a domain
/// of Xen. `None`: it does nothing for guests.
pub fn kernel_thread(name: &str, xen: bool) -> Option<(Role, Option<String>)> {
    let after = |begin: &str| {
        let number = name.strip_prefix(begin)?;
        number.parse::<i32>().ok().map(|number| number.to_string())
    };
    if name.starts_with("ksoftirqd/") {
        Some((Role::Softirq, None))
    } else if name.starts_with("napi/") {
        Some((Role::Napi, None))
    } else if let Some(process) = after("vhost-") {
        Some((Role::Vhost, Some(process)))
    } else if let Some(process) = after("kvm-pit/") {
        Some((Role::Worker, Some(process)))
    } else if xen {
        let domain = xen_domain(name)?;
        Some((Role::Xen, Some(domain)))
    } else {
        None
    }
}

/// A domain's number from `vif1.0-q0-guest-rx` of netback or `1.xvda-0` of blkback.
fn xen_domain(name: &str) -> Option<String> {
    let (front, back) = name.strip_prefix("vif").unwrap_or(name).split_once('.')?;
    let number: u16 = front.parse().ok()?;
    let device = name.starts_with("vif") || ["xvd", "hd", "sd"].iter().any(|d| back.starts_with(d));
    device.then(|| number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_threads_by_name() {
        let role = |name, xen| kernel_thread(name, xen).map(|(role, of)| (role.name(), of));
        let of = |text: &str| Some(text.to_owned());
        assert_eq!(role("ksoftirqd/1", false), Some(("softirq", None)));
        assert_eq!(role("napi/eth0-8193", false), Some(("napi", None)));
        assert_eq!(role("vhost-88", false), Some(("vhost", of("88"))));
        assert_eq!(role("kvm-pit/88", false), Some(("worker", of("88"))));
        assert_eq!(role("vif3.0-q0-guest", true), Some(("xen", of("3"))));
        assert_eq!(role("2.xvda-0", true), Some(("xen", of("2"))));
        for (name, xen) in [
            ("vif3.0-q0-guest", false),
            ("vhost-x", false),
            ("kworker/0:1", true),
            ("kthreadd", true),
        ] {
            assert_eq!(role(name, xen), None, "{name}");
        }
    }
}
