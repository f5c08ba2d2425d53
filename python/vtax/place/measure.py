"""`vtax place measure`: what loads lose when the service threads of a machine are slowed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vtax.core.command import campaigns
from vtax.core.command.declared import Declared
from vtax.core.command.options import RunOptions, reps, specs, takes

if TYPE_CHECKING:
    from vtax.environments.base import Environment
    from vtax.place.campaign import PlaceRequest
    from vtax.place.service_domain import Backend
    from vtax.workloads.loads.base import Load

EXAMPLES = """\b
Examples:
  vtax place measure
  vtax place measure --in uml:net=vde --in qemu:net=tap --load http,tcp --speeds 100,50
  vtax place measure --in uml:net=vde,rate=500M --backend quota --reps 4 --seconds 5 --json
"""

SETTINGS: dict[str, Any] = {
    "name": "measure",
    "cls": Declared,
    "short_help": "Measure what loads lose when service threads run on slow cores.",
    "epilog": EXAMPLES,
}
SLOWEST, FASTEST = 5.0, 100.0


def _complete_load(incomplete: str) -> list[str]:
    from vtax.workloads.loads.registry import LOADS

    return _listed(incomplete, list(LOADS))


def _complete_backend(incomplete: str) -> list[str]:
    from vtax.place.service_domain import backends

    return _listed(incomplete, [each.name for each in backends() if each.possible])


def _listed(incomplete: str, names: Sequence[str]) -> list[str]:
    """Names that may follow the last comma, with the text before it."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in names if name.startswith(last)]


@dataclass(frozen=True)
class MeasureOptions(RunOptions):
    """The options of `vtax place measure`."""

    environments: Annotated[
        list[str] | None, specs("An environment with net=; repeat it. Default: uml:net=vde.")
    ] = None
    load: Annotated[
        str,
        typer.Option(
            help="Loads, separated by commas (docs/environments.md).",
            metavar="LOADS",
            autocompletion=_complete_load,
        ),
    ] = "http,tcp,udp"
    speeds: Annotated[
        str,
        typer.Option(
            help="Speeds of the service threads, in percent of full speed.", metavar="SPEEDS"
        ),
    ] = "100,87,74,61,50"
    backend: Annotated[
        str | None,
        typer.Option(
            help="How to slow threads, separated by commas. Default: all that are possible here.",
            metavar="BACKENDS",
            autocompletion=_complete_backend,
        ),
    ] = None
    service: Annotated[
        str,
        typer.Option(
            help="Service threads: those of the environments' own processes (auto), or thread ids "
            "of this host.",
            metavar="auto|TID,...",
        ),
    ] = "auto"
    repetitions: Annotated[int, reps("Repetitions of every point and its control.")] = 2
    seconds: Annotated[
        int, typer.Option(min=1, max=3600, metavar="N", help="Length of each measurement.")
    ] = 2


@takes(MeasureOptions)
def measure(options: MeasureOptions) -> None:
    """Slow the threads that serve a guest, and measure what its loads lose.

    Each point is measured beside a control at full speed, in random order. Says for each load how
    much throughput is lost for each percent of speed, whether back ends agree, and whether
    Combined Usage (CPU of the service plus use of the link) predicts it (docs/place.md).
    """
    from vtax.core.formats.folder import RunFolder
    from vtax.core.page.progress import listener
    from vtax.place.campaign import PlaceCampaign

    request = _request(options)
    folder = RunFolder.create(options.out, "place")
    record = PlaceCampaign(request, folder, listener(options.quiet)).carry_out()
    campaigns.show(record, folder.path, as_json=options.as_json)
    campaigns.end(record.state, failed=bool(record.failures))


def _request(options: MeasureOptions) -> PlaceRequest:
    """What the options ask for, of this machine as it is. Raises VtaxError for what it lacks."""
    from vtax.core.errors import MisuseError
    from vtax.environments import build
    from vtax.environments.base import SERVED, require
    from vtax.environments.capabilities import Link
    from vtax.place.campaign import PlaceRequest
    from vtax.workloads.loads import registry

    loads, slower = _loads(options.load), _speeds(options.speeds)
    tids = _tids(options.service)
    built = {spec: build(spec) for spec in options.environments or [SERVED]}
    for spec, each in built.items():
        require(each, Link, f"--in {spec}")
    for spec, each in built.items():
        if tids and each.slowed_by() is not None:
            raise MisuseError(
                f"--service: threads of this host do not serve {spec}", "leave --service out"
            )
        each.check()
    for one in loads.values():
        registry.check(one)
    return PlaceRequest(
        environments=built,
        loads=loads,
        speeds=slower,
        backends=_backends(options.backend, _around(built.values())) if slower else (),
        service=tids,
        rounds=options.repetitions,
        seconds=options.seconds,
        **campaigns.asked(options.seed),
        variables=campaigns.variables(),
    )


def _names(option: str, text: str) -> list[str]:
    from vtax.core.errors import MisuseError

    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise MisuseError(f"{option} {text}: a name is empty", "separate names with commas")
    return list(dict.fromkeys(names))


def _loads(text: str) -> dict[str, Load]:
    from vtax.workloads.loads.registry import named

    return {load.name: load for load in named(_names("--load", text))}


def _speeds(text: str) -> tuple[float, ...]:
    """Speeds below full speed, fastest first; every point has full speed as its control anyway."""
    from vtax.core.errors import MisuseError

    found = set()
    for word in text.split(","):
        try:
            speed = float(word.strip().removesuffix("%"))
        except ValueError:
            speed = 0.0
        if not SLOWEST <= speed <= FASTEST:
            raise MisuseError(
                f"--speeds {text}: '{word.strip()}' is not from {SLOWEST:g} to {FASTEST:g}",
                "write percent of full speed, for example 100,75,50",
            )
        found.add(speed)
    return tuple(sorted(found - {FASTEST}, reverse=True))


def _tids(text: str) -> tuple[int, ...]:
    from vtax.core.errors import MisuseError

    if text == "auto":
        return ()
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise MisuseError(
            f"--service {text}: it is neither 'auto' nor thread ids",
            "vtax-host place threads lists the threads that serve guests",
        )
    return tuple(dict.fromkeys(map(int, words)))


def _around(environments: Iterable[Environment]) -> frozenset[str]:
    """Back ends of the hosts around the environments' machines."""
    return frozenset[str]().union(*(each.slowed_by() or () for each in environments))


def _backends(text: str | None, around: frozenset[str]) -> tuple[Backend, ...]:
    """The back ends that are named, or all that are possible here or are among `around`."""
    from vtax.core.errors import VtaxError
    from vtax.core.specs import unknown
    from vtax.place.service_domain import backends, usable

    known = {each.name: each for each in backends()}
    if text is None:
        return usable(known.values(), around)
    names = _names("--backend", text)
    for name in names:
        if name not in known:
            raise unknown("back end", name, known)
        if not known[name].possible and name not in around:
            raise VtaxError(
                f"--backend {name}: not possible here: {known[name].reason}",
                "name another ('vtax-host place backends'), or an environment that has it",
            )
    return tuple(known[name] for name in names)
