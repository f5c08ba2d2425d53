"""`audit`: the report cards of environments, in a run folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vtax.audit.measuring import FULL, QUICK, audit
from vtax.core.formats.folder import RAW
from vtax.core.formats.model import AuditCard, AuditRecord
from vtax.core.runner.campaign import Campaign, Request
from vtax.core.runner.runner import State
from vtax.environments.base import Environment


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRequest(Request):
    """What `vtax audit` is asked for."""

    environments: Mapping[str, Environment]
    """Environments by spec."""
    quick: bool = False


@dataclass(eq=False)
class AuditCampaign(Campaign[AuditRequest, AuditRecord]):
    """One audit. Before its last card it has no result, so nothing of a part is kept."""

    _cards: Sequence[AuditCard] = field(default=(), init=False)

    @property
    def found(self) -> bool:
        return bool(self._cards)

    @property
    def first_failure(self) -> str | None:
        return None

    def record(self) -> AuditRecord:
        return AuditRecord(
            **self._head(),
            name="audit",
            quick=self.request.quick,
            environments=tuple(self._cards),
        )

    def _measure(self) -> State:
        request = self.request
        depth = QUICK if request.quick else FULL
        raw = (self.folder.path / RAW).absolute()
        self._cards = audit(
            request.environments, request.variables, depth, self.listener, raw, self.start
        )
        return "complete"

    def _ending(self) -> None:
        if self.state == "interrupted":
            raise KeyboardInterrupt
