"""Programs that run at any size, and the sizes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tested_machines import OUTCOME
from vtax.core.errors import MisuseError, VtaxError
from vtax.core.formats.exchange import Exchange
from vtax.memory.sized import parse, parse_sizes
from vtax.workloads.base import MachineShape

SHAPE = MachineShape(1, 1 << 30)


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("100-400:100", (100, 200, 300, 400)),
        ("100-350:100", (100, 200, 300)),
        ("7-9", (7, 8, 9)),
        ("64,128,256", (64, 128, 256)),
        ("10,20-40:10,100", (10, 20, 30, 40, 100)),
    ],
)
def test_sizes(text: str, sizes: tuple[int, ...]) -> None:
    assert parse_sizes(text) == sizes


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0-100:10", "at least 1"),
        ("-100,200", "neither a size"),
        ("200,100", "must ascend"),
        ("100,100", "must ascend"),
        ("400-100:100", "has no sizes"),
        ("100-400:0", "has no sizes"),
        ("100", "one size has no cliff"),
        ("1-9999999", "more than 1000"),
        ("", "neither a size"),
        ("1e3", "neither a size"),
    ],
)
def test_sizes_that_cannot_be(text: str, said: str) -> None:
    with pytest.raises(MisuseError, match=said):
        parse_sizes(text)


@given(st.text(max_size=12))
def test_any_text_is_sizes_or_one_error(text: str) -> None:
    try:
        sizes = parse_sizes(text)
    except MisuseError:
        return
    assert list(sizes) == sorted(set(sizes)) and sizes[0] >= 1


def folder(tmp_path: Path, stdout: str) -> Exchange:
    exchange = Exchange(tmp_path, "r")
    exchange.create({"stdout": stdout.encode(), "stderr": b""})
    return exchange


def test_the_driver(tmp_path: Path) -> None:
    program = parse((), ())
    command = program.command(700, SHAPE)
    assert command.argv == ("vtax-dgemm", "--times", "1", "--cold", "--size", "700")
    assert command.environment["OPENBLAS_NUM_THREADS"] == "1"
    printed = folder(tmp_path, json.dumps({"verified": True, "best_gflops": 4.5}))
    assert program.value(OUTCOME, 1.0, printed) == 4500
    assert (program.unit, program.better) == ("Mflop/s", "higher")
    failed = dataclasses.replace(OUTCOME, exit_code=1)
    with pytest.raises(VtaxError, match="exit code 1"):
        program.value(failed, 1.0, printed)


def test_a_command(tmp_path: Path) -> None:
    program = parse(("./p", "--n={size}", "{size}"), ())
    assert program.command(5, SHAPE).argv == ("./p", "--n=5", "5")
    assert program.command(5, SHAPE).in_user_folder
    assert program.value(OUTCOME, 2.5, folder(tmp_path, "")) == 2.5
    assert (program.name, program.unit, program.better) == ("wall_s", "s", "lower")
    assert program.needs() == ("./p",)


def test_a_command_with_a_metric(tmp_path: Path) -> None:
    program = parse(("./p", "{size}"), ("rate:MB/s=([0-9.]+) MB/s",))
    assert (program.name, program.unit, program.better) == ("rate", "MB/s", "higher")
    assert program.value(OUTCOME, 2.5, folder(tmp_path, "at 12.5 MB/s")) == 12.5


def test_a_metric_of_nothing_has_no_logarithm(tmp_path: Path) -> None:
    program = parse(("./p", "{size}"), ("rate:MB/s=([0-9.]+) MB/s",))
    with pytest.raises(VtaxError, match="not above 0"):
        program.value(OUTCOME, 2.5, folder(tmp_path, "at 0 MB/s"))


@pytest.mark.parametrize(
    ("argv", "patterns", "said"),
    [
        (("./p", "100"), (), "no word of the command has {size}"),
        ((), ("a=(b)",), "--metric is for a command"),
        (("./p", "{size}"), ("a=(b)", "c=(d)"), "--metric is given twice"),
    ],
)
def test_programs_that_cannot_be(
    argv: tuple[str, ...], patterns: tuple[str, ...], said: str
) -> None:
    with pytest.raises(MisuseError, match=said):
        parse(argv, patterns)
