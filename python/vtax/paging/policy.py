"""Policies written in Python: a class that chooses between shadow and nested paging."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from vtax.core.errors import MisuseError, VtaxError
from vtax.core.specs import unknown

PAGING = ("shadow", "nested")


@dataclass(frozen=True, slots=True)
class Reading:
    """What a hypervisor can measure cheaply: all that a policy sees."""

    instructions: float
    """Retired instructions of the guest."""
    cycles: float
    """Unhalted cycles of guest and hypervisor. Modelled."""
    tlb_misses: float
    """Misses of the second-level data TLB."""
    shadow_exits: float
    """Exits that paging caused under shadow paging."""
    walk_cycles: float | None
    """Cycles in page walks; None where a machine cannot count them."""
    vmm_cycles: float | None
    """Cycles in the hypervisor for exits that paging caused; None where unknown."""

    @property
    def cpi(self) -> float | None:
        """Cycles per instruction; None without an instruction."""
        return self.cycles / self.instructions if self.instructions else None


class Policy:
    """Base class of policies: set what differs, and decide.

        class Threshold(vtax.paging.Policy):
            \"\"\"Nested paging, unless TLB misses are frequent.\"\"\"

            def decide(self, now, last_window):
                misses = last_window.tlb_misses / last_window.instructions
                return "shadow" if misses > 0.001 else "nested"

    Attributes of an instance keep what the policy remembers. `simulate` takes an instance, or the
    class itself, of which it then makes an instance without arguments.
    """

    name: str = ""
    """The policy's name in results; empty: the name of its class."""
    window_instructions: int = 1_000_000
    """Retired instructions between two decisions."""
    start: str = "nested"
    """The mode before the first decision: "shadow" or "nested"."""
    exit_alarm: int | None = None
    """Decide also within a window, once, when it has had this many shadow exits; None: never."""

    def decide(self, now: Reading, last_window: Reading) -> str:
        """Return the mode for the next window: "shadow" or "nested".

        `now` counts from the start of the guest, `last_window` from the end of the window before:
        at an alarm it is the window so far.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method decide")


Figures = tuple[float, float, float, float, float | None, float | None]
"""The fields of a Reading, in their order."""


@dataclass(frozen=True, slots=True)
class Steering:
    """A policy as the compiled model calls it."""

    window_instructions: int
    start: str
    exit_alarm: int | None
    decide: Callable[[Figures, Figures], str]


def name_of(policy: Policy) -> str:
    """The policy's name in results and errors."""
    return policy.name or type(policy).__name__


def steering(policy: Policy) -> Steering:
    """The policy for the model, after all checks that are possible before it decides.

    Raises MisuseError when an attribute of the policy is invalid.
    """
    name = name_of(policy)
    if policy.start not in PAGING:
        raise MisuseError(f"policy {name}: start is {policy.start!r}", "write 'shadow' or 'nested'")
    for field, optional in (("window_instructions", False), ("exit_alarm", True)):
        value = getattr(policy, field)
        whole = isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 63
        if not (whole or (optional and value is None)):
            raise MisuseError(
                f"policy {name}: {field} is {value!r}", "write a whole number above 0"
            )
    return Steering(
        policy.window_instructions, policy.start, policy.exit_alarm, _guarded(policy, name)
    )


def _guarded(policy: Policy, name: str) -> Callable[[Figures, Figures], str]:
    """`policy.decide`, with failures that name the policy."""

    def decide(now: Figures, last_window: Figures) -> str:
        try:
            answer: object = policy.decide(Reading(*now), Reading(*last_window))
        except Exception as error:
            raise VtaxError(f"policy {name} raised {_described(error)}") from error
        if isinstance(answer, str) and answer in PAGING:
            return answer
        raise VtaxError(
            f"policy {name} decided on {_short(answer)}", "decide must return 'shadow' or 'nested'"
        )

    return decide


def load(spec: str) -> type[Policy]:
    """Run a file and return the policy class that ``FILE.py:Class`` names.

    Raises MisuseError when there is no such class, VtaxError when the file cannot be run.
    """
    file, _, name = spec.rpartition(":")
    if not (file and name):
        raise MisuseError(f"policy '{spec}' is not FILE.py:Class", "write for example mine.py:Mine")
    found = vars(_run(Path(file)))
    classes = [key for key, value in found.items() if _is_policy(value)]
    if name not in found:
        raise unknown(f"policy in {file}", name, classes)
    chosen = found[name]
    if not _is_policy(chosen):
        raise MisuseError(f"{spec} is not a policy", "derive the class from vtax.paging.Policy")
    policy: type[Policy] = chosen
    return policy


def _is_policy(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Policy) and value is not Policy


def _run(path: Path) -> ModuleType:
    if not path.is_file():
        raise MisuseError(f"cannot read {path}: there is no such file")
    # Imported late: it costs start-up time, and few users bring a policy.
    import importlib.util

    # The module gets a name of its own: a file called json.py must not replace json for others.
    name = f"vtax_policy_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise MisuseError(f"{path} is not a Python file", "its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise VtaxError(f"{path} cannot be run: {_described(error)}") from error
    return module


def _described(error: Exception) -> str:
    """The kind and the text of an exception, and the line of the user's code that it came from."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = ""
    if trace is not None:
        code = trace.tb_frame.f_code
        where = f" ({Path(code.co_filename).name} line {trace.tb_lineno})"
    text = str(error)
    return f"{type(error).__name__}{f': {text}' if text else ''}{where}"


def _short(value: object) -> str:
    try:
        text = repr(value)
    except Exception:
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."
