"""The ways in which intervals are analysed, as the command line names them.

Nothing heavy is imported here: help and completion need these names.
"""

from __future__ import annotations

from enum import StrEnum


class Per(StrEnum):
    """The unit that a rate is per: a row's count is divided by the row's length in it."""

    SECOND = "s"
    GIGA_INSTRUCTION = "ginsn"
    GIGA_CYCLE = "gcycle"

    @property
    def column(self) -> str:
        return {"s": "length_ns", "ginsn": "length_instructions", "gcycle": "length_cycles"}[self]

    @property
    def words(self) -> str:
        return {
            "s": "per second of a CPU",
            "ginsn": "per 10⁹ instructions",
            "gcycle": "per 10⁹ cycles",
        }[self]


class By(StrEnum):
    """What makes a series of its own, in which intervals follow one another."""

    CPU = "cpu"
    TASK = "task"
    VM = "vm"

    @property
    def columns(self) -> tuple[str, ...]:
        return {"cpu": ("cpu",), "task": ("tid",), "vm": ("vm", "vcpu")}[self]


class Method(StrEnum):
    """Linear correlation, or that of any relation that rises or falls throughout."""

    PEARSON = "pearson"
    SPEARMAN = "spearman"

    @property
    def variance(self) -> float:
        """The variance of Fisher's z, times its degrees of freedom."""
        return {"pearson": 1.0, "spearman": 1.06}[self]


class Detrend(StrEnum):
    """What is removed from each series besides the length: nothing, a line, or all slow
    movement."""

    NONE = "none"
    LINEAR = "linear"
    DIFFERENCE = "difference"


class Axis(StrEnum):
    """What a timeline runs along."""

    INSTRUCTIONS = "instructions"
    """Instructions retired by each CPU (task, vCPU) since the run began: the same work has one
    position."""
    TIME = "time"
    """Nanoseconds since the first interval of the run began."""


class Scale(StrEnum):
    """What makes the stacks of two recordings comparable."""

    SHARE = "share"
    """Each weight is divided by the sum of its recording's."""
    WORK = "work"
    """Both recordings did the same work once: weights are seconds of it."""
