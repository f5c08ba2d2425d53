//! KVM's own counters, for each virtual machine, from debugfs.
//!
//! The binary statistics (`KVM_GET_STATS_FD`) would need a copy of a guest's descriptor, and each
//! copy is a user of the module that a switch has to unload. debugfs has no such price, and whoever
//! may switch may mount it.

use vtax_sys::tree::Tree;

use super::{Quantity, Sensor, Source, Values};

const FOLDER: &str = "/sys/kernel/debug/kvm";
/// What makes a paging exit (kernel: arch/x86/kvm): a page fault that KVM intercepts, and INVLPG.
/// Exits for CR3 have no counter.
const PAGING: [&str; 2] = ["pf_taken", "invlpg"];

/// The counters of the virtual machines of a tree.
#[derive(Debug)]
pub struct Kvm {
    tree: Tree,
}

impl Kvm {
    /// Those of this tree.
    pub fn new(tree: Tree) -> Self {
        Self { tree }
    }

    fn machine(&self, name: String) -> Option<Source> {
        let number = |counter: &str| self.tree.number(&format!("{FOLDER}/{name}/{counter}"));
        // One that ends meanwhile has no files any more.
        let exits: u64 = number("exits")?;
        let paging: Option<Vec<u64>> = PAGING.into_iter().map(number).collect();
        let mut counts = Values::default().with(Quantity::Exits, exits);
        if let Some(paging) = paging {
            counts.set(Quantity::PagingExits, paging.into_iter().sum());
        }
        Some(Source {
            name,
            counts,
            publication: None,
        })
    }
}

impl Sensor for Kvm {
    fn name(&self) -> &'static str {
        "kvm"
    }

    fn counts_guests(&self) -> bool {
        true
    }

    fn read(&mut self) -> Result<Vec<Source>, String> {
        let names = self.tree.names(FOLDER);
        if names.is_empty() {
            return Err(format!(
                "{FOLDER} is not there; mount debugfs on /sys/kernel/debug, as root"
            ));
        }
        let machines = names.into_iter().filter(|name| is_machine(name));
        Ok(machines.filter_map(|name| self.machine(name)).collect())
    }
}

/// Folders of virtual machines are called `PID-DESCRIPTOR`.
fn is_machine(name: &str) -> bool {
    let number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    name.split_once('-')
        .is_some_and(|(pid, descriptor)| number(pid) && number(descriptor))
}
