"""The paper's setup and values beside this study's workloads, environments and settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from vtax_studies import roles
from vtax_studies.roles import Machine, Role, Way

XEN_FIGURE = "4-xen"
FIGURES = ("2", "3", "4", XEN_FIGURE, "5", "6", "7", "overhead")

NATIVE = "native"
UML = "user-mode Linux"
CONTAINER = "container"
"""For real programs only."""
GUESTS = {1: "1 guest", 2: "2 guests", 4: "4 guests", 8: "8 guests"}
DOMUS = {1: "1 domU", 2: "2 domUs", 4: "4 domUs"}
"""Numbers of guests under Xen, the paper's hypervisor."""
COPIES = 4
"""Copies of a workload that run at once in every environment, shared out to its guests. The paper
runs 8, for its 8 CPUs (section IV-B)."""
MANY_COPIES = 8
"""Copies, and the most guests, where each guest can have a CPU under KVM."""

EVENTS = "default,kvm,sched,irq,tlb"
XEN_EVENTS = "xen"
"""What Xen itself records, in its own trace buffers."""
EVERY, EVERY_COUNTED = "1ms", "5M"
"""The interval of the recordings, and where a PMU counts instructions. The paper's 100 million
instructions took about 40 ms."""

GCC, JVM, STENCIL = "gcc", "JVM", "stencil"
"""Real programs: for 403.gcc, Pseudo JBB, and 433.milc with the other grid programs."""
PHASED = "compiler-like"
"""Stands in for 433.milc in figures 4, 5 and 7 where the stencil cannot run."""
FLAT = "gups"
"""Stands in for Pseudo JBB in figure 6 where the JVM cannot run."""
STAND_INS = {STENCIL: PHASED, JVM: FLAT}

CACHE_LINES = "U_L2_LINES_IN"
"""The paper's event of figures 5 and 6."""
PHASE_EVENTS = ("hw.cache_misses.user", "hw.dtlb_load_misses.user", "faults.user", "sched.switches")
"""Portable events nearest to those of figures 5 to 7, of which this machine has some."""


@dataclass(frozen=True, slots=True)
class Work:
    """A workload, and how much of it table IV runs."""

    name: str
    count: int
    """A count that takes a second or two natively."""
    emulated: int
    """A count that takes 120 to 250 million instructions in the emulated machine: three to six rows
    of the paper's interval, a hundred of the finest, and 1 to 5 s of a CPU here. Twice the count
    would make the study minutes longer, and no overhead more exact."""
    line: str = ""
    """What a shell runs for a real program, in the folder of its results, with the count as $1.
    `emulated` is its count in the lab."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """The files of a real program in that folder."""


WORKLOADS = (
    Work("gzip-like", 60, 10),
    Work(PHASED, 400, 110),
    Work(FLAT, 40_000_000, 8_000_000),
    Work("random-touch", 40_000_000, 6_000_000),
    Work("fork-exec-storm", 1500, 200),
    Work("context-switch", 150_000, 12_000),
)
PROGRAMS = (
    Work(GCC, 1, 1, "for i in $(seq $1); do gcc -O2 -c unit.c -o unit-$$.o || exit; done"),
    Work(JVM, 200_000, 2000, "java -Xmx64m -XX:+UseSerialGC Transactions.java $1"),
    Work(STENCIL, 800, 20, "chmod 700 stencil && ./stencil $1"),
)
QUICK_WORKLOADS = (WORKLOADS[1], WORKLOADS[2])
QUICK_PROGRAMS = PROGRAMS[2:]
"""gcc's count is 1, which a quick study cannot halve. The JVM compiles for 3 s before it
works."""


@dataclass(frozen=True, slots=True)
class Setting:
    """An interval at which table IV measures what recording costs."""

    label: str
    every: str


PRACTICAL = Setting("20 ms (the paper's)", "20ms")
LOWEST = Setting("1 s (the lowest rate)", "1s")
"""The paper's circumstance between unloaded and practical: recorded as seldom as can be."""
SETTINGS = (PRACTICAL, LOWEST, Setting("1 ms", "1ms"), Setting("100 us", "100us"))
"""50 million instructions take about 20 ms at the paper's 2.66 GHz and one per cycle."""


EMULATED = "arm64, emulated"
"""A machine whose emulated PMU counts instructions and cycles, and nothing else."""
ICOUNT = 1
"""Each of its instructions takes 2^ICOUNT ns of its clock, and as many cycles."""
LEVELS = {"U": ".user", "K": ".kernel"}
"""The parts of a hardware event by the letters of the paper's figures."""
KERNEL_PART = ("hw.instructions.kernel", "hw.cycles.kernel")
EMULATED_EVENTS = ",".join([EVENTS, *KERNEL_PART])
"""Few enough events for its six counters, one of which is the reference's: events that take turns
cost more, and their rows have no length in instructions."""
EMULATED_PRACTICAL = Setting("50 million instructions (the paper's)", "50M")
EMULATED_LOWEST = Setting("400 million instructions (the lowest rate)", "400M")
"""More than a run has: recording without a row of the work."""
EMULATED_SETTINGS = (
    EMULATED_PRACTICAL,
    EMULATED_LOWEST,
    Setting("2 million instructions (the finest)", "2M"),
)
"""The recordings are those of the last setting: only it makes enough rows of so little work."""


@dataclass(frozen=True, slots=True)
class VrtprofPlan:
    """How much to measure."""

    workloads: tuple[Work, ...]
    guests: tuple[int, ...]
    """Numbers of nested guests, and of domUs."""
    repetitions: int
    seconds: float
    """The time of each copy of a recorded workload."""
    overhead_repetitions: int
    share: float
    """The share of the workloads' counts that table IV runs, and that is recorded where a count and
    no time says how much."""


FULL = VrtprofPlan((*WORKLOADS, *PROGRAMS), (1, 2, 4), 2, 3.0, 5, 1.0)
QUICK = VrtprofPlan((*QUICK_WORKLOADS, *QUICK_PROGRAMS), (1,), 1, 1.0, 2, 0.5)

GUEST_MEMORY_MIB = 512
"""The memory of all nested guests together, since they share the copies too."""

OVERHEAD_IN = "native:cpus=1"
PROGRAMS_IN_KVM = f"lab:guest=host,guest_mem={GUEST_MEMORY_MIB}M"
"""One guest that sees this machine's programs, and runs one copy: emulated, they take minutes."""
SPECS = {NATIVE: "native:cpus=1", UML: "uml:mem=1G", CONTAINER: "container:cpus=1"}
SPECS |= {name: f"xen:mode=pvh,guests={guests},mem=192M" for guests, name in DOMUS.items()}
"""Environments as the command line names them."""
GUESTS_UNDER_KVM = Role(
    "Guests under KVM",
    (
        Way("qemu:accel=kvm,guests=N", frozenset({roles.KVM})),
        Way(
            "lab:guest=builtin,guests=N",
            frozenset({roles.LAB}),
            instead_of="KVM of this machine: stock KVM of an emulated AMD processor",
        ),
    ),
)
HARDWARE_EVENTS = Role(
    "Hardware events",
    (
        Way("this machine's counters, rows of instructions", frozenset({roles.PMU})),
        Way(
            "instructions and cycles of qemu-arm64, rows of time elsewhere",
            frozenset({roles.ARM64}),
            instead_of="a PMU",
        ),
    ),
)
ROLES = (GUESTS_UNDER_KVM, HARDWARE_EVENTS)


def guests_spec(machine: Machine, guests: int) -> str | None:
    """The environment of this number of guests; None where the machine can have none.

    With KVM each guest has as much memory as without it all have together.
    """
    if (way := GUESTS_UNDER_KVM.on(machine)) is None:
        return None
    under_kvm = roles.KVM in way.needs
    memory = f"mem={GUEST_MEMORY_MIB}M" if under_kvm else f"guest_mem={GUEST_MEMORY_MIB // guests}M"
    return f"{way.what.removesuffix('N')}{guests},{memory}"


def copies_on(machine: Machine) -> int:
    """Copies of a workload at once: as the paper's where each of as many guests has a CPU."""
    enough = roles.KVM in machine.has and machine.cpus >= MANY_COPIES
    return MANY_COPIES if enough else COPIES


PAPER_SPREAD = 2.0
"""Unloaded, at the lowest rate and at the practical one, run times are "within 1-2% of each other"
(section IV-B), in percent."""
PAPER_OVERHEADS = {
    "403.gcc": -1.78,
    "416.gamess": 1.59,
    "429.mcf": 0.63,
    "433.milc": 0.74,
    "465.tonto": -1.39,
    "481.wrf": 1.60,
    "Pseudo JBB": 2.59,
    "Geomean": 1.34,
}
"""Table IV, in percent; the mean is that of the magnitudes."""


@dataclass(frozen=True, slots=True)
class PaperEvent:
    """A row of table II, and what counts the same here."""

    name: str
    about: str
    ours: tuple[str, ...]
    """Events that count the same, of hardware in both parts; empty where the kernel has no portable
    name (`raw.py` has the codes)."""
    note: str = ""


TABLE_II = (
    PaperEvent("INST_RETIRED.LOADS", "retired loads", ("hw.l1d_loads",)),
    PaperEvent("INST_RETIRED.STORES", "retired stores", ("hw.l1d_stores",)),
    PaperEvent("BR_INST_RETIRED.ANY", "retired branches", ("hw.branches",)),
    PaperEvent("BR_INST_RETIRED.MISPRED", "mispredicted branches", ("hw.branch_misses",)),
    PaperEvent("MUL", "retired multiplications", ()),
    PaperEvent(
        "MEM_LOAD_RETIRED.L2_LINE_MISS",
        "memory operations that missed the L2 cache",
        ("hw.cache_misses",),
        "of the last level",
    ),
    PaperEvent("MEM_LOAD_RETIRED.L1D_LINE_MISS", "L1 data misses", ("hw.l1d_load_misses",)),
    PaperEvent("L2_LINES_IN", "lines brought into the L2 cache", ()),
    PaperEvent("DTLB_MISSES.ANY", "dTLB misses", ("hw.dtlb_load_misses", "hw.dtlb_store_misses")),
    PaperEvent(
        "HW_INTR_RCV",
        "hardware interrupts received",
        ("irq.device", "irq.timer", "irq.reschedule"),
        "counted by the kernel, not the processor",
    ),
    PaperEvent("XEN_VMEXITS", "VM exits", ("kvm.exits", "xen.vmexit")),
    PaperEvent(
        "VT_SCHED_SW",
        "context switches by the VMM's scheduler",
        ("sched.switches", "xen.runstate_change"),
    ),
    PaperEvent(
        "XEN_IRQS",
        "interrupt requests received by the VMM",
        ("irq.device", "irq.timer", "xen.interrupt"),
    ),
)

PAPER_PAIRS = (
    ("XEN_VT_EXIT", "VT_SCHED_SW", None, 0.59),
    ("XEN_VT_EXIT", "XEN_IRQ", None, 0.16),
    ("XEN_VT_EXIT", "U_HW_INTR_RCV", None, 0.19),
    ("XEN_VT_EXIT", "U_DTLB_MISSES", None, 0.25),
    ("K_DTLB_MISSES", "K_BR", 0.87, 0.97),
    ("K_L1D_LINE_MISS", "K_BR_MISPRED", 0.79, 0.90),
    ("K_STORES", "K_L2_LINES_IN", 0.83, 0.73),
    ("K_L1D_LINE_MISS", "K_CPI", 0.41, 0.56),
)
"""Pairs of figures 2 (native) and 3 (eight guests): the strongest, and those that the text
names."""
PAIR_COLUMNS = {
    "XEN_VT_EXIT": "kvm.exits",
    "VT_SCHED_SW": "sched.switches",
    "XEN_IRQ": "irq.device",
    "U_HW_INTR_RCV": "irq.device",
    "U_DTLB_MISSES": "hw.dtlb_load_misses.user",
    "K_DTLB_MISSES": "hw.dtlb_load_misses.kernel",
    "K_BR": "hw.branches.kernel",
    "K_L1D_LINE_MISS": "hw.l1d_load_misses.kernel",
    "K_BR_MISPRED": "hw.branch_misses.kernel",
    "K_STORES": "hw.l1d_stores.kernel",
    "K_CPI": "derived.cpi.kernel",
}
"""The nearest column here: the paper's K_ is the kernel's part, its U_ the programs' part."""
XEN_COLUMNS = {
    "XEN_VT_EXIT": "xen.vmexit",
    "VT_SCHED_SW": "xen.runstate_change",
    "XEN_IRQ": "xen.interrupt",
}
"""The nearest of what Xen records itself."""
HARDWARE = tuple(
    f"{name}{level}"
    for name in (
        *(name for event in TABLE_II for name in event.ours if name.startswith("hw.")),
        *("hw.instructions", "hw.cycles"),
    )
    for level in LEVELS.values()
)
"""The kernel's and the programs' parts of table II's events and of CPI, to record besides EVENTS
where a PMU counts them."""
