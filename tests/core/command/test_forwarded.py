"""Verbs that `vtax-host` carries out: it gets the words as typed, and completes them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from command_line import vtax
from vtax.core import binaries

FORWARDED = (
    ("record",),
    ("paging", "switch"),
    ("paging", "recover"),
    ("paging", "control"),
    ("paging", "watch"),
    ("place", "apply"),
    ("place", "watch"),
)


@pytest.mark.parametrize("verb", FORWARDED)
def test_help_and_mistakes_name_the_verb(verb: tuple[str, ...]) -> None:
    name = " ".join(["vtax", *verb])
    asked = vtax(*verb, "--help")
    assert asked.returncode == 0 and f"Usage: {name} " in asked.stdout, asked.stderr
    wrong = vtax(*verb, "--no-such-option")
    assert wrong.returncode == 2
    assert wrong.stderr.startswith(f"{name}: ") and wrong.stderr.count("\n") == 1
    assert wrong.stderr.rstrip().endswith(f"see {name} --help")


@pytest.mark.parametrize("verb", FORWARDED)
def test_each_is_among_the_verbs_of_its_group(verb: tuple[str, ...]) -> None:
    assert f"\n  {verb[-1]} " in vtax(*verb[:-1], "--help").stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("paging", "switch", "--t"), {"--to"}),
        (("paging", "switch", "--to", ""), {"nested", "shadow", "other"}),
        (("paging", "control", "--policy", "n"), {"nested", "naive"}),
        (("place", "watch", "--bud"), {"--budget"}),
        (("record", "--ev"), {"--every", "--events"}),
        (("record", "--in", "nati"), {"native"}),
        (("record", "--events", "sched.sw"), {"sched.switches"}),
    ],
)
def test_words_are_completed(words: tuple[str, ...], expected: set[str]) -> None:
    line = [sys.executable, "-m", "vtax.main"]
    environment = {
        **os.environ,
        "_VTAX_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(["vtax", *words]),
        "COMP_CWORD": str(len(words)),
    }
    done = subprocess.run(
        line, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    found = {each.rpartition(",")[2] for each in done.stdout.split()}
    assert expected <= found, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        ("vtax-recorder", ("list",), "sched.switches"),
        ("vtax-place", ("backends",), "quota"),
        ("vtax-control", ("run", "--help"), "vtax-host paging control"),
    ],
)
def test_earlier_names_are_known(name: str, words: tuple[str, ...], said: str) -> None:
    done = subprocess.run(
        [name, *words],
        executable=binaries.find("vtax-host"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0 and said in done.stdout, done.stderr
