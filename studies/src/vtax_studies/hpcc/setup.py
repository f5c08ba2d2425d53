"""The paper's setup beside this study's: environments, sizes, and the values in its text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vtax_studies import roles
from vtax_studies.roles import Machine, Role, Way

UPDATES = "updates"
FIGURES = ("1", "2", "3", "4", UPDATES)

NATIVE = "native"
UML = "user-mode Linux"
TCG = "QEMU, emulated"
KVM = "QEMU, KVM"
BETWEEN = "two guests of user-mode Linux"

SPECS = {
    NATIVE: "native:cpus=1",
    UML: "uml:mem=512M",
    KVM: "qemu:accel=kvm,mem=512M",
    TCG: "qemu:accel=tcg,mem=512M",
}
"""Environments as the command line names them. The paper has KVM, VMware Player and VirtualBox."""
MESSAGE_SPECS = {
    NATIVE: "native:cpus=2",
    KVM: "qemu:accel=kvm,smp=2,mem=512M",
    TCG: "qemu:accel=tcg,smp=2,mem=512M",
    BETWEEN: "uml:guests=2,net=vde,mem=512M,mpi=on",
}
"""The same with a CPU for each of two processes; user-mode Linux has one, so that it takes two
guests, whose messages go over a network."""
GUEST = Role(
    "Guest of a hypervisor",
    (
        Way(SPECS[KVM], frozenset({roles.KVM})),
        Way(SPECS[TCG], frozenset({roles.QEMU}), instead_of="KVM: an emulated processor"),
    ),
)
PARAVIRTUALIZED = Role("Paravirtualized guest", (Way(SPECS[UML], frozenset({roles.UML})),))
ROLES = (GUEST, PARAVIRTUALIZED)


def specs_on(machine: Machine) -> Mapping[str, str]:
    """The environments that the study takes on a machine, by their names here."""
    guest = GUEST.on(machine)
    other = TCG if guest and guest.what == SPECS[KVM] else KVM
    return {name: spec for name, spec in SPECS.items() if name != other}


PROCESSES = 2
"""Processes that exchange messages. The paper has eight, on as many CPUs."""
LATENCY = "AvgPingPongLatency_usec"
HPL, HPL_TIME = "HPL_Tflops", "HPL_time"
RANDOM_ACCESS = "MPIRandomAccess_GUPs"
TABLE, CPU, WALL = "table_words", "random_access_cpu_s", "random_access_wall_s"
"""The names of what is read besides HPCC's summary."""


@dataclass(frozen=True, slots=True)
class Updated:
    """A place where updates are counted."""

    spec: str
    count: int
    """Operations of GUPS in the shorter run."""


NESTED, SHADOW = "KVM in the lab, nested paging", "KVM in the lab, shadow paging"
UPDATE_PLACES: Mapping[str, Updated] = {
    NATIVE: Updated("native:cpus=1", 20_000_000),
    UML: Updated("uml:mem=512M", 20_000_000),
    NESTED: Updated("lab:npt=1", 1_000_000),
    SHADOW: Updated("lab:npt=0", 1_000_000),
}
"""User-mode Linux and KVM's guests are recorded from outside: by what their host does for them."""


@dataclass(frozen=True, slots=True)
class HpccPlan:
    """How much to measure. HPCC runs as one process, so that one CPU is enough everywhere; for
    messages it runs once more as two."""

    sizes: Sequence[int]
    """HPL's N. The table of MPIRandomAccess has half as many bytes as the matrix or more: 2^15
    words at N = 200, 2^16 at 300, 2^17 at 400, 2^18 at 600, 2^19 at 1000, 2^22 at 2048 and 2^23 at
    4000."""
    emulated_sizes: Sequence[int]
    """Sizes where the processor is emulated: N = 1000 takes it 10 s."""
    rounds: int
    budget_s: float
    message_size: int
    message_rounds: int
    """Each round is three runs in each environment."""
    message_places: Sequence[str]
    update_pairs: int
    """Pairs of runs with few and many updates, in each place."""
    update_places: Sequence[str]
    clocks_s: float = 0.2

    def sizes_in(self, name: str) -> Sequence[int]:
        return self.emulated_sizes if name == TCG else self.sizes


FULL = HpccPlan(
    (200, 400, 600, 1000, 2048, 4000), (200, 400, 600),
    rounds=5, budget_s=1200.0, message_size=600, message_rounds=5,
    message_places=tuple(MESSAGE_SPECS), update_pairs=3, update_places=tuple(UPDATE_PLACES),
)  # fmt: skip
QUICK = HpccPlan(
    (200, 300, 400), (200, 300), rounds=1, budget_s=300.0, message_size=200, message_rounds=1,
    message_places=(NATIVE, KVM, TCG), update_pairs=1, update_places=(NATIVE,),
)  # fmt: skip

SMALL_APART, GUESTS_APART, LARGE_APART = 50.0, 5.0, 1.0
"""Figure 1, percent: natively for small sizes, in guests, and natively for large ones."""
LARGE_TABLE = 1 << 22
"""In words. In larger tables the paper's native clocks agree within a percent."""
SMALLEST_CHANGE = 50.0
"""Figure 2, percent: the smallest size in two of three guests."""
LARGEST_LOSS = 70.0
"""Figure 4, percent."""
LITTLE = 10.0
"""Percent that HPL may lose where the paper says "very little overhead": this study's reading."""
MANY_FOLD = 2.0
"""The least that "many-fold" can mean: this study's reading."""

STATED: Mapping[str, str] = {
    "1": "Bare metal: nearly 50 % for small sizes, below 1 % for most above 2^22. Guests: about 5 "
    "% for small sizes. CPU time above wall time many times as often in guests.",
    "2": "Bare metal: no noticeable impact. Size 1000: well over 50 % in VirtualBox and VMware "
    "Player. VMware Player: a local maximum of about 15 % at 4000. KVM: over 20 % for nearly all "
    "large sizes. VirtualBox: under 10 % for the largest.",
    "3": "Very little overhead, and little variation, over a wide range of sizes.",
    "4": "Up to 70 % of performance lost, with large standard deviations.",
    UPDATES: "MPIRandomAccess makes high demands on TLBs and sends many short messages. What its "
    "loss is made of is left to future work, which is to look at nested paging.",
}
"""What the text says about each figure; the pictures are not in the text that is available."""
