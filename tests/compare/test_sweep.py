"""`vtax compare --param`: combinations of values in one run, and where an environment falls."""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from subprocess import DEVNULL
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from command_line import SOURCE, command, one_line, vtax
from mock_machines import World
from process_watch import eventually
from tested_machines import checked
from vtax.compare.sweep import cliff
from vtax.compare.sweep.analysis import again, analysed, cliffs
from vtax.compare.sweep.campaign import SweepCampaign
from vtax.compare.sweep.cliff import Level
from vtax.compare.sweep.page import page
from vtax.compare.sweep.parameters import combinations, filled, parse, require_used, said
from vtax.compare.sweep.record import (
    ComparisonSweepRecord,
    SweepCliff,
    SweepPoint,
    SweepResult,
)
from vtax.compare.sweep.request import sweep_of
from vtax.compare.verb import CompareOptions, Reboot
from vtax.core.errors import MisuseError, VtaxError
from vtax.core.formats.folder import SPEC, RunFolder
from vtax.core.formats.records import read
from vtax.core.page.render_terminal import parts
from vtax.core.page.tables import plain
from vtax.core.runner.runner import Listener
from vtax.core.statistics.results import Verdict

MANY = f"n={','.join(str(200 + n) for n in range(17))}"
NAMES = st.from_regex(r"[a-z][a-z0-9_-]{0,5}", fullmatch=True)
VALUES = st.lists(
    st.text(st.characters(codec="ascii", exclude_characters=",\n"), min_size=1, max_size=4),
    min_size=1, max_size=4, unique=True,
)  # fmt: skip


@given(st.dictionaries(NAMES, VALUES, min_size=1, max_size=3))
def test_every_combination_is_there_once(asked: dict[str, list[str]]) -> None:
    found = combinations(parse([f"{name}={','.join(values)}" for name, values in asked.items()]))
    assert [tuple(each.values()) for each in found] == list(itertools.product(*asked.values()))
    assert all(list(each) == list(asked) for each in found)
    words = [f"--{name}={{{name}}}" for name in asked]
    for each in found:
        assert filled(words, each) == tuple(f"--{name}={value}" for name, value in each.items())


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        (["threads"], "it is not NAME=VALUE,VALUE"),
        (["=1"], "it is not NAME=VALUE,VALUE"),
        (["a b=1"], "it is not NAME=VALUE,VALUE"),
        (["n=1,,2"], "it is not NAME=VALUE,VALUE"),
        (["n="], "it is not NAME=VALUE,VALUE"),
        (["n=1,1"], "a value is given twice"),
        (["n=1", "n=2"], "n is given twice"),
        ([f"{name}={','.join(map(str, range(40)))}" for name in "ab"], "1600 combinations"),
    ],
)
def test_what_is_no_parameter_is_one_error(texts: list[str], problem: str) -> None:
    with pytest.raises(MisuseError, match=problem):
        parse(texts)


def test_a_value_is_text_and_no_placeholder() -> None:
    assert filled(["{a}{b}", "{c}"], {"a": "{b}", "b": "1"}) == ("{b}1", "{c}")
    with pytest.raises(MisuseError, match=r"no word of the command has \{n\}"):
        require_used(["n"], ["prog", "n"])
    assert said({"a": "1", "b": "x"}) == "a=1, b=x"


def falls(values: Sequence[tuple[float, float]]) -> list[int]:
    """Where all that follows lies below nine tenths, tried one by one."""
    return [
        at for at in range(len(values) - 1)
        if values[at][0] > 0 and all(high < 0.9 * values[at][0] for _, high in values[at + 1 :])
    ]  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 120), st.integers(0, 15)), min_size=1, max_size=8))
def test_a_cliff_is_a_fall_that_lasts(given_levels: list[tuple[int, int]]) -> None:
    levels = [(float(low), float(low + wide)) for low, wide in given_levels]
    found = cliff.past([Level(10.0 * at, *each) for at, each in enumerate(levels)][::-1])
    possible = falls(levels)
    assert (found is None) == (not possible)
    if found is not None:
        at = round(found / 10)
        assert at in possible
        depth = {n: max(high for _, high in levels[n + 1 :]) / levels[n][0] for n in possible}
        assert depth[at] == min(depth.values())


def test_a_known_cliff() -> None:
    levels = [Level(1, 97, 99), Level(2, 96, 98), Level(4, 48, 52), Level(8, 45, 49)]
    assert cliff.past(levels) == 2
    assert cliff.past([Level(1, 97, 99), Level(2, 40, 50), Level(4, 95, 99)]) is None
    assert cliff.past([Level(1, 50, 150), Level(2, 40, 60)]) is None, "the interval allows both"


def campaign(
    tmp_path: Path,
    world: World,
    *params: str,
    reps: int = 3,
    words: Sequence[str] = ("sh", "-c", "exit 0 # {n}"),
    specs: Sequence[str] = ("native",),
    **more: Any,
) -> SweepCampaign:
    options = CompareOptions(
        list(words),
        environments=list(specs),
        repetitions=reps,
        seed=5,
        param=list(params),
        warm_up=True,
        **more,
    )
    folder = RunFolder.create(tmp_path, "sweep")
    return SweepCampaign(sweep_of(options), folder, Listener(), world.start)


def test_each_round_has_every_combination_and_environments_side_by_side(tmp_path: Path) -> None:
    world = World()
    made = campaign(tmp_path, world, "n=1,2,3")
    record = made.run()
    assert record.state == "complete" and world.alive == 0
    assert record.cliffs == (), "neither a baseline nor its control is compared"
    runs = [line.split() for line in world.story if "-r0" in line]
    points = [name.partition("-")[0] for _, name in runs]
    assert len(runs) == 3 * 2 * 3, "three rounds, native and its control, three values"
    assert points[::2] == points[1::2], "the two environments of a combination are neighbours"
    for at in range(0, 18, 6):
        assert sorted(set(points[at : at + 6])) == ["p0", "p1", "p2"]
    assert len({tuple(points[at : at + 6]) for at in range(0, 18, 6)}) > 1, "in a random order"
    # One machine for each environment, whatever the number of combinations.
    assert sum(line.startswith("start ") for line in world.story) == 2
    assert sum("warm-up" in line for line in world.story) == 2


def test_samples_say_which_combination_they_are_of(tmp_path: Path) -> None:
    made = campaign(tmp_path, World(), "n=1,2")
    record = made.carry_out()
    samples = pl.read_parquet(made.folder.path / "samples.parquet")
    assert set(samples["workload"]) == {"command n=1", "command n=2"}
    wall = samples.filter(metric="wall_s")
    assert wall.group_by("workload", "environment").len()["len"].to_list() == [3] * 4
    assert read(made.folder.path / "run.json") == record
    assert [point.values for point in record.points] == [{"n": "1"}, {"n": "2"}]
    for point in record.points:
        (native,) = [
            each
            for each in point.results
            if (each.environment, each.metric) == ("native", "wall_s")
        ]
        assert native.n == 3 and native.verdict is Verdict.BASELINE
        own = wall.filter(workload=point.workload, environment="native")["value"]
        assert native.median == pytest.approx(own.median())


def test_a_combination_that_fails_leaves_the_others(tmp_path: Path) -> None:
    def fails(label: str, run: int) -> None:
        if run == 2:
            raise VtaxError("it broke")

    made = campaign(tmp_path, World(fails), "n=1,2")
    record = made.carry_out()
    assert len(made.failures) == 2 and all("it broke" in each for each in made.failures)
    assert sum(len(point.failures) for point in record.points) == 2
    assert all(point.results for point in record.points)


def test_what_a_sweep_cannot_do_is_one_error() -> None:
    with pytest.raises(MisuseError, match="leave out --param"):
        sweep_of(CompareOptions(["{n}"], param=["n=1"], audit=True))
    with pytest.raises(MisuseError, match=r"no word of the command has \{m\}"):
        sweep_of(CompareOptions(["sh", "{n}"], param=["m=1"]))


def test_each_combination_has_its_machines_and_shares_those_of_the_same_text(
    tmp_path: Path,
) -> None:
    world = World()
    made = campaign(tmp_path, world, "mem=1G,2G", "n=1,2", specs=["uml:mem={mem}", "uml:mem=3G"])
    record = made.run()
    assert record.state == "complete" and world.alive == 0
    started = sorted(line for line in world.story if line.startswith("start "))
    assert len(started) == len(set(started)) == len(record.environments)
    labels = {each.label: each for each in record.environments}
    own = {label for label in labels if label.startswith("uml")}
    assert own == {"uml:mem=1G", "uml:mem=2G", "uml:mem=3G"}
    for point in record.points:
        mem = point.values["mem"]
        guest = labels[f"uml:mem={mem}"]
        assert f"mem={mem}" in (guest.baseline or "")
        assert point.environments[guest.label] == "uml:mem={mem}"
        assert point.environments[guest.baseline or ""] == "baseline of uml:mem={mem}"
        assert point.environments[f"{guest.baseline}#aa"] == "baseline of uml:mem={mem}#aa"
        assert point.environments["uml:mem=3G"] == "uml:mem=3G", "all have it"
        assert {each.environment for each in point.results} == set(point.environments)
        assert len(point.environments) == 6
    text = plain(*parts(page(record)))
    assert "uml:mem={mem}" in text and "not measured" not in text
    assert "uml:mem=1G" not in text, "the column mem says it"


def test_cliffs_are_along_the_environments_parameter(tmp_path: Path) -> None:
    numbers = campaign(
        tmp_path, World(), "c=1,2", specs=["native:cpus={c}"], words=["true"], baseline="native"
    ).run()
    (one,) = numbers.cliffs
    assert one.environment == "native:cpus={c}" and one.past is None


@pytest.mark.parametrize(
    ("specs", "params", "problem"),
    [
        (["{n}", "{b}"], ["n=native,uml", "b=native,uml"], "'native' is given twice"),
        (["uml:mem={n}M"], [MANY], "51 machines would be up at once, more than 32"),
        (["uml:mem={m}"], ["m=random:1G,2G", "n=1,2"], "an environment cannot be drawn"),
        (["uml:mem={n}"], ["n=1,2"], "mem=1 is too small to boot"),
    ],
)
def test_machines_that_cannot_be(
    tmp_path: Path, specs: Sequence[str], params: Sequence[str], problem: str
) -> None:
    with pytest.raises(MisuseError, match=problem):
        campaign(tmp_path, World(), *params, specs=specs)


def test_many_machines_may_take_turns(tmp_path: Path) -> None:
    made = campaign(tmp_path, World(), MANY, specs=["uml:mem={n}M"], reboot=Reboot.EACH)
    assert len(made.request.points) == 17


def test_a_machine_has_one_part_in_all_combinations(tmp_path: Path) -> None:
    said = "'uml' is compared with 'native' at a=native, compared with 'native:cpus=1' at a="
    with pytest.raises(MisuseError, match=said):
        campaign(
            tmp_path, World(), "a=native,native:cpus=1",
            specs=["{a}", "uml"], words=["true"], baseline="none",
        )  # fmt: skip


def test_rounds_of_all_combinations_draw_the_same(tmp_path: Path) -> None:
    words = ["sh", "-c", "exit 0 # {n} {seed}"]
    made = campaign(tmp_path, World(), "n=1,{seed}", "seed=random:1..1000000", words=words, reps=4)
    record = made.carry_out()
    assert record.drawn == {"seed": "1..1000000"} and list(record.parameters) == ["n"]
    drawn = pl.read_parquet(made.folder.path / "samples.parquet")
    by_round = drawn.group_by("round").agg(pl.col("drawn").unique())
    assert all(len(each) == 1 for each in by_round["drawn"])
    assert len({each[0] for each in by_round["drawn"]}) == 4
    command = made.request.points[1].request.command_of(0).argv[-1]
    assert command.startswith("exit 0 # {seed} "), "a value is no placeholder"


def test_the_samples_say_again_what_the_run_said(tmp_path: Path) -> None:
    made = campaign(
        tmp_path, World(), "c=1,2", "n=1,2", specs=["native:cpus={c}"], baseline="native", reps=4
    )
    record = made.carry_out()
    saved = record.model_copy(
        update={"points": tuple(p.model_copy(update={"results": ()}) for p in record.points)}
    )
    assert analysed(saved, made.samples) == record
    # As if the run still went on: its folder is claimed.
    path = made.folder.path
    (path / "samples.parquet").unlink()
    made.folder.append(made.samples)
    made.folder.write_record(saved)
    assert again(path, saved) == record
    assert read(path / "run.json") == saved and (path / "samples.jsonl").exists()
    made.folder.release()
    assert again(path, saved) == record
    assert read(path / "run.json") == record and not (path / "samples.jsonl").exists()


def test_a_report_takes_the_journal_of_its_own_run_only(tmp_path: Path) -> None:
    made = campaign(tmp_path, World(), "n=1,2")
    record = made.carry_out()
    path = made.folder.path
    assert again(path, record) == record, "it ended: nothing is read"
    (path / "samples.parquet").unlink()
    for change in ({"run_id": "other"}, {"workload": "command n=3"}, {"environment": "uml"}):
        (path / "samples.jsonl").unlink(missing_ok=True)
        made.folder.append([replace(made.samples[0], **change)])
        with pytest.raises(VtaxError, match="is not of this run"):
            again(path, record)
    (path / "samples.jsonl").unlink()
    made.folder.append([made.samples[0]] * 2)
    with pytest.raises(VtaxError, match="it is there twice"):
        again(path, record)


def result(label: str, percent: float | None, median: float = 2.0) -> SweepResult:
    low, high = (None, None) if percent is None else (percent - 1, percent + 1)
    return SweepResult(
        environment=label, metric="wall_s", unit="s", better="lower", n=5, median=median,
        median_low=None, median_high=None, percent_of_baseline=percent, ci_low=low, ci_high=high,
        verdict=Verdict.BASELINE if percent is None else Verdict.SLOWER,
    )  # fmt: skip


@pytest.fixture
def record(tmp_path: Path) -> ComparisonSweepRecord:
    """Four sizes, of which the last two are slow in one environment."""
    made = campaign(tmp_path, World(), "n=1,2,4,8", reps=1).run()
    native, control = made.environments
    guest = native.model_copy(
        update={"label": "uml", "role": "measured", "baseline": "native", "description": "a guest"}
    )
    points = tuple(
        SweepPoint(
            values={"n": value},
            workload=f"command n={value}",
            environments={"native": "native", "native#aa": "native#aa", "uml": "uml"},
            results=(result("native", None), result("uml", percent)),
            failures=("uml: <b>it broke</b>",) if value == "8" else (),
        )
        for value, percent in zip(("1", "2", "4", "8"), (97.0, 96.0, 50.0, 45.0), strict=True)
    )
    machines = (native, guest, control)
    own = cliffs(parse(["n=1,2,4,8"]), points, "wall_s", machines)
    assert own == (SweepCliff(environment="uml", metric="wall_s", past=2.0),)
    assert cliffs(parse(["n=a,b,c,nan"]), points, "wall_s", machines) == (), "no numbers"
    assert cliffs(parse(["n=1,2", "m=1,2"]), points, "wall_s", machines) == (), "no one axis"
    fixed = {"started_utc": "2026-11-29T12:00:00+00:00", "finished_utc": None}
    return made.model_copy(
        update={
            "environments": machines, "points": points, "cliffs": own, **fixed,
        }
    )  # fmt: skip


def test_the_page(record: ComparisonSweepRecord, snapshot: SnapshotAssertion) -> None:
    assert plain(*parts(page(record))) == snapshot


def test_it_runs_again_from_its_folder(tmp_path: Path) -> None:
    line = ("--in", "native", "--reps", "2", "--no-control", "--no-warm-up", "--quiet", "--json")
    words = ("sh", "-c", "sleep 0.0{n}")
    done = vtax("compare", *line, "--param", "n=1,3", "--out", str(tmp_path), "--", *words)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    lead = [
        next(each["median"] for each in point["results"] if each["metric"] == "wall_s")
        for point in found["points"]
    ]
    assert lead[0] > 0.01 and lead[1] > 0.03, "each has its own value"
    (one,) = tmp_path.iterdir()
    assert (one / "report.html").stat().st_size > 10_000
    again = vtax("compare", "--spec", str(one / SPEC), "--out", str(tmp_path / "b"), "--quiet")
    assert again.returncode == 0, again.stderr
    (other,) = (tmp_path / "b").iterdir()
    first, second = read(one / "run.json"), read(other / "run.json")
    assert isinstance(first, ComparisonSweepRecord) and isinstance(second, ComparisonSweepRecord)
    assert (first.seed, first.parameters) == (second.seed, second.parameters)
    shown = vtax("report", str(one))
    assert shown.returncode == 0 and "2 combinations of n, 2 repetitions each" in shown.stdout
    assert "--param is for vtax compare" in one_line(
        vtax("explain", "--param", "n=1", "--", "sh", "{n}"), 2
    )


def test_kill_9_in_the_middle_of_a_sweep_loses_no_sample(tmp_path: Path) -> None:
    """It is killed long before the record is saved again."""
    line = command(
        "compare", "--in", "native", "--reps", "1000", "--no-control", "--quiet",
        "--param", "n=1,2",
        "--param", "seed=random:1..1000000", "--out", str(tmp_path), "--",
        "sh", "-c", "sleep 0.0{n} # {seed}",
    )  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    process = subprocess.Popen(line, env=environment, stdout=DEVNULL, stderr=DEVNULL)

    def lines() -> int:
        return sum(each.read_text().count("\n") for each in tmp_path.glob("*/samples.jsonl"))

    try:
        assert eventually(lambda: lines() >= 20 or process.poll() is not None)
    finally:
        process.kill()
        process.wait()
    (folder,) = tmp_path.iterdir()
    # The last line may be cut short.
    written = [json.loads(each) for each in (folder / "samples.jsonl").open() if each[-1:] == "\n"]
    assert len(written) >= 20
    saved = read(folder / "run.json")
    assert isinstance(saved, ComparisonSweepRecord) and saved.state == "running"
    shown = vtax("report", str(folder), "--json")
    assert shown.returncode == 0, shown.stderr
    found = json.loads(shown.stdout)
    for point in found["points"]:
        (wall,) = (each for each in point["results"] if each["metric"] == "wall_s")
        said = f"command n={point['values']['n']}"
        values = [
            each["value"]
            for each in written
            if (each["workload"], each["metric"]) == (said, "wall_s")
        ]
        assert wall["n"] == len(values) > 0
        assert wall["median"] == pytest.approx(statistics.median(values))
    table = pl.read_parquet(folder / "samples.parquet")
    assert table.sort("position", "metric").to_dicts() == sorted(
        written, key=lambda each: (each["position"], each["metric"])
    )
    assert not (folder / "samples.jsonl").exists()
    again_shown = vtax("report", str(folder))
    assert "vtax was killed, or still runs" in " ".join(again_shown.stdout.split())
    assert json.loads(vtax("report", str(folder), "--json").stdout) == found


@pytest.mark.slow
def test_each_guest_has_the_memory_of_its_combination(tmp_path: Path) -> None:
    spec = "uml:mem={mem}"
    checked(spec.format(mem="128M"))
    done = vtax(
        "compare", "--in", spec, "--param", "mem=128M,256M", "--reps", "2", "--quiet", "--json",
        "--out", str(tmp_path), "--", "grep", "MemTotal", "/proc/meminfo",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (folder,) = tmp_path.iterdir()
    for point in json.loads(done.stdout)["points"]:
        mem = point["values"]["mem"]
        assert point["environments"][f"uml:mem={mem}"] == spec
        (printed,) = {
            int(each.read_text().split()[1]) for each in folder.glob(f"raw/uml-mem-{mem}/p*/stdout")
        }
        whole = int(mem.removesuffix("M")) << 10
        assert 0.75 * whole < printed <= whole
