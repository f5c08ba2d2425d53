"""`explain`: a comparison, the counts of its program, the prices of its environments, the bill."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from vtax import __version__
from vtax.compare import report
from vtax.compare.analysis import compare
from vtax.compare.campaign import ComparisonCampaign
from vtax.compare.request import ComparisonRequest
from vtax.compare.verb import request_of, require
from vtax.core.errors import MisuseError, VtaxError
from vtax.core.formats import records
from vtax.core.formats.bill import BILL, Bill, BillRecord
from vtax.core.formats.folder import RunFolder, load
from vtax.core.formats.model import ComparisonRecord, Sample
from vtax.core.runner.instruments.host_cpu import HostCpu
from vtax.core.runner.matching import ComparedVariant
from vtax.core.runner.runner import Listener
from vtax.environments.host_reading import HOST_CPU
from vtax.explain import counting, sites
from vtax.explain.again import options_of
from vtax.explain.bill import Counted, Used, bill
from vtax.explain.remedies import remedies
from vtax.explain.verb import ExplainOptions
from vtax.prices import book
from vtax.prices.book import PricedPair


@dataclass(frozen=True, slots=True)
class Explained:
    """A bill, the comparison that it explains, and their folder."""

    record: BillRecord
    comparison: ComparisonRecord
    folder: Path


def anew(options: ExplainOptions, listener: Listener) -> Explained:
    """Compare, count and write the bill, in a new run folder. The program does not run in
    environments whose time is only predicted.

    Raises MisuseError when there is nothing to explain, VtaxError when nothing can be counted or
    was measured, KeyboardInterrupt after Ctrl-C; the comparison and its report are kept.
    """
    chosen = dict.fromkeys((*(options.instruments or ()), HostCpu.name))
    request = _request(replace(options, instruments=list(chosen)))
    run = _natively(request) if options.predict else request
    require(run)
    means = counting.choose()
    folder = RunFolder.create(options.out, request.workload.label())
    campaign = ComparisonCampaign(run, folder, listener)
    record = campaign.carry_out()
    report.write(compare(record, campaign.samples, str(folder.path)), campaign.samples, folder.path)
    if record.state == "interrupted":
        raise KeyboardInterrupt
    return _explained(means, request, record, campaign.samples, folder, listener)


def again(path: Path, listener: Listener) -> Explained:
    """Write the bill of a comparison that exists: its program is counted now.

    Raises MisuseError when the folder holds no comparison, or one that cannot be repeated, and what
    `anew` raises.
    """
    record, samples = load(path)
    options = options_of(record)
    workdir = None if record.workdir is None else Path(record.workdir)
    request = _request(replace(options, workdir=workdir))
    if request.workload.parameters() != record.workload_parameters:
        raise MisuseError(
            "the program's standard input is not that of the run",
            f"give the same again: vtax explain {path} < FILE",
        )
    require(request)
    means = counting.choose()
    return _explained(means, request, record, samples, RunFolder(path), listener)


def _request(options: ExplainOptions) -> ComparisonRequest:
    """What is compared or predicted. Raises MisuseError when only a baseline would be."""
    if options.param:
        raise MisuseError("--param is for vtax compare", "explain one program at a time")
    if options.predict:
        options = replace(options, environments=predicted(options.predict))
    request = request_of(options)
    if all(each.role != "measured" for each in request.compared_variants):
        raise MisuseError(
            "nothing to explain: only the baseline would run", "name an environment: --in uml"
        )
    return request


def predicted(text: str) -> list[str]:
    """The specs in a text with commas between them, as within a spec:
    ``uml:mem=1G,swap=1G,gvisor`` has two."""
    found: list[str] = []
    for piece in text.split(","):
        if found and "=" in piece.partition(":")[0]:
            found[-1] += f",{piece}"
        else:
            found.append(piece.strip())
    return found


def _natively(request: ComparisonRequest) -> ComparisonRequest:
    """The same without the environments whose times are predicted."""
    kept = tuple(each for each in request.compared_variants if each.role != "measured")
    return replace(request, compared_variants=kept)


def _explained(
    means: counting.Means,
    request: ComparisonRequest,
    record: ComparisonRecord,
    samples: Sequence[Sample],
    folder: RunFolder,
    listener: Listener,
) -> Explained:
    facts = {each.label: each.facts for each in record.environments}
    pairs = _prices(request, facts, listener)
    native = next(each for each in request.compared_variants if each.role == "baseline")
    counts = counting.count(means, request, native, folder, listener)
    where = (
        sites.find(request, native, folder, listener) if means is counting.EBPF else sites.UNKNOWN
    )
    found = _bill_record(request, record, samples, counts, where, pairs)
    records.write(folder.path / BILL, found)
    report.write(compare(record, samples, str(folder.path)), samples, folder.path)
    return Explained(found, record, folder.path)


def _prices(
    request: ComparisonRequest, facts: Mapping[str, Mapping[str, Any]], listener: Listener
) -> Mapping[str, PricedPair]:
    """The prices of each measured environment, by its label.

    Raises VtaxError when they are of another machine than the run was made on.
    """
    variants = {each.label: each for each in request.compared_variants}
    measured = [each for each in variants.values() if each.role == "measured"]
    found: dict[str, PricedPair] = {}
    for own in measured:
        assert own.baseline is not None
        pair = book.cached(variants[own.baseline].spec, own.spec)
        if pair and not _changed(pair, own, facts):
            found[own.label] = pair
    missing = [each for each in measured if each.label not in found]
    if missing:
        bases = {each.baseline for each in missing}
        wanted = (*(variants[str(label)] for label in bases), *missing)
        for pair in book.measured(
            wanted, request.variables, request.command_line, request.seed, listener
        ):
            found[pair.environment.label] = pair
    for own in missing:
        if own.label in found and (changed := _changed(found[own.label], own, facts)):
            raise VtaxError(
                f"{own.label} is not what it was when the run was made: {', '.join(changed)}",
                "compare again: prices of another machine explain nothing",
            )
    return found


def _changed(
    pair: PricedPair, own: ComparedVariant, facts: Mapping[str, Mapping[str, Any]]
) -> Sequence[str]:
    """Facts of the run that are not those of the prices; a predicted environment has none yet."""
    base = facts.get(str(own.baseline), pair.baseline.facts)
    return pair.changed(facts.get(own.label, pair.environment.facts), base)


def _bill_record(
    request: ComparisonRequest,
    record: ComparisonRecord,
    samples: Sequence[Sample],
    counts: counting.Counting,
    where: sites.Sites,
    pairs: Mapping[str, PricedPair],
) -> BillRecord:
    counted = Counted(counts.counts)
    bills: list[Bill] = []
    ran = {each.label for each in record.environments}
    for own in request.compared_variants:
        if own.role != "measured" or own.label not in pairs or own.baseline is None:
            continue
        base, there = used(samples, own.baseline), used(samples, own.label)
        if base is None or (there is None and own.label in ran):
            failed = own.baseline if base is None else own.label
            raise VtaxError(
                f"{failed}: no repetition was finished, so there is no bill",
                "vtax report says what failed",
            )
        if there is not None and own.environment.shape().cpus != 1:
            # The time of idle virtual CPUs is not the program's.
            there = replace(there, guest_s={})
        prices = pairs[own.label].prices
        found = bill(own.label, own.baseline, there, base, counted, prices)
        more = {
            "warnings": (*counts.warnings, *found.warnings),
            "remedies": remedies(found, counted, prices),
            "host_cpu_s": _metric(samples, own.label, HOST_CPU),
            "baseline_host_cpu_s": _metric(samples, own.baseline, HOST_CPU),
        }
        bills.append(sites.with_sites(found.model_copy(update=more), where))
    return BillRecord(
        vtax_version=__version__,
        name=request.workload.label(),
        counted_by=counts.by,
        counting_cost_percent=_cost_percent(counts, used(samples, bills[0].baseline)),
        sites_note=where.note,
        counts=dict(counts.counts),
        bills=tuple(bills),
        prices=tuple(
            each.model_dump(mode="json")
            for pair in pairs.values()
            for each in (pair.baseline, pair.environment)
        ),
    )


def used(samples: Sequence[Sample], label: str) -> Used | None:
    """What the repetitions of an environment took; None: none was finished."""
    runs = {each.repetition: each for each in samples if each.environment == label}
    if not runs:
        return None
    own = {each.repetition if each.round is None else each.round: each for each in runs.values()}
    return Used(
        wall_s={number: each.wall_s for number, each in own.items()},
        user_s={number: each.user_s for number, each in own.items() if each.user_s is not None},
        cpu_s={number: each.cpu_s for number, each in own.items()},
        steal_s={number: each.steal_s for number, each in own.items() if each.steal_s is not None},
        voluntary_switches=fmean(each.voluntary_switches for each in own.values()),
        minor_faults=fmean(each.minor_faults for each in own.values()),
        guest_s=_by_round(samples, label, "kvm.guest_s"),
        exits=_by_round(samples, label, "kvm.exits"),
    )


def _by_round(samples: Sequence[Sample], label: str, name: str) -> Mapping[int, float]:
    """An environment's metric; empty: it has none."""
    return {
        each.repetition if each.round is None else each.round: each.value
        for each in samples
        if (each.environment, each.metric) == (label, name)
    }


def _metric(samples: Sequence[Sample], label: str, name: str) -> float | None:
    """The mean of an environment's metric; None: it has none."""
    own = [each.value for each in samples if (each.environment, each.metric) == (label, name)]
    return fmean(own) if own else None


def _cost_percent(counts: counting.Counting, base: Used | None) -> float | None:
    if base is None or not counts.wall_s:
        return None
    return 100.0 * (fmean(counts.wall_s) / fmean(base.wall_s.values()) - 1.0)
