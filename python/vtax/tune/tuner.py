"""Probes, the tuner and the libraries beside it: their command lines, and what they print."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from pydantic import ValidationError

from vtax.core import foreign_json
from vtax.core.errors import VtaxError
from vtax.tune.analysis import NOT_INSTALLED
from vtax.tune.tuning import Foreign, Probed, Tuned
from vtax.workloads.base import Command, Outcome, ResultFolder
from vtax.workloads.dgemm import DGEMM_PROGRAM, Dgemm
from vtax.workloads.outcomes import STDOUT, json_result, last_words, positive, require_success

PROGRAM = "vtax-agent"
LOG = "tune.jsonl"
PARAMETERS = "blas.toml"
ANSWER_BYTES = 16 << 20
LOG_BYTES = 64 << 20
PARAMETERS_BYTES = 64 << 10
VERSION_LENGTH = 200
REASON_LENGTH = 500
_NO_FILE = "cannot open shared object file: No such file"
EDGE_SHARE = 10.0
"""The sweep of cache block sizes, with some 200 large products, gets this many times the budget."""
GRACE_S = 300.0
"""Time beyond the budget: only a hanging program or a very slow machine reaches the end of it."""
SLOWEST = 20.0
"""A search may take this many times its budget where a single trial takes long."""
PEERS = {
    "openblas": "libopenblas.so.0",
    "blis": "libblis.so.4",
    "atlas": "libf77blas.so.3",
}
"""Libraries by name, as Debian names them; each is measured where it is installed."""
GENERATED = ("scalar", "sse2")
"""Instruction sets whose generated code is compared with the libraries (figure 6 of the paper)."""
RESTRICTED_SHARE = 0.25
"""The share of the budget for the search with one of these instruction sets."""
LEAST_S = 1.0
"""The agent accepts no smaller budget."""


@dataclass(frozen=True, slots=True)
class Tuner:
    """What is tuned, and how."""

    budget_s: float
    search: Literal["lines", "exhaustive"]
    precision: Literal["d", "s", "both"]
    threads: int
    size: int
    edge_size: int
    edge_runs: int
    vectors: str | None = None
    """Tune only the product with this instruction set; None: every routine with any instruction
    set."""

    def restricted(self, vectors: str) -> Tuner:
        """This tuner restricted to the product with one instruction set, in one precision."""
        return replace(self, vectors=vectors, precision=self.libraries_precision)

    @property
    def libraries_precision(self) -> Literal["d", "s"]:
        """The precision of libraries and of code with one instruction set: one of the two."""
        return "s" if self.precision == "s" else "d"

    def key(self) -> str:
        """What a log depends on besides machine and processor."""
        own = f"{self.search} {self.precision} {self.threads} {self.size}"
        return own if self.vectors is None else f"{own} {self.vectors}"

    def look(self, agent: str, probe: bool) -> Command:
        """The command for probes; without probes, for what the agent says about the machine
        anyway."""
        words = ("probe", "--json") if probe else ("facts",)
        return Command((agent, *words), timeout_s=GRACE_S)

    def searched(self, agent: str, log: bytes | None) -> Command:
        """The command for a search, which goes on where an earlier search's log ends."""
        budget_s = self.budget_s
        if self.vectors is not None:
            budget_s = max(LEAST_S, RESTRICTED_SHARE * budget_s)
        return Command(
            (agent, "tune", "--json", "--search", self.search, "--budget", _seconds(budget_s),
             "--log", LOG, "--export", PARAMETERS, *self._product()),
            files={} if log is None else {LOG: log},
            timeout_s=SLOWEST * self.budget_s + GRACE_S,
        )  # fmt: skip

    def measured(self, agent: str, parameters: bytes) -> Command:
        """The command that measures every routine with these parameters.

        It may take as long as a search, so that products of the search's size fit.
        """
        return Command(
            (
                agent,
                "tune",
                "--json",
                "--budget",
                _seconds(self.budget_s),
                "--use",
                PARAMETERS,
                *self._product(),
            ),
            files={PARAMETERS: parameters},
            timeout_s=SLOWEST * self.budget_s + GRACE_S,
        )

    def edges(self, agent: str, parameters: bytes | None) -> Command:
        """The command that sweeps cache block sizes; without `parameters`, with those of the
        model."""
        given = () if parameters is None else ("--use", PARAMETERS)
        return Command(
            (agent, "tune", "--json", "--cache-edge", "--edge-size", str(self.edge_size),
             "--runs", str(self.edge_runs), "--threads", str(self.threads),
             "--budget", _seconds(EDGE_SHARE * self.budget_s), *given),
            files={} if parameters is None else {PARAMETERS: parameters},
            timeout_s=SLOWEST * EDGE_SHARE * self.budget_s + GRACE_S,
        )  # fmt: skip

    def product(self, library: str) -> Command:
        """A library's matrix product, by one thread on one CPU, as the agent's products are."""
        own = Dgemm(self.size, threads=self.threads)
        pinned = ("--one-cpu",) if self.threads == 1 else ()
        return Command(
            (
                DGEMM_PROGRAM, "--library", library, "--size", str(self.size),
                "--precision", self.libraries_precision, *pinned,
            ),
            own.environment(self.threads),
            timeout_s=GRACE_S + 14.0 * self.size**3 / 5e7,
        )  # fmt: skip

    def _product(self) -> Sequence[str]:
        words: dict[str, str | int]
        words = {"precision": self.precision, "threads": self.threads, "size": self.size}
        if self.vectors is not None:
            words |= {"vectors": self.vectors, "routines": "gemm-nn"}
        return [word for name, value in words.items() for word in (f"--{name}", str(value))]


def _seconds(budget_s: float) -> str:
    """Seconds in the form that the agent reads."""
    return f"{budget_s:.3f}s"


def identify(library: str) -> Command:
    """The command that finds out whether the machine has a library."""
    return Command((DGEMM_PROGRAM, "--library", library, "--identify"), timeout_s=60.0)


@dataclass(frozen=True, slots=True)
class Identified:
    """A library as found in a machine."""

    version: str | None
    reason: str | None = None
    """Why the library cannot be measured; None: it can."""


def identified(library: str, outcome: Outcome, folder: ResultFolder) -> Identified:
    """The library's version, or why it cannot be measured."""
    if outcome.exit_code != 0:
        said = last_words(folder)[:REASON_LENGTH] or "it cannot be loaded"
        missing = f"{library}: {_NO_FILE}" in said
        return Identified(None, NOT_INSTALLED if missing else said)
    found: Mapping[str, Any] = {}
    with contextlib.suppress(ValueError):
        found = foreign_json.parse_object(folder.read_text(STDOUT, ANSWER_BYTES))
    own: Any = found.get("library", found)
    version = own.get("version") if isinstance(own, Mapping) else None
    return Identified(version[:VERSION_LENGTH] if isinstance(version, str) else None)


def library_gflops(outcome: Outcome, folder: ResultFolder) -> float:
    """Gflop/s of `Tuner.product`. Raises VtaxError when the product failed, or was wrong."""
    require_success(DGEMM_PROGRAM, outcome, folder)
    return positive(DGEMM_PROGRAM, json_result(DGEMM_PROGRAM, folder), "median_gflops")


def probed(outcome: Outcome, folder: ResultFolder) -> Probed:
    """The result of the probes. Raises VtaxError when they failed, or are of another form."""
    return _answer(Probed, f"{PROGRAM} probe", outcome, folder)


def tuned(outcome: Outcome, folder: ResultFolder) -> Tuned:
    """The result of the tuner, with GEMM first, whose parameters are the winner's.

    Raises VtaxError when the tuner failed, or its answer is of another form.
    """
    found = _answer(Tuned, f"{PROGRAM} tune", outcome, folder)
    ordered = sorted(found.routines, key=lambda each: "gemm" not in each.routine)
    return found.model_copy(update={"routines": tuple(ordered)})


def refusal(message: str) -> str:
    """The agent's reason why a machine cannot carry something out, without the words around it."""
    found = re.search(rf"(?:--use {re.escape(PARAMETERS)}|--vectors \w+): ([^;]*)", message)
    return found[1] if found else message


A = TypeVar("A", bound=Foreign)


def _answer(form: type[A], program: str, outcome: Outcome, folder: ResultFolder) -> A:
    require_success(program, outcome, folder)
    try:
        return form.model_validate_json(folder.read_bytes(STDOUT, ANSWER_BYTES))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise VtaxError(f"{program}: its answer is of another form: {where}: {first['msg']}"
                        ) from None  # fmt: skip
