//! What a thread does for guests.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// It carries out a guest's instructions.
    Vcpu,
    /// QEMU's main loop: devices, timers, the monitor.
    MainLoop,
    /// I/O threads: QEMU's named ones, and the helper of user-mode Linux.
    IoThread,
    /// QEMU's thread pool and its other helpers (RCU, migration, display); KVM's timer.
    Worker,
    /// The kernel's share of a virtio device.
    Vhost,
    /// ksoftirqd.
    Softirq,
    /// A thread that polls a network device.
    Napi,
    /// virtiofsd, which serves the host's files to a guest.
    Virtiofsd,
    /// A switch between guests in a process, such as `vde_switch`.
    Switch,
    /// A guest's network in a process of the host: passt, slirp4netns.
    UserNetwork,
    /// gVisor's kernel.
    Sentry,
    /// gVisor's gofer, which gives access to the host's files.
    Gofer,
    /// The guest itself: a kernel in user mode and its processes.
    Guest,
    /// Xen's tools in the domain that runs it.
    Dom0,
    /// The kernel's share of a Xen device.
    Xen,
    /// The process that only holds a guest or container.
    Monitor,
    /// Part of a guest's process, but nothing says what it does.
    Unknown,
}

impl Role {
    /// Does it serve guests? A vCPU and a guest's own processes are the guest itself; unknown
    /// threads count as no service.
    pub fn is_service(self) -> bool {
        !matches!(self, Self::Vcpu | Self::Guest | Self::Unknown)
    }

    /// Does it serve all guests, or do no work for one? Such threads are not moved.
    pub fn is_shared(self) -> bool {
        matches!(
            self,
            Self::Softirq | Self::Napi | Self::Dom0 | Self::Xen | Self::Monitor
        )
    }

    /// Its name in plans and answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Vcpu => "vcpu",
            Self::MainLoop => "main-loop",
            Self::IoThread => "io-thread",
            Self::Worker => "worker",
            Self::Vhost => "vhost",
            Self::Softirq => "softirq",
            Self::Napi => "napi",
            Self::Virtiofsd => "virtiofsd",
            Self::Switch => "switch",
            Self::UserNetwork => "user-network",
            Self::Sentry => "sentry",
            Self::Gofer => "gofer",
            Self::Guest => "guest",
            Self::Dom0 => "dom0",
            Self::Xen => "xen",
            Self::Monitor => "monitor",
            Self::Unknown => "unknown",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_json() {
        for role in [
            Role::Vcpu,
            Role::MainLoop,
            Role::IoThread,
            Role::UserNetwork,
            Role::Dom0,
            Role::Virtiofsd,
            Role::Unknown,
        ] {
            let json = serde_json::to_value(role).unwrap();
            assert_eq!(json, role.name());
        }
    }
}
