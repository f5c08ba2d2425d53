"""`vtax audit`: whether the clocks of an environment can be believed."""

from __future__ import annotations

import json
import os
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from vtax import __version__
from vtax.cli.declared import complete_spec

EXAMPLES = """\b
Examples:
  vtax audit
  vtax audit --in native --in uml --in qemu:accel=tcg
  vtax audit --quick --json
"""

SETTINGS: dict[str, Any] = {
    "short_help": "Say whether the clocks of environments can be believed.",
    "epilog": EXAMPLES,
}
FAILED = 1


def audit(
    environments: Annotated[
        list[str] | None,
        typer.Option(
            "--in",
            help="An environment; repeat it. Default: native.",
            metavar="SPEC",
            autocompletion=complete_spec,
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer and shorter runs: 10 s instead of 60.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for run folders.", metavar="DIR")] = Path(
        "runs"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Measure the clocks of environments and give each a report card.

    Each check passes, warns or fails against a threshold that is printed with its reason
    (docs/audit.md). The exit code is 1 when a check fails.
    """
    from vtax.environments import BASELINE, build
    from vtax.formats.folder import RAW, RunFolder
    from vtax.formats.model import AuditRecord, AuditVerdict
    from vtax.present.pages import audit as result
    from vtax.present.render_terminal import show
    from vtax.present.terminal.progress import listener
    from vtax.runner.audit import FULL, QUICK
    from vtax.runner.audit import audit as measure
    from vtax.workloads.variables import base_environment

    built = {spec: build(spec) for spec in environments or [BASELINE]}
    for each in built.values():
        each.check()
    depth = QUICK if quick else FULL
    folder = RunFolder.create(out, "audit")
    started = _now()
    try:
        cards = measure(
            built,
            dict(base_environment(os.environ)),
            depth,
            listener(depth.steps * len(built), quiet),
            (folder.path / RAW).absolute(),
        )
    except BaseException:
        # Before the last card the run has no result, and its folder says nothing.
        shutil.rmtree(folder.path, ignore_errors=True)
        raise
    folder.clean_raw()
    folder.write_record(
        AuditRecord(
            vtax_version=__version__,
            command_line=("vtax", *sys.argv[1:]),
            name="audit",
            started_utc=started,
            finished_utc=_now(),
            quick=quick,
            environments=tuple(cards),
        )
    )
    if as_json:
        print(json.dumps(result.to_json(cards), indent=1))
    else:
        show(result.page(cards))
        print(f"\nkept in {folder.path}")
    if any(each.verdict is AuditVerdict.FAIL for each in cards):
        raise typer.Exit(FAILED)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
