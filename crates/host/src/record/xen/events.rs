//! Which events of Xen are columns (Xen's public/trace.h).

use super::trace::LOST_RECORDS;

/// An event, or several that mean the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Name of the column.
    pub name: &'static str,
    /// What the column counts.
    pub about: &'static str,
    /// Event numbers, without the flags for 64-bit addresses and nested guests.
    codes: &'static [u32],
}

impl Event {
    /// The class of its numbers; all have the same class.
    pub(super) fn class(&self) -> u32 {
        self.codes
            .iter()
            .fold(0, |class, code| class | self::class(*code))
    }
}

const fn event(name: &'static str, about: &'static str, codes: &'static [u32]) -> Event {
    Event { name, about, codes }
}

/// The guest was entered (`TRC_HVM_VMENTRY`).
pub(super) const VMENTRY: u32 = 0x0008_1001;
/// The guest was left: on Intel, and before Xen 4.19 on AMD too (`TRC_HVM_VMX_EXIT`).
const VMEXIT: u32 = 0x0008_1002;
/// The guest was left, on AMD since Xen 4.19 (`TRC_HVM_SVM_EXIT`).
const SVM_EXIT: u32 = 0x0008_1003;
/// A hypercall of an HVM or PVH guest (`TRC_HVM_VMMCALL`).
const VMMCALL: u32 = 0x0008_2012;
/// A hypercall of a PV guest, as old Xens write it (`TRC_PV_HYPERCALL`).
const HYPERCALL_OLD: u32 = 0x0020_1001;
/// A hypercall of a PV guest (`TRC_PV_HYPERCALL_V2`), and one within a multicall
/// (`TRC_PV_HYPERCALL_SUBCALL`); bits 0-19 of the first word have its number.
const HYPERCALL: u32 = 0x0020_100d;
const MULTICALL_ENTRY: u32 = 0x0020_200e;
/// A virtual CPU changed its state (`TRC_SCHED_RUNSTATE_CHANGE`); bits 8-9 and 4-5 have the old
/// and the new state.
pub(super) const RUNSTATE_CHANGE: u32 = 0x0002_1001;
/// The virtual CPU goes on running (`TRC_SCHED_CONTINUE_RUNNING`).
const CONTINUE_RUNNING: u32 = 0x0002_1002;
/// `RUNSTATE_running`.
const RUNNING: u32 = 0;

/// The columns of counted events, in their order.
pub const EVENTS: [Event; 35] = [
    event("xen.vmentry", "entries into a guest", &[VMENTRY]),
    event("xen.vmexit", "VM exits", &[VMEXIT, SVM_EXIT]),
    event("xen.page_fault", "page faults that Xen handled", &[0x82001]),
    event(
        "xen.page_fault_inject",
        "page faults handed to the guest",
        &[0x82002],
    ),
    event("xen.npf", "nested page faults", &[0x82021]),
    event("xen.inject_exception", "exceptions injected", &[0x82003]),
    event(
        "xen.inject_interrupt",
        "interrupts injected",
        &[0x82004, 0x82005],
    ),
    event(
        "xen.io",
        "port and memory I/O of guests",
        &[0x82006, 0x82007, 0x82016, 0x82216, 0x82017, 0x82217],
    ),
    event(
        "xen.cr_read",
        "reads of control registers",
        &[0x82008, 0x82026],
    ),
    event(
        "xen.cr_write",
        "writes of control registers",
        &[0x82009, 0x82018, 0x82019, 0x82027],
    ),
    event(
        "xen.msr_read",
        "reads of model-specific registers",
        &[0x8200c],
    ),
    event(
        "xen.msr_write",
        "writes of model-specific registers",
        &[0x8200d],
    ),
    event("xen.cpuid", "CPUID instructions", &[0x8200e]),
    event(
        "xen.interrupt",
        "interrupts of the host in a guest",
        &[0x8200f],
    ),
    event(
        "xen.interrupt_window",
        "the guest can take an interrupt",
        &[0x82020],
    ),
    event("xen.vmmcall", "hypercalls of HVM guests", &[VMMCALL]),
    event("xen.hlt", "HLT instructions", &[0x82013]),
    event("xen.invlpg", "INVLPG instructions", &[0x82014]),
    event("xen.rdtsc", "RDTSC instructions", &[0x8201a]),
    event(
        "xen.hypercall",
        "hypercalls of PV guests",
        &[HYPERCALL_OLD, HYPERCALL],
    ),
    event(
        "xen.multicall_entry",
        "hypercalls of PV guests within a multicall",
        &[MULTICALL_ENTRY],
    ),
    event("xen.pv_trap", "traps of PV guests", &[0x0020_1003]),
    event(
        "xen.pv_page_fault",
        "page faults of PV guests",
        &[0x0020_1004],
    ),
    event(
        "xen.pv_emulate",
        "privileged instructions of PV guests emulated",
        &[0x0020_1006],
    ),
    event(
        "xen.pv_forced_emulation",
        "instructions of PV guests with Xen's prefix for emulation",
        &[0x0020_1005],
    ),
    event(
        "xen.pv_table_write",
        "writes to page tables of PV guests emulated",
        &[0x0020_100b, 0x0020_100c],
    ),
    event("xen.grant_map", "granted pages mapped", &[0x0010_f001]),
    event("xen.grant_unmap", "granted pages unmapped", &[0x0010_f002]),
    event("xen.irq", "interrupts of devices", &[0x0080_2008]),
    event("xen.sleep", "virtual CPUs put to sleep", &[0x28003]),
    event("xen.wake", "virtual CPUs woken", &[0x28004]),
    event("xen.yield", "virtual CPUs that gave way", &[0x28005]),
    event("xen.block", "virtual CPUs that blocked", &[0x28006]),
    event("xen.switch", "switches to another virtual CPU", &[0x2800a]),
    event(
        "xen.runstate_change",
        "state changes of virtual CPUs",
        &[RUNSTATE_CHANGE],
    ),
];

/// The names of hypercalls by their numbers (Xen's public/xen.h); the number 11 is not used.
const HYPERCALLS: [&str; 43] = [
    "set_trap_table",
    "mmu_update",
    "set_gdt",
    "stack_switch",
    "set_callbacks",
    "fpu_taskswitch",
    "sched_op_compat",
    "platform_op",
    "set_debugreg",
    "get_debugreg",
    "update_descriptor",
    "11",
    "memory_op",
    "multicall",
    "update_va_mapping",
    "set_timer_op",
    "event_channel_op_compat",
    "xen_version",
    "console_io",
    "physdev_op_compat",
    "grant_table_op",
    "vm_assist",
    "update_va_mapping_otherdomain",
    "iret",
    "vcpu_op",
    "set_segment_base",
    "mmuext_op",
    "xsm_op",
    "nmi_op",
    "sched_op",
    "callback_op",
    "xenoprof_op",
    "event_channel_op",
    "physdev_op",
    "hvm_op",
    "sysctl",
    "domctl",
    "kexec_op",
    "tmem_op",
    "argo_op",
    "xenpmu_op",
    "dm_op",
    "hypfs_op",
];

/// A column that a trace has because of what is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Found {
    /// A hypercall's number.
    Hypercall(u32),
    /// Why a guest was left, as the processor numbers it.
    Exit(u32),
    /// An event that is in none of [`EVENTS`].
    Code(u32),
    /// All that is too much for columns of their own.
    Rest,
}

impl Found {
    /// The name of the column.
    pub(super) fn name(self) -> String {
        match self {
            Self::Hypercall(number) => match HYPERCALLS.get(number as usize) {
                Some(name) => format!("xen.hypercall.{name}"),
                None => format!("xen.hypercall.{number}"),
            },
            Self::Exit(reason) => format!("xen.vmexit.0x{reason:x}"),
            Self::Code(event) => format!("xen.0x{event:x}"),
            Self::Rest => "xen.rest".into(),
        }
    }

    pub(super) fn number(self) -> u32 {
        match self {
            Self::Hypercall(number) | Self::Exit(number) | Self::Code(number) => number,
            Self::Rest => 0,
        }
    }

    /// What the column counts.
    pub(super) fn about(self) -> String {
        match self {
            Self::Hypercall(number) => {
                format!("hypercalls with the number {number}, within multicalls too")
            }
            Self::Exit(reason) => format!("VM exits with the processor's code 0x{reason:x}"),
            Self::Code(event) => format!("records of the event 0x{event:x}"),
            Self::Rest => "what has no column because there are too many".into(),
        }
    }
}

/// What an event means; the same for all its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kind {
    /// Its column of [`EVENTS`].
    pub(super) column: Option<usize>,
    pub(super) effect: Effect,
    detail: Detail,
}

/// What an event says about what runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    Nothing,
    /// The guest was entered.
    Entry,
    /// The guest was left.
    Exit,
    /// Records were lost.
    Loss,
    /// The virtual CPU that had the CPU gives it up, or one begins to run or goes on, or both.
    Run {
        gives_up: bool,
        begins: bool,
    },
}

/// Which column a record has besides that of its event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Detail {
    Nothing,
    Exit,
    Hypercall,
    HypercallOld,
    Vmmcall,
    Code(u32),
}

impl Kind {
    pub(super) fn of(event: u32) -> Self {
        let number = plain(event);
        let column = column(number);
        let detail = match number {
            VMEXIT | SVM_EXIT => Detail::Exit,
            HYPERCALL | MULTICALL_ENTRY => Detail::Hypercall,
            HYPERCALL_OLD => Detail::HypercallOld,
            VMMCALL => Detail::Vmmcall,
            LOST_RECORDS => Detail::Nothing,
            _ if column.is_none() => Detail::Code(number),
            _ => Detail::Nothing,
        };
        let effect = match number {
            VMENTRY => Effect::Entry,
            VMEXIT | SVM_EXIT => Effect::Exit,
            LOST_RECORDS => Effect::Loss,
            CONTINUE_RUNNING => Effect::Run {
                gives_up: false,
                begins: true,
            },
            RUNSTATE_CHANGE => Effect::Run {
                gives_up: event >> 8 & 3 == RUNNING,
                begins: event >> 4 & 3 == RUNNING,
            },
            _ => Effect::Nothing,
        };
        Self {
            column,
            effect,
            detail,
        }
    }

    /// The column of a record with these words, besides that of its event.
    pub(super) fn found(self, extra: &[u32]) -> Option<Found> {
        let first = extra.first().copied();
        match self.detail {
            Detail::Nothing => None,
            Detail::Exit => first.map(Found::Exit),
            Detail::Hypercall => first.map(|word| Found::Hypercall(word & 0xf_ffff)),
            // The address of the instruction comes before it.
            Detail::HypercallOld => extra.last().copied().map(Found::Hypercall),
            Detail::Vmmcall => first.map(Found::Hypercall),
            Detail::Code(event) => Some(Found::Code(event)),
        }
    }

    /// The domain and virtual CPU that run from a record with these words on.
    pub(super) fn runs_now(self, extra: &[u32]) -> Option<(u32, u32)> {
        let begins = matches!(self.effect, Effect::Run { begins: true, .. });
        // The lower half of the word has the virtual CPU, the upper half the domain.
        let word = *extra.first().filter(|_| begins)?;
        Some((word >> 16, word & 0xffff))
    }
}

/// The number without the flags that say how to read its words.
fn plain(event: u32) -> u32 {
    match event & 0x0fff_f000 {
        // TRC_64_FLAG and TRC_HVM_NESTEDFLAG.
        0x0008_1000 => event & !0x500,
        0x0008_2000 | 0x0020_1000 | 0x0020_2000 => event & !0x100,
        // The old and the new state are in the number.
        0x0002_1000 => event & !0xff0,
        _ => event,
    }
}

/// The class of an event: its bit in the mask that `xentrace -e` takes.
pub(super) fn class(event: u32) -> u32 {
    event & 0x0fff_0000
}

/// The column of a number without flags.
fn column(number: u32) -> Option<usize> {
    EVENTS
        .iter()
        .position(|known| known.codes.contains(&number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_do_not_hide_an_event() {
        let name = |event| Kind::of(event).column.map(|at| EVENTS[at].name);
        assert_eq!(name(0x81002), Some("xen.vmexit"));
        assert_eq!(name(0x81102), Some("xen.vmexit"), "64 bits");
        assert_eq!(name(0x81502), Some("xen.vmexit"), "nested, 64 bits");
        assert_eq!(name(0x81103), Some("xen.vmexit"), "AMD, since Xen 4.19");
        assert_eq!(name(0x82216), Some("xen.io"));
        assert_eq!(name(0x82109), Some("xen.cr_write"));
        assert_eq!(name(0x0020_100d), Some("xen.hypercall"));
        assert_eq!(name(0x21231), Some("xen.runstate_change"));
        assert_eq!(name(0x28011), None);
    }

    #[test]
    fn each_number_is_of_one_column_and_names_are_layer_and_event() {
        let mut all: Vec<u32> = EVENTS
            .iter()
            .flat_map(|event| event.codes)
            .copied()
            .collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        assert!(
            EVENTS
                .iter()
                .all(|event| vtax_sys::guest_page::is_name(event.name))
        );
    }

    #[test]
    fn the_domain_that_runs_is_told() {
        // From runnable (1) to running (0), and from there to blocked (2).
        let runs_now = |event, extra| Kind::of(event).runs_now(extra);
        assert_eq!(runs_now(0x21101, &[0x0003_0001]), Some((3, 1)));
        assert_eq!(runs_now(0x21021, &[0x0003_0001]), None);
        assert_eq!(runs_now(0x21002, &[0x7fff_0000]), Some((0x7fff, 0)));
        assert_eq!(runs_now(0x21101, &[]), None);
        let gives_up =
            |event| matches!(Kind::of(event).effect, Effect::Run { gives_up, .. } if gives_up);
        assert_eq!(
            [0x21021, 0x21011, 0x21101, 0x21211, 0x21002].map(gives_up),
            [true, true, false, false, false]
        );
    }
}
