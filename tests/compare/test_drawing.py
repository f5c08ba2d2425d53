"""`--param NAME=random:...`: each round draws a value, the same for all of it."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from command_line import one_line, vtax
from mock_machines import World
from vtax.compare.analysis import compare
from vtax.compare.campaign import ComparisonCampaign
from vtax.compare.drawing import MOST, Drawn, parse
from vtax.compare.page import page
from vtax.compare.verb import CompareOptions, request_of
from vtax.core.errors import MisuseError
from vtax.core.formats.folder import SPEC, RunFolder, load
from vtax.core.runner.runner import Listener
from vtax.workloads.dgemm import Dgemm

SEED = "seed=random:1..1000000"


@given(st.integers(-50, 50), st.integers(1, 60), st.integers(0, 2**32), st.integers(0, 200))
def test_every_value_comes_once_before_any_comes_again(
    low: int, more: int, seed: int, first: int
) -> None:
    (drawn,) = parse([f"n=random:{low}..{low + more}"], ["prog", "{n}"], [])
    count = more + 1
    start = first - first % count
    values = [drawn.value(seed, start + number) for number in range(count)]
    assert sorted(map(int, values)) == list(range(low, low + more + 1))
    listed = ",".join(str(low + each) for each in range(count))
    (other,) = parse([f"n=random:{listed}"], ["prog", "{n}"], [])
    assert [other.value(seed, start + number) for number in range(count)] == values


@given(st.integers(0, 2**32), st.lists(st.integers(0, 3 * MOST), min_size=1, max_size=5))
def test_a_round_draws_the_same_whatever_was_drawn_before(seed: int, rounds: list[int]) -> None:
    drawn = Drawn("n", "", range(10**15))
    alone = {number: drawn.value(seed, number) for number in rounds}
    random.Random(0).shuffle(rounds)
    assert {number: drawn.value(seed, number) for number in rounds} == alone
    assert len(set(alone.values())) == len(set(rounds))


def test_draws_depend_on_seed_and_name() -> None:
    def first(name: str, seed: int) -> list[str]:
        return [Drawn(name, "", range(10**9)).value(seed, number) for number in range(5)]

    assert first("a", 1) == first("a", 1)
    assert len({*first("a", 1), *first("a", 2), *first("b", 1)}) == 15


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("n=random:", "it is not random:FIRST..LAST or random:VALUE,VALUE"),
        ("n=random:5", "it is not random:FIRST..LAST"),
        ("n=random:5..5", "it is not random:FIRST..LAST"),
        ("n=random:5..4", "it is not random:FIRST..LAST"),
        ("n=random:a,,b", "it is not random:FIRST..LAST"),
        ("n=random:a,a", "a value is given twice"),
        ("1=random:a,b", "it is not NAME=VALUE,VALUE"),
        ("m=random:1..2", r"no word of the command has \{m\}"),
        ("prog=random:a,b", "the program cannot be drawn"),
        ("spec=random:a,b", "an environment cannot be drawn"),
    ],
)
def test_what_cannot_be_drawn_is_one_error(text: str, problem: str) -> None:
    with pytest.raises(MisuseError, match=problem):
        parse([text], ["{prog}", "{n}", "{spec}"], ["uml:mem={spec}"])


def test_a_name_is_drawn_or_takes_turns() -> None:
    with pytest.raises(MisuseError, match="n is given twice"):
        parse(["n=random:1..2", "n=1,2"], ["prog", "{n}"], [])


def campaign(tmp_path: Path, *params: str, **more: Any) -> ComparisonCampaign:
    words = more.pop("words", ["sh", "-c", "exit 0 # {seed}"])
    settings = {"environments": ["native"], "repetitions": 4, "seed": 5, **more}
    request = request_of(CompareOptions(words, param=list(params), **settings))
    return ComparisonCampaign(
        request, RunFolder.create(tmp_path, "drawn"), Listener(), World().start
    )


def rounds(path: Path) -> Mapping[int, str]:
    """What each round drew, where all its samples say the same."""
    table = pl.read_parquet(path / "samples.parquet")
    found = table.group_by("round").agg(pl.col("drawn").unique())
    assert all(len(each) == 1 for each in found["drawn"])
    return dict(zip(found["round"], (each[0] for each in found["drawn"]), strict=True))


def test_all_environments_of_a_round_draw_the_same(tmp_path: Path) -> None:
    made = campaign(tmp_path, SEED)
    record = made.carry_out()
    found = rounds(made.folder.path)
    assert len(set(found.values())) == 4
    drawing = made.request.drawing
    assert drawing is not None
    assert found == {n: f"seed={drawing.values(n)['seed']}" for n in range(4)}
    assert record.drawn == {"seed": "1..1000000"}
    assert record.name == "sh -c exit 0 # {seed}"
    assert record.workload_parameters["words"] == ["sh", "-c", "exit 0 # {seed}"]
    kept, samples = load(made.folder.path)
    assert (kept, samples) == (record, made.samples)
    facts = dict(page(compare(record, samples, "run"), samples).settings)
    assert facts["seed, drawn in each round"] == "1..1000000"


def test_more_rounds_begin_with_the_same_draws(tmp_path: Path) -> None:
    few = campaign(tmp_path, SEED)
    few.carry_out()
    many = campaign(tmp_path, SEED, repetitions=2, until="0.0001%", environments=["native:cpus=1"])
    many.carry_out()
    first, more = rounds(few.folder.path), rounds(many.folder.path)
    assert set(more) > set(range(2)), "--until added rounds"
    assert all(first[number] == more[number] for number in first.keys() & more.keys())


def test_a_drawn_option_of_a_built_in_workload_is_read_as_such(tmp_path: Path) -> None:
    words = ["dgemm", "--size", "{n}"]
    request = campaign(tmp_path, "n=random:100,200,300", words=words).request
    assert request.drawing is not None
    sizes = [request.workload_of(number) for number in range(3)]
    assert {each.size for each in sizes if isinstance(each, Dgemm)} == {100, 200, 300}
    for number, each in enumerate(sizes):
        assert isinstance(each, Dgemm)
        assert str(each.size) in request.command_of(number).argv
    with pytest.raises(MisuseError, match="size"):
        campaign(tmp_path, "n=random:a,b", words=words)


def test_a_run_repeats_its_draws_by_its_spec_file(tmp_path: Path) -> None:
    words = ("sh", "-c", "echo {seed} {file}")
    done = vtax(
        "compare", "--in", "native", "--reps", "3", "--quiet", "--json", "--no-warm-up",
        "--param", SEED, "--param", "file=random:a,b,c", "--out", str(tmp_path / "a"),
        "--", *words,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (one,) = (tmp_path / "a").iterdir()
    drawn = rounds(one)
    for label in ("native", "native-aa"):
        for number, text in drawn.items():
            seed, file = (each.partition("=")[2] for each in text.split(", "))
            printed = (one / "raw" / label / f"r{number:03d}/stdout").read_text()
            assert printed == f"{seed} {file}\n", "the program got it"
    assert {text.partition("file=")[2] for text in drawn.values()} == {"a", "b", "c"}
    again = vtax(
        "compare", "--spec", str(one / SPEC), "--reps", "5", "--quiet", "--json",
        "--out", str(tmp_path / "b"),
    )  # fmt: skip
    assert again.returncode == 0, again.stderr
    (other,) = (tmp_path / "b").iterdir()
    assert drawn.items() <= rounds(other).items()
    assert json.loads((other / "run.json").read_text())["drawn"] == {
        "seed": "1..1000000",
        "file": "a,b,c",
    }
    assert "--param is for vtax compare" in one_line(vtax("explain", str(one)), 2)
