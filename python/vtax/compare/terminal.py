"""The comparison on the terminal: one row per metric, one group of columns per environment.

It adapts to the width: environments that do not fit side by side go below each other. Nothing is
read as markup, and colour comes from rich, which leaves it out where there is no terminal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from vtax.compare import summary, trust, verdicts
from vtax.core.formats.model import EnvironmentRecord
from vtax.core.page.format import one_line, percent, percent_interval, plural, with_unit
from vtax.core.statistics.results import Comparison, Result, Verdict

_STYLES = {
    Verdict.SLOWER: "red",
    Verdict.FASTER: "green",
    Verdict.EQUIVALENT: "green",
    Verdict.INCONCLUSIVE: "yellow",
}
_GAP = 2  # one of padding, one of the box
_NAME_LEAST = 20
_LABEL_LIMIT = 20
MOST_NOTES = 5
BACKGROUND = frozenset({"drift", "noise-floor", "one-boot", "short-kernel", "steal-unknown"})
"""Kinds of flags that hold for most runs, or that another line states."""


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of the table: its heading in two parts and a cell per metric."""

    label: str
    subtitle: str
    cells: tuple[Text, ...]

    @property
    def width(self) -> int:
        """The width that cells and words of the heading need; a long label wraps behind its
        commas."""
        pieces = [*_pieces(self.label), self.subtitle]
        heading = min(_LABEL_LIMIT, max(map(cell_len, pieces)))
        return max([heading, *(cell_len(cell.plain) for cell in self.cells)])

    def heading(self) -> Text:
        """The label in lines that fit, above the subtitle."""
        lines = [""]
        for piece in _pieces(self.label):
            if lines[-1] and cell_len(lines[-1] + piece) > self.width:
                lines.append("")
            lines[-1] += piece
        return Text("\n".join(filter(None, [*lines, self.subtitle])))


def _pieces(label: str) -> list[str]:
    """A label cut where it may wrap: behind its commas."""
    return label.replace(",", ",\0").split("\0")


def render_table(comparison: Comparison, *, all_notes: bool = False) -> RenderableType:
    """The table with its legend, the answers and the most important notes, for rich to print."""
    return _View(comparison, all_notes)


class _View:
    """A table that knows its width only when rich prints it."""

    def __init__(self, comparison: Comparison, all_notes: bool) -> None:
        self._comparison = comparison
        self._all_notes = all_notes

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        comparison = self._comparison
        yield _title(comparison)
        for table in _tables(comparison, options.max_width):
            yield table
            yield Text()
        yield _legend(comparison)
        yield from _closing(comparison, self._all_notes)


def _title(comparison: Comparison) -> Text:
    record = comparison.record
    text = Text(one_line(record.name), style="bold")
    text.append(f"   run {one_line(comparison.run)}", style="not bold dim")
    for env in summary.environments(comparison, "baseline"):
        text.append(f"\n100 % is {one_line(env.label)}: ", style="not bold")
        text.append(one_line(env.description or "not described"), style="not bold")
    if (state := trust.state_sentence(record)) is not None:
        text.append(f"\n{state}", style="not bold yellow")
    return text


def _tables(comparison: Comparison, width: int) -> Iterator[Table]:
    """As many environments beside each other as fit, the rest in further tables."""
    metrics = list(dict.fromkeys(result.metric for result in comparison.results))
    pending = [column for group in _groups(comparison, metrics) for column in group]
    arrows = {each.metric: verdicts.ARROWS[each.better] for each in comparison.results}
    arrow = cell_len(" ↑")
    names = max((cell_len(one_line(metric)) + arrow for metric in metrics), default=0)
    while pending:
        count = _fitting(pending, width - min(names, _NAME_LEAST))
        columns, pending = pending[:count], pending[count:]
        if not pending:
            columns += _control_that_fits(comparison, metrics, width - names - _room(columns))
        yield _table(arrows, min(names, max(_NAME_LEAST, width - _room(columns))), columns)


def _groups(comparison: Comparison, metrics: Sequence[str]) -> Iterator[list[_Column]]:
    """The columns of each measured environment, a baseline's before the first that refers to it."""
    shown: set[str] = set()
    measured = list(summary.environments(comparison, "measured"))
    for label in [env.baseline for env in measured] or [comparison.baseline]:
        if label is not None and label not in shown:
            shown.add(label)
            yield [_baseline_column(comparison, label, metrics)]
            yield [
                column
                for env in measured
                if env.baseline == label
                for column in _with_mean(comparison, env, metrics)
            ]


def _control_that_fits(comparison: Comparison, metrics: Sequence[str], room: int) -> list[_Column]:
    """The A/A control where there is room for it; a line below states its noise floor in any
    case."""
    for environment in summary.environments(comparison, "control"):
        column = _environment_column(comparison, environment, metrics)
        if _room([column]) <= room:
            return [column]
    return []


def _fitting(columns: Sequence[_Column], room: int) -> int:
    """How many of the columns fit, at least one."""
    count = 1
    while count < len(columns) and _room(columns[: count + 1]) <= room:
        count += 1
    return count


def _room(columns: Sequence[_Column]) -> int:
    return sum(_GAP + column.width for column in columns)


def _table(arrows: Mapping[str, str], name_width: int, columns: Sequence[_Column]) -> Table:
    """A table; `arrows` has the better direction of each metric."""
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, _GAP - 1, 0, 0),
        collapse_padding=True,
        pad_edge=False,
        show_edge=False,
    )
    names = [_shortened(metric, name_width - 2) for metric in arrows]
    if len(set(names)) < len(names):
        names = [one_line(metric) for metric in arrows]
    names = [f"{name} {arrow}" for name, arrow in zip(names, arrows.values(), strict=True)]
    table.add_column(Text("metric"), width=name_width, overflow="fold", vertical="bottom")
    for column in columns:
        table.add_column(column.heading(), min_width=column.width, overflow="fold")
    for index, name in enumerate(names):
        table.add_row(Text(name), *(column.cells[index] for column in columns))
    return table


def _baseline_column(comparison: Comparison, label: str, metrics: Sequence[str]) -> _Column:
    found = {r.metric: r for r in summary.results_of(comparison, label)}
    cells = tuple(
        Text(with_unit(found[metric].median, one_line(found[metric].unit)))
        if metric in found
        else _missing()
        for metric in metrics
    )
    return _Column(one_line(label), "median", cells)


def _environment_column(
    comparison: Comparison, environment: EnvironmentRecord, metrics: Sequence[str]
) -> _Column:
    found = {r.metric: r for r in summary.results_of(comparison, environment.label)}
    cells = _aligned([found.get(metric) for metric in metrics])
    second = "A/A control, %" if environment.role == "control" else "typical, %"
    return _Column(one_line(environment.label), second, tuple(cells))


def _with_mean(
    comparison: Comparison, environment: EnvironmentRecord, metrics: Sequence[str]
) -> Iterator[_Column]:
    yield _environment_column(comparison, environment, metrics)
    found = {r.metric: r for r in summary.results_of(comparison, environment.label)}
    means = [each.mean if (each := found.get(metric)) else None for metric in metrics]
    if any(means):
        cells = [
            f"{percent(m.percent)} [{percent_interval(m.low, m.high)}]" if m else "" for m in means
        ]
        yield _Column(one_line(environment.label), "mean, %", tuple(map(Text, cells)))


def _aligned(results: Sequence[Result | None]) -> Iterator[Text]:
    """`97.8 [96.9-98.5] ≈` with the values and the brackets below each other."""
    values = [percent(r.percent_of_baseline) if _known(r) and r else "" for r in results]
    spans = [_span(r) if _known(r) and r else "" for r in results]
    value_width = max(map(len, values), default=0)
    span_width = max(map(len, spans), default=0)
    for result, value, span in zip(results, values, spans, strict=True):
        if result is None or not _known(result):
            yield _missing() if result is None or result.median is None else _uncompared(result)
            continue
        text = f"{value:>{value_width}} {span:<{span_width}} {verdicts.SYMBOLS[result.verdict]}"
        yield Text(text, style=_STYLES.get(result.verdict, ""))


def _known(result: Result | None) -> bool:
    return result is not None and result.percent_of_baseline is not None


def _span(result: Result) -> str:
    if result.ci_low is None or result.ci_high is None:
        return "[no interval]"
    return f"[{percent_interval(result.ci_low, result.ci_high)}]"


def _uncompared(result: Result) -> Text:
    """The value itself, because there is nothing it could be a percentage of."""
    value = with_unit(result.median, one_line(result.unit))
    return Text(f"{value} {verdicts.SYMBOLS[result.verdict]}", style="dim")


def _missing() -> Text:
    symbol = verdicts.SYMBOLS[Verdict.NOT_MEASURED]
    return Text(f"{symbol} not measured", style="dim")


def _shortened(name: str, width: int) -> str:
    """A name with its middle left out, because beginnings and ends tell metrics apart."""
    text = one_line(name)
    if cell_len(text) <= width:
        return text
    head = (width - 1) // 2
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"


def _legend(comparison: Comparison) -> Text:
    margin = verdicts.margin_text(comparison.record.margin_percent)
    words = {Verdict.EQUIVALENT: f"equivalent within {margin}"}
    rare = {Verdict.NOT_COMPARED} - {result.verdict for result in comparison.results}
    shown = [verdict for verdict in verdicts.RANKED if verdict not in rare]
    entries = [f"{verdicts.SYMBOLS[v]} {words.get(v, v.value)}" for v in shown]
    arrows = "↑ higher is better  ↓ lower is better"
    columns = "performance in % of the baseline's [95 % interval]"
    if any(result.mean for result in comparison.results):
        columns += "; typical: the usual run; mean: all runs; the sign is for both"
    return Text(f"{columns}\n{'  '.join(entries)}\n{arrows}", style="dim")


def _closing(comparison: Comparison, all_notes: bool) -> Iterator[RenderableType]:
    """An answer for each environment, then what to know before believing it, in a line each."""
    margin = comparison.record.margin_percent
    answers = [
        ("=", one_line(each.environment.label), f"{summary.headline(each, margin)}.")
        for each in summary.summarise(comparison)
    ]
    notes = list(_notes(comparison))
    shown = notes if all_notes else notes[:MOST_NOTES]
    if answers or shown:
        yield Text()
        yield from (_hanging(sign, where, said) for sign, where, said in (*answers, *shown))
    if len(shown) < len(notes):
        more = plural(len(notes) - len(shown), "more note")
        yield Text(f"{more} in the report, or here with --notes all", style="dim")


def _notes(comparison: Comparison) -> Iterator[tuple[str, str, str]]:
    """What is doubtful, unlike, inconclusive or missing; what changes a conclusion comes first."""
    margin = comparison.record.margin_percent
    for sentence in comparison.record.inputs:
        yield "i", "the command", one_line(sentence)
    lines = trust.lines(comparison.flags)
    for line in lines:
        if line.kind not in BACKGROUND:
            yield _flag(line)
    for floor in summary.noise_floors(comparison):
        yield "~", one_line(floor.environment.label), summary.noise_sentence(floor, margin)
    yield from _inconclusive(comparison)
    yield from _unmeasured(comparison)
    for env in comparison.record.environments:
        for sentence in env.differences:
            yield "≠", one_line(env.label), one_line(sentence)
    for line in lines:
        if line.kind in BACKGROUND:
            yield _flag(line)


def _flag(line: trust.FlagLine) -> tuple[str, str, str]:
    said = f"{one_line(line.kind)}: {trust.line_text(line)}"
    return "!", one_line(line.environment), said


def _hanging(sign: str, where: str, said: str) -> RenderableType:
    """A line whose continuation is indented."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(width=1)
    grid.add_column(overflow="fold")
    line = Text(f"{where}: ", style="bold")
    line.append(said, style="not bold")
    grid.add_row(Text(sign, style="yellow"), line)
    return Padding(grid, 0)


def _inconclusive(comparison: Comparison) -> Iterator[tuple[str, str, str]]:
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
        yield verdicts.SYMBOLS[Verdict.INCONCLUSIVE], one_line(env.label), said


def _unmeasured(comparison: Comparison) -> Iterator[tuple[str, str, str]]:
    symbol = verdicts.SYMBOLS[Verdict.NOT_MEASURED]
    for env in comparison.record.environments:
        reasons: dict[str, list[str]] = {}
        for result in _with_verdict(comparison, env, Verdict.NOT_MEASURED):
            reasons.setdefault(result.reason or "no reason was recorded", []).append(result.metric)
        for reason, metrics in reasons.items():
            which = _names(metrics)
            yield symbol, one_line(env.label), f"{which} not measured: {one_line(reason)}"


def _names(metrics: Sequence[str]) -> str:
    return one_line(metrics[0]) if len(metrics) == 1 else plural(len(metrics), "metric")


def _with_verdict(
    comparison: Comparison, environment: EnvironmentRecord, verdict: Verdict
) -> list[Result]:
    results: Iterable[Result] = summary.results_of(comparison, environment.label)
    return [result for result in results if result.verdict is verdict]
