"""The prices of environments: from the cache, or measured once and kept there.

A price list is of a pair, an environment and its baseline, measured in turn. It holds for a
machine, a kernel and an environment: when a fact that changes prices is another one, it is
measured again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vtax import __version__
from vtax.core import cache
from vtax.core.errors import MisuseError, VtaxError
from vtax.core.formats import records
from vtax.core.formats.folder import RunFolder, slug
from vtax.core.formats.scratch import scratch
from vtax.core.runner.matching import ComparedVariant
from vtax.core.runner.runner import Listener
from vtax.prices.analysis import PriceList, changed_facts
from vtax.prices.campaign import PricesCampaign, PricesRequest
from vtax.prices.record import PricedEnvironment, PricesRecord

FOLDER = "prices"


@dataclass(frozen=True, slots=True)
class PricedPair:
    """An environment and its baseline, measured in turn."""

    environment: PricedEnvironment
    baseline: PricedEnvironment

    @property
    def prices(self) -> PriceList:
        return PriceList.of(self.environment, self.baseline)

    def changed(self, facts: Mapping[str, Any], baseline_facts: Mapping[str, Any]) -> Sequence[str]:
        """The facts of a run that are not those of the prices."""
        return [
            *changed_facts(self.environment.facts, facts),
            *(f"baseline's {each}" for each in changed_facts(self.baseline.facts, baseline_facts)),
        ]


def pairs(record: PricesRecord) -> Sequence[PricedPair]:
    """Each environment of a record with its baseline."""
    by_label = {each.label: each for each in record.environments}
    return [
        PricedPair(each, by_label[each.baseline])
        for each in record.environments
        if each.baseline is not None and each.baseline in by_label
    ]


def keep(record: PricesRecord) -> None:
    """Keep each pair of a finished record in the cache."""
    for pair in pairs(record):
        own = record.model_copy(update={"environments": (pair.baseline, pair.environment)})
        records.write(_file(pair.baseline.spec, pair.environment.spec), own)


def cached(baseline: str, environment: str) -> PricedPair | None:
    """The pair in the cache; None: it was not measured by this version of vtax on this machine."""
    try:
        found = records.read(_file(baseline, environment))
    except (OSError, VtaxError, MisuseError):
        return None
    if not isinstance(found, PricesRecord) or found.state != "complete":
        return None
    return next(iter(pairs(found)), None)


def measured(
    variants: Sequence[ComparedVariant],
    variables: Mapping[str, str],
    command_line: tuple[str, ...],
    seed: int,
    listener: Listener,
) -> Sequence[PricedPair]:
    """Measure these environments and their baselines now, and keep the prices.

    Raises VtaxError when nothing can be measured, KeyboardInterrupt after Ctrl-C.
    """
    request = PricesRequest(
        variants=tuple(variants),
        variables=variables,
        command_line=command_line,
        seed=seed,
    )
    with scratch("prices") as parent:
        folder = RunFolder.create(parent, "prices")
        record = PricesCampaign(request, folder, listener).carry_out()
    if record.state == "interrupted":
        raise KeyboardInterrupt
    keep(record)
    return pairs(record)


def _file(baseline: str, environment: str) -> Path:
    """The file of a pair; its name changes with the version of vtax, whose operations it has."""
    key = "\0".join((__version__, baseline, environment)).encode()
    name = f"{slug(environment)}-{hashlib.blake2b(key, digest_size=6).hexdigest()}.json"
    return cache.folder(FOLDER) / name
