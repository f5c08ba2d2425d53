"""The result of a comparison, as a page and as JSON.

One row per metric, one group of columns per environment; then the answers, what to know before
believing them, and the figures. The report shows it in a form of its own, with the machines
besides: `html`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from vtax.compare import node_page, summary, trust, verdicts
from vtax.compare.order_figures import order_figures
from vtax.compare.ratio_figures import ratio_figures
from vtax.core.formats.bill import BillRecord
from vtax.core.formats.model import ComparisonRecord, EnvironmentRecord, Sample
from vtax.core.page import bill as bill_sections
from vtax.core.page.format import (
    one_line,
    percent,
    percent_interval,
    plural,
    seconds_text,
    utc_text,
    with_unit,
)
from vtax.core.page.page import (
    Cell,
    Column,
    Depth,
    Figure,
    Note,
    Page,
    Section,
    Severity,
    Table,
    Tone,
    drawn,
    parted,
)
from vtax.core.statistics.results import Comparison, Result, Verdict

TONES = {
    Verdict.SLOWER: Tone.BAD,
    Verdict.FASTER: Tone.GOOD,
    Verdict.EQUIVALENT: Tone.GOOD,
    Verdict.INCONCLUSIVE: Tone.DOUBTFUL,
}
RATIOS = "ratios"
"""The name of the sections with parts of figure 1."""
ORDER = "order"
"""The name of the sections with figure 2, one for each metric."""
MOST_NOTES = 5
BACKGROUND = frozenset(
    {"drift", "noise-floor", "one-boot", "one-node", "short-kernel", "steal-unknown"}
)
"""Kinds of flags that hold for most runs, or that another line states."""

_Filled = tuple[Column, Sequence[Cell]]
"""A column of the table with a cell for each metric."""


def to_json(comparison: Comparison) -> dict[str, Any]:
    """What `vtax compare --json` prints: plain JSON values, `null` for what is not known."""
    return {
        "run": comparison.run,
        "baseline": comparison.baseline,
        "environments": [each.model_dump(mode="json") for each in comparison.record.environments],
        "results": [_result_json(each) for each in comparison.results],
        "flags": [asdict(flag) for flag in comparison.flags],
        "nodes": [asdict(each) for each in comparison.nodes],
        "detection": [asdict(each) for each in comparison.detection],
    }


def _result_json(result: Result) -> dict[str, Any]:
    needed = result.repetitions_needed
    found = asdict(result)
    if found["control"] is None:
        del found["control"]
    # The one number of earlier versions: this many repetitions decide in nine of ten cases.
    return found | {"repetitions_to_settle": needed.high if needed else None}


def page(
    comparison: Comparison,
    samples: Sequence[Sample] = (),
    *,
    all_notes: bool = False,
    bill: BillRecord | None = None,
) -> Page:
    """The table with its legend, the answers, the bill if there is one, the most important notes
    and the figures; a terminal has the other notes with `all_notes` only."""
    name = comparison.record.name
    said = list(_notes(comparison))
    few = len(said) if all_notes else MOST_NOTES
    return Page(
        "compare",
        (
            Section(notes=tuple(_references(comparison))),
            *_table(comparison),
            Section(notes=tuple(_legend(comparison)), apart=True),
            Section(
                notes=(*_answers(comparison), *_detection(comparison), *said[:few]), apart=True
            ),
            *node_page.sections(comparison),
            *(bill_sections.sections(bill) if bill else ()),
            Section(notes=tuple(said[few:]), depth=Depth.FULL),
            Section(notes=tuple(_more(len(said) - few)), depth=Depth.BRIEF),
            *_drawn(RATIOS, ratio_figures(comparison)),
            *_drawn(ORDER, order_figures(comparison, samples)),
        ),
        name,
        f"{name}: what virtualization costs",
        tuple(_settings(comparison.record)),
        comparison.run,
    )


def _drawn(name: str, figures: Sequence[Figure]) -> Sequence[Section]:
    return [replace(each, name=name, depth=Depth.FULL) for each in drawn(figures)]


def _settings(record: ComparisonRecord) -> Iterator[tuple[str, str]]:
    yield "Started", utc_text(record.started_utc)
    yield "Finished", utc_text(record.finished_utc)
    yield "State", record.state
    yield "Repetitions", f"{trust.planned(record)}, after a warm-up that does not count"
    for name, source in record.drawn.items():
        yield f"{name}, drawn in each round", source
    each = record.reboot == "each"
    if record.duet:
        yield "Duet", "both environments at once, on CPUs that they swap in half of the rounds"
    yield "Reboot", "afresh for each repetition" if each else "never between repetitions"
    yield "Time budget", "none" if record.budget_s is None else seconds_text(record.budget_s)
    yield "Equivalence margin", verdicts.margin_text(record.margin_percent)
    yield "Seed", f"{record.seed} (order, and intervals of medians)"
    yield "Versions", f"vtax {record.vtax_version}, run.json schema {record.schema_version}"


def _references(comparison: Comparison) -> Iterator[Note]:
    """What 100 % is, and why the run is not complete."""
    for env in summary.environments(comparison, "baseline"):
        yield Note(f"100 % is {env.label}: {env.description or 'not described'}")
    if (state := trust.state_sentence(comparison.record)) is not None:
        yield Note(state, tone=Tone.DOUBTFUL)


def _table(comparison: Comparison) -> Iterator[Section]:
    arrows = {each.metric: verdicts.ARROWS[each.better] for each in comparison.results}
    filled = list(_columns(comparison, list(arrows)))
    if filled:
        first = [parted(one_line(metric), arrow) for metric, arrow in arrows.items()]
        columns = (Column("metric"), *(column for column, _ in filled))
        rows = zip(first, *(cells for _, cells in filled), strict=True)
        yield Section(table=Table(columns, tuple(rows), wide=True))


def _columns(comparison: Comparison, metrics: Sequence[str]) -> Iterator[_Filled]:
    """The columns of each measured environment, a baseline's before the first that refers to it;
    then those of A/A controls, whose noise floor a note states in any case."""
    shown: set[str] = set()
    measured = list(summary.environments(comparison, "measured"))
    for label in [env.baseline for env in measured] or [comparison.baseline]:
        if label is None or label in shown:
            continue
        shown.add(label)
        yield Column(label, below="median"), _medians(_by_metric(comparison, label, metrics))
        for env in measured:
            if env.baseline == label:
                yield from _environment(env.label, _by_metric(comparison, env.label, metrics))
    for env in summary.environments(comparison, "control"):
        cells = _shares(_by_metric(comparison, env.label, metrics))
        yield Column(env.label, below="A/A control, %", spare=True), cells


def _by_metric(
    comparison: Comparison, label: str, metrics: Sequence[str]
) -> Sequence[Result | None]:
    found = {result.metric: result for result in summary.results_of(comparison, label)}
    return [found.get(metric) for metric in metrics]


def _environment(label: str, results: Sequence[Result | None]) -> Iterator[_Filled]:
    yield Column(label, below="typical, %"), _shares(results)
    means = [result.mean if result else None for result in results]
    if any(means):
        texts = (
            f"{percent(m.percent)} [{percent_interval(m.low, m.high)}]" if m else "" for m in means
        )
        yield Column(label, below="mean, %"), list(map(Cell, texts))


def _medians(results: Sequence[Result | None]) -> Sequence[Cell]:
    return [_not_measured() if each is None else Cell(_median(each)) for each in results]


def _shares(results: Sequence[Result | None]) -> Sequence[Cell]:
    return list(map(_share, results))


def _share(result: Result | None) -> Cell:
    """`97.8 [96.9-98.5] ≈`, or the value itself where there is nothing it could be a percentage
    of."""
    if result is None or (result.percent_of_baseline is None and result.median is None):
        return _not_measured()
    symbol = verdicts.SYMBOLS[result.verdict]
    if result.percent_of_baseline is None:
        return Cell(f"{_median(result)} {symbol}", Tone.QUIET)
    tone = TONES.get(result.verdict, Tone.PLAIN)
    return parted(percent(result.percent_of_baseline), _span(result), symbol, tone=tone)


def _median(result: Result) -> str:
    return with_unit(result.median, one_line(result.unit))


def _span(result: Result) -> str:
    if result.ci_low is None or result.ci_high is None:
        return "[no interval]"
    return f"[{percent_interval(result.ci_low, result.ci_high)}]"


def _not_measured() -> Cell:
    return Cell(f"{verdicts.SYMBOLS[Verdict.NOT_MEASURED]} not measured", Tone.QUIET)


def _legend(comparison: Comparison) -> Iterator[Note]:
    margin = verdicts.margin_text(comparison.record.margin_percent)
    words = {Verdict.EQUIVALENT: f"equivalent within {margin}"}
    rare = {Verdict.NOT_COMPARED} - {result.verdict for result in comparison.results}
    shown = [verdict for verdict in verdicts.RANKED if verdict not in rare]
    columns = "performance in % of the baseline's [95 % interval]"
    if any(result.mean for result in comparison.results):
        columns += "; typical: the usual run; mean: all runs; the sign is for both"
    signs = [f"{verdicts.SYMBOLS[v]} {words.get(v, v.value)}" for v in shown]
    arrows = ("↑ higher is better", "↓ lower is better")
    for first, *further in ((columns,), signs, arrows):
        yield Note(first, tone=Tone.QUIET, further=tuple(further))


def _answers(comparison: Comparison) -> Iterator[Note]:
    margin = comparison.record.margin_percent
    for each in summary.summarise(comparison):
        yield _about(each.environment, "=", f"{summary.headline(each, margin)}.")


def _detection(comparison: Comparison) -> Iterator[Note]:
    for env, sentence in summary.detection(comparison):
        yield _about(env, "~", sentence)


def _notes(comparison: Comparison) -> Iterator[Note]:
    """What is doubtful, unlike, inconclusive or missing; what changes a conclusion comes first."""
    margin = comparison.record.margin_percent
    for sentence in comparison.record.inputs:
        yield Note(sentence, subject="the command", sign="i")
    lines = trust.lines(comparison.flags)
    yield from (_flag(line) for line in lines if line.kind not in BACKGROUND)
    for floor in summary.noise_floors(comparison):
        yield _about(floor.environment, "~", summary.noise_sentence(floor, margin))
    yield from _inconclusive(comparison)
    yield from _unmeasured(comparison)
    for env in comparison.record.environments:
        yield from (_about(env, "≠", sentence) for sentence in env.differences)
    yield from (_flag(line) for line in lines if line.kind in BACKGROUND)


def _about(environment: EnvironmentRecord, sign: str, text: str) -> Note:
    return Note(text, subject=environment.label, sign=sign)


def _flag(line: trust.FlagLine) -> Note:
    said = f"{line.kind}: {trust.line_text(line)}"
    return Note(said, Severity.WARNING, subject=line.environment, sign="!")


def _more(count: int) -> Iterator[Note]:
    if count > 0:
        said = f"{plural(count, 'more note')} in the report, or here with --notes all"
        yield Note(said, tone=Tone.QUIET)


def _inconclusive(comparison: Comparison) -> Iterator[Note]:
    for env in summary.environments(comparison, "measured"):
        found = _with_verdict(comparison, env, Verdict.INCONCLUSIVE)
        if not found:
            continue
        said = f"{plural(len(found), 'metric')} inconclusive"
        reachable = [
            r.repetitions_needed.high or r.repetitions_needed.low
            for r in found
            if r.repetitions_needed and r.repetitions_needed.reachable
        ]
        if reachable:
            said += f"; {max(reachable)} repetitions would probably decide {len(reachable)} of them"
        if any(r.repetitions_needed and not r.repetitions_needed.reachable for r in found):
            said += "; the others are too close to the margin for the noise of this machine"
        yield _about(env, verdicts.SYMBOLS[Verdict.INCONCLUSIVE], said)


def _unmeasured(comparison: Comparison) -> Iterator[Note]:
    for env in comparison.record.environments:
        reasons: dict[str, list[str]] = {}
        for result in _with_verdict(comparison, env, Verdict.NOT_MEASURED):
            reasons.setdefault(result.reason or "no reason was recorded", []).append(result.metric)
        for reason, metrics in reasons.items():
            which = metrics[0] if len(metrics) == 1 else plural(len(metrics), "metric")
            said = f"{which} not measured: {reason}"
            yield _about(env, verdicts.SYMBOLS[Verdict.NOT_MEASURED], said)


def _with_verdict(
    comparison: Comparison, environment: EnvironmentRecord, verdict: Verdict
) -> Sequence[Result]:
    found = summary.results_of(comparison, environment.label)
    return [result for result in found if result.verdict is verdict]
