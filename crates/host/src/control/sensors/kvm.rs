//! KVM's own counters, from debugfs: the sums over all virtual machines, as the kernel makes them.
//!
//! The mode belongs to the host, so the policy decides on the sums; with a hundred guests, reading
//! them costs a hundredth of reading each guest. The sums drop when a virtual machine ends, so a
//! window in which one came or went is not counted. The binary statistics (`KVM_GET_STATS_FD`)
//! would need a copy of a guest's descriptor, and each copy is a user of the module that a switch
//! has to unload. debugfs needs no such copy, and a user who may switch may also mount it.

use std::collections::BTreeSet;

use vtax_sys::tree::Tree;

use super::{CountedSource, Quantity, Sensor, Values};

const FOLDER: &str = "/sys/kernel/debug/kvm";
/// What counts as a paging exit (kernel: arch/x86/kvm): a page fault that KVM intercepts, and
/// INVLPG. Exits for CR3 have no counter: `cr3` has them.
const PAGING: [&str; 2] = ["pf_taken", "invlpg"];

/// KVM's counters in a tree.
#[derive(Debug)]
pub struct Kvm {
    tree: Tree,
    machines: BTreeSet<String>,
}

impl Kvm {
    /// The counters in this tree.
    pub fn new(tree: Tree) -> Self {
        Self {
            tree,
            machines: BTreeSet::new(),
        }
    }
}

impl Sensor for Kvm {
    fn name(&self) -> &'static str {
        "kvm"
    }

    fn guests(&self) -> Option<&BTreeSet<String>> {
        Some(&self.machines)
    }

    fn read(&mut self) -> Result<Vec<CountedSource>, String> {
        let names = self.tree.names(FOLDER);
        if names.is_empty() {
            self.machines.clear();
            return Err(format!(
                "{FOLDER} is not there; mount debugfs on /sys/kernel/debug, as root"
            ));
        }
        let machines = names.into_iter().filter(|name| is_machine(name));
        self.machines = machines.collect();
        let number = |counter: &str| self.tree.number::<u64>(&format!("{FOLDER}/{counter}"));
        let mut counts = Values::default();
        if let Some(exits) = number("exits") {
            counts.set(Quantity::Exits, exits);
        }
        // With a kernel that has another name for one of them, there is no count of paging exits,
        // rather than too low a count.
        let paging: Option<Vec<u64>> = PAGING.into_iter().map(number).collect();
        if let Some(paging) = paging {
            counts.set(Quantity::PagingExits, paging.into_iter().sum());
        }
        Ok(vec![CountedSource {
            name: "all guests".into(),
            counts,
            publication: None,
        }])
    }
}

/// Folders of virtual machines are called `PID-DESCRIPTOR`.
fn is_machine(name: &str) -> bool {
    let number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    name.split_once('-')
        .is_some_and(|(pid, descriptor)| number(pid) && number(descriptor))
}
