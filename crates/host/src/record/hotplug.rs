//! CPUs that go offline and come online while a recording runs.
//!
//! The kernel removes a CPU's perf events when the CPU goes offline, and does not bring them back.
//! It reports changes on a netlink socket, so that the recorder need not poll.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
};
use serde::Serialize;

use vtax_sys::tree::Tree;

use crate::record::online::Cpus;

/// The multicast group of the kernel's own messages (kernel: `lib/kobject_uevent.c`).
const KERNEL_GROUP: u32 = 1;
/// Longer than any kernel message (`UEVENT_BUFFER_SIZE` and the line before it).
const MESSAGE_BYTES: usize = 8192;
/// The most messages that are read at once.
const MESSAGES: usize = 1024;

/// A CPU went offline or came online.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    pub cpu: u32,
    /// The CPU came online; otherwise it went offline.
    pub online: bool,
}

/// A time in which a CPU was offline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Gap {
    pub cpu: u32,
    /// `CLOCK_MONOTONIC` when the recorder found the CPU offline; null when it was offline at the
    /// start.
    pub from_ns: Option<u64>,
    /// `CLOCK_MONOTONIC` just before it counted again; null when it stayed offline.
    pub to_ns: Option<u64>,
}

/// Reports which CPUs go offline and come online.
#[derive(Debug)]
pub struct Hotplug {
    socket: Option<OwnedFd>,
    online: BTreeSet<u32>,
    tree: Tree,
}

impl Hotplug {
    /// Begin with the CPUs that are online. Where the kernel sends no messages (network
    /// namespaces), only a change that still holds when [`Hotplug::changes`] looks is found.
    pub fn begin(tree: &Tree, online: &[u32]) -> Self {
        Self {
            socket: listen(),
            online: online.iter().copied().collect(),
            tree: tree.clone(),
        }
    }

    /// Readable when there may be changes.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    /// The changes since the last look, in their order.
    pub fn changes(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        for change in self.messages() {
            self.take(change, &mut changes);
        }
        // Messages may be lost; the list of CPUs is not.
        let Some(cpus) = Cpus::find(&self.tree) else {
            return changes;
        };
        let now: BTreeSet<u32> = cpus.online.into_iter().collect();
        for cpu in self.online.clone().symmetric_difference(&now) {
            let online = now.contains(cpu);
            self.take(Change { cpu: *cpu, online }, &mut changes);
        }
        changes
    }

    fn take(&mut self, change: Change, changes: &mut Vec<Change>) {
        let new = if change.online {
            self.online.insert(change.cpu)
        } else {
            self.online.remove(&change.cpu)
        };
        if new {
            changes.push(change);
        }
    }

    fn messages(&self) -> Vec<Change> {
        let Some(socket) = &self.socket else {
            return Vec::new();
        };
        let mut buffer = [0; MESSAGE_BYTES];
        let mut changes = Vec::new();
        for _ in 0..MESSAGES {
            let Ok(length) = recv(socket.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) else {
                break;
            };
            changes.extend(change_in(buffer.get(..length).unwrap_or_default()));
        }
        changes
    }
}

fn listen() -> Option<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(
        AddressFamily::Netlink,
        SockType::Datagram,
        flags,
        SockProtocol::NetlinkKObjectUEvent,
    )
    .ok()?;
    bind(socket.as_raw_fd(), &NetlinkAddr::new(0, KERNEL_GROUP)).ok()?;
    Some(socket)
}

/// A message is `online@/devices/system/cpu/cpu1`, with more after a zero byte.
fn change_in(message: &[u8]) -> Option<Change> {
    let head = message.split(|byte| *byte == 0).next()?;
    let (action, device) = std::str::from_utf8(head).ok()?.split_once('@')?;
    let cpu = device
        .strip_prefix("/devices/system/cpu/cpu")?
        .parse()
        .ok()?;
    match action {
        "online" => Some(Change { cpu, online: true }),
        "offline" => Some(Change { cpu, online: false }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GONE: Change = Change {
        cpu: 1,
        online: false,
    };

    #[test]
    fn messages_about_cpus_are_understood() {
        let message = b"offline@/devices/system/cpu/cpu1\0ACTION=offline\0SUBSYSTEM=cpu\0";
        assert_eq!(change_in(message), Some(GONE));
        assert_eq!(change_in(b"add@/devices/system/cpu/cpu1\0"), None);
        assert_eq!(change_in(b"offline@/devices/system/memory/memory1\0"), None);
    }

    #[test]
    fn a_cpu_that_is_away_for_a_look_is_found_without_messages() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("sys/devices/system/cpu");
        std::fs::create_dir_all(&folder).unwrap();
        let put = |online: &str| std::fs::write(folder.join("online"), online).unwrap();
        std::fs::write(folder.join("possible"), "0-1\n").unwrap();
        put("0-1\n");
        let mut hotplug = Hotplug {
            socket: None,
            ..Hotplug::begin(&Tree::at(root.path()), &[0, 1])
        };
        assert_eq!(hotplug.changes(), []);
        put("0\n");
        assert_eq!(hotplug.changes(), [GONE]);
        put("0-1\n");
        let back = Change {
            online: true,
            ..GONE
        };
        assert_eq!(hotplug.changes(), [back]);
        // A message from before the look reports what is known already.
        let mut changes = Vec::new();
        hotplug.take(back, &mut changes);
        assert_eq!(changes, []);
    }

    proptest! {
        #[test]
        fn any_message_is_answered(message in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = change_in(&message);
        }
    }
}
