"""One type of record per verb: each is read as it was written, and another version is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

import memory_data
import place_data
import study_data
from record_data import RECORD_OF_ONE, RECORDING
from vtax.core.errors import MisuseError, VtaxError
from vtax.core.formats import records
from vtax.core.formats.folder import RECORD as RUN
from vtax.core.formats.folder import read_record
from vtax.core.formats.study import StudyRecord
from vtax.paging.sweep.folder import RECORD as SWEEP
from vtax.paging.sweep.folder import SweepFolder
from vtax.paging.sweep.record import FailedPoint, SweepRecord
from vtax_studies.dav2m import STUDY
from vtax_studies.files import RECORD as STUDIED
from vtax_studies.files import to_json

SWEPT = SweepRecord(
    vtax="0",
    state="complete",
    command_line=(),
    started="2026-01-01T00:00:00+00:00",
    written="2026-01-01T00:00:01+00:00",
    name="a sweep",
    study="",
    axes={"seed": (1, 2), "host_page": ("4K", "2M"), "exit.scale": (0.5, 1.0)},
    modes=("native",),
    seed=None,
    machines={"toy": {"clock_hz": 1e9}},
    traces={},
    points=8,
    finished=8,
    failed=(FailedPoint(point="1", label="one", error="no"),),
    scheduler=None,
    workers=2,
    versions={},
    columns={},
)
FILES = {
    RUN: RECORD_OF_ONE,
    "memory.json": memory_data.record(),
    "place.json": place_data.record(),
    "recording.json": RECORDING,
    SWEEP: SWEPT,
}


def study(path: Path) -> dict[str, Any]:
    """A study's record, as `vtax study --json` prints it, and the same in a file."""
    path.write_text(to_json(STUDY, study_data.outcome()))
    content = json.loads(path.read_text())
    assert isinstance(content, dict)
    return content


@pytest.mark.parametrize("name", FILES)
def test_a_record_comes_back_as_its_own_type(tmp_path: Path, name: str) -> None:
    records.write(tmp_path / name, FILES[name])
    assert records.read(tmp_path / name) == FILES[name]


def test_a_run_with_the_error_of_a_queueing_model_is_read(tmp_path: Path) -> None:
    record = place_data.record()
    content = json.loads(records.text(record))
    content["loads"][0]["simulation"] = {"n": 4, "mean_model_error_percent": 3.0}
    (tmp_path / RUN).write_text(json.dumps(content))
    assert records.read(tmp_path / RUN) == record


def test_a_study_comes_back_with_the_names_of_its_file(tmp_path: Path) -> None:
    content = study(tmp_path / STUDIED)
    assert content["schema"] == 1 and "schema_version" not in content
    found = records.read(tmp_path / STUDIED)
    assert isinstance(found, StudyRecord)
    assert [claim.stated for claim in found.claims] == [each["seed"] for each in content["claims"]]
    assert json.loads(records.text(found)) == content


@pytest.mark.parametrize("name", [*FILES, STUDIED])
def test_another_version_is_refused_by_name(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    content = study(file) if name == STUDIED else json.loads(records.text(FILES[name]))
    key = "schema" if name == STUDIED else "schema_version"
    known = content[key]
    file.write_text(json.dumps(content | {key: known + 1}))
    expected = f"{name} has schema version {known + 1}; this vtax reads {known}"
    with pytest.raises(MisuseError, match=expected):
        records.read(file)


@pytest.mark.parametrize("verb", ["ruin", None])
def test_an_unknown_verb_is_refused_by_name(tmp_path: Path, verb: str | None) -> None:
    file = tmp_path / SWEEP
    file.write_text(json.dumps(json.loads(records.text(SWEPT)) | {"verb": verb}))
    with pytest.raises(MisuseError, match=f"the verb {verb!r}; this vtax reads 'compare', "):
        records.read(file)


@pytest.mark.parametrize(
    ("change", "where"),
    [({"points": -1}, "points"), ({"surprise": 1}, "surprise"), ({"axes": [1]}, "axes")],
)
def test_a_damaged_sweep_names_the_field(
    tmp_path: Path, change: dict[str, object], where: str
) -> None:
    (tmp_path / SWEEP).write_text(json.dumps(json.loads(records.text(SWEPT)) | change))
    with pytest.raises(VtaxError, match=rf"sweep\.json is damaged: .*{where}"):
        SweepFolder(tmp_path).read_record()


def test_a_record_of_another_verb_is_not_taken_for_ones_own(tmp_path: Path) -> None:
    records.write(tmp_path / RUN, SWEPT)
    with pytest.raises(VtaxError, match="of 'vtax paging sweep'"):
        read_record(tmp_path)
    records.write(tmp_path / SWEEP, RECORD_OF_ONE)
    with pytest.raises(VtaxError, match="of 'vtax compare'"):
        SweepFolder(tmp_path).read_record()
