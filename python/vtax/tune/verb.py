"""`vtax tune`: whether virtualization changes what an autotuner finds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vtax.core.command import campaigns
from vtax.core.command.declared import Declared
from vtax.core.command.options import RunOptions, Share, Specs, reps, takes

if TYPE_CHECKING:
    from vtax.tune.campaign import TuneCampaign, TuneRequest
    from vtax.tune.record import TuneRecord

EXAMPLES = """\b
Examples:
  vtax tune --in native --in uml:mem=512M --in qemu:accel=tcg,mem=512M
  vtax tune --export blas.toml                # for VTAX_BLAS of libvtaxblas.so
  vtax tune --use blas.toml --in native --in uml:mem=512M
  vtax tune --cache-edge --edge-size 1500 --peers mine=/opt/blas/libblas.so.3
"""

SETTINGS: dict[str, Any] = {
    "cls": Declared,
    "short_help": "Tune matrix kernels in environments: do they find the same?",
    "epilog": EXAMPLES,
}
MOST_S = 43_200.0
"""The longest budget: the sweep of cache block sizes gets ten times as much, and vtax-agent takes
up to 7 days."""
LARGEST = 20_000
"""The most rows of a matrix: 3.2 GB for each matrix."""


def complete_peer(incomplete: str) -> list[str]:
    """Libraries that vtax tune knows by name."""
    from vtax.tune.tuner import PEERS

    return [each for each in (*PEERS, "none") if each.startswith(incomplete)]


class Search(StrEnum):
    """The method of searching candidates."""

    LINES = "lines"
    EXHAUSTIVE = "exhaustive"


class Precision(StrEnum):
    """The precision of the numbers."""

    D = "d"
    S = "s"
    BOTH = "both"


@dataclass(frozen=True)
class TuneOptions(RunOptions):
    """The options of `vtax tune`."""

    environments: Specs = None
    budget: Annotated[
        str, typer.Option(help="Time of the search in each environment, e.g. 60s.", metavar="TIME")
    ] = "60s"
    search: Annotated[
        Search, typer.Option(help="ATLAS's line searches, or every point of a grid.")
    ] = Search.LINES
    precision: Annotated[Precision, typer.Option(help="Double, single, or both.")] = Precision.D
    threads: Annotated[
        int, typer.Option(min=1, max=1024, metavar="N", help="Threads of each product.")
    ] = 1
    size: Annotated[
        int,
        typer.Option(
            min=16,
            max=LARGEST,
            metavar="N",
            help="Rows and columns of the products that are timed.",
        ),
    ] = 1000
    repetitions: Annotated[
        int, reps("Repetitions of every winner and every library in every environment.")
    ] = 3
    margin: Annotated[
        str, typer.Option(metavar="PERCENT", help="Differences up to this count as equal.")
    ] = "2%"
    peers: Annotated[
        list[str] | None,
        typer.Option(
            help="A library to compare with, NAME=LIBRARY; repeat it, or 'none'. Default: "
            "OpenBLAS, BLIS and ATLAS, where the environment has them.",
            metavar="PEER",
            autocompletion=complete_peer,
        ),
    ] = None
    generated: Annotated[
        str | None,
        typer.Option(
            help="Generated code with these instructions only, to compare with too, or 'none'. "
            "Each is searched for in a quarter of the budget. Default: scalar,sse2.",
            metavar="LIST",
        ),
    ] = None
    export: Annotated[
        Path | None,
        typer.Option(help="Write the first environment's parameters to this file.", metavar="FILE"),
    ] = None
    use: Annotated[
        Path | None,
        typer.Option(help="No search: measure the parameters in this file.", metavar="FILE"),
    ] = None
    cache_edge: Annotated[
        bool, typer.Option("--cache-edge", help="Sweep the cache block sizes too (CacheEdge).")
    ] = False
    edge_size: Annotated[
        int,
        typer.Option(min=64, max=LARGEST, metavar="N", help="Size of the products of that sweep."),
    ] = 2500
    edge_runs: Annotated[
        int, typer.Option(min=1, max=1000, metavar="N", help="Runs of that sweep.")
    ] = 20
    probe: Annotated[
        bool, typer.Option("--probe/--no-probe", help="Measure caches and registers first, 15 s.")
    ] = True
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Search anew: ignore the logs of earlier searches.")
    ] = False
    share: Share = None


@takes(TuneOptions)
def tune(options: TuneOptions) -> None:
    """Probe the processor, tune matrix kernels in each environment, and compare what was found.

    Each winner then runs in every environment, in turn with the libraries that are installed. Says
    for each probe, parameter and routine whether environments are equivalent, and how much is lost
    with parameters that were tuned elsewhere (docs/tune.md). A search goes on where the last one
    ended.
    """
    from vtax.core.formats.folder import RunFolder
    from vtax.core.page.progress import listener
    from vtax.tune.campaign import TuneCampaign

    request = _request(options)
    folder = RunFolder.create(options.out, "tune")
    campaign = TuneCampaign(request, folder, listener(options.quiet))
    record = campaign.carry_out()
    if options.export is not None:
        _export(campaign, record, options.export)
    campaigns.show(record, folder.path, as_json=options.as_json)
    campaigns.end(record.state, failed=any(each.failures for each in record.environments))


def _request(options: TuneOptions) -> TuneRequest:
    """What the options ask for, of this machine as it is. Raises VtaxError for what it lacks."""
    from vtax.core.errors import MisuseError
    from vtax.core.units import parse_duration, parse_percent
    from vtax.environments import BASELINE, build, sharing
    from vtax.environments.hiding import Shown
    from vtax.tune.campaign import TuneRequest
    from vtax.tune.tuner import Tuner

    use, export = options.use, options.export
    tuner = Tuner(
        _budget(parse_duration(options.budget)),
        options.search.value,
        options.precision.value,
        options.threads,
        options.size,
        options.edge_size,
        options.edge_runs,
    )
    generated = _generated(options.generated, use)
    margin_percent = parse_percent(options.margin)
    if use and export:
        raise MisuseError("--export and --use: without a search nothing is found", "leave out one")
    if export and not export.resolve().parent.is_dir():
        raise MisuseError(f"--export {export}: there is no folder {export.resolve().parent}")
    built = {spec: build(spec) for spec in options.environments or [BASELINE]}
    for each in built.values():
        each.check()
    shown = Shown(None, sharing.shown(built, options.share or []))
    return TuneRequest(
        environments={spec: each.with_shown(shown) for spec, each in built.items()},
        tuner=tuner,
        rounds=options.repetitions,
        margin_percent=margin_percent,
        peers=_peers(options.peers),
        generated=generated,
        probe=options.probe,
        cache_edge=options.cache_edge,
        fresh=options.fresh,
        use=None if use is None else (str(use), _read(use)),
        **campaigns.asked(options.seed),
        variables=campaigns.variables(),
    )


def _generated(given: str | None, use: Path | None) -> tuple[str, ...]:
    """The instruction sets of generated code; none without a search."""
    from vtax.core.errors import MisuseError
    from vtax.tune.tuner import GENERATED

    if given is None:
        return () if use else GENERATED
    if given == "none":
        return ()
    if use:
        raise MisuseError(
            "--generated and --use: without a search nothing is found", "leave out one"
        )
    names = tuple(dict.fromkeys(given.split(",")))
    if wrong := [name for name in names if name not in GENERATED]:
        raise MisuseError(
            f"--generated {wrong[0]}: it is none of {', '.join(GENERATED)}", "or write none"
        )
    return names


def _budget(seconds: float) -> float:
    from vtax.core.errors import MisuseError

    if not 1 <= seconds <= MOST_S:
        raise MisuseError(
            f"--budget {seconds:g}s: it is not from 1s to 12h", "leave it out for 60s"
        )
    return seconds


def _peers(given: list[str] | None) -> dict[str, str]:
    """Libraries by name."""
    from vtax.core.errors import MisuseError
    from vtax.tune.tuner import PEERS

    if given is None:
        return dict(PEERS)
    found: dict[str, str] = {}
    for text in given:
        name, equals, library = text.partition("=")
        if text == "none":
            continue
        if not equals and name in PEERS:
            library = PEERS[name]
        if not name or not library:
            raise MisuseError(f"--peers {text}: it is not NAME=LIBRARY",
                              "write for example --peers blis=libblis.so.4")  # fmt: skip
        if name in found or name.startswith("generated "):
            raise MisuseError(f"--peers {text}: {name} is given twice, or is vtax's own name")
        if "/" in library:
            if not Path(library).is_file():
                raise MisuseError(f"--peers {text}: there is no file {library}")
            library = str(Path(library).absolute())
        found[name] = library
    return found


def _read(path: Path) -> bytes:
    """Read the file of --use, and judge it as far as possible without the machine that will use
    it."""
    import tomllib

    from vtax.core.errors import MisuseError, VtaxError
    from vtax.core.formats.files import read_bounded
    from vtax.tune.tuner import PARAMETERS_BYTES

    remedy = "name a file that vtax tune --export has written"
    try:
        content = read_bounded(path, PARAMETERS_BYTES)
        tomllib.loads(content.decode())
    except OSError as error:
        raise MisuseError(f"--use {path}: {error.strerror}", remedy) from None
    except VtaxError as error:
        raise MisuseError(f"--use {error.message}", remedy) from None
    except ValueError as error:
        raise MisuseError(f"--use {path}: it is not TOML: {error}", remedy) from None
    return content


def _export(campaign: TuneCampaign, record: TuneRecord, path: Path) -> None:
    """Write the machine's parameters to a file; they are kept only when they are TOML."""
    import tomllib

    from vtax.core.errors import VtaxError
    from vtax.core.formats.files import write_atomic

    spec = record.environments[0].spec
    content = campaign.parameters(spec)
    if content is None:
        raise VtaxError(f"--export: {spec} has no winner", "give the search more --budget")
    try:
        tomllib.loads(content.decode())
    except ValueError:
        raise VtaxError(f"--export: what {spec} gave is not TOML") from None
    write_atomic(path, content, "name another file with --export")


def add(app: typer.Typer) -> None:
    """Make it a verb of `app`."""
    app.command(**SETTINGS)(tune)
