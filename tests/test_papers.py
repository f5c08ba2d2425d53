"""docs/papers.md: each command of its tables can be typed as it stands, and its counts are true."""

from __future__ import annotations

import functools
import re
import shlex
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from itertools import pairwise
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from command_line import ROOT
from vtax.core import binaries
from vtax.core.command.forwarded import Forwarded
from vtax.core.errors import MisuseError
from vtax.core.recorder import sources
from vtax.core.runner.instruments import INSTRUMENTS
from vtax.environments import build
from vtax.paging import machines, simulate
from vtax.paging.arguments import parameters
from vtax.paging.mode import available
from vtax.place import service_domain
from vtax.study.verb import installed
from vtax.verbs import app
from vtax.workloads import builtin, names
from vtax.workloads.loads.registry import LOADS
from vtax_studies.asymmetric_cores.setup import ONLY as SERVICES
from vtax_studies.atlas.setup import ENVIRONMENTS as KERNELS
from vtax_studies.model import Study

PAGE = (ROOT / "docs/papers.md").read_text()
STATES = ("works", "in part", "absent", "cannot be here")
GIVEN = STATES[:2]
"""The states of what a command gives."""
HEADINGS = ["Item", "Command", "State", "Here instead"]
PROGRAMS = ("vtax", "vtax-host", "vtax-agent")
NUMBERED = {
    "ATLAS": ("figure", range(1, 16), "table", range(1, 6)),
    "VrtProf": ("figure", range(1, 8), "table", range(1, 5)),
    "HPC Challenge": ("figure", range(1, 5), "equation", range(1, 4)),
    "DAV2M": ("figure", range(1, 13)),
    "Asymmetric cores": ("figure", range(1, 8), "table", range(1, 2)),
}
"""What each paper numbers."""
ROMAN = {"I": "1", "II": "2", "III": "3", "IV": "4"}
LEAST_ITEMS = 20
"""The least number of items of a paper: fewer means that a table was not read."""
WIDE = {"COLUMNS": "200"}


class WrongError(Exception):
    """What is wrong with a row."""


@dataclass(frozen=True, slots=True)
class Row:
    """An item of a paper."""

    paper: str
    item: str
    command: str
    state: str
    instead: str


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def tables(page: str) -> Iterator[tuple[str, list[list[str]]]]:
    """Each table with the heading above it, without the line below its own headings."""
    for part in re.split(r"^(?=## )", page, flags=re.MULTILINE):
        lines = [cells(line) for line in part.splitlines() if line.startswith("|")]
        yield part.partition("\n")[0].removeprefix("## "), lines[:1] + lines[2:]


def rows(page: str) -> list[Row]:
    """The items of all papers. Raises WrongError where a table has another form."""
    found = []
    for paper, (headings, *lines) in list(tables(page))[1:]:
        if headings != HEADINGS or any(len(line) != len(HEADINGS) for line in lines):
            raise WrongError(f"{paper}: a table of another form")
        found += [Row(paper, *line) for line in lines]
    return found


ROWS = rows(PAGE)


def spans(cell: str) -> list[str]:
    """The commands of a cell, of which it has nothing else. Raises WrongError otherwise."""
    found = re.findall(r"`([^`]+)`", cell)
    if cell != (", ".join(f"`{each}`" for each in found) or "-"):
        raise WrongError(f"{cell!r} is no list of commands")
    return found


def check(row: Row) -> None:
    """Raise WrongError unless the row is right."""
    if row.state not in STATES:
        raise WrongError(f"{row.state!r} is no state")
    if not (row.item and row.instead):
        raise WrongError("an empty cell")
    commands = spans(row.command)
    if bool(commands) != (row.state in GIVEN):
        raise WrongError(f"{len(commands)} commands, and {row.state}")
    beside = re.findall(r"`([^`]+)`", row.instead)
    for command in (*commands, *(each for each in beside if each.split()[0] in PROGRAMS)):
        check_command(shlex.split(command))


def wrong(row: Row) -> str:
    """What is wrong with the row; empty: nothing."""
    try:
        check(row)
    except (WrongError, MisuseError) as error:
        return f"{row.paper}, {row.item}: {error}"
    return ""


@functools.cache
def help_of(program: str, *words: str) -> str:
    """What the words print with `--help`; the real command line of vtax, in this process."""
    if program == "vtax" and not forwarded(words):
        done = CliRunner().invoke(app, [*words, "--help"], env=WIDE, prog_name="vtax")
        assert done.exit_code == 0, done.output
        return done.output
    binary = str(binaries.find("vtax-host" if program == "vtax" else program))
    line = [binary, *words, "--help"]
    return subprocess.run(line, capture_output=True, text=True, timeout=60, check=True).stdout


tree = functools.cache(lambda: get_command(app))


def forwarded(verbs: Sequence[str]) -> bool:
    """Whether vtax becomes `vtax-host`, which would end the tests."""
    command: Any = tree()
    for verb in verbs:
        command = getattr(command, "commands", {}).get(verb, command)
    return isinstance(command, Forwarded)


def verbs_of(text: str) -> set[str]:
    """The verbs that a help lists; none where it is a verb's own."""
    listed = re.search(r"^Commands:\n((?: +.*\n)+)", text, re.MULTILINE)
    return set(re.findall(r"^  (\S+)", listed[1], re.MULTILINE)) if listed else set()


def options_of(text: str) -> set[str]:
    """The options that a help declares, not those that its sentences and examples name."""
    declared = re.findall(r"^ {2,6}(-\S.*?)(?: {2,}.*)?$", text, re.MULTILINE)
    return set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", "\n".join(declared)))


def check_command(words: Sequence[str]) -> None:
    """Raise WrongError or MisuseError where vtax would not take the words."""
    program, *rest = words
    if program not in PROGRAMS:
        raise WrongError(f"{program} is no program of vtax")
    verbs: list[str] = []
    while known := verbs_of(help_of(program, *verbs)):
        if not rest or rest[0] not in known:
            raise WrongError(f"{' '.join([program, *verbs])} has no verb {rest[:1]}")
        verbs.append(rest.pop(0))
    end = rest.index("--") if "--" in rest else len(rest)
    check_options(rest[:end], options_of(help_of(program, *verbs)))
    check_values(rest[:end], " ".join(verbs))
    if rest[end:]:
        check_workload(rest[end + 1 :])


def check_options(words: Sequence[str], known: set[str]) -> None:
    for word in words:
        if word.startswith("-") and word.partition("=")[0] not in known:
            raise WrongError(f"no option {word}")


built_in = functools.cache(builtin.builtin_workloads)


def check_workload(words: Sequence[str]) -> None:
    """The words behind `--`: a workload of vtax, or a program of the reader's own."""
    first, *rest = words
    if first in PROGRAMS:
        check_command(words)
    elif first in names():
        check_options(rest, options_of(help_of("vtax", "compare", "--", first)))
    elif first in built_in():
        check_options(rest, options_of(help_of("vtax-agent", "workload", first)))
    elif not first.startswith("./"):
        raise WrongError(f"{first} is no workload")


def among(what: str, known: Callable[[], Sequence[str]]) -> Callable[[str], None]:
    """A check of names with commas between."""
    once = functools.cache(known)

    def check_names(text: str) -> None:
        for name in text.split(","):
            if name not in once():
                raise WrongError(f"no {what} {name}")

    return check_names


def events() -> list[str]:
    """What `--events` takes, and `xen`, the layer of the recorder in dom0."""
    declared = sources.declared()
    named = [name for each in declared for name in each.events]
    return ["default", "xen", *(each.name for each in declared), *named]


def check_glob(text: str) -> None:
    for glob in text.split(","):
        if not any(fnmatch(name, glob) for name in (*events(), "derived.cpi")):
            raise WrongError(f"no event {glob}")


def check_spec(text: str) -> None:
    if text != "none":
        build(text)


def check_parameter(text: str) -> None:
    """The model names what a policy has, when it is asked for what none has."""
    ((policy, own),) = parameters([text]).items()
    with pytest.raises(MisuseError) as refused:
        simulate("random", modes=[policy], parameters={policy: {"?": 0}})
    for name in own:
        if name not in re.findall(r"\w+", str(refused.value)):
            raise WrongError(f"{policy} has no {name}")


VALUES: Mapping[str, Callable[[str], None]] = {
    "--in": check_spec,
    "--baseline": check_spec,
    "--event": check_glob,
    "--events": among("event", events),
    "--load": among("load", lambda: tuple(LOADS)),
    "--backend": among("back end", lambda: [each.name for each in service_domain.backends()]),
    "--with": among("instrument", lambda: tuple(INSTRUMENTS)),
    "--machine": among("machine", lambda: tuple(machines())),
    "--mode": among("mode", available),
    "--policy": among("policy", available),
    "--param": check_parameter,
}
"""How the value of an option is checked."""


def check_values(words: Sequence[str], verb: str) -> None:
    given = list(pairwise([*words, ""]))
    for name, value in given:
        if name in VALUES:
            VALUES[name](value)
    if ("--events", "xen") in given and not dict(given).get("--in", "").startswith("xen"):
        raise WrongError("only --in xen has the layer xen")
    if verb == "study":
        check_study(words[0], dict(given))


def check_study(name: str, given: Mapping[str, str]) -> None:
    study = installed().get(name)
    if not isinstance(study, Study):
        raise WrongError(f"no study {name}")
    known = {"atlas": KERNELS, "asymmetric-cores": tuple(SERVICES)}
    if "--figure" in given and given["--figure"] not in study.figures:
        raise WrongError(f"{study.name} has no figure {given['--figure']}")
    if "--only" in given and given["--only"] not in known.get(study.name, ()):
        raise WrongError(f"{study.name} has no {given['--only']}")
    if "--traced" in given and not study.traces:
        raise WrongError(f"{study.name} has no traces")
    if "--validate" in given and study.validation is None:
        raise WrongError(f"{study.name} has no validation")


def test_every_row_can_be_believed() -> None:
    assert [said for row in ROWS if (said := wrong(row))] == []


def test_no_item_is_there_twice() -> None:
    times = Counter((row.paper, row.item) for row in ROWS)
    assert [item for item, count in times.items() if count > 1] == []


def counts(of: Sequence[Row]) -> list[str]:
    states = Counter(row.state for row in of)
    return [str(states[state]) for state in STATES]


def test_the_counts_are_those_of_the_rows() -> None:
    (_, (headings, *lines)) = next(tables(PAGE))
    assert headings == ["Paper", *STATES]
    papers = list(dict.fromkeys(row.paper for row in ROWS))
    expected = [[paper, *counts([r for r in ROWS if r.paper == paper])] for paper in papers]
    assert lines == [*expected, ["all", *counts(ROWS)]]


def numbers(items: Sequence[str], what: str) -> set[str]:
    """The numbers of figures, tables or equations in the brackets of items."""
    found: set[str] = set()
    for item in items:
        for text in re.findall(rf"\b{what}s? ((?:[\dIV]+(?:, | to )?)+)", item):
            for part in text.rstrip(", ").split(", "):
                first, _, last = (ROMAN.get(word, word) for word in part.partition(" to "))
                found |= {str(number) for number in range(int(first), int(last or first) + 1)}
    return found


@pytest.mark.parametrize("paper", NUMBERED)
def test_each_figure_and_table_of_a_paper_is_an_item(paper: str) -> None:
    items = [row.item for row in ROWS if row.paper == paper]
    assert len(items) >= LEAST_ITEMS
    kinds = NUMBERED[paper]
    for what, expected in zip(kinds[::2], kinds[1::2], strict=True):
        missing = {str(number) for number in expected} - numbers(items, str(what))
        assert not missing, (what, missing)


RIGHT = Row("P", "An item (figure 1)", "`vtax study dav2m --figure 2`", "works", "-")


def test_a_right_row_is_right() -> None:
    assert wrong(RIGHT) == ""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"state": "mostly"}, "is no state"),
        ({"command": "-"}, "0 commands, and works"),
        ({"state": "absent"}, "1 commands, and absent"),
        ({"instead": ""}, "an empty cell"),
        ({"instead": "so: `vtax tune --faster`"}, "no option --faster"),
        ({"command": "the verb study"}, "is no list of commands"),
        ({"command": "`perf stat true`"}, "perf is no program"),
        ({"command": "`vtax profile`"}, "has no verb"),
        ({"command": "`vtax paging flip`"}, "has no verb"),
        ({"command": "`vtax record --invented -- gups`"}, "no option --invented"),
        # A flag of another verb, which an example in this verb's help names.
        ({"command": "`vtax record --event kvm.exits`"}, "no option --event"),
        ({"command": "`vtax-agent clocks --invented`"}, "no option --invented"),
        ({"command": "`vtax compare --in umm -- hpcc`"}, "unknown environment 'umm'"),
        ({"command": "`vtax compare --in uml:cap=5 -- hpcc`"}, "unknown key"),
        ({"command": "`vtax compare -- hpcc --turbo`"}, "no option --turbo"),
        ({"command": "`vtax compare -- gups --turbo`"}, "no option --turbo"),
        ({"command": "`vtax compare -- gupps`"}, "gupps is no workload"),
        ({"command": "`vtax lab -- vtax compare --turbo -- true`"}, "no option --turbo"),
        ({"command": "`vtax record --events hw.flops -- gups`"}, "no event hw.flops"),
        ({"command": "`vtax record --events xen -- gups`"}, "only --in xen"),
        ({"command": "`vtax timeline run --event hw.flops`"}, "no event hw.flops"),
        ({"command": "`vtax place measure --load smtp`"}, "no load smtp"),
        ({"command": "`vtax place measure --backend ice`"}, "no back end ice"),
        ({"command": "`vtax compare --with lens -- hpcc`"}, "no instrument lens"),
        ({"command": "`vtax paging simulate swim --mode flat`"}, "no mode flat"),
        ({"command": "`vtax paging simulate swim --machine vax`"}, "no machine vax"),
        ({"command": "`vtax paging simulate swim --param dav2m.mood=1`"}, "mood"),
        ({"command": "`vtax study dav3m`"}, "no study dav3m"),
        ({"command": "`vtax study dav2m --figure 13`"}, "no figure 13"),
        ({"command": "`vtax study atlas --only vmware`"}, "has no vmware"),
        ({"command": "`vtax study hpcc --traced`"}, "no traces"),
    ],
)  # fmt: skip
def test_a_wrong_row_is_found(change: dict[str, str], said: str) -> None:
    assert said in wrong(replace(RIGHT, **change))


def test_a_table_of_another_form_is_found() -> None:
    with pytest.raises(WrongError, match="another form"):
        rows(PAGE.replace("| Item | Command |", "| Command | Item |", 1))
    with pytest.raises(WrongError, match="another form"):
        rows(PAGE.replace("| works | - |", "| works | - | - |", 1))
