"""How a simulated guest is virtualized, and how the output is cut."""

from __future__ import annotations

from dataclasses import dataclass

from vtax.errors import MisuseError
from vtax.units import parse_size

_LARGEST = (1 << 63) - 1

DEFAULT_MEMORY = 4 << 30
DEFAULT_WINDOW = 1_000_000


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a simulation; the compiled model reads them by name and checks them."""

    guest_levels: int = 4
    """Levels of the guest's page tables: 2, 4 or 5."""
    host_levels: int | None = None
    """Levels of the host's page tables; None: as the machine's description says."""
    guest_page: str | None = None
    """Size of the guest's pages: "4K", "2M" or "1G"; None: the workload's own, 4K for a trace."""
    host_page: str = "2M"
    """Size of the host's pages, as above."""
    memory_bytes: int = DEFAULT_MEMORY
    """The guest's memory."""
    isolation: bool = False
    """The guest isolates its kernel's page tables: twice the CR3 loads."""
    shadow_style: str = "kvm"
    """Whose shadow paging is modelled: "kvm" or "palacios"."""
    window_instructions: int = DEFAULT_WINDOW
    """Length of a window: of a row in the output, and a policy's clock unless it has its own."""
    instruction_limit: float | None = None
    """Stop after so many instructions; None: at the workload's end."""
    seed: int = 1
    """Of everything random. The same seed gives the same result."""
    whole: bool = False
    """Follow every reference of a synthetic workload instead of samples of each phase."""

    def __post_init__(self) -> None:
        """Refuse what the compiled model could not even hold; it checks what things mean."""
        for name in ("memory_bytes", "window_instructions", "seed"):
            _check(name, getattr(self, name), _LARGEST)
        for name in ("guest_levels", "host_levels"):
            if getattr(self, name) is not None:
                _check(name, getattr(self, name), 255)


def memory_bytes(memory: int | str) -> int:
    """Bytes of a number, or of a text such as "2G"."""
    return memory if isinstance(memory, int) else parse_size(memory)


def _check(name: str, value: object, largest: int) -> None:
    if not isinstance(value, int) or not 0 <= value <= largest:
        raise MisuseError(f"{name} is {value!r}", f"write a whole number from 0 to {largest}")
