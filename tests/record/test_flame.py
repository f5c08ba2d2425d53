"""Flame graphs and their differences: sums are kept, names cannot break a page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import Browser

import recording_data
from browser_page import Visit
from command_line import vtax
from vtax.core.recorder.intervals import STACKS
from vtax.core.recorder.ways import Scale
from vtax.record import flame
from vtax.record.stacks import (
    DEEPEST,
    Frame,
    Pair,
    by_line,
    compared,
    folded,
    innermost,
    load,
    parse,
    scaled,
    tree,
)

HOSTILE = '"><script>alert(1)</script>'
frames = st.sampled_from(["a", "b`c", "[kernel]`d", "e+0x10"])
stacks = st.dictionaries(
    st.lists(frames, min_size=1, max_size=6).map(tuple), st.integers(1, 10**15), min_size=1
)


def flat(frame: Frame) -> Pair:
    """What a frame has that none of those that it called has."""
    return frame.total + sum(
        (Pair(-f.total.first, -f.total.second) for f in frame.called.values()), Pair(0, 0)
    )


@given(first=stacks, second=stacks)
def test_no_weight_is_lost(
    first: Mapping[tuple[str, ...], int], second: Mapping[tuple[str, ...], int]
) -> None:
    whole = Pair(sum(first.values()), sum(second.values()))
    pairs = compared(first, second)
    root = tree(pairs)
    assert root.total == whole
    assert sum((pair for _, pair in innermost(pairs)), Pair(0, 0)) == whole
    for stack, pair in pairs.items():
        at = root
        for name in stack:
            at = at.called[name]
        assert flat(at) == pair


@given(first=stacks, second=stacks)
def test_shares_are_exact_fractions_of_the_sum(
    first: Mapping[tuple[str, ...], int], second: Mapping[tuple[str, ...], int]
) -> None:
    lines = [line.rsplit(" ", 2) for line in folded(_shares(first, second)).splitlines()]
    for at, weights in ((1, first), (2, second)):
        whole = sum(weights.values())
        for line in lines:
            exact = Fraction(weights.get(tuple(line[0].split(";")), 0), whole)
            assert abs(Fraction(line[at]) - exact) < Fraction(1, 10**8)


def _shares(
    first: Mapping[tuple[str, ...], int], second: Mapping[tuple[str, ...], int]
) -> Mapping[tuple[str, ...], Pair]:
    return compared(scaled(first, Scale.SHARE), scaled(second, Scale.SHARE))


@given(first=stacks, second=stacks)
def test_frames_lie_within_their_callers(
    first: Mapping[tuple[str, ...], int], second: Mapping[tuple[str, ...], int]
) -> None:
    made = flame.graph([("a", first), ("b", second)], Scale.SHARE).frames()
    assert (made[0].left, made[0].width) == (0.0, pytest.approx(1.0))
    above = {0: made[0]}
    for box in made[1:]:
        caller = above[box.depth - 1]
        assert caller.left <= box.left + 1e-9
        assert box.left + box.width <= caller.left + caller.width + 1e-9
        assert box.width >= flame.NARROWEST
        above[box.depth] = box


def test_folded_stacks_are_read_and_equal_ones_added_up(tmp_path: Path) -> None:
    (tmp_path / STACKS).write_text("m;p;f g 3\nm;p 5\nm;p;f g 4\n")
    assert load(tmp_path) == {("m", "p", "f g"): 7, ("m", "p"): 5}
    assert by_line(tmp_path)[2] == (("m", "p", "f g"), 4)
    for wrong in ("", "m;p", "m;p x", "m;p 1.5"):
        with pytest.raises(ValueError, match="invalid literal"):
            parse(wrong)


def test_a_stack_is_as_deep_as_a_page_can_show() -> None:
    deepest = ";".join(map(str, range(DEEPEST)))
    made = flame.graph([("x", dict([parse(f"{deepest} 1")]))], Scale.SHARE)
    assert [box.depth for box in made.frames()] == list(range(DEEPEST + 1))
    with pytest.raises(ValueError, match="more than 500 frames"):
        parse(f"{deepest};more 1")


def test_the_same_work_is_compared_in_seconds() -> None:
    first, second = {("a",): 2_000_000_000}, {("a",): 500_000_000}
    made = flame.graph([("x", first), ("y", second)], Scale.WORK)
    assert made.said(made.pairs[("a",)]) == "x: 2.00 s, y: 0.500 s"


def run(folder: Path, text: str) -> Path:
    recording_data.write(folder, recording_data.rows(1, n=20))
    (folder / STACKS).write_text(text)
    return folder


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    first = "".join(
        f"host user;make;make`main;make`f{n};{name} {n * 10**7}\n"
        for n in range(1, 12)
        for name in ("cc1`parse", "libc.so.6`malloc", f"cc1`{HOSTILE}")
    )
    second = f"{first}host kernel;make;make`main;[kernel]`do_syscall_64;[kernel]`x 900000000\n"
    return run(tmp_path / "a", first), run(tmp_path / "b", second)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("count", [1, 2])
def test_the_page(
    browser: Browser,
    screenshots: Path,
    pair: tuple[Path, Path],
    tmp_path: Path,
    count: int,
    scheme: str,
) -> None:
    page = tmp_path / "flame.html"
    runs = [f"native={pair[0]}", f"virtual {HOSTILE}={pair[1]}"][:count]
    done = vtax("export", *runs, "--flame", str(page))
    assert done.returncode == 0, done.stderr
    assert page.with_suffix(".folded").exists() == (count == 2)
    with Visit(browser, page, scheme) as shown:
        frames = shown.locator(".flame button")
        assert frames.count() > 30
        assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")
        shown.screenshot(path=screenshots / f"flame-{count}-{scheme}.png", full_page=True)
        frame = frames.filter(has_text="make`f11").first
        before = frame.bounding_box()
        frame.click()
        after = frame.bounding_box()
        assert before and after and after["width"] > 2 * before["width"]
        assert frames.filter(has_text="make`f3").first.is_hidden()
        frames.first.click()
        assert frame.bounding_box() == before


def test_a_timeline_shows_where_the_time_goes(
    browser: Browser, screenshots: Path, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    """With two labels their difference; the weights of one label's recordings are added up."""
    broken = run(tmp_path / "c", "no number\n")
    runs = [f"native={pair[0]}", f"native={pair[0]}", f"virtual={pair[1]}", f"virtual={broken}"]
    done = vtax("timeline", *runs, "--event", "kvm.exits", "--json", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    notes = json.loads(done.stdout)["notes"]
    assert [note for note in notes if "cannot be used" in note]
    with Visit(browser, tmp_path / "timeline.html") as shown:
        assert shown.locator(".flame").count() == 1
        shown.screenshot(path=screenshots / "timeline-flame.png", full_page=True)
        kernel = shown.locator("#functions-1 tr").filter(has_text="[kernel]`x")
        # 900 ms of those and 3 * (1 + ... + 11) * 10 ms.
        assert kernel.inner_text().split() == ["[kernel]`x", "0", "%", "31.2", "%"]


@pytest.mark.parametrize("labels", [1, 3])
def test_each_label_has_its_graph_unless_there_are_two(labels: int) -> None:
    runs = [(str(label), {("p", "f"): 1}) for label in range(labels) for _ in range(2)]
    made = flame.graphs(runs)
    assert [graph.labels for graph in made] == [[str(label)] for label in range(labels)]
    assert not flame.graphs([])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("a", "b", "--csv", "x.csv"), "too many RUNs"),
        (("a", "b", "a", "--flame", "x.html"), "too many RUNs"),
        (("a",), "nothing to write"),
        (("c", "--flame", "x.html"), "has no stacks"),
        (("d", "--flame", "x.html"), "cannot be used"),
        (("e", "--flame", "x.html"), "has no stack"),
    ],
)
def test_what_cannot_be_is_one_line(
    pair: tuple[Path, Path], tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    recording_data.write(tmp_path / "c", recording_data.rows(1, n=20))
    run(tmp_path / "d", "no number\n")
    run(tmp_path / "e", "")
    done = vtax("export", *words, cwd=tmp_path)
    assert done.returncode != 0 and said in done.stderr
    assert len(done.stderr.splitlines()) == 1 and not (tmp_path / "x.html").exists()
