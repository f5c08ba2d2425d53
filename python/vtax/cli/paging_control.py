"""`vtax paging control` and `watch`: let a policy choose the paging mode of this KVM host.

The work is done by the static program `vtax-control`, because the host that needs it may have no
Python. These commands give it help, completion and a line among the other verbs.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

CONTROL_EXAMPLES = """\b
Examples:
  vtax paging control --for 10s
  vtax paging control --policy-file policy.toml --json
  vtax paging control --apply --max-pause 200ms --min-dwell 60s
  vtax paging control --apply --print-unit >/etc/systemd/system/vtax-control.service

\b
Without --apply it only says what it would do. Needs root: counters of guests, and for --apply what
'vtax paging switch' needs. Tried only in an emulated AMD host with vtax's own guests, on counters
that a model made: no processor's counters of guests were ever read.
"""

WATCH_EXAMPLES = """\b
Examples:
  vtax paging watch
  vtax paging watch --policy dav2m --window 2s

\b
It follows the controller that runs with this --state-dir. Where none does, it looks itself, with
these options, and changes nothing.
"""

CONTROL_SETTINGS: dict[str, Any] = {
    "short_help": "Let a policy choose this KVM host's paging mode, by live counters.",
    "epilog": CONTROL_EXAMPLES,
}
WATCH_SETTINGS: dict[str, Any] = {
    "short_help": "Show the controller live: mode, rates, decision, why.",
    "epilog": WATCH_EXAMPLES,
}


def _policies() -> list[str]:
    from vtax.paging.modes import policies

    return list(policies())


PolicyName = Annotated[
    str | None,
    typer.Option(
        "--policy",
        help="The policy. Default: vtax, or what --policy-file says.",
        metavar="NAME",
        autocompletion=_policies,
    ),
]
PolicyFile = Annotated[
    Path | None,
    typer.Option(
        help="A TOML file with the policy and its parameters (docs/host.md); SIGHUP reads it "
        "again.",
        metavar="FILE",
    ),
]
Window = Annotated[
    str | None, typer.Option(help="The length of a window. Default: 1s.", metavar="TIME")
]
MaxPause = Annotated[
    str | None,
    typer.Option(help="No switch when guests would pause longer. Default: 200ms.", metavar="TIME"),
]
MinDwell = Annotated[
    str | None, typer.Option(help="The least time that a mode lasts. Default: 60s.", metavar="TIME")
]
Counters = Annotated[
    list[Path] | None,
    typer.Option(
        help="A page of counters that a model publishes, instead of perf; may be repeated.",
        metavar="FILE",
    ),
]
ModulePath = Annotated[
    Path | None,
    typer.Option(
        help="The file of the vendor module of KVM. Default: the system's.", metavar="FILE"
    ),
]
StateDir = Annotated[
    Path | None,
    typer.Option(help="Where its state is kept. Default: /run/vtax/control.", metavar="DIR"),
]
Seconds = Annotated[str | None, typer.Option("--for", help="End after this time.", metavar="TIME")]


def control(
    policy: PolicyName = None,
    policy_file: PolicyFile = None,
    carry_out: Annotated[
        bool,
        typer.Option("--apply", help="Switch the host; without it, only say what would be done."),
    ] = False,
    window: Window = None,
    max_pause: MaxPause = None,
    min_dwell: MinDwell = None,
    seconds: Seconds = None,
    counters: Counters = None,
    module_path: ModulePath = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            help="Answer Prometheus at http://ADDRESS:PORT/metrics.", metavar="ADDRESS:PORT"
        ),
    ] = None,
    state_dir: StateDir = None,
    print_unit: Annotated[
        bool, typer.Option("--print-unit", help="Print a unit for systemd with these options.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a line of JSON for each window.")
    ] = False,
) -> None:
    """Read counters of guests each window, let a policy decide on the paging mode, and switch.

    The policies are those of 'vtax paging simulate'. The mode is the host's, so all guests are
    weighed together. A switch pauses every guest: what earlier ones took, a budget and a shortest
    dwell decide with the policy. Without --apply nothing is touched.
    """
    given = _given(policy, policy_file, window, max_pause, min_dwell, module_path, state_dir)
    given |= {"--for": seconds, "--metrics": metrics}
    flags = {"--apply": carry_out, "--print-unit": print_unit, "--json": as_json}
    _become("run", given, counters, flags)


def watch(
    policy: PolicyName = None,
    policy_file: PolicyFile = None,
    window: Window = None,
    max_pause: MaxPause = None,
    min_dwell: MinDwell = None,
    seconds: Seconds = None,
    counters: Counters = None,
    module_path: ModulePath = None,
    state_dir: StateDir = None,
) -> None:
    """Show mode, rates, thresholds, decision and reason of the running controller, live."""
    given = _given(policy, policy_file, window, max_pause, min_dwell, module_path, state_dir)
    _become("watch", given | {"--for": seconds}, counters, {})


def _given(
    policy: str | None,
    policy_file: Path | None,
    window: str | None,
    max_pause: str | None,
    min_dwell: str | None,
    module_path: Path | None,
    state_dir: Path | None,
) -> dict[str, str | Path | None]:
    return {
        "--policy": policy,
        "--policy-file": policy_file,
        "--window": window,
        "--max-pause": max_pause,
        "--min-dwell": min_dwell,
        "--module-path": module_path,
        "--state-dir": state_dir,
    }


def _become(
    verb: str,
    given: dict[str, str | Path | None],
    counters: list[Path] | None,
    flags: dict[str, bool],
) -> NoReturn:
    """Replace this process: signals, output and exit code are then the program's own."""
    from vtax import binaries

    program = str(binaries.find("vtax-control"))
    # Join with "=", so that no value becomes an option.
    options = [f"{name}={value}" for name, value in given.items() if value is not None]
    options += [f"--counters={path}" for path in counters or ()]
    options += [name for name, is_given in flags.items() if is_given]
    os.execv(program, [program, verb, *options])
