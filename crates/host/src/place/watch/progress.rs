//! Guests' progress, measured from outside: bytes on their links, and what their processes read and
//! write.

use std::collections::{BTreeMap, BTreeSet};

use vtax_sys::tree::{Tree, field};

use crate::place::watch::controller::{Progress, Signal};

const TUN: &str = "/dev/net/tun";

/// The counters of guests' progress.
#[derive(Debug, Default)]
pub struct Sources {
    guests: BTreeMap<String, GuestFiles>,
    /// Network namespaces, each with a process in it.
    networks: BTreeMap<String, i32>,
    last: BTreeMap<String, Counters>,
}

#[derive(Debug, Default)]
struct GuestFiles {
    processes: BTreeSet<i32>,
    /// Devices, with their network namespace. `None`: all devices of the namespace, because no
    /// other guest is in it.
    devices: BTreeSet<(String, Option<String>)>,
}

/// The counts of a guest.
#[derive(Debug, Clone, Default, PartialEq)]
struct Counters {
    link: Option<Bytes>,
    /// By process: bytes by system calls, and bytes by storage.
    processes: BTreeMap<i32, (u64, u64)>,
}

/// The byte counts of devices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Bytes {
    received: u64,
    sent: u64,
}

/// What a guest did in a window.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Done {
    /// The progress as the controller judges it.
    pub progress: Progress,
    /// Bytes per second in the busier direction of its link.
    pub busier: Option<f64>,
}

impl Sources {
    /// Find the counters of these processes, grouped by the guest that each works for.
    pub fn find(&mut self, tree: &Tree, processes: &BTreeMap<i32, String>) {
        let network = |pid: i32| tree.link(&format!("/proc/{pid}/ns/net"));
        let own = tree.link("/proc/self/ns/net");
        self.guests.clear();
        self.networks.clear();
        for (pid, guest) in processes {
            let source = self.guests.entry(guest.clone()).or_default();
            source.processes.insert(*pid);
            let Some(network) = network(*pid) else {
                continue;
            };
            for device in taps(tree, *pid) {
                source.devices.insert((network.clone(), Some(device)));
            }
            if own.as_ref() != Some(&network) {
                source.devices.insert((network.clone(), None));
            }
            self.networks.entry(network).or_insert(*pid);
        }
        for source in self.guests.values_mut() {
            // Taps tell more than a separate namespace, through which other traffic may pass.
            if source.devices.iter().any(|(_, device)| device.is_some()) {
                source.devices.retain(|(_, device)| device.is_some());
            }
        }
        self.last.retain(|guest, _| self.guests.contains_key(guest));
    }

    /// What each guest did in the `seconds` since the last time; for a new guest nothing is known.
    pub fn read(&mut self, tree: &Tree, seconds: f64) -> BTreeMap<String, Done> {
        let networks: BTreeMap<&str, BTreeMap<String, Bytes>> = self
            .networks
            .iter()
            .map(|(network, pid)| (network.as_str(), devices(tree, *pid)))
            .collect();
        let now: BTreeMap<String, Counters> = self
            .guests
            .iter()
            .map(|(guest, source)| (guest.clone(), source.counters(tree, &networks)))
            .collect();
        let before = std::mem::replace(&mut self.last, now);
        let both = self.last.iter().filter_map(|(guest, now)| {
            let done = before.get(guest)?.until(now, seconds);
            Some((guest.clone(), done))
        });
        both.collect()
    }
}

impl GuestFiles {
    fn counters(
        &self,
        tree: &Tree,
        networks: &BTreeMap<&str, BTreeMap<String, Bytes>>,
    ) -> Counters {
        let processes = self.processes.iter();
        Counters {
            link: self.link(networks),
            processes: processes
                .filter_map(|pid| Some((*pid, input_output(tree, *pid)?)))
                .collect(),
        }
    }

    /// `None` also when one of several devices is gone: the sum would not be comparable.
    fn link(&self, networks: &BTreeMap<&str, BTreeMap<String, Bytes>>) -> Option<Bytes> {
        let mut sum = None;
        for (network, device) in &self.devices {
            let all = networks.get(network.as_str())?;
            let bytes: Vec<&Bytes> = match device {
                Some(name) => vec![all.get(name)?],
                None => all
                    .iter()
                    .filter(|(name, _)| *name != "lo")
                    .map(|(_, it)| it)
                    .collect(),
            };
            let total: &mut Bytes = sum.get_or_insert_default();
            for one in bytes {
                total.received += one.received;
                total.sent += one.sent;
            }
        }
        sum
    }
}

impl Counters {
    fn until(&self, now: &Self, seconds: f64) -> Done {
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        let rate = |bytes: u64| bytes as f64 / seconds;
        let mut done = Done::default();
        if let Some((before, now)) = self.link.zip(now.link) {
            let received = now.received.checked_sub(before.received);
            let sent = now.sent.checked_sub(before.sent);
            if let Some((received, sent)) = received.zip(sent) {
                done.progress
                    .insert(Signal::Link, rate(received) + rate(sent));
                done.busier = Some(rate(received).max(rate(sent)));
            }
        }
        let both = now.processes.iter().filter_map(|(pid, now)| {
            let before = self.processes.get(pid)?;
            Some((now.0.checked_sub(before.0)?, now.1.checked_sub(before.1)?))
        });
        let sums = both.reduce(|a, b| (a.0 + b.0, a.1 + b.1));
        if let Some((files, storage)) = sums {
            done.progress.insert(Signal::Files, rate(files));
            done.progress.insert(Signal::Storage, rate(storage));
        }
        done
    }
}

/// The tap devices that a process holds: the `fdinfo` of its descriptors has `iff:`
/// (drivers/net/tun.c, `tun_chr_show_fdinfo`).
fn taps(tree: &Tree, pid: i32) -> Vec<String> {
    let folder = format!("/proc/{pid}/fd");
    let names = tree.names(&folder).into_iter();
    names
        .filter(|name| tree.link(&format!("{folder}/{name}")).as_deref() == Some(TUN))
        .filter_map(|name| {
            let text = tree.text(&format!("/proc/{pid}/fdinfo/{name}"))?;
            field(&text, "iff").map(str::to_owned)
        })
        // The descriptor is attached to nothing.
        .filter(|device| !device.is_empty() && device != "<NULL>")
        .collect()
}

/// `NAME: RECEIVED packets errs drop fifo frame compressed multicast SENT ...` (proc(5)).
fn devices(tree: &Tree, pid: i32) -> BTreeMap<String, Bytes> {
    let text = tree
        .text(&format!("/proc/{pid}/net/dev"))
        .unwrap_or_default();
    let one = |line: &str| {
        let (name, rest) = line.rsplit_once(':')?;
        let mut words = rest.split_ascii_whitespace();
        let bytes = Bytes {
            received: words.next()?.parse().ok()?,
            sent: words.nth(7)?.parse().ok()?,
        };
        Some((name.trim().to_owned(), bytes))
    };
    text.lines().filter_map(one).collect()
}

/// Bytes by system calls and by storage (proc(5), `/proc/PID/io`).
fn input_output(tree: &Tree, pid: i32) -> Option<(u64, u64)> {
    let text = tree.text(&format!("/proc/{pid}/io"))?;
    let number = |name: &str| field(&text, name)?.parse::<u64>().ok();
    let calls = number("rchar")?.checked_add(number("wchar")?)?;
    let storage = number("read_bytes")?.checked_add(number("write_bytes")?)?;
    Some((calls, storage))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    struct Machine(tempfile::TempDir);

    impl Machine {
        fn new() -> Self {
            let machine = Self(tempfile::tempdir().unwrap());
            machine.link("self/ns/net", "net:[1]");
            machine
        }

        fn tree(&self) -> Tree {
            Tree::at(self.0.path())
        }

        fn put(&self, path: &str, text: &str) {
            let path = self.0.path().join("proc").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn link(&self, path: &str, to: &str) {
            let path = self.0.path().join("proc").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            symlink(Path::new(to), path).unwrap();
        }

        fn network(&self, pid: i32, devices: &[(&str, u64, u64)]) {
            let lines = devices.iter().map(|(name, received, sent)| {
                format!("{name:>6}: {received} 1 0 0 0 0 0 0 {sent} 1 0 0 0 0 0 0\n")
            });
            let head = "Inter-|   Receive\n face |bytes packets\n".to_owned();
            self.put(
                &format!("{pid}/net/dev"),
                &(head + &lines.collect::<String>()),
            );
        }

        fn io(&self, pid: i32, calls: u64, storage: u64) {
            let text = format!(
                "rchar: {calls}\nwchar: 0\nsyscr: 1\nsyscw: 1\nread_bytes: {storage}\n\
                 write_bytes: 0\ncancelled_write_bytes: 0\n"
            );
            self.put(&format!("{pid}/io"), &text);
        }

        fn tap(&self, pid: i32, descriptor: i32, name: &str) {
            self.link(&format!("{pid}/fd/{descriptor}"), TUN);
            let text = format!("pos:\t0\nflags:\t02\niff:\t{name}\n");
            self.put(&format!("{pid}/fdinfo/{descriptor}"), &text);
        }
    }

    fn of(pids: &[(i32, &str)]) -> BTreeMap<i32, String> {
        pids.iter()
            .map(|(pid, guest)| (*pid, (*guest).to_owned()))
            .collect()
    }

    #[test]
    fn bytes_of_its_taps_and_processes() {
        let machine = Machine::new();
        let tree = machine.tree();
        machine.link("5/ns/net", "net:[1]");
        machine.link("6/ns/net", "net:[1]");
        machine.link("5/fd/0", "/dev/null");
        // Two queues of one device, and a descriptor without one.
        machine.tap(5, 7, "tap0");
        machine.tap(5, 8, "tap0");
        machine.tap(5, 9, "");
        machine.network(5, &[("lo", 9, 9), ("tap0", 1000, 100), ("tap1", 5, 5)]);
        machine.io(5, 10, 1);
        machine.io(6, 10, 1);
        let mut sources = Sources::default();
        sources.find(&tree, &of(&[(5, "web"), (6, "web")]));
        assert!(sources.read(&tree, 2.0).is_empty());
        machine.network(
            5,
            &[("lo", 99, 99), ("tap0", 3000, 200), ("tap1", 900, 900)],
        );
        machine.io(5, 30, 5);
        machine.io(6, 20, 1);
        let done = &sources.read(&tree, 2.0)["web"];
        let rates = [
            (Signal::Link, 1050.0),
            (Signal::Files, 15.0),
            (Signal::Storage, 2.0),
        ];
        assert_eq!(done.progress, Progress::from(rates));
        assert_eq!(done.busier, Some(1000.0));
    }

    #[test]
    fn a_namespace_of_its_own_where_it_has_no_tap() {
        let machine = Machine::new();
        let tree = machine.tree();
        machine.link("5/ns/net", "net:[2]");
        machine.network(5, &[("lo", 9, 9), ("eth0", 0, 0)]);
        let mut sources = Sources::default();
        sources.find(&tree, &of(&[(5, "box")]));
        sources.read(&tree, 1.0);
        machine.network(5, &[("lo", 99, 99), ("eth0", 7, 8)]);
        let done = &sources.read(&tree, 1.0)["box"];
        assert_eq!(done.progress, Progress::from([(Signal::Link, 15.0)]));
    }

    #[test]
    fn what_goes_away_is_absent_and_not_nothing() {
        let machine = Machine::new();
        let tree = machine.tree();
        machine.link("5/ns/net", "net:[1]");
        machine.tap(5, 7, "tap0");
        machine.network(5, &[("tap0", 1000, 100)]);
        machine.io(5, 100, 1);
        let mut sources = Sources::default();
        sources.find(&tree, &of(&[(5, "web"), (77, "gone")]));
        sources.read(&tree, 1.0);
        machine.network(5, &[("other", 1, 1)]);
        machine.io(5, 50, 1);
        let done = sources.read(&tree, 1.0);
        assert_eq!(done["web"], Done::default());
        assert_eq!(done["gone"], Done::default());
    }
}
