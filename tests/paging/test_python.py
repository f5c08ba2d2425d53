"""`vtax.paging` from Python: frames, policies, signals, and what is imported when."""

from __future__ import annotations

import ast
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import polars as pl
import pytest

import vtax.paging
from command_line import SOURCE
from paging_support import WORKLOAD
from vtax.core.errors import MisuseError, VtaxError
from vtax.paging import Policy, Reading

_native = pytest.importorskip("vtax._native", reason="the extension is not built: make setup")


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(WORKLOAD)
    return path


def test_frames_agree_with_each_other(small: Path) -> None:
    result = vtax.paging.simulate(small, modes="all", whole=True, window=500_000)
    assert result.modes["mode"].to_list() == list(vtax.paging.modes())
    parts = [name for name in result.modes.columns if name.startswith("cycles_")]
    summed = result.modes.select(pl.sum_horizontal(parts))
    assert summed.to_series().to_list() == pytest.approx(result.modes["cycles"].to_list())
    exits = result.exits.group_by("mode", maintain_order=True).agg(pl.col("count").sum())
    assert exits["count"].to_list() == pytest.approx(result.modes["exits"].to_list())
    switches = result.switches.group_by("mode").len()
    for mode, count in switches.iter_rows():
        assert result.totals[mode]["switches"] == count
    windows = result.windows.group_by("mode", maintain_order=True).agg(pl.col("cycles").sum())
    assert windows["cycles"].to_list() == pytest.approx(result.modes["cycles"].to_list())


def test_what_does_not_exist_is_null_and_not_a_number(small: Path) -> None:
    result = vtax.paging.simulate(small, modes=("native", "dav2m"), whole=True)
    assert result.modes["relative_error_percent"].null_count() == 2
    native = result.windows.filter(pl.col("mode") == "native")
    assert native["paging"].null_count() == native["threshold_vexit"].null_count() == len(native)
    dav2m = result.windows.filter(pl.col("mode") == "dav2m")
    assert dav2m["paging"].null_count() == dav2m["threshold_vexit"].null_count() == 0


def test_sampling_states_its_error(small: Path) -> None:
    result = vtax.paging.simulate(small, modes="nested")
    assert not result.whole
    assert result.totals["nested"]["relative_error_percent"] is not None


class Recorder(Policy):
    """A policy that alternates and keeps its arguments."""

    window_instructions = 500_000
    start = "shadow"

    def __init__(self) -> None:
        self.readings: list[tuple[Reading, Reading]] = []

    def decide(self, now: Reading, last_window: Reading) -> str:
        self.readings.append((now, last_window))
        return ("nested", "shadow")[len(self.readings) % 2]


def test_a_policy_is_told_what_happened_and_is_followed(small: Path) -> None:
    policy = Recorder()
    result = vtax.paging.simulate(small, modes=(policy,), whole=True)
    assert len(policy.readings) == pytest.approx(8, abs=1)
    now, window = policy.readings[-1]
    assert now.instructions == pytest.approx(4e6, rel=0.13)
    assert window.instructions == pytest.approx(5e5, rel=0.1)
    assert sum(window.cycles for _, window in policy.readings) == pytest.approx(now.cycles)
    assert result.totals["Recorder"]["switches"] == len(result.switches)
    assert len(result.switches) >= len(policy.readings) - 2


class Alarmed(Policy):
    """A policy that leaves shadow paging at the alarm."""

    window_instructions = 3_000_000
    start = "shadow"
    exit_alarm = 100

    def decide(self, now: Reading, last_window: Reading) -> str:
        return "nested"


def test_an_alarm_is_served_within_the_window(small: Path) -> None:
    result = vtax.paging.simulate(small, modes=(Alarmed,), whole=True)
    assert result.switches["to"].to_list() == ["nested"]
    assert result.switches["instructions"][0] < Alarmed.window_instructions


def test_an_exception_of_a_policy_is_chained(small: Path) -> None:
    class Broken(Policy):
        def decide(self, now: Reading, last_window: Reading) -> str:
            raise KeyError("threshold")

    with pytest.raises(
        VtaxError, match=r"^policy Broken raised KeyError: 'threshold' \("
    ) as caught:
        vtax.paging.simulate(small, modes=(Broken,))
    assert isinstance(caught.value.__cause__, KeyError)
    assert "test_python.py line" in str(caught.value)


@pytest.mark.parametrize("answer", [None, 1, "native", ["shadow"]])
def test_nonsense_of_a_policy_is_named(small: Path, answer: object) -> None:
    class Odd(Policy):
        def decide(self, now: Reading, last_window: Reading) -> str:
            return answer  # type: ignore[return-value]

    with pytest.raises(VtaxError, match=r"policy Odd decided on .*; decide must return 'shadow'"):
        vtax.paging.simulate(small, modes=(Odd,))


@pytest.mark.parametrize(
    ("field", "value"),
    [("start", "native"), ("window_instructions", 0), ("exit_alarm", -1), ("exit_alarm", 1.5)],
)
def test_nonsense_in_a_policy_is_named_before_it_runs(
    small: Path, field: str, value: object
) -> None:
    odd = type("Odd", (Recorder,), {field: value})
    with pytest.raises(MisuseError, match=f"^policy Odd: {field} is "):
        vtax.paging.simulate(small, modes=(odd,))


def test_two_policies_of_one_class_need_names(small: Path) -> None:
    with pytest.raises(MisuseError, match=r"^two modes are called Recorder; set a policy's 'name'"):
        vtax.paging.simulate(small, modes=(Recorder(), Recorder()))
    second = Recorder()
    second.name = "second"
    result = vtax.paging.simulate(small, modes=(Recorder, second))
    assert list(result.totals) == ["Recorder", "second"]


def test_what_the_model_could_not_hold_is_a_misuse(small: Path) -> None:
    with pytest.raises(MisuseError, match=rf"^seed is {1 << 70}; write a whole number"):
        vtax.paging.simulate(small, seed=1 << 70)
    with pytest.raises(MisuseError, match=r"^guest_levels is 300"):
        vtax.paging.simulate(small, guest_levels=300)


def test_the_stub_declares_what_the_extension_has() -> None:
    stub = ast.parse((SOURCE / "vtax/_native.pyi").read_text())
    for declared in stub.body:
        if isinstance(declared, ast.FunctionDef):
            assert callable(getattr(_native, declared.name))
        elif isinstance(declared, ast.ClassDef) and not declared.name.startswith("_"):
            made = getattr(_native, declared.name)
            names = {item.name for item in declared.body if isinstance(item, ast.FunctionDef)}
            assert names == {name for name in vars(made) if not name.startswith("_")}


def test_other_threads_run_meanwhile(small: Path) -> None:
    ticks: list[float] = []
    over = threading.Event()

    def tick() -> None:
        while not over.wait(0.005):
            ticks.append(time.monotonic())

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        begin = time.monotonic()
        vtax.paging.simulate(small, modes="all", whole=True)
        end = time.monotonic()
    finally:
        over.set()
        thread.join()
    within = [tick for tick in ticks if begin < tick < end]
    assert len(within) > 5


ENDLESS = """
import vtax.paging
print("started", flush=True)
vtax.paging.simulate("random", whole=True, progress=lambda done, total: print(done, flush=True))
"""


def test_ctrl_c_ends_a_simulation() -> None:
    command = [sys.executable, "-c", ENDLESS]
    with subprocess.Popen(
        command,
        env={"PYTHONPATH": str(SOURCE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # A shell's background job, as CI may be, ignores SIGINT and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdout and process.stderr
        process.stdout.readline()
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.wait(timeout=300)
        assert b"KeyboardInterrupt" in process.stderr.read()


def test_an_exception_of_the_progress_callback_ends_the_simulation() -> None:
    def progress(done: float, total: float | None) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        vtax.paging.simulate("random", whole=True, progress=progress)


def test_importing_loads_neither_polars_nor_the_extension() -> None:
    code = "import sys, vtax.paging; print({'polars', 'numpy', 'vtax._native'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "set()\n"
