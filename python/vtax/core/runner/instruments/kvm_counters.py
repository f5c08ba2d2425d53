"""KVM's counters of the guest, as metrics beside those of the workload."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

from vtax.core.errors import VtaxError
from vtax.core.runner.repetition import Repetition
from vtax.environments import kvm_counters
from vtax.environments.capabilities import Capability, KvmCounters


@dataclass(frozen=True, slots=True)
class Counting:
    """KVM's counters of the guest: differences over the repetition, and levels at its end."""

    name: ClassVar[str] = "kvm-counters"

    @property
    def needs(self) -> type[Capability]:
        return KvmCounters

    @contextmanager
    def around(self, repetition: Repetition) -> Iterator[None]:
        counters = repetition.machine.offer(KvmCounters)
        if counters is None:
            raise VtaxError("the machine has no counters of KVM")
        before = counters.read()
        yield
        repetition.metrics += kvm_counters.metrics(before, counters.read())
