"""The result of `vtax tune` on a terminal, as JSON, and as a page in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser
from syrupy.assertion import SnapshotAssertion

import tune_data
from browser_page import OVERLAPS, Visit
from vtax.core.page.render_html import write
from vtax.core.page.render_terminal import parts
from vtax.core.page.tables import plain
from vtax.tune import page as shown
from vtax.tune.page import page
from vtax.tune.record import TuneRecord

HOSTILE = "</script><script>alert(1)</script>"


def test_the_terminal(snapshot: SnapshotAssertion) -> None:
    assert plain(*parts(page(tune_data.record()))) == snapshot


def test_one_environment_is_not_compared(snapshot: SnapshotAssertion) -> None:
    assert plain(*parts(page(tune_data.record(tune_data.SPECS[:1], 1)))) == snapshot


def test_the_contract() -> None:
    found = shown.to_json(tune_data.record())
    first = found["environments"][0]
    assert {"name", "value", "unit", "low", "high", "claimed"} <= first["probes"][0].keys()
    assert first["winner"]["NB"] == 256 and first["winner"]["gflops"] > 0
    assert {"name", "gflops", "percent_of_openblas"} <= first["peers"][0].keys()
    assert first["search_s"] == 58.5
    assert first["start"] == {"l1_bytes": 48 << 10, "l2_bytes": 1 << 20, "from": "probes"}
    assert {"quantity", "a", "b", "verdict"} <= found["equivalence"][0].keys()
    assert {each["verdict"] for each in found["equivalence"]} == {
        "equivalent", "differs", "not known",
    }  # fmt: skip


def test_what_was_not_measured_is_not_drawn() -> None:
    record = tune_data.record()
    bare = tuple(
        each.model_copy(update={"probes": (), "curves": (), "cache_edge": None})
        for each in record.environments
    )
    titles = [each.title for each in page(record.model_copy(update={"environments": bare})).figures]
    assert titles == ["Winner beside libraries"]
    alike = record.model_copy(update={"environments": record.environments[:2]})
    figures = {each.title: each for each in page(alike).figures}
    assert figures["Winner beside libraries"].plot["layout"]["yaxis"].get("type") != "log"
    figures = {each.title: each for each in page(record).figures}
    tcg = figures["Register-to-register peak"].plot["data"][2]
    assert tcg["x"] == ["scalar", "avx512"] and tcg["y"][1] is None


def test_bars_that_could_not_be_seen_are_logarithmic() -> None:
    record = tune_data.record()
    slow = record.environments[2].model_copy(update={"winner": {"gflops": 0.16}, "peers": ()})
    record = record.model_copy(update={"environments": (record.environments[0], slow)})
    figures = {each.title: each for each in page(record).figures}
    axis = figures["Winner beside libraries"].plot["layout"]["yaxis"]
    assert axis["type"] == "log" and axis["range"] == [-1, 3]


def hostile(record: TuneRecord) -> TuneRecord:
    """The record with text from a guest wherever a guest may say something."""
    last = record.environments[2]
    probe = last.probes[2].model_copy(update={"name": f"peak_{HOSTILE}", "unit": HOSTILE})
    routine = last.searched[0].model_copy(update={"fields": {HOSTILE: HOSTILE}})
    said = {"probes": (*last.probes, probe), "searched": (routine,), "failures": (HOSTILE,),
            "notes": (HOSTILE,), "absent": {"atlas": HOSTILE}}  # fmt: skip
    changed = (*record.environments[:2], last.model_copy(update=said))
    return record.model_copy(update={"environments": changed})


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 420])
def test_the_page(
    browser: Browser, tmp_path: Path, screenshots: Path, width: int, scheme: str
) -> None:
    specs = (*tune_data.SPECS[:2], f"qemu:{HOSTILE}")
    write(page(hostile(tune_data.record(specs))), tmp_path / "report.html")
    with Visit(browser, tmp_path / "report.html", scheme, width) as seen:
        assert seen.locator(".plot").count() == 5
        assert seen.locator(".plot .main-svg").count() >= 5
        assert seen.evaluate("document.documentElement.scrollWidth <= innerWidth")
        for plot in seen.locator(".plot").all():
            assert len(plot.get_attribute("aria-label") or "") > 40
        if width == 1280:
            assert seen.evaluate(OVERLAPS) == []
        seen.screenshot(path=screenshots / f"tune-{scheme}-{width}.png", full_page=True)
