"""`vtax audit`: whether the clocks of an environment can be believed."""

from __future__ import annotations

import json
import os
from typing import Annotated, Any

import typer

from vtax.core.command import campaigns
from vtax.core.command.options import RUNS, Json, Out, Quiet, Specs

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


def audit(
    environments: Specs = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer and shorter runs: 10 s instead of 60.")
    ] = False,
    out: Out = RUNS,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure the clocks of environments and give each a report card.

    Each check passes, warns or fails against a threshold that is printed with its reason
    (docs/audit.md). The exit code is 1 when a check fails.
    """
    from vtax.audit import page as result
    from vtax.audit.campaign import AuditCampaign, AuditRequest
    from vtax.core.formats.folder import RunFolder
    from vtax.core.formats.model import AuditVerdict
    from vtax.core.page.progress import listener
    from vtax.core.page.render_terminal import show
    from vtax.environments import BASELINE, build
    from vtax.workloads.variables import base_environment

    built = {spec: build(spec) for spec in environments or [BASELINE]}
    for each in built.values():
        each.check()
    request = AuditRequest(
        environments=built,
        variables=dict(base_environment(os.environ)),
        command_line=campaigns.command_line(),
        quick=quick,
    )
    folder = RunFolder.create(out, "audit")
    campaign = AuditCampaign(request, folder, listener(quiet))
    cards = campaign.carry_out().environments
    if as_json:
        print(json.dumps(result.to_json(cards), indent=1))
    else:
        show(result.page(cards))
        print(f"\nkept in {folder.path}")
    failed = any(each.verdict is AuditVerdict.FAIL for each in cards)
    campaigns.end(campaign.state, failed=failed)


def add(app: typer.Typer) -> None:
    """Make it a verb of `app`."""
    app.command(**SETTINGS)(audit)
