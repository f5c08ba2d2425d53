"""`vtax paging simulate` as users call it: results, files, and every mistake in one line."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import polars as pl
import pytest
from syrupy.assertion import SnapshotAssertion

from command_line import vtax
from paging_support import WORKLOAD, champsim_trace
from vtax.core.errors import VtaxError
from vtax.paging import modes
from vtax.paging import simulate as simulated
from vtax.verbs import app

KEYS = [
    "mode",
    "instructions",
    "references",
    "cycles",
    "overhead_percent",
    "l1_tlb_misses",
    "l2_tlb_misses",
    "walk_references",
    "exits",
    "switches",
]
"""The keys that the issue promises for each mode, in this order; more may follow."""

POLICY = """\
import vtax.paging


class Mine(vtax.paging.Policy):
    window_instructions = 500_000

    def decide(self, now, last_window):
        return "shadow"


class Broken(vtax.paging.Policy):
    def decide(self, now, last_window):
        return now.instructions / 0


class Undecided(vtax.paging.Policy):
    def decide(self, now, last_window):
        return "perhaps"
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with a workload, a policy, a trace and a damaged trace."""
    (tmp_path / "small.toml").write_text(WORKLOAD)
    (tmp_path / "mine.py").write_text(POLICY)
    (tmp_path / "ok.champsim").write_bytes(champsim_trace(100))
    (tmp_path / "cut.gz").write_bytes(b"\x1f\x8b\x08\x00")
    return tmp_path


def simulate(here: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    return vtax("paging", "simulate", *argv, cwd=here)


def failing(here: Path, argv: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> VtaxError:
    """The error that `vtax paging simulate` prints; in this process, because there are many
    errors."""
    monkeypatch.chdir(here)
    with pytest.raises(VtaxError) as caught:
        app(["paging", "simulate", *argv], standalone_mode=False)
    return caught.value


HELPED = (
    (),
    ("simulate",),
    ("sweep",),
    ("lab",),
    ("switch",),
    ("recover",),
    ("machines",),
    ("workloads",),
)


@pytest.mark.parametrize("argv", HELPED)
def test_help(argv: tuple[str, ...], snapshot: SnapshotAssertion) -> None:
    done = vtax("paging", *argv, "--help")
    assert done.returncode == 0
    assert done.stdout == snapshot


def test_help_names_every_mode() -> None:
    words = set(vtax("paging", "simulate", "--help").stdout.replace(";", " ").split())
    assert words >= set(modes())


def test_json_has_the_promised_form(here: Path) -> None:
    done = simulate(here, "small.toml", "--json", "--mode", "native,shadow,nested,dav2m,oracle")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert list(result) == ["workload", "machine", "modes"]
    assert (result["workload"], result["machine"]) == ("small", "opteron2350")
    rows = {row["mode"]: row for row in result["modes"]}
    assert list(rows) == ["native", "shadow", "nested", "dav2m", "oracle"]
    assert all(list(row)[: len(KEYS)] == KEYS and row["model"] is True for row in rows.values())
    assert rows["native"]["overhead_percent"] == 0
    assert len({row["instructions"] for row in rows.values()}) == 1
    assert rows["native"]["l2_tlb_misses"] > 0
    assert rows["nested"]["walk_references"] > rows["native"]["walk_references"]


def test_the_same_seed_gives_the_same_bytes(here: Path) -> None:
    argv = ("small.toml", "--json", "--whole", "--mode", "nested,vtax")
    first, second = simulate(here, *argv, "--seed", "7"), simulate(here, *argv, "--seed", "7")
    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout
    assert simulate(here, *argv, "--seed", "8").stdout != first.stdout


def test_the_table_says_that_it_is_a_model(here: Path) -> None:
    done = simulate(here, "small.toml")
    assert done.returncode == 0, done.stderr
    title, *rows = done.stdout.splitlines()
    assert title == "small on opteron2350: model, phases sampled"
    assert [row.split()[0] for row in rows[2:5]] == ["native", "shadow", "nested"]
    assert "Modelled, not measured" in rows[5]
    assert done.stderr == ""


def test_ranges_of_host_pages_lie_between_the_two_sizes() -> None:
    def walked(page: str, ranges: str | None) -> float:
        given = {"host_page": page, "host_ranges": ranges, "instructions": 1e7}
        return float(simulated("swim", modes=("nested",), **given).modes["walk_references"][0])

    small, large = walked("4K", None), walked("2M", None)
    assert walked("4K", "0-4G=2M") == large
    assert walked("2M", "0-4G=4K") == small
    assert walked("4K", "0-1G=2M,1G-4G=2M") == large
    assert large < walked("4K", "0-64M=2M") < small


def test_a_range_of_host_pages_outside_the_guest_is_refused() -> None:
    with pytest.raises(VtaxError, match="a range ends after the guest's memory"):
        simulated("swim", host_ranges="0-8G=4K")
    with pytest.raises(VtaxError, match="must begin and end at multiples of 2097152 bytes"):
        simulated("swim", host_page="4K", host_ranges="0-3M=2M")


def test_a_trace_is_followed_whole(here: Path) -> None:
    done = simulate(here, "ok.champsim", "--json", "--mode", "native")
    assert done.returncode == 0, done.stderr
    (native,) = json.loads(done.stdout)["modes"]
    assert native["references"] == 100
    # The walk of a first touch faults, and the walk after the fault finds the page.
    assert native["l2_tlb_misses"] == 200
    assert native["relative_error_percent"] is None


@pytest.mark.parametrize("left", [64 * 60, 64 * 60 + 17])
def test_a_cut_trace_is_simulated_up_to_the_cut(here: Path, left: int) -> None:
    (here / "cut.champsim").write_bytes((here / "ok.champsim").read_bytes()[:left])
    done = simulate(here, "cut.champsim", "--json", "--mode", "native")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["modes"][0]["references"] == 60
    # A file of records has no end but its last byte: between two of them no cut is to be seen.
    cut = {64 * 60: None, 64 * 60 + 17: "record 61: truncated: 17 bytes are left, a record has 64"}
    assert answer.get("cut") == cut[left]
    page = simulate(here, "cut.champsim", "--mode", "native").stdout
    assert ("The trace was cut" in page) == (cut[left] is not None)


def test_out_writes_tables_and_what_they_are_of(here: Path) -> None:
    done = simulate(
        here, "small.toml", "--whole", "--window", "500k", "--out", "a/b", "--mode", "nested,dav2m"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("written: a/b\n")
    summary = json.loads((here / "a/b/result.json").read_text())
    assert summary["settings"]["window_instructions"] == 500_000
    windows = pl.read_parquet(here / "a/b/windows.parquet")
    assert windows["mode"].unique(maintain_order=True).to_list() == ["nested", "dav2m"]
    assert windows["phase"].unique(maintain_order=True).to_list() == ["scan", "allocate"]
    total = windows.filter(pl.col("mode") == "nested")["cycles"].sum()
    assert total == pytest.approx(summary["modes"][0]["cycles"], rel=1e-6)


def test_a_policy_in_a_file_runs_beside_the_others(here: Path) -> None:
    done = simulate(here, "small.toml", "--json", "--mode", "shadow", "--policy", "mine.py:Mine")
    assert done.returncode == 0, done.stderr
    shadow, mine = json.loads(done.stdout)["modes"]
    assert (shadow["mode"], mine["mode"], mine["switches"]) == ("shadow", "Mine", 1)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("swimm",), "unknown workload 'swimm'; did you mean 'swim'?"),
        (("nothere.trace",), "cannot read nothere.trace: there is no such file"),
        (("small.toml", "--machine", "zen5"), "unknown machine 'zen5'; did you mean 'zen4'?"),
        (("small.toml", "--machine", "small.toml"), "small.toml: "),
        (("small.toml", "--mode", "nestd"), "unknown mode 'nestd'; did you mean 'nested'?"),
        (("small.toml", "--mode", ","), "no mode to simulate"),
        (("small.toml", "--pages", "guest=8K"), "pages.guest: '8K' is not a page size"),
        (("small.toml", "--pages", "4K"), "--pages: '4K' is not guest=... or host=..."),
        (("small.toml", "--pages", "hots=4K"), "did you mean 'host'?"),
        (("small.toml", "--tables", "guest=3"), "tables.guest: 3 levels"),
        (("small.toml", "--tables", "guest=2", "--pages", "guest=1G"), "no 1G pages"),
        (("small.toml", "--window", "0"), "window: must be at least"),
        (("small.toml", "--window", "many"), "--window: 'many' is not a number"),
        (("small.toml", "--instructions", "0"), "instructions: must be at least 1"),
        (("small.toml", "--memory", "1M"), "workload larger than memory"),
        (("small.toml", "--memory", "lots"), "'lots' is not a size"),
        (("small.toml", "--shadow-style", "xen"), "shadow_style: 'xen' is unknown"),
        (("small.toml", "--param", "dav2m=1"), "is not POLICY.NAME=VALUE"),
        (("small.toml", "--param", "dav2n.p_factor=1"), "did you mean 'dav2m'?"),
        (("small.toml", "--param", "dav2m.p_factor=1"), "not among the modes"),
        (
            ("small.toml", "--mode", "dav2m", "--param", "dav2m.p_facto=1"),
            "dav2m.p_facto: unknown name 'p_facto'; did you mean 'p_factor'?",
        ),
        (
            ("small.toml", "--mode", "dav2m", "--param", "dav2m.window_trans=1"),
            "dav2m.window_",
        ),
        (("small.toml", "--policy", "mine.py"), "is not FILE.py:Class"),
        (("small.toml", "--policy", "mine.py:Min"), "did you mean 'Mine'?"),
        (("small.toml", "--policy", "none.py:Mine"), "no such file"),
    ],
)
def test_a_misuse_is_one_line_with_a_remedy(
    here: Path, argv: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = failing(here, argv, monkeypatch)
    assert error.exit_code == 2
    assert message in str(error)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("cut.gz",), "cut.gz"),
        (("mine.py",), "not a trace"),
        (("small.toml", "--policy", "mine.py:Broken"), "policy Broken raised ZeroDivisionError"),
        (("small.toml", "--policy", "mine.py:Undecided"), "policy Undecided decided on 'perhaps'"),
        (("small.toml", "--out", "mine.py"), "cannot write in mine.py"),
    ],
)
def test_a_failure_is_one_line(
    here: Path, argv: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = failing(here, argv, monkeypatch)
    assert error.exit_code == 1
    assert message in str(error)


def test_the_command_says_what_is_wrong_and_nothing_else(here: Path) -> None:
    done = simulate(here, "small.toml", "--policy", "mine.py:Broken")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "vtax: policy Broken raised ZeroDivisionError: float division by zero (mine.py line 13)\n"
    )


@pytest.mark.parametrize(("verb", "name"), [("machines", "zen4"), ("workloads", "swim")])
def test_the_lists_are_for_people_and_programs(verb: str, name: str) -> None:
    plain = vtax("paging", verb).stdout
    assert any(line.startswith(name) for line in plain.splitlines())
    listed = json.loads(vtax("paging", verb, "--json").stdout)
    assert name in [item[verb.removesuffix("s")] for item in listed]


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("vtax paging simulate sw", "swim"),
        ("vtax paging simulate swim --machine ze", "zen4"),
        ("vtax paging simulate swim --mode native,nest", "native,nested"),
    ],
)
def test_names_are_completed(line: str, completed: str) -> None:
    shell = {
        "_VTAX_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split()) - 1),
    }
    assert vtax(environment=shell).stdout.split() == [completed]
