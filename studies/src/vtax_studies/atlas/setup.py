"""The paper's setup beside this study's: environments, sizes, and the values in its text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vtax_studies import roles
from vtax_studies.roles import Role, Way

NATIVE = "native"
UML = "user-mode Linux"
KVM = "QEMU, KVM"
BARE, DOM0, DOMU = EMULATED = "emulated native", "emulated Dom0", "emulated DomU"
KERNELS = {
    NATIVE: "native:cpus=1,",
    UML: "uml:",
    KVM: "qemu:accel=kvm,",
    BARE: "xen:domain=native,",
    DOM0: "xen:domain=dom0,",
    DOMU: "xen:domain=domu,",
}
"""The beginning of each specification. The last three are the paper's kernels, on an emulated
machine: its counts, sizes and choices are what carries over, not its times."""
MODEL = "model"
GUEST_OF = {UML: NATIVE, KVM: NATIVE, DOMU: BARE}
"""Unprivileged guests' kernels, and the native one on the same machine."""
SMALL_MB, LARGE_MB = 256, 756
SWAP_MB = 512


@dataclass(frozen=True, slots=True)
class Place:
    """A kernel with a size of memory."""

    kernel: str
    megabytes: int

    @property
    def name(self) -> str:
        return f"{self.kernel}, {self.megabytes} MB"

    @property
    def is_emulated(self) -> bool:
        """Whether the processor is emulated. Kernels are compared on the same machine."""
        return self.kernel in EMULATED

    @property
    def environment(self) -> str:
        """The name of its environment, by which `--only` chooses it."""
        return self.spec.partition(":")[0]

    @property
    def spec(self) -> str:
        """The specification, with room to swap out what does not fit, as the paper's machines
        had."""
        return f"{KERNELS[self.kernel]}mem={self.megabytes}M,swap={SWAP_MB}M"


ROLES = (
    Role(
        "Guest of a hypervisor",
        (
            Way(KERNELS[KVM].rstrip(","), frozenset({roles.KVM})),
            Way(
                "xen",
                frozenset({roles.XEN}),
                instead_of="KVM: three kernels on an emulated processor",
            ),
        ),
    ),
    Role("Paravirtualized guest", (Way("uml", frozenset({roles.UML})),)),
)
PLACES = tuple(Place(kernel, size) for kernel in KERNELS for size in (SMALL_MB, LARGE_MB))
ENVIRONMENTS = tuple(dict.fromkeys(each.environment for each in PLACES))


@dataclass(frozen=True, slots=True)
class Tuning:
    """How much to search and sweep in each place."""

    budget_s: float
    rounds: int
    size: int
    edge_size: int
    edge_runs: int


@dataclass(frozen=True, slots=True)
class AtlasPlan:
    """How much to measure: with the DGEMM driver, and with the tuner."""

    sizes: Sequence[int]
    runs: int
    emulated_sizes: Sequence[int]
    emulated_runs: int
    emulated_columns: int
    """Where the processor is emulated, matrices are multiplied by the first columns only: a whole
    product of 3000 rows takes it four minutes. The matrices lie in memory whole."""
    tuning: Tuning
    emulated_tuning: Tuning
    traced_sizes: Sequence[int]
    """Sizes whose references are traced for the model; a product of 1000 rows has 500 million."""
    tuned_megabytes: Sequence[int] = (SMALL_MB, LARGE_MB)
    emulated_megabytes: Sequence[int] = (SMALL_MB, LARGE_MB)
    """Boots take a minute for three kernels."""


FULL = AtlasPlan(
    (100, 400, 700, 1000, 1500, 2000, 2500, 2800, 2900, 3000, 3100, 3200, 3300, 3600, 4000),
    5,
    (100, 400, 700, 1000, 2000, 2300, 2600, 2900, 3100, 3300, 3600),
    5,
    32,
    Tuning(60.0, 5, 1000, 2500, 20),
    Tuning(60.0, 3, 200, 400, 20),
    (100, 200, 300, 400, 500, 700, 1000),
)
QUICK = AtlasPlan(
    (400, 1000, 3600), 1, (100, 400), 1, 32,
    Tuning(2.0, 1, 200, 300, 2), Tuning(2.0, 1, 60, 100, 1), (100, 200),
    (SMALL_MB,), (SMALL_MB,),
)  # fmt: skip

DETECTED = {
    "l1_size": "L1 cache", "pipeline_cycles": "Pipeline (cycles)",
    "vector_registers": "Registers",
}  # fmt: skip
"""Table 3: names for the reader of the quantities of `vtax-agent probe`."""
SCALAR, SSE2 = GENERATED = ("generated scalar", "generated sse2")
"""Figure 6: peers of `vtax tune`."""
HAND_WRITTEN = 2.0
HAND_WRITTEN_SINGLE = 4.0
"""Figure 6: how many times the generated kernels' performance, in double and single precision."""
SAME_EDGE = 1.5
"""Table 4: the paper's medians are 1024 to 1536 KB, which it calls similar."""
EDGE = 3100
"""Figure 8: rows of the largest matrices before performance falls with 256 MB."""
PLATEAU = 700
"""Figure 8: from here performance is stable."""
NEAR = 0.05
"""As a share of the size: the study's reading of "the same threshold"."""
STABLE = 0.10
"""As a share of performance: the study's reading of "stabilizes" and "no significant
difference"."""
TREMENDOUS = 1.5
"""The least growth of minor faults that "tremendously" can mean: this study's reading."""
QUADRATIC = (1.5, 2.5)
"""Exponents of the size that "3x²" can mean: this study's reading."""
FEW = 0.01
"""As a share of the dTLB misses: this study's reading of "minimal"."""
GUESTS_DATA = 0.52 / 1.05
"""Figure 9: the data of DomU's kernel by the native kernel's."""
OTHERS_MB = 2.8
"""Section 5.2: init, udev and a shell."""
SOME_BYTES = 1 << 20
"""Less swap than this counts as none: a kernel writes out idle pages of its own accord."""

STATED: Mapping[str, str] = {
    "2": "No significant difference between the kernels.",
    "3": "No difference between the kernels; the mean of 20 runs of 2500 rows.",
    "4": "No difference between the kernels, beyond the physical cache too.",
    "5": "The choice varies between 512 and 2048 KB, which hardly matters for performance.",
    "6": "Hand-written kernels (SSE2) are twice as fast as generated ones, four times in single "
    "precision.",
    "7": "No significant difference between the kernels.",
    "8": "All rise to over 4 Gflops at 700, then stay. With 256 MB all fall past 3100, with 756 MB "
    "none does.",
    "9": "Data: 1.05 MB natively and in Dom0, 0.52 MB in DomU, which has the smallest code too.",
    "10": "With 256 MB it grows to 3100 and no further, with 756 MB to the end.",
    "11": "With 256 MB from 3100 on, with 756 MB none.",
    "12": "With 256 MB from 3100 on.",
    "13": "With 256 MB they grow tremendously past 3100; no difference between kernels.",
    "14": "They grow as 3x², as the data does; no difference between kernels.",
    "15": "Few: the code is small. With 256 MB they grow past 3100.",
}
"""What the text says about each figure; the pictures are not in the text that is available."""
FIGURES = tuple(STATED)
