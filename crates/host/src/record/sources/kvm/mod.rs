//! KVM: entries and exits by reason, time in the guest and in the monitor, memory management,
//! injections, emulation.

pub mod reasons;

use super::{Event, EventSource, Need, Origin, Slot, Unit};
use reasons::{INDEXES, REASONS, Reason};

pub const SOURCE: EventSource = EventSource {
    name: "kvm",
    about: "exits and their reasons, entries, time in guest and VMM, page faults, MMU work, injections, emulation",
    needs: &[Need::Ebpf, Need::Kvm],
    events,
};

/// Tables of the programs: one slot's number for each exit code.
const SVM: &str = "slots_exit_svm";
const VMX: &str = "slots_exit_vmx";

/// The codes of a reason on one architecture.
type Codes = fn(&Reason) -> &'static [u16];

/// Events that are each counted by one tracepoint.
const COUNTED: [(&str, &[&str], &str, &str); 23] = [
    (
        "kvm.entries",
        &["kvm_entry"],
        "slot_kvm_entry",
        "VM entries",
    ),
    ("kvm.exits", &["kvm_exit"], "slot_kvm_exit", "VM exits"),
    (
        "kvm.page_faults",
        &["kvm_page_fault"],
        "slot_kvm_page_fault",
        "faults that KVM's memory management takes",
    ),
    (
        "kvm.mmu.get_page",
        &["kvm_mmu_get_page"],
        "slot_kvm_mmu_get_page",
        "shadow pages made or found again",
    ),
    (
        "kvm.mmu.sync_page",
        &["kvm_mmu_sync_page"],
        "slot_kvm_mmu_sync_page",
        "shadow pages brought in step",
    ),
    (
        "kvm.mmu.unsync_page",
        &["kvm_mmu_unsync_page"],
        "slot_kvm_mmu_unsync_page",
        "shadow pages let out of step",
    ),
    (
        "kvm.mmu.zap_page",
        &["kvm_mmu_prepare_zap_page"],
        "slot_kvm_mmu_prepare_zap_page",
        "shadow pages dropped",
    ),
    (
        "kvm.mmu.set_spte",
        &["kvm_mmu_set_spte"],
        "slot_kvm_mmu_set_spte",
        "entries of shadow or nested tables set",
    ),
    (
        "kvm.mmu.zap_all",
        &["kvm_mmu_zap_all_fast"],
        "slot_kvm_mmu_zap_all_fast",
        "times that all was dropped",
    ),
    (
        "kvm.inject.interrupt",
        &["kvm_inj_virq"],
        "slot_kvm_inj_virq",
        "interrupts injected",
    ),
    (
        "kvm.inject.exception",
        &["kvm_inj_exception"],
        "slot_kvm_inj_exception",
        "exceptions injected",
    ),
    (
        "kvm.cr",
        &["kvm_cr"],
        "slot_kvm_cr",
        "control registers handled",
    ),
    (
        "kvm.msr",
        &["kvm_msr"],
        "slot_kvm_msr",
        "model-specific registers handled",
    ),
    (
        "kvm.pio",
        &["kvm_pio"],
        "slot_kvm_pio",
        "port accesses handled",
    ),
    (
        "kvm.mmio",
        &["kvm_mmio"],
        "slot_kvm_mmio",
        "memory-mapped accesses handled",
    ),
    (
        "kvm.fast_mmio",
        &["kvm_fast_mmio"],
        "slot_kvm_fast_mmio",
        "memory-mapped notifications",
    ),
    (
        "kvm.emulations",
        &["kvm_emulate_insn"],
        "slot_kvm_emulate_insn",
        "instructions emulated",
    ),
    (
        "kvm.halt_polls",
        &["kvm_halt_poll_ns"],
        "slot_kvm_halt_poll_ns",
        "changes of the time to poll at a halt",
    ),
    (
        "kvm.hypercalls",
        &["kvm_hypercall"],
        "slot_kvm_hypercall",
        "hypercalls handled",
    ),
    (
        "kvm.cpuid",
        &["kvm_cpuid"],
        "slot_kvm_cpuid",
        "CPUID handled",
    ),
    (
        "kvm.invlpga",
        &["kvm_invlpga"],
        "slot_kvm_invlpga",
        "INVLPGA handled",
    ),
    (
        "kvm.userspace_exits",
        &["kvm_userspace_exit"],
        "slot_kvm_userspace_exit",
        "returns to the monitor's program",
    ),
    (
        "kvm.wakeups",
        &["kvm_vcpu_wakeup"],
        "slot_kvm_vcpu_wakeup",
        "vCPUs woken from a halt",
    ),
];

const ENTRY_AND_EXIT: &[&str] = &["kvm_entry", "kvm_exit"];

fn events() -> Vec<Event> {
    let mut events: Vec<Event> = COUNTED
        .iter()
        .map(|(name, tracepoints, variable, about)| {
            Event::counted(name, about, tracepoints, variable)
        })
        .collect();
    events.push(
        Event::counted(
            "kvm.guest_time",
            "time between entry and exit",
            ENTRY_AND_EXIT,
            "slot_kvm_guest_ns",
        )
        .in_nanoseconds(),
    );
    events.push(
        Event::counted(
            "kvm.vmm_time",
            "time between an exit and the next entry, without a context switch",
            ENTRY_AND_EXIT,
            "slot_kvm_vmm_ns",
        )
        .in_nanoseconds(),
    );
    if cfg!(target_arch = "x86_64") {
        events.extend(exits());
    }
    events
}

/// Exits by reason; the codes are x86's.
fn exits() -> Vec<Event> {
    let named = REASONS.iter().map(|reason| {
        let codes = slots(SVM, reason.svm).chain(slots(VMX, reason.vmx));
        exit(reason.name, reason.about, codes.collect())
    });
    let mut events: Vec<Event> = named.collect();
    events.push(exit("other", "any other reason", others()));
    events
}

fn exit(name: &str, about: &str, slots: Vec<Slot>) -> Event {
    Event {
        name: format!("kvm.exit.{name}"),
        about: format!("VM exits: {about}"),
        unit: Unit::Count,
        default: false,
        origin: Origin::Counted {
            tracepoints: &["kvm_exit"],
            slots,
        },
    }
}

fn slots(variable: &'static str, codes: &'static [u16]) -> impl Iterator<Item = Slot> {
    codes.iter().map(move |code| Slot {
        variable,
        index: reasons::index(*code),
    })
}

/// The elements of the tables that no named reason has.
fn others() -> Vec<Slot> {
    let tables: [(&'static str, Codes); 2] =
        [(SVM, |reason| reason.svm), (VMX, |reason| reason.vmx)];
    tables
        .into_iter()
        .flat_map(|(variable, codes)| {
            let named: Vec<usize> = REASONS
                .iter()
                .flat_map(|reason| codes(reason).iter().map(|code| reasons::index(*code)))
                .collect();
            (0..INDEXES)
                .filter(move |index| !named.contains(index))
                .map(move |index| Slot { variable, index })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exit_code_has_exactly_one_name() {
        let mut seen = std::collections::HashSet::new();
        for event in exits() {
            let Origin::Counted { slots, .. } = event.origin else {
                panic!("{} is not counted", event.name);
            };
            for slot in slots
                .iter()
                .filter(|slot| [SVM, VMX].contains(&slot.variable))
            {
                assert!(seen.insert((slot.variable, slot.index)), "{slot:?} twice");
            }
        }
        assert_eq!(seen.len(), 2 * INDEXES);
    }
}
