"""`vtax audit`: whether the clocks of an environment can be believed."""

from __future__ import annotations

import json
import os
import shutil
import sys
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from vtax import __version__
from vtax.cli import options

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
    environments: options.Specs = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer and shorter runs: 10 s instead of 60.")
    ] = False,
    out: options.Out = options.RUNS,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure the clocks of environments and give each a report card.

    Each check passes, warns or fails against a threshold that is printed with its reason
    (docs/audit.md). The exit code is 1 when a check fails.
    """
    from vtax.environments import BASELINE, build
    from vtax.formats.folder import RAW, RunFolder
    from vtax.formats.model import AuditRecord, AuditVerdict
    from vtax.present.terminal import audit as table
    from vtax.present.terminal.progress import listener
    from vtax.present.terminal.tables import show
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
        print(json.dumps(table.to_json(cards), indent=1))
    else:
        show(*table.parts(cards))
        print(f"kept in {folder.path}")
    if any(each.verdict is AuditVerdict.FAIL for each in cards):
        raise typer.Exit(FAILED)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
