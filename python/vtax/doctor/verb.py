"""`vtax doctor`: what this machine can measure."""

from __future__ import annotations

from typing import Annotated

import typer


def doctor(
    json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
    require: Annotated[
        list[str] | None,
        typer.Option(
            "--require",
            metavar="NAME",
            help="Exit with 1 unless this is ok; may be given more than once.",
        ),
    ] = None,
    clean: Annotated[
        bool,
        typer.Option(
            "--clean",
            help="Instead remove what killed runs left: control groups with what runs in them, "
            "swap, slowness of threads.",
        ),
    ] = False,
) -> None:
    """Say what can be measured here, with the remedy for what cannot.

    Without --clean it changes nothing. It takes under two seconds and needs no root; run as root
    it sees more.

    \b
    Examples:
      vtax doctor
      vtax doctor --json
      vtax doctor --require uml --require blas && vtax compare ...
      vtax doctor --clean
    """
    import shutil
    import sys
    from json import dumps

    from vtax.core.checks.model import State
    from vtax.core.page import tables
    from vtax.core.specs import unknown
    from vtax.doctor import render
    from vtax.doctor.checks import registered
    from vtax.doctor.examine import examine

    if clean:
        from vtax.core.formats import scratch
        from vtax.core.units import plural
        from vtax.environments import host_swap
        from vtax.place import service_domain

        removed = service_domain.sweep() + host_swap.sweep() + scratch.sweep()
        print(f"removed {plural(removed, 'leftover')} of killed runs")
        return
    known = [check.name for check in registered()]
    for name in require or ():
        if name not in known:
            raise unknown("check", name, known)

    findings = examine()
    if json:
        print(dumps(render.as_json(findings), indent=2))
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
        tables.show(*render.parts(findings, width), width=tables.UNFOLDED)

    state = {finding.name: finding.state for finding in findings}
    if any(state[name] is not State.OK for name in require or ()):
        raise typer.Exit(1)


def add(app: typer.Typer) -> None:
    """Make it a verb of `app`."""
    app.command()(doctor)
