"""`vtax tune` as a user calls it: its errors, and short searches in real machines."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from command_line import one_line, vtax
from tested_machines import checked
from vtax.cli.declared import complete_peer
from vtax.formats.model import TuneRecord
from vtax.formats.records import read

QUICK = ("--budget", "3s", "--size", "96", "--rounds", "2", "--no-probe", "--quiet", "--seed", "1")


def test_help(snapshot: SnapshotAssertion) -> None:
    assert vtax("tune", "--help").stdout == snapshot


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("--in", "nativ"), "did you mean 'native'"),
        (("--budget", "soon"), "is not a duration"),
        (("--budget", "10ms"), "it is not from 1s to 12h"),
        (("--budget", "13h"), "it is not from 1s to 12h"),
        (("--margin", "2x"), "is not a percentage"),
        (("--peers", "openblas="), "it is not NAME=LIBRARY"),
        (("--peers", "liblas.so"), "it is not NAME=LIBRARY"),
        (("--peers", "a=/no/such.so"), "there is no file /no/such.so"),
        (("--peers", "blis", "--peers", "blis=b.so"), "blis is given twice"),
        (("--peers", "blis", "--precision", "s"), "timed in double precision"),
        (("--use", "missing.toml"), "No such file"),
        (("--use", "/etc/passwd"), "it is not TOML"),
        (("--use", "a.toml", "--export", "b.toml"), "leave out one"),
        (("--export", "/no/such/folder/blas.toml"), "there is no folder /no/such/folder"),
        (("--share", "/no/such"), "no environment here hides"),
    ],
)
def test_misuse_is_one_line(argv: tuple[str, ...], said: str, tmp_path: Path) -> None:
    assert said in one_line(vtax("tune", *argv, cwd=tmp_path), 2)
    assert list(tmp_path.iterdir()) == []


def test_completion_knows_libraries() -> None:
    assert complete_peer("") == ["openblas", "blis", "atlas", "none"]
    assert complete_peer("b") == ["blis"]


def found(folder: Path, *options: str, code: int = 0) -> dict[str, Any]:
    """What a campaign prints; its record and a report that is made again say the same."""
    runs = folder / "runs"
    done = vtax("tune", *QUICK, "--json", "--out", str(runs), *options,
                environment={"XDG_CACHE_HOME": str(folder / "cache")})  # fmt: skip
    assert done.returncode == code, done.stderr
    answer = json.loads(done.stdout)
    run = max(runs.iterdir())
    record = read(run / "run.json")
    assert isinstance(record, TuneRecord) and record.state == "complete"
    (run / "report.html").unlink()
    again = vtax("report", str(run), "--json")
    assert again.returncode == 0 and json.loads(again.stdout) == answer
    assert (run / "report.html").stat().st_size > 10_000
    assert isinstance(answer, dict)
    return answer


@pytest.mark.slow
def test_native_searches_exports_and_resumes(tmp_path: Path) -> None:
    file = tmp_path / "blas.toml"
    (first,) = found(tmp_path, "--export", str(file))["environments"]
    assert {"VECTOR", "MULADD", "LAT", "NB", "MU", "NU", "KU", "gflops"} <= first["winner"].keys()
    names = {each["name"] for each in first["routines"]}
    assert {"dgemm_nn", "dgemm_tt", "dgemv_n", "dgemv_t", "dger"} <= names
    assert all(each["n"] == 2 for each in first["routines"])
    assert {each["name"] for each in first["peers"]} | first["absent"].keys() == {
        "openblas", "blis", "atlas",
    }  # fmt: skip
    assert tomllib.loads(file.read_text())["double"]["gemm"]["NB"] == first["winner"]["NB"]
    (second,) = found(tmp_path, "--peers", "none")["environments"]
    assert second["resumed"] > 0
    (third,) = found(tmp_path, "--peers", "none", "--use", str(file))["environments"]
    assert third["search_s"] is None and not third["failures"]
    assert {key: third["winner"][key] for key in ("VECTOR", "NB", "MU", "NU")} == {
        key: first["winner"][key] for key in ("VECTOR", "NB", "MU", "NU")
    }


@pytest.mark.slow
def test_native_and_user_mode_linux(tmp_path: Path) -> None:
    spec = "uml:mem=256M"
    checked(spec)
    answer = found(tmp_path, "--in", "native", "--in", spec, "--peers", "none")
    for each in answer["environments"]:
        assert each["winner"]["gflops"] > 0 and not each["failures"]
    assert {(each["here"], each["winner_of"]) for each in answer["transfer"]} == {
        ("native", spec), (spec, "native"),
    }  # fmt: skip
    assert all(each["loss_percent"] is not None for each in answer["transfer"])
    assert {each["kind"] for each in answer["equivalence"]} == {"parameter", "performance"}


@pytest.mark.slow
def test_the_probes_are_asked_first(tmp_path: Path) -> None:
    """Without a search: of parameters that the machine refuses nothing else is left."""
    file = tmp_path / "wrong.toml"
    file.write_text("format = 99\n")
    answer = found(tmp_path, "--probe", "--peers", "none", "--use", str(file), code=1)
    (own,) = answer["environments"]
    assert own["winner"] is None and "--use" in own["failures"][0]
    assert {"l1_size", "vector_registers", "peak_scalar"} <= {
        each["name"] for each in own["probes"]
    }


@pytest.mark.slow
def test_parameters_that_are_refused_are_one_line(tmp_path: Path) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text("format = 99\n")
    done = vtax("tune", *QUICK, "--peers", "none", "--use", str(file), cwd=tmp_path)
    assert "format" in one_line(done, 1)


@pytest.mark.slow
def test_the_sweep_of_cache_edges(tmp_path: Path) -> None:
    sweep = ("--cache-edge", "--edge-size", "128", "--edge-runs", "6", "--peers", "none")
    (own,) = found(tmp_path, *sweep)["environments"]
    assert own["cache_edge"]["size"] == 128 and len(own["cache_edge"]["chosen"]) == 6
    assert len(own["cache_edge"]["points"]) > 3
