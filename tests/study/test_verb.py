"""`vtax study` as users call it."""

from __future__ import annotations

import json
import subprocess
import tomllib
from pathlib import Path

import polars as pl
import pytest
from syrupy.assertion import SnapshotAssertion

import study_data
from command_line import ROOT
from command_line import vtax as whole_command
from vtax.core import plugins
from vtax.core.errors import VtaxError
from vtax.study import verb as study
from vtax_studies.dav2m import STUDY
from vtax_studies.dav2m.setup import FIGURES
from vtax_studies.driver import made
from vtax_studies.files import to_json, write
from vtax_studies.model import StudyOptions


def vtax(*arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    return whole_command("study", *arguments, cwd=folder)


def test_help(snapshot: SnapshotAssertion) -> None:
    done = vtax("--help")
    assert done.returncode == 0
    assert done.stdout == snapshot


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("dav2n",), "unknown study 'dav2n'; did you mean 'dav2m'?"),
        (("dav2m", "--figure", "13"), "study 'dav2m' has no figure '13'; choose of 2, 3, 4"),
    ],
)
def test_misuse_is_one_line(arguments: tuple[str, ...], message: str) -> None:
    done = vtax(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_every_declared_study_is_found() -> None:
    project = tomllib.loads((ROOT / "studies/pyproject.toml").read_text("utf-8"))["project"]
    assert study.installed().keys() >= project["entry-points"]["vtax.studies"].keys()
    for name, found in study.installed().items():
        assert found.name == name


def test_without_studies_one_line_says_how_to_install_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "entry_points", lambda group: ())
    with pytest.raises(VtaxError, match=r"^no study is installed; .*pip install \./studies$"):
        study.study("dav2m")


def test_files_of_a_study(tmp_path: Path) -> None:
    outcome = study_data.outcome()
    write(STUDY, outcome, tmp_path)
    content = json.loads((tmp_path / "study.json").read_text("utf-8"))
    assert [claim["name"] for claim in content["claims"]] == [c.name for c in outcome.claims]
    assert {claim["verdict"] for claim in content["claims"]} <= {
        "holds",
        "does not hold",
        "cannot be judged",
    }
    for name, file in content["files"].items():
        assert pl.read_parquet(tmp_path / file).equals(outcome.frames[name])
    assert "(model)" in (tmp_path / "report.html").read_text("utf-8")
    table = (tmp_path / "claims.md").read_text("utf-8")
    assert all(claim.statement in table for claim in outcome.claims)
    assert "### What each open choice of DAV2M changes" in table


def test_a_folder_that_cannot_be_written_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(VtaxError, match="choose another --out"):
        write(STUDY, study_data.outcome(), tmp_path / "file" / "below")


@pytest.mark.parametrize("figure", FIGURES)
def test_one_figure_says_that_the_rest_is_missing(figure: str) -> None:
    outcome = made(STUDY, study_data.data(), StudyOptions(figure=figure))
    assert [drawn.number for drawn in outcome.figures] in ([figure], ["S"], [])
    assert any(f"--figure {figure}" in caution for caution in outcome.cautions)
    json.loads(to_json(STUDY, outcome))


@pytest.mark.parametrize("figure", FIGURES)
def test_every_figure_has_jobs(figure: str) -> None:
    pytest.importorskip("vtax._native")
    from vtax_studies.dav2m.simulate import planned

    jobs = planned(StudyOptions(figure=figure))
    assert jobs
    assert len({job.name for job in jobs}) == len(jobs)


@pytest.mark.slow
def test_the_whole_study_quickly(tmp_path: Path) -> None:
    pytest.importorskip("vtax._native")
    done = vtax("dav2m", "--quick", "--json", "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert len(content["figures"]) == 12
    assert len(content["tables"]) == 2
    missing = [c["name"] for c in content["claims"] if "not simulated" in c["reason"]]
    assert missing == []
    assert "Traceback" not in done.stderr
    assert (tmp_path / "out" / "report.html").stat().st_size > 1_000_000
