"""`vtax paging lab`: what KVM counts under nested and shadow paging."""

from __future__ import annotations

import dataclasses
import itertools
import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from vtax.core.errors import VtaxError
from vtax.core.page.render_terminal import parts
from vtax.core.page.tables import UNFOLDED, plain
from vtax.environments.kvm_counters import REPORTED as COUNTERS
from vtax.environments.lab.environment import Lab
from vtax.paging.lab import page as table
from vtax.paging.lab.analysis import PagingModes, Run
from vtax.paging.lab.campaign import order
from vtax.workloads.builtin import builtin_workloads


def vtax(*words: str, timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "vtax.main", "paging", "lab", *words]
    return subprocess.run(line, capture_output=True, text=True, timeout=timeout_s, check=False)


def run(counters: Mapping[str, float], guest_s: float | None = 0.5) -> Run:
    gauges = frozenset(name for name in counters if name.startswith("pages_"))
    return Run(1.5, counters, gauges, guest_s, {"workload": "random-touch"})


def result(switches: tuple[Mapping[str, Any], ...] = ()) -> PagingModes:
    nested = {"exits": 1000.0, "pf_taken": 100.0, "invlpg": 0.0, "pages_4k": 700.0}
    shadow = {"exits": 9000.0, "pf_taken": 4000.0, "invlpg": 30.0, "pages_4k": 400.0}
    return PagingModes(
        ("random-touch", "--mem", "64M"),
        {
            "nested": (run(nested), run({**nested, "exits": 1200.0}, 0.6)),
            "shadow": (run(shadow), run({**shadow, "exits": 9400.0}, 0.0)),
        },
        switches,
        "a lab",
        COUNTERS,
    )


SWITCHES = ({"to": "shadow", "guests": [{"pause_ms": 310.4}, {"name": "paused by its owner"}]},)


@pytest.mark.parametrize("switches", [(), SWITCHES])
def test_the_table(snapshot: SnapshotAssertion, switches: tuple[Mapping[str, Any], ...]) -> None:
    assert plain(*parts(table.page(result(switches))), width=UNFOLDED) == snapshot


def test_json(snapshot: SnapshotAssertion) -> None:
    assert json.dumps(table.to_json(result(SWITCHES)), indent=1) == snapshot


def test_where_shadow_paging_cannot_be_the_nested_half_is_shown() -> None:
    whole = result()
    half = dataclasses.replace(
        whole, runs={"nested": whole.runs["nested"], "shadow": ()}, shadow_obstacle="QEMU is old"
    )
    text = plain(*parts(table.page(half)), width=UNFOLDED)
    assert "Shadow paging was not run: QEMU is old" in text
    assert "1,100" in text and "not run" in text and "1.50 s wall" in text
    found = table.to_json(half)
    assert found["not_run"] == {"shadow": "QEMU is old"}
    assert found["nested"] == table.to_json(whole)["nested"]
    assert found["shadow"] == {} and found["wall_seconds"]["shadow"] is None


def test_an_absent_counter_is_absent() -> None:
    found = table.to_json(result())
    assert set(found["nested"]) == {"exits", "pf_taken", "invlpg", "pages_4k"}
    assert "absent" in plain(*parts(table.page(result())))


def test_a_level_and_an_unknown_time_have_no_rate() -> None:
    found = result()
    assert found.per_guest_second("nested", "pages_4k") is None
    # No guest time was seen in the second repetition under shadow paging.
    assert found.per_guest_second("shadow", "exits") == 9000.0 / 0.5
    assert found.guest_s("shadow") == 0.25


@given(st.integers(min_value=1, max_value=50))
def test_the_order_is_even_and_switches_once_per_repetition(repetitions: int) -> None:
    modes = order(repetitions)
    for mode in ("nested", "shadow"):
        assert modes.count(mode) == repetitions
    changes = sum(a != b for a, b in itertools.pairwise(modes))
    assert changes == repetitions


def test_the_workloads_are_the_agents() -> None:
    listed = builtin_workloads()
    assert {"sequential-touch", "random-touch", "fork-exec-storm", "mmap-churn"} <= set(listed)
    assert {"context-switch", "fault-storm", "dgemm", "gups"} <= set(listed)
    assert {"gzip-like", "compiler-like"} <= set(listed)
    said = vtax("--list", "--json")
    assert said.returncode == 0
    assert {each["workload"] for each in json.loads(said.stdout)} == set(listed)


def test_without_a_workload_one_line_says_so() -> None:
    said = vtax()
    assert said.returncode == 2
    assert said.stderr.splitlines() == [
        "vtax: no workload; name one after --, or see 'vtax paging lab --list'"
    ]


def checked_lab(**options: str) -> None:
    try:
        Lab.from_options(options).check()
    except VtaxError as error:
        pytest.skip(f"lab: {error}")


@pytest.mark.slow
@pytest.mark.long
def test_shadow_paging_counts_what_theory_says() -> None:
    """Every first touch of a page is a guest fault and a shadow fault; nested paging has
    neither."""
    checked_lab(npt="0")
    pages = (64 << 20) >> 12
    said = vtax(
        "--json", "--quiet", "--", "random-touch", "--mem", "64M", "--count", "100000",
        timeout_s=500.0,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)
    nested, shadow = found["nested"], found["shadow"]
    assert set(nested) == set(shadow) == set(COUNTERS)
    assert shadow["pf_guest"] >= pages > nested["pf_guest"] == 0
    assert shadow["pf_fixed"] >= pages > nested["pf_fixed"]
    assert shadow["exits"] > nested["exits"] + 2 * pages
    assert nested["invlpg"] == nested["mmu_pte_write"] == nested["mmu_unsync"] == 0
    assert shadow["mmu_pte_write"] > 0
    assert len(found["switches"]) == 1 and found["switches"][0]["to"] == "shadow"
    for mode in ("nested", "shadow"):
        assert found["guest_seconds"][mode] > 0
        assert found["repetitions"][mode][0]["report"]["verified"] is True


@pytest.mark.slow
def test_a_command_of_this_machine_runs_under_both_modes() -> None:
    checked_lab(npt="0")
    said = vtax("--json", "--quiet", "--no-warm-up", "--", "sort", "/etc/passwd", timeout_s=500.0)
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)
    assert found["switches"] == []
    assert found["shadow"]["pf_fixed"] > found["nested"]["pf_fixed"] > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--", "no-such-program-here"), "no-such-program-here"),
        (("--", "random-touch", "--mem", "8G"), "mem"),
        (("--", "random-touch", "--no-such-option"), "--no-such-option"),
        (("--timeout", "2s", "--", "random-touch", "--seconds", "60"), "after 2 s under nested"),
    ],
)
def test_bad_input_is_one_line(words: tuple[str, ...], says: str) -> None:
    checked_lab(npt="0")
    said = vtax("--quiet", "--no-warm-up", *words, timeout_s=500.0)
    assert said.returncode in (1, 2)
    assert len(said.stderr.splitlines()) == 1 and says in said.stderr, said.stderr
    assert said.stdout == ""
