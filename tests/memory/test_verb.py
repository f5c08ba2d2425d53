"""`vtax memory` as a user calls it: its contract, its errors, and cliffs of real machines."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from syrupy.assertion import SnapshotAssertion

from command_line import one_line, vtax
from tested_machines import checked
from vtax.core.formats.records import read
from vtax.memory.record import MemoryRecord

MIB = 1 << 20
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may limit memory here")


def test_help(snapshot: SnapshotAssertion) -> None:
    assert vtax("memory", "--help").stdout == snapshot


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ((), "no environment is named"),
        (("--in", "native"), "has no memory limit"),
        (("--in", "nativ:mem=64M"), "did you mean 'native'"),
        (("--in", "native:mem=64M", "--sizes", "0-100:10"), "at least 1"),
        (("--in", "native:mem=64M", "--sizes", "-5,10"), "neither a size"),
        (("--in", "native:mem=64M", "--sizes", "300,200"), "must ascend"),
        (("--in", "native:mem=64M", "--sizes", "100,99999"), "up to 46340 rows"),
        (("--in", "native:mem=64M", "--", "sleep", "1"), "no word of the command has {size}"),
        (("--in", "native:mem=64M", "--metric", "a=(b)"), "--metric is for a command"),
        (("--in", "native:swap=64M"), "swap= without mem="),
        (("--in", "native:mem=64M", "--timeout", "soon"), "is not a duration"),
    ],
)
def test_misuse_is_one_line(argv: tuple[str, ...], said: str, tmp_path: Path) -> None:
    assert said in one_line(vtax("memory", *argv, cwd=tmp_path), 2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("--in", "native:mem=900T"), "more than this machine can spare"),
        (("--in", "native:mem=64M", "--", "no-such-program", "{size}"), "not on the PATH"),
    ],
)
def test_what_this_machine_cannot_is_one_line(
    argv: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    assert said in one_line(vtax("memory", *argv, cwd=tmp_path), 1)
    assert list(tmp_path.iterdir()) == []


def found(folder: Path, *options: str) -> dict[str, dict[str, Any]]:
    """The environments of a campaign with the driver, by spec."""
    return commanded(folder, options, ())


def commanded(
    folder: Path, options: Sequence[str], words: Sequence[str], code: int = 0
) -> dict[str, dict[str, Any]]:
    """The environments of a campaign with a command, by spec."""
    fixed = ("--json", "--quiet", "--seed", "1", "--out", str(folder))
    done = vtax("memory", *options, *fixed, *(("--", *words) if words else ()))
    assert done.returncode == code, done.stderr
    answer = json.loads(done.stdout)
    (run,) = folder.iterdir()
    record = read(run / "run.json")
    assert isinstance(record, MemoryRecord) and record.state == "complete"
    assert [each.model_dump(mode="json") for each in record.environments] == answer["environments"]
    (run / "report.html").unlink()
    again = vtax("report", str(run), "--json")
    assert again.returncode == 0 and json.loads(again.stdout) == answer
    assert (run / "report.html").stat().st_size > 10_000
    return {each["spec"]: each for each in answer["environments"]}


def ends(environment: dict[str, Any]) -> list[str]:
    return [point["end"] for point in environment["points"]]


@pytest.mark.slow
@needs_root
@pytest.mark.usefixtures("swap_alone", "first_in_line")
def test_native_with_and_without_swap(tmp_path: Path) -> None:
    """Three matrices of 1200² doubles take 33 MiB, of 2200² doubles 111: the limit of 96 is
    between.

    At 1200 the whole program fits, with its libraries, which may have to be read first (40 MiB). At
    2200 swapping costs a factor of five, which no noise of runs hides. Beside other tests some runs
    would be half as fast as others, and in so much noise a fall may rightly count as none.
    """
    killed, swapping = "native:cpus=1,mem=96M", "native:cpus=1,mem=96M,swap=256M"
    seen = found(
        tmp_path, "--in", killed, "--in", swapping, "--sizes", "800,1200,2200", "--reps", "9"
    )
    assert ends(seen[killed]) == ["ok", "ok", "oom"]
    assert ends(seen[swapping]) == ["ok"] * 3
    for spec in (killed, swapping):
        expected = {"size": 1200, "low": 1200, "high": 2200}
        assert seen[spec]["cliff"] == expected, (spec, seen[spec]["points"])
        assert 24 * 1200**2 < seen[spec]["user_bytes"] < 24 * 1200**2 + 24 * MIB
        assert [point["swap_bytes"] for point in seen[spec]["points"][:2]] == [0, 0]
        assert seen[spec]["kernel_bytes"]["slab"] > MIB
    before, past = seen[swapping]["points"][1:]
    assert past["median"] < before["median"] * 0.8
    assert past["swap_bytes"] > 5 * MIB and past["major_faults"] > 100
    # What is resident does not grow past the limit; files' pages may be charged to others.
    assert past["max_rss_bytes"] < 96 * MIB + 16 * MIB
    (run,) = tmp_path.iterdir()
    samples = pl.read_parquet(run / "samples.parquet")
    values = samples.filter(pl.col("metric") == "dgemm")
    assert values.group_by("environment").len().sort("len")["len"].to_list() == [18, 27]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "past", "end"), [("uml:mem=192M", 3200, "oom"), ("uml:mem=192M,swap=128M", 3000, "ok")]
)
def test_user_mode_linux_kills_and_swaps(spec: str, past: int, end: str, tmp_path: Path) -> None:
    """The guest has memory for what OpenBLAS maps for packing, 128 MiB on some CPUs: otherwise
    OpenBLAS tries for ever.

    Without swap the size is far past the edge: close to it the guest reads its own code over and
    over. With swap the fall is a factor of seven.
    """
    checked(spec)
    seen = found(tmp_path, "--in", spec, "--sizes", f"1200,1500,{past}", "--reps", "1")[spec]
    assert ends(seen) == ["ok", "ok", end]
    assert seen["cliff"] == {"size": 1500, "low": 1500, "high": past}
    assert 5 * MIB < seen["kernel_bytes"]["reserved at boot"] < 48 * MIB
    assert seen["points"][1]["swap_bytes"] == 0
    if end == "ok":
        assert seen["points"][2]["swap_bytes"] > MIB


@pytest.mark.slow
@needs_root
def test_a_command_takes_the_drivers_place(tmp_path: Path) -> None:
    """The command is killed at its smallest size already; the campaign goes on and says so."""
    program = "import sys; x = bytearray(b'x') * (int(sys.argv[1]) << 20); print(len(x))"
    spec = "native:cpus=1,mem=64M"
    words = ("python3", "-c", program, "{size}")
    sizes = ("--sizes", "10,20,100", "--reps", "2")
    seen = commanded(tmp_path / "a", ("--in", spec, *sizes), words)[spec]
    assert ends(seen) == ["ok", "ok", "oom"]
    assert seen["cliff"]["size"] == 20 and seen["points"][0]["unit"] == "s"
    assert 20 * MIB < seen["user_bytes"] < 64 * MIB
    small = ("--in", spec, "--sizes", "100,200", "--reps", "1", "--out", str(tmp_path / "b"))
    done = vtax("memory", *small, "--quiet", "--", "python3", "-c", program, "{size}")
    assert done.returncode == 0, done.stderr
    assert "below the program's need at the smallest size" in done.stdout


@pytest.mark.slow
@needs_root
def test_the_working_set_is_less_than_the_memory_of_a_program(tmp_path: Path) -> None:
    """The program fills 120 MiB, then goes over a part of it for six seconds."""
    program = (
        "import sys, time; x = bytearray(b'x') * (120 << 20); end = time.time() + 6\n"
        "while time.time() < end: x[: int(sys.argv[1]) << 20] = bytes(int(sys.argv[1]) << 20)"
    )
    spec = "native:mem=512M"
    options = ("--in", spec, "--sizes", "5,20", "--reps", "1", "--working-set")
    words = ("python3", "-c", program, "{size}")
    few, more = commanded(tmp_path, options, words)[spec]["points"]
    for point, used in ((few, 5), (more, 20)):
        assert used * MIB < point["working_set_bytes"] < 100 * MIB
        assert point["max_rss_bytes"] > 120 * MIB
    assert more["working_set_bytes"] - few["working_set_bytes"] > 10 * MIB


@pytest.mark.slow
@needs_root
def test_what_fails_for_its_own_reasons_is_no_cliff(tmp_path: Path) -> None:
    program = "import sys; sys.exit(int(sys.argv[1]) > 1)"
    spec = "native:cpus=1,mem=64M"
    words = ("python3", "-c", program, "{size}")
    seen = commanded(tmp_path, ("--in", spec, "--sizes", "1,2", "--reps", "1"), words, 1)[spec]
    assert ends(seen) == ["ok", "failed"] and seen["cliff"] is None
    assert "exit code 1" in seen["points"][1]["message"]
