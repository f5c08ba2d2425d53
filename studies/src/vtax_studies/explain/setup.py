"""What the study measures, and the targets that it judges by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vtax.environments.base import allowed_cpus
from vtax_studies import roles
from vtax_studies.explain.programs import (
    CHANGES,
    LOOPS,
    PROGRAMS,
    Change,
    Loop,
    Program,
)
from vtax_studies.roles import Machine, Role, Way

FIGURES = ("1", "2")

UML, GVISOR, CONTAINER, TCG, LAB = "uml", "gvisor", "container", "qemu:accel=tcg", "lab"
KVM = "qemu:accel=kvm"
GUEST = Role(
    "Guest of a hypervisor",
    (
        Way(KVM, frozenset({roles.KVM})),
        Way(TCG, frozenset({roles.QEMU}), instead_of="KVM: an emulated processor"),
    ),
)
ROLES = (
    GUEST,
    Role("Guest under stock KVM, with its exits", (Way(LAB, frozenset({roles.LAB})),)),
)
SAME = f"native:cpus={len(allowed_cpus())}"
"""Native under another label: its bill against `native` is the A/A trial."""

PRICE_CHANGES: Sequence[tuple[str, str]] = (
    ("gvisor:platform=ptrace", "gvisor:platform=systrap"),
    ("gvisor:platform=ptrace", "gvisor:platform=kvm"),
    (TCG, "qemu:accel=tcg,cpu=qemu64"),
)
"""Changes of prices: one environment with two settings."""


@dataclass(frozen=True, slots=True)
class ExplainPlan:
    """How much to measure."""

    environments: Sequence[str]
    changed_in: Sequence[str]
    """The environments in which programs are changed."""
    programs: Sequence[Program]
    loops: Sequence[Loop]
    changes: Sequence[Change]
    price_changes: Sequence[tuple[str, str]]
    rounds: int
    budget_s: float
    """Nothing new begins after this time; the study goes on when it is run again."""


def environments_on(machine: Machine, environments: Sequence[str]) -> Sequence[str]:
    """The environments of a plan, with KVM instead of an emulated processor where KVM runs."""
    guest = GUEST.on(machine)
    return [guest.what if guest and each == TCG else each for each in environments]


FULL = ExplainPlan(
    environments=(UML, GVISOR, CONTAINER, TCG, LAB),
    changed_in=(UML, GVISOR),
    programs=PROGRAMS,
    loops=LOOPS,
    changes=CHANGES,
    price_changes=PRICE_CHANGES,
    rounds=5,
    budget_s=7200.0,
)
QUICK = ExplainPlan(
    environments=(UML, CONTAINER),
    changed_in=(UML,),
    programs=[each for each in PROGRAMS if each.name in ("tar create", "perl", "find")],
    loops=[each for each in LOOPS if each.name in ("stat", "anonymous")],
    changes=CHANGES[1:2],
    price_changes=(),
    rounds=3,
    budget_s=600.0,
)

ENOUGH = 24
"""Programs; with fewer no prediction is judged."""
MEDIAN_PERCENT, NINETIETH_PERCENT = 10.0, 25.0
"""Targets of the prediction's error."""
EXPLAINED, EXPLAINED_PROGRAMS = 0.8, 18 / 24
"""The share of the tax, and of the programs."""
FALSE_CLAIMS = 1 / 20
COVERED = 95 / 100
"""A/A bills that cover zero."""
