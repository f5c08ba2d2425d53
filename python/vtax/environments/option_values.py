"""Values of an environment's keys, which several environments read alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vtax.core.errors import MisuseError
from vtax.core.units import format_bytes, parse_size
from vtax.environments.base import allowed_cpus, host_memory_bytes


def cpu_count(environment: str, key: str, text: str) -> int:
    """A number of CPUs that this host can give; raises MisuseError otherwise."""
    available = len(allowed_cpus())
    if not text.isdecimal() or not 1 <= int(text) <= available:
        raise MisuseError(
            f"{environment}: {key}={text} must be a whole number from 1 to {available}",
            "a guest with more CPUs than the host can give it would measure waiting",
        )
    return int(text)


def one_of(environment: str, options: Mapping[str, str], key: str, known: Sequence[str]) -> None:
    """Raise MisuseError when the option is given and is none of `known`."""
    if key in options and options[key] not in known:
        raise MisuseError(f"{environment}: {key}={options[key]} is not {' or '.join(known)}")


def whole_number(environment: str, key: str, text: str, least: int, most: int) -> int:
    """The number in a key's value; raises MisuseError when it is none, or out of its bounds."""
    if not text.isdecimal() or not least <= int(text) <= most:
        raise MisuseError(
            f"{environment}: {key}={text} must be a whole number from {least} to {most}"
        )
    return int(text)


def choice(environment: str, key: str, text: str, values: Mapping[str, bool]) -> bool:
    """What a key's value stands for; raises MisuseError when it stands for nothing."""
    if text not in values:
        raise MisuseError(f"{environment}: {key}={text} is unknown", f"use {' or '.join(values)}")
    return values[text]


ON_OFF = {"on": True, "off": False}

USUAL_PROCESSES = 4096
"""Twice what podman allows a container: a fork bomb ends there, `make -j` and MPI do not."""
PROCESSES_PER_CPU = 64
MOST_PROCESSES = (1 << 22) - 1
"""The largest number of a process in Linux."""


def usual_processes(cpus: int) -> int:
    """The most processes and threads of a command on a machine of this many CPUs."""
    return max(USUAL_PROCESSES, PROCESSES_PER_CPU * cpus)


def process_limit(environment: str, text: str) -> int:
    """The value of a key `pids`; raises MisuseError when it is none."""
    return whole_number(environment, "pids", text, 1, MOST_PROCESSES)


def guest_memory(environment: str, text: str, smallest: int, key: str = "mem") -> int:
    """A guest's memory in bytes, whole MiB. Raises MisuseError when it is too small or exceeds the
    host's."""
    size = parse_size(text) >> 20 << 20
    largest = host_memory_bytes()
    if size < smallest:
        raise MisuseError(
            f"{environment}: {key}={text} is too small to boot",
            f"give it at least {format_bytes(smallest)}",
        )
    if size > largest:
        raise MisuseError(
            f"{environment}: {key}={text} is more than the host's {format_bytes(largest)}"
        )
    return size
