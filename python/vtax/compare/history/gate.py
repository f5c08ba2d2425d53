"""`--against`, `--fail-over`, `--junit` and `--markdown`: a run held against an earlier one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vtax.core.errors import MisuseError

if TYPE_CHECKING:
    from vtax.compare.history.changes import Changes
    from vtax.compare.history.surroundings import Measured
    from vtax.core.formats.model import ComparisonRecord, Sample
    from vtax.core.page.page import Page

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

    against: Path | None
    earlier: tuple[ComparisonRecord, list[Sample]] | None
    fail_over_percent: float | None
    junit: Path | None
    markdown: Path | None

    @property
    def is_empty(self) -> bool:
        """Whether nothing of it was asked for."""
        return self.against is None and self.markdown is None

    @property
    def prints(self) -> bool:
        """Whether Markdown is printed instead of the table."""
        return self.markdown == STANDARD_OUTPUT

    def require(self, measured: Measured) -> None:
        """Raise MisuseError where what is measured cannot be compared with the earlier run."""
        from vtax.compare.history import surroundings

        if self.earlier is not None:
            then, run = surroundings.Measured.by(self.earlier[0]), str(self.against)
            surroundings.require_same_command(measured, then, run)
            surroundings.require_shared_environment(measured, then, run)

    def judge(
        self, record: ComparisonRecord, samples: Sequence[Sample], run: Path
    ) -> Changes | None:
        """Compare the run with the earlier one; None: there is none.

        Raises MisuseError where they cannot be compared.
        """
        from vtax.compare.history.changes import Measurements, changes
        from vtax.compare.history.surroundings import Measured

        if self.earlier is None:
            return None
        self.require(Measured.by(record))
        then = Measurements(str(self.against), *self.earlier)
        if record.run_id is not None and record.run_id == then.record.run_id:
            raise MisuseError(f"{run} is the same run as {self.against}", "name an earlier one")
        limit = self.fail_over_percent or record.margin_percent
        return changes(Measurements(str(run), record, samples), then, limit)

    def write(self, page: Page, found: Changes | None, started_utc: str) -> None:
        """Write the files that were asked for: what a terminal has of the page as Markdown, and the
        changes as JUnit XML. Raises VtaxError where one cannot be written."""
        from vtax.compare.history.junit import document
        from vtax.core.formats.files import write_atomic
        from vtax.core.page import render_markdown
        from vtax.core.page.page import Depth

        if self.junit is not None and found is not None:
            write_atomic(self.junit, document(found, started_utc))
        if self.markdown is not None:
            text = render_markdown.render(page, Depth.BRIEF)
            if self.prints:
                print(text, end="")
            else:
                write_atomic(self.markdown, text.encode())

    def failed(self, found: Changes | None) -> bool:
        """Whether not everything could be judged that was to be."""
        return self.fail_over_percent is not None and found is not None and not found.is_whole

    def worse(self, found: Changes | None) -> bool:
        """Whether a metric got worse by more than is allowed."""
        return self.fail_over_percent is not None and found is not None and bool(found.worse)


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
    from vtax.core.formats.folder import load
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
    if against is None:
        return Gate(None, None, limit, junit, markdown)
    path = next((each for each in (against, beside / against) if each.is_dir()), None)
    if path is None:
        said = f"there is no run folder {against}, nor {beside / against}"
        raise MisuseError(said, "name a folder that vtax compare has made")
    return Gate(path, load(path), limit, junit, markdown)
