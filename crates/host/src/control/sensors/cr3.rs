//! Loads of CR3 that guests make in shadow paging. KVM intercepts each, and has no counter of them:
//! a tracepoint of KVM with a filter counts them, as perf events on all processors.
//!
//! The events are open in shadow paging only: in nested paging nobody intercepts the loads, and an
//! event costs each exit something. A policy decides without this count where it cannot be had.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;

use nix::errno::Errno;
use perf_event_open_sys::bindings as perf;

use vtax_sys::calls::perf::{perf_event_enable, perf_event_filter, perf_event_open};
use vtax_sys::kvm::{self, PagingMode, Vendor};
use vtax_sys::tree::Tree;

use super::{CountedSource, Quantity, Sensor, Values};
use crate::place::cpus;

/// Where tracefs is mounted, with what debugfs mounts by itself.
const TRACING: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// KVM's tracepoint for accesses to control registers, and the filter (arch/x86/kvm/trace.h).
const DECODED: (&str, &CStr) = ("kvm_cr", c"rw == 1 && cr == 3");
/// Without decode assists `kvm_amd` leaves the instruction to KVM's emulator, which has no such
/// tracepoint. `SVM_EXIT_WRITE_CR3` of `KVM_ISA_SVM` (asm/svm.h, arch/x86/kvm/trace.h).
const EMULATED: (&str, &CStr) = ("kvm_exit", c"exit_reason == 0x13 && isa == 2");

/// The events, by processor.
#[derive(Debug)]
pub struct Cr3 {
    tree: Tree,
    events: BTreeMap<usize, File>,
}

impl Cr3 {
    /// The loads on a machine.
    pub fn new(tree: Tree) -> Self {
        Self {
            tree,
            events: BTreeMap::new(),
        }
    }

    fn vendor_in_shadow(&self) -> Option<Vendor> {
        kvm::vendor(&self.tree).filter(|Vendor { module, parameter }| {
            kvm::paging_mode(&self.tree, module, parameter) == Some(PagingMode::Shadow)
        })
    }

    /// Have an event on each processor that is online.
    fn search(&mut self, vendor: Vendor) -> Result<(), String> {
        let online = cpus::online(&self.tree);
        self.events.retain(|cpu, _| online.contains(cpu));
        for cpu in online {
            if !self.events.contains_key(&cpu) {
                self.events.insert(cpu, open(&self.tree, vendor, cpu)?);
            }
        }
        Ok(())
    }
}

impl Sensor for Cr3 {
    fn name(&self) -> &'static str {
        "cr3"
    }

    fn is_needed(&self) -> bool {
        false
    }

    fn read(&mut self) -> Result<Vec<CountedSource>, String> {
        let Some(vendor) = self.vendor_in_shadow() else {
            self.events.clear();
            return Ok(Vec::new());
        };
        self.search(vendor)?;
        let mut sources = Vec::with_capacity(self.events.len());
        for (cpu, event) in &mut self.events {
            let mut count = [0; 8];
            let read = event.read_exact(&mut count);
            read.map_err(|error| vtax_sys::reason(&error))?;
            sources.push(CountedSource {
                name: format!("cpu {cpu}"),
                counts: Values::default().with(Quantity::Cr3Exits, u64::from_ne_bytes(count)),
                publication: None,
            });
        }
        Ok(sources)
    }

    fn let_go(&mut self) {
        self.events.clear();
    }
}

fn open(tree: &Tree, vendor: Vendor, cpu: usize) -> Result<File, String> {
    let (name, filter) = tracepoint(tree, vendor);
    let number = |folder| tree.number::<u64>(&format!("{folder}/events/kvm/{name}/id"));
    let id = TRACING.into_iter().find_map(number).ok_or_else(|| {
        format!("tracepoint kvm:{name} is not to be seen; mount tracefs on /sys/kernel/tracing")
    })?;
    let mut attributes = perf::perf_event_attr::default();
    attributes.type_ = perf::PERF_TYPE_TRACEPOINT;
    attributes.size = perf::PERF_ATTR_SIZE_VER5;
    attributes.config = id;
    attributes.set_disabled(1);
    let cpu = i32::try_from(cpu).map_err(|_| format!("there is no processor {cpu}"))?;
    let opened = perf_event_open(&mut attributes, cpu, None).and_then(|event| {
        perf_event_filter(event.as_fd(), filter)?;
        perf_event_enable(event.as_fd(), true)?;
        Ok(File::from(event))
    });
    opened.map_err(|errno| {
        let remedy = match errno {
            Errno::EACCES | Errno::EPERM => "; run the controller as root",
            _ => "",
        };
        format!("tracepoint kvm:{name}: {}{remedy}", errno.desc())
    })
}

fn tracepoint(tree: &Tree, vendor: Vendor) -> (&'static str, &'static CStr) {
    let cpus = tree.text("/proc/cpuinfo").unwrap_or_default();
    let decodes = cpus
        .split_ascii_whitespace()
        .any(|flag| flag == "decodeassists");
    if vendor.module == "kvm_amd" && !decodes {
        EMULATED
    } else {
        DECODED
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn put(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn the_tracepoint_is_the_one_that_the_processor_passes() {
        let root = tempfile::tempdir().unwrap();
        let tree = Tree::at(root.path());
        let seen = |module: &'static str, flags: &str| {
            put(
                root.path(),
                "proc/cpuinfo",
                &format!("flags\t: fpu {flags} npt\n"),
            );
            let parameter = "npt";
            tracepoint(&tree, Vendor { module, parameter }).0
        };
        assert_eq!(seen("kvm_amd", "svm"), "kvm_exit");
        assert_eq!(seen("kvm_amd", "svm decodeassists"), "kvm_cr");
        assert_eq!(seen("kvm_intel", "vmx"), "kvm_cr");
    }

    #[test]
    fn events_are_for_shadow_paging_only() {
        let root = tempfile::tempdir().unwrap();
        let mode = "sys/module/kvm_amd/parameters/npt";
        put(root.path(), "sys/devices/system/cpu/online", "0\n");
        put(root.path(), mode, "1\n");
        let mut sensor = Cr3::new(Tree::at(root.path()));
        assert_eq!(sensor.read(), Ok(Vec::new()));
        put(root.path(), mode, "0\n");
        assert!(sensor.read().unwrap_err().contains("mount tracefs"));
    }
}
