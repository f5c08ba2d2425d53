"""Environments, workloads and policies of another package, and broken packages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from command_line import SOURCE

ENTRY_POINTS = """\
[vtax.environments]
theirs = theirs:Theirs

[vtax.workloads]
count-words = theirs:CountWords

[vtax.policies]
always-shadow = theirs:AlwaysShadow
"""

MODULE = '''\
"""A package that adds one of each kind, by what CONTRIBUTING.md says."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import vtax.paging
from vtax.core import binaries
from vtax.core.checks.model import Check
from vtax.environments.base import Launch
from vtax.environments.process_environment import ProcessEnvironment
from vtax.environments.capabilities import RecordOutside
from vtax.environments.machine import shared_tree
from vtax.workloads.base import Command, MachineShape, Metric


class Slow(Check):
    """Is there a program?"""

    name = "theirs"
    purpose = "environment theirs"

    def find(self, host):
        return self.ok("it is there")


@dataclass(frozen=True)
class Theirs(ProcessEnvironment):
    """This machine under another name."""

    name: ClassVar = "theirs"
    keys: ClassVar = {"nice": "niceness (default: 0)"}
    examples: ClassVar = ("theirs:nice=5",)
    offers: ClassVar = {RecordOutside: "theirs"}
    checks: ClassVar = (Slow,)

    nice: int = 0

    @classmethod
    def from_options(cls, options):
        return cls(int(options.get("nice", "0")))

    def shape(self):
        return MachineShape(1, 256 << 20)

    def check(self):
        pass

    def launch(self, allocation):
        agent = str(binaries.find("vtax-agent"))
        argv = ["nice", "-n", str(self.nice), agent, "serve"]
        argv += ["--channel", f"fd:{allocation.channel_fd}"]
        return Launch(argv, allocation.work, 10.0)

    def capabilities(self, machine):
        return shared_tree(machine)

    def description(self, facts):
        return f"theirs, niceness {self.nice}"


@dataclass(frozen=True)
class CountWords:
    """Counts words."""

    name: ClassVar = "count-words"
    checks: ClassVar = ()

    @classmethod
    def from_args(cls, args, metric_patterns):
        return cls()

    def parameters(self):
        return {}

    def label(self):
        return "count words"

    def command(self, shape):
        return Command(("wc", "-w", "text"), files={"text": b"one two three"})

    def metrics(self, outcome, folder):
        return [Metric("words", "1", "higher", float(folder.read_text("stdout").split()[0]))]

    def needs(self):
        return ("wc",)

    def libraries(self):
        return ()

    def expected_metrics(self, shape):
        return [("words", "1", "higher")]


class AlwaysShadow(vtax.paging.Policy):
    """Never nested paging."""

    name = "always-shadow"

    def decide(self, now, last_window):
        return "shadow"
'''

BROKEN = """\
[vtax.environments]
absent = no_such_module_of_theirs:X
native = theirs:Theirs
other = theirs:Theirs

[vtax.workloads]
function = theirs:print

[vtax.policies]
failing = failing:X
"""


def package(folder: Path, name: str, entries: str, **modules: str) -> None:
    """Make what an installer leaves of a package: its modules and its metadata."""
    info = folder / f"{name}-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(entries)
    for module, text in modules.items():
        (folder / f"{module}.py").write_text(text)


def vtax(folder: Path, *argv: str) -> Any:
    return subprocess.run(
        [sys.executable, "-m", "vtax.main", *argv],
        env=os.environ | {"PYTHONPATH": f"{SOURCE}{os.pathsep}{folder}", "COLUMNS": "100"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_another_package_adds_one_of_each_kind(tmp_path: Path) -> None:
    package(tmp_path, "theirs", ENTRY_POINTS, theirs=MODULE)
    words = ("--in", "theirs:nice=5", "--reps", "2", "--no-control", "--json", "--quiet")
    done = vtax(tmp_path, "compare", *words, "--", "count-words")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    medians = {
        each["environment"]: each["median"]
        for each in found["results"]
        if each["metric"] == "words"
    }
    assert medians == {"native:cpus=1,mem=256M": 3.0, "theirs:nice=5": 3.0}
    done = vtax(
        tmp_path, "paging", "simulate", "swim", "--instructions", "1e6",
        "--mode", "shadow,always-shadow", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "always-shadow" in done.stdout
    help_text = vtax(tmp_path, "compare", "--help").stdout
    assert "theirs[:nice=]" in help_text and "Counts words" in help_text
    findings = json.loads(vtax(tmp_path, "doctor", "--json").stdout)["findings"]
    assert {"name": "theirs", "state": "ok", "detail": "it is there", "remedy": None} in findings


def test_a_key_that_a_plugin_does_not_have_is_a_misuse(tmp_path: Path) -> None:
    package(tmp_path, "theirs", ENTRY_POINTS, theirs=MODULE)
    done = vtax(tmp_path, "compare", "--in", "theirs:nicer=1", "--", "true")
    assert done.returncode == 2
    assert "did you mean 'nice'?" in done.stderr


@pytest.mark.parametrize(
    ("verb", "warnings"),
    [
        (
            ("compare", "--in", "native", "--reps", "1", "--", "true"),
            (
                "environment 'absent' of package broken is skipped: ModuleNotFoundError",
                "environment 'native' of package broken is skipped: the name is taken",
                "environment 'other' of package broken is skipped: its class is called 'theirs'",
                "workload 'function' of package broken is skipped: AttributeError",
            ),
        ),
        (
            ("paging", "simulate", "swim", "--instructions", "1e6"),
            ("policy 'failing' of package broken is skipped: RuntimeError: not today",),
        ),
    ],
)
def test_a_broken_package_is_named_and_skipped(
    tmp_path: Path, verb: tuple[str, ...], warnings: tuple[str, ...]
) -> None:
    failing = "raise RuntimeError('not today')"
    package(tmp_path, "broken", BROKEN, theirs=MODULE, failing=failing)
    done = vtax(tmp_path, *verb)
    assert done.returncode == 0, done.stderr
    for warning in warnings:
        assert done.stderr.count(f"vtax: {warning}") == 1, done.stderr
    assert "Traceback" not in done.stderr
