"""Finding the predictor of a run of `vtax place measure`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from place_data import record
from place_hosts import predictor
from vtax.core.errors import MisuseError, VtaxError
from vtax.core.formats import records
from vtax.place import hypothesis
from vtax.place.predictors import find, like, shipped
from vtax.place.sensitivity import Sensitivity


def run(runs: Path, name: str, **changes: Any) -> Path:
    folder = runs / name
    folder.mkdir(parents=True)
    records.write(folder / "run.json", record().model_copy(update=changes))
    return folder


def test_the_newest_run_of_the_verb(tmp_path: Path) -> None:
    run(tmp_path, "20260101T000000Z-place", predictor=None)
    (tmp_path / "20270101T000000Z-tune").mkdir()
    newest = run(tmp_path, "20260201T000000Z-place", predictor=predictor())
    found = find(None, None, tmp_path)
    assert found.predictor == predictor() and found.source == str(newest) and found.why is None


def test_a_run_of_slow_vcpus_is_none(tmp_path: Path) -> None:
    older = run(tmp_path, "20260101T000000Z-place-2", predictor=predictor())
    vcpus = run(tmp_path, "20260201T000000Z-place-vcpus", predictor=predictor(), slowed="vcpus")
    assert find(None, None, tmp_path).source == str(older)
    for ask in (lambda: find(vcpus, None, tmp_path), lambda: like("http", vcpus, tmp_path)):
        with pytest.raises(MisuseError, match="says nothing of service threads"):
            ask()


def test_what_vtax_has_with_it_is_enough_for_an_interval() -> None:
    own = shipped()
    known = [each for each in own.loads if each.elasticity is not None]
    assert len(known) >= 60
    assert len({each.environment for each in known}) >= 10
    found = hypothesis.spread(own.loads)
    assert found is not None and found.low < found.median < found.high
    # With 60 pairs the interval tells a rank correlation of 0.35 from none.
    tested = hypothesis.hypothesis(own.loads)
    assert tested.low is not None and tested.high is not None
    assert tested.high - tested.low < 2 * 0.35


def test_without_a_run_it_is_what_loads_lost_elsewhere(tmp_path: Path) -> None:
    found = find(None, None, tmp_path)
    assert found.source == f"vtax's own measurements ({shipped().measured})"
    assert found.why and "make one, or name one with --from" in found.why
    assert found.source in found.why


def test_a_run_that_predicts_nothing_says_why(tmp_path: Path) -> None:
    folder = run(tmp_path, "a", predictor=None, state="interrupted", hypothesis=None)
    found = find(folder, None, tmp_path)
    assert found.why and found.source.startswith("vtax's own")
    assert "predicts nothing (it is interrupted): nothing was measured" in found.why


def test_a_run_of_many_pairs_is_its_own_answer(tmp_path: Path) -> None:
    (first, *_) = record().loads
    loads = tuple(
        first.model_copy(update={"load": f"load{number}", "elasticity": number / 100})
        for number in range(79)
    )
    folder = run(tmp_path, "a", predictor=None, loads=loads)
    found = find(folder, None, tmp_path)
    assert isinstance(found.predictor, Sensitivity) and found.why is None
    # The second smallest and the second largest of 79: 76 of 80 further ones lie between them.
    assert (found.predictor.low, found.predictor.high) == (0.01, 0.77)
    assert found.predictor.value == 0.39
    assert found.predictor.source == f"by 79 pairs of load and environment in {folder}"


def test_a_file_wins(tmp_path: Path) -> None:
    file = tmp_path / "predictor.json"
    file.write_text(predictor("run delay").model_dump_json())
    found = find(None, file, tmp_path)
    assert found.predictor == predictor("run delay")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"name": "run delay"}', "\x00" * 70_000])
def test_a_damaged_predictor(tmp_path: Path, text: str) -> None:
    file = tmp_path / "predictor.json"
    file.write_text(text)
    with pytest.raises(VtaxError, match=r"is no predictor|larger than") as error:
        find(None, file, tmp_path)
    assert "\n" not in str(error.value)


def test_a_damaged_run(tmp_path: Path) -> None:
    folder = run(tmp_path, "20260101T000000Z-place", predictor=predictor())
    found = json.loads((folder / "run.json").read_text())
    found["predictor"]["slope"] = "steep"
    (folder / "run.json").write_text(json.dumps(found))
    with pytest.raises(VtaxError, match=r"is damaged: .*predictor\.slope"):
        find(None, None, tmp_path)


def test_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(MisuseError, match="not a run folder"):
        find(tmp_path / "none", None, tmp_path)
    with pytest.raises(MisuseError, match="cannot read"):
        find(None, tmp_path / "none.json", tmp_path)


def test_a_load_that_guests_are_like(tmp_path: Path) -> None:
    folder = run(tmp_path, "20260101T000000Z-place", predictor=None)
    loads = record().loads
    found, source = like(loads[0].load, None, tmp_path)
    assert source == str(folder)
    own = [each for each in loads if each.load == loads[0].load]
    assert found.high == max(each.high for each in own if each.high is not None)
    assert found.source.startswith("measured in ")
    with pytest.raises(MisuseError, match="unknown load 'htttp'"):
        like("htttp", folder, tmp_path)
    with pytest.raises(MisuseError, match="make one, or name one"):
        like("http", None, tmp_path / "none")


def test_a_load_without_an_interval(tmp_path: Path) -> None:
    (first, *_) = record().loads
    folder = run(tmp_path, "a", loads=(first.model_copy(update={"low": None}),))
    with pytest.raises(MisuseError, match="two rounds or more"):
        like(first.load, folder, tmp_path)
