"""Plan files: what is written comes back, what is no plan is refused in one line."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vtax.core.errors import VtaxError
from vtax.place import plan
from vtax.place.plan import PlanFile, PlannedInterrupt, PlannedThread, cpu_list, cpu_numbers

VHOST = PlannedThread(pid=1, tid=2, start_ticks=123, name="vhost-1", role="vhost", cpus="2-3")
PLAN = PlanFile(host="abc", thread=(VHOST,), interrupt=(PlannedInterrupt(number=24, cpus="2-3"),))

numbers = st.integers(1, 1 << 22)
threads = st.builds(
    PlannedThread,
    pid=numbers,
    tid=numbers,
    start_ticks=st.integers(0, 1 << 60),
    name=st.text(max_size=16),
    role=st.sampled_from(["vhost", "main-loop"]),
    cpus=st.frozensets(st.integers(0, 300), min_size=1, max_size=9).map(cpu_list),
)


def test_a_plan_is_this_toml() -> None:
    assert plan.text(PLAN) == (
        'format = 1\nhost = "abc"\n\n'
        '[[thread]]\npid = 1\ntid = 2\nstart_ticks = 123\nname = "vhost-1"\nrole = "vhost"\n'
        'cpus = "2-3"\n\n'
        '[[interrupt]]\nnumber = 24\ncpus = "2-3"\n'
    )


@given(st.lists(threads, max_size=4), st.text(max_size=20))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_plan_comes_back(tmp_path: Path, some: list[PlannedThread], host: str) -> None:
    made = PlanFile(host=host, thread=tuple(some))
    plan.write(tmp_path / "plan.toml", made)
    assert plan.read(tmp_path / "plan.toml") == made


@given(st.frozensets(st.integers(0, plan.MAX_CPUS - 1), min_size=1, max_size=20))
def test_cpu_lists_come_back(cpus: frozenset[int]) -> None:
    assert cpu_numbers(cpu_list(cpus)) == tuple(sorted(cpus))


@pytest.mark.parametrize(
    "text", ["", "a", "1-", "-1", "3-2", "1,,2", "0-99999", "8192", "\u0661", " 1"]
)
def test_what_is_no_list_of_cpus_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no list of CPUs|impossible range"):
        cpu_numbers(text)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (("format = 1", "format = 2"), "format"),
        (("pid = 1", "pid = 0"), "thread.0.pid"),
        (("pid = 1", 'pid = "1"'), "thread.0.pid"),
        (('cpus = "2-3"', 'cpus = ""'), "thread.0.cpus"),
        (('role = "vhost"', "surprise = 1"), "thread.0"),
        (('host = "abc"', "host = "), "Invalid value"),
    ],
)
def test_what_is_no_plan_is_refused_by_field(
    tmp_path: Path, change: tuple[str, str], where: str
) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(plan.text(PLAN).replace(*change, 1))
    with pytest.raises(VtaxError, match=f"plan.toml is no plan: .*{where}"):
        plan.read(file)


def test_bytes_that_are_no_text_and_no_file_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(VtaxError, match="is no plan"):
        plan.read(tmp_path / "plan.toml")
    with pytest.raises(VtaxError, match=r"cannot read .*No such file"):
        plan.read(tmp_path / "absent")
