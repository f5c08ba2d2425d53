"""`--against`, `--fail-over`, `--junit` and `--markdown`: a run held against an earlier one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vtax.core.command import campaigns
from vtax.core.errors import MisuseError

if TYPE_CHECKING:
    from vtax.compare.history.changes import Changes, Measurements
    from vtax.compare.history.surroundings import Measured
    from vtax.core.formats.model import Sample
    from vtax.core.page.page import Page
    from vtax.core.runner.runner import State
    from vtax.core.statistics.results import Comparison

STANDARD_OUTPUT = Path("-")

Against = Annotated[
    Path | None,
    typer.Option(
        help="Compare with this earlier run too, metric by metric: its folder, or its name.",
        metavar="RUN",
    ),
]
FailOver = Annotated[
    str | None,
    typer.Option(
        help="End with exit code 3 where a metric is worse than in --against by more than this, "
        "with its whole interval, e.g. 3%.",
        metavar="PERCENT",
    ),
]
Junit = Annotated[
    Path | None,
    typer.Option(
        help="Write what --fail-over says as JUnit XML: a test case for each environment and "
        "metric.",
        metavar="FILE",
    ),
]
Markdown = Annotated[
    Path | None,
    typer.Option(
        help="Write the result as Markdown for GitHub; - prints it instead of the table.",
        metavar="FILE",
    ),
]


@dataclass(frozen=True, slots=True)
class Gate:
    """What a run is held against, and where that is written; every part may be missing."""

    then: Measurements | None
    fail_over_percent: float | None
    junit: Path | None
    markdown: Path | None

    @property
    def is_empty(self) -> bool:
        """Whether nothing of it was asked for."""
        return self.then is None and self.markdown is None

    @property
    def prints(self) -> bool:
        """Whether Markdown is printed instead of the table."""
        return self.markdown == STANDARD_OUTPUT

    def require(self, measured: Measured) -> None:
        """Raise MisuseError where what is measured cannot be compared with the earlier run."""
        if self.then is not None:
            from vtax.compare.history import surroundings

            earlier = surroundings.Measured.by(self.then.record)
            surroundings.require_same_command(measured, earlier, self.then.run)
            surroundings.require_shared_environment(measured, earlier, self.then.run)

    def judge(self, comparison: Comparison, samples: Sequence[Sample]) -> Changes | None:
        """Compare the run with the earlier one; None: there is none.

        Raises MisuseError where they cannot be compared.
        """
        if self.then is None:
            return None
        from vtax.compare.history.changes import Measurements, changes
        from vtax.compare.history.surroundings import Measured

        record, run = comparison.record, comparison.run
        self.require(Measured.by(record))
        if record.run_id is not None and record.run_id == self.then.record.run_id:
            raise MisuseError(f"{run} is the same run as {self.then.run}", "name an earlier one")
        limit = self.fail_over_percent or record.margin_percent
        return changes(Measurements(run, record, samples), self.then, limit)

    def write(self, page: Page, found: Changes | None, started_utc: str) -> None:
        """Write the files that were asked for: what a terminal has of the page as Markdown, and the
        changes as JUnit XML. Raises VtaxError where one cannot be written."""
        from vtax.core.formats.files import write_atomic
        from vtax.core.page import render_markdown
        from vtax.core.page.page import Depth

        if self.junit is not None and found is not None:
            from vtax.compare.history.junit import document

            write_atomic(self.junit, document(found, started_utc))
        if self.markdown is not None:
            text = render_markdown.render(page, Depth.BRIEF)
            if self.prints:
                print(text, end="")
            else:
                write_atomic(self.markdown, text.encode())

    def end(self, state: State, found: Changes | None, *, failed: bool = False) -> None:
        """End with the exit code of a run that was shown. Raises typer.Exit."""
        held = found if self.fail_over_percent is not None else None
        worse = held is not None and bool(held.worse)
        failed = failed or (held is not None and not held.is_whole)
        campaigns.end(state, failed=failed, worse=worse)


def opened(
    against: Path | None,
    fail_over: str | None,
    junit: Path | None,
    markdown: Path | None,
    *,
    beside: Path,
    as_json: bool,
) -> Gate:
    """Read the earlier run: a folder, or the name of one `beside` the new run.

    Raises MisuseError for options that need others, a run or a folder that is not there, and
    VtaxError for a damaged run.
    """
    from vtax.core.units import parse_percent

    if against is None and fail_over is not None:
        raise MisuseError("--fail-over needs --against", "name an earlier run folder")
    if junit is not None and fail_over is None:
        raise MisuseError("--junit needs --fail-over", "for example --fail-over 3%")
    if as_json and markdown == STANDARD_OUTPUT:
        raise MisuseError("--json and --markdown - both print", "name a file: --markdown FILE")
    for file in (junit, markdown):
        if file is not None and not file.absolute().parent.is_dir():
            raise MisuseError(f"{file}: there is no folder {file.parent}", "make it first")
    limit = None if fail_over is None else parse_percent(fail_over)
    then = None if against is None else _earlier(against, beside)
    return Gate(then, limit, junit, markdown)


def _earlier(named: Path, beside: Path) -> Measurements:
    from vtax.compare.history.changes import Measurements
    from vtax.core.formats.folder import RECORD, load

    for path in (named, beside / named):
        if (path / RECORD).is_file():
            return Measurements(str(path), *load(path))
    said = f"there is no run folder {named}, nor {beside / named}"
    raise MisuseError(said, "name a folder that vtax compare has made")
