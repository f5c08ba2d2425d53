"""The paper's setup and the points that the study simulates around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

FIGURES = ("2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "sensitivity", "choices")

FOCUS = ("swim", "apsi", "zeusmp", "gcc", "gzip", "fma3d", "crafty")
"""The benchmarks of figures 4, 5 and 10 to 12, in the paper's order (section 4)."""
SURVEYED = (*FOCUS, "mcf", "vpr", "cactusADM")
"""The benchmarks of figure 2 that the text names (sections 3 and 4)."""
GROUPS = {
    "shadow": ("swim", "zeusmp"),
    "nested": ("gcc", "gzip"),
    "indifferent": ("apsi", "crafty", "fma3d"),
}
"""Which mode is best for which benchmark (section 7)."""
LOCALITY = (("swim", "4K"), ("vpr", "2M"), ("mcf", "4K"), ("scan", "4K"))
"""Workload and page size of figure 3; the scan is the paper's worst case."""
PHASED = ("gzip", "gcc")
"""The benchmarks of figure 9."""

MACHINE = "opteron2350"
SECOND_MACHINE = "phenom2x550"
MACHINE_TITLES = {MACHINE: "Opteron 2350", SECOND_MACHINE: "Phenom II X2 550"}

WINDOW = 1_000_000_000
"""Instructions of a window (section 6, `window_inst`)."""
THRESHOLD_VEXIT = 1e4
"""DAV2M's starting threshold: exits per 1e9 instructions (section 6)."""
THRESHOLD_TMISS = 1e5 / 10
"""The starting threshold for TLB misses: 1e5 per `window_tmiss` of 1e10, so 1e4 per 1e9
instructions."""

INDIFFERENT_PERCENT = 3.0
"""Two modes within this percentage are alike. The paper gives no number; this is the study's."""
CLOSE_PERCENT = 1.0
"""DAV2M's distance to the best static mode (section 1)."""
PAPER_SETTINGS: dict[str, Any] = {
    "guest_page": "4K",
    "host_page": "2M",
    "guest_levels": 2,
    "shadow_style": "palacios",
    "window": WINDOW,
    "memory": "2G",
}
"""32-bit guest, large pages below it, 4K shadow pages (section 4)."""

EXIT_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
TLB_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
QUICK_EXIT_FACTORS = (0.25, 1.0, 4.0)
QUICK_TLB_FACTORS = (0.25, 1.0, 8.0)


STATES = ("Shadow", "PreShadow", "PreNested", "Prepaging", "Nested")
"""DAV2M's states (section 6), in the order of figure 8's axis."""


@dataclass(frozen=True, slots=True)
class Arrow:
    """A transition of figure 7."""

    number: int
    origin: str
    to: str
    condition: str
    action: str


@dataclass(frozen=True, slots=True)
class Choice:
    """One open point of DAV2M, set differently from its default."""

    parameter: str
    shown: str
    """The setting as the table shows it."""
    question: str
    """What the paper leaves open."""
    values: dict[str, Any]
    """The settings as `parameters["dav2m"]` takes them."""


CHOICES = (
    Choice("threshold_rise", "1.25", "by how much thresholds rise", {"threshold_rise": 1.25}),
    Choice("threshold_rise", "1.5", "by how much thresholds rise", {"threshold_rise": 1.5}),
    Choice("threshold_rise", "10", "by how much thresholds rise", {"threshold_rise": 10.0}),
    Choice("threshold_rise", "1 (never)", "whether thresholds rise", {"threshold_rise": 1.0}),
    Choice("threshold_fall", "1 (never)", "whether thresholds fall", {"threshold_fall": 1.0}),
    Choice("threshold_fall", "0.9", "by how much thresholds fall", {"threshold_fall": 0.9}),
    Choice(
        "window_prepaging", "1e9", "how long Prepaging lasts", {"window_prepaging": 1_000_000_000}
    ),
    Choice(
        "window_prepaging", "3e10", "how long Prepaging lasts", {"window_prepaging": 30_000_000_000}
    ),
    Choice("prepaging", "off", "whether Prepaging is needed", {"prepaging": False}),
    Choice(
        "reset_outside_damping",
        "false",
        "whether interval counters restart outside the damping condition",
        {"reset_outside_damping": False},
    ),
    Choice(
        "reset_at_switch",
        "false",
        "whether event counters restart at every switch",
        {"reset_at_switch": False},
    ),
    Choice(
        "smooth_across_switch",
        "true",
        "whether moving averages go on across a switch",
        {"smooth_across_switch": True},
    ),
    Choice(
        "shadow_probe",
        "window-vexit",
        "how long PreShadow probes (text against pseudo-code)",
        {"shadow_probe": "window-vexit"},
    ),
    Choice(
        "smoothing_cpi",
        "10",
        "over how many windows the compared CPI is averaged",
        {"smoothing_cpi": 10},
    ),
    Choice("start", "nested", "in which mode it starts", {"start": "nested"}),
)
DEFAULTS = {
    "threshold_rise": "2",
    "threshold_fall": "0.5",
    "window_prepaging": "1e10",
    "prepaging": "on",
    "reset_outside_damping": "true",
    "reset_at_switch": "true",
    "smooth_across_switch": "false",
    "smoothing_cpi": "1",
    "shadow_probe": "window-tmiss",
    "start": "shadow",
}
"""What the policy does by default where the paper leaves it open."""
