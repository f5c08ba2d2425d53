"""The campaign of `vtax tune` on machines that only answer: order, transfer, failures, logs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from mock_machines import Mock, World
from tested_machines import OUTCOME
from vtax.core.formats.folder import RunFolder
from vtax.core.formats.records import read
from vtax.core.runner.runner import Listener
from vtax.environments import build
from vtax.environments.base import Environment, MachineLike
from vtax.environments.machine import Finished
from vtax.tune.campaign import TuneCampaign, TuneRequest
from vtax.tune.record import TuneRecord
from vtax.tune.tuner import LOG, PARAMETERS, Tuner

NATIVE, UML = "native", "uml:mem=256M"
TUNER = Tuner(5.0, "lines", "d", 1, 200, 300, 6)
PROBED = {"probes": [{"name": "line_size", "unit": "bytes", "value": 64.0, "low": 64.0,
                      "high": 64.0, "runs": 20}]}  # fmt: skip
MISSING = b"dlopen failed: bad.so: cannot open shared object file: No such file or directory"
Answer = Callable[[str, Sequence[str], Path], Any]
"""A machine's answer to a command line in a folder: its output, or an exception's text as bytes."""


def tuned(gflops: float, nb: int = 64) -> dict[str, Any]:
    own = {"gflops": gflops, "low": None, "high": None, "runs": 5, "trials": 9}
    return {
        "size": 200,
        "start": {"l1_bytes": 32768, "l2_bytes": None, "from": "claimed"},
        "seconds": 4.5,
        "complete": True,
        "resumed": 0,
        "routines": [{"routine": "dgemm_nn", "fields": {"VECTOR": "avx2", "NB": nb}} | own],
        "cache_edge": None,
        "notes": [],
    }


def changed(**fields: Any) -> dict[str, Any]:
    """The answer with one wrong routine."""
    good = tuned(1.0)
    return good | {"routines": [good["routines"][0] | fields]}


def answer(label: str, argv: Sequence[str], folder: Path) -> Any:
    """A successful answer: each machine finds an NB of its own, and is as fast with the other's."""
    if "--identify" in argv:
        return {"library": {"version": "1.0"}} if "good.so" in argv else MISSING
    if "--library" in argv:
        return {"verified": True, "median_gflops": 50.015625}
    if "probe" in argv:
        return PROBED
    if "--use" in argv:
        return tuned(40.015625, int((folder / PARAMETERS).read_text().split("=")[1]))
    nb = 64 if label.startswith("native") else 128
    (folder / PARAMETERS).write_text(f"nb = {nb}")
    with (folder / LOG).open("a") as log:
        log.write(f"{label}\n")
    return tuned(41.0, nb)


class Answering(Mock):
    def __init__(self, world: World, work: Path, environment: Environment, say: Answer) -> None:
        super().__init__(world, work.name, environment)
        self.work, self.say = work, say
        self.facts = {"cpu": {"model": "a processor"}}

    def run(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        folder: str,
        timeout_s: float | None = None,
        *,
        workdir: Path | None = None,
    ) -> Finished:
        own = self.work / folder
        said = self.say(self.label, argv, own)
        finished = super().run(argv, environment, folder, timeout_s, workdir=workdir)
        (own / "stdout").write_text("" if isinstance(said, bytes) else json.dumps(said))
        (own / "stderr").write_bytes(said if isinstance(said, bytes) else b"")
        code = 1 if isinstance(said, bytes) else 0
        return dataclasses.replace(finished, told=dataclasses.replace(OUTCOME, exit_code=code))


@dataclasses.dataclass
class Ran:
    record: TuneRecord
    campaign: TuneCampaign
    story: list[str]


@pytest.fixture
def carry_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def carried_out(say: Answer = answer, **changes: Any) -> Ran:
        world = World()

        def start(environment: Environment, work: Path, cpus: Sequence[int]) -> MachineLike:
            return Answering(world, work, environment, say)

        request = TuneRequest(
            environments={spec: build(spec) for spec in (NATIVE, UML)},
            tuner=TUNER,
            rounds=3,
            margin_percent=2.0,
            seed=1,
            variables={},
            command_line=("vtax", "tune"),
            peers={"good": "good.so", "bad": "bad.so"},
        )
        folder = RunFolder.create(tmp_path / "runs", "tune")
        campaign = TuneCampaign(dataclasses.replace(request, **changes), folder, Listener(), start)
        record = campaign.run()
        assert world.alive == 0
        assert read(folder.path / "run.json") == record
        return Ran(record, campaign, world.story)

    return carried_out


def test_everything_is_measured_everywhere_in_turn(carry_out: Callable[..., Ran]) -> None:
    done = carry_out()
    assert done.record.state == "complete"
    for each, nb in zip(done.record.environments, (64, 128), strict=True):
        assert each.winner == {"VECTOR": "avx2", "NB": nb, "gflops": 40.015625}
        assert each.search_s == 4.5 and not each.failures
        assert each.start and (each.start.l1_bytes, each.start.from_) == (32768, "claimed")
        assert [(peer.name, peer.n, peer.gflops, peer.version) for peer in each.peers] == [
            ("good", 3, 50.015625, "1.0")
        ]
        assert each.absent == {"bad": "it is not installed"}
        assert [(own.name, own.n) for own in each.routines] == [("dgemm_nn", 3)]
    assert [(each.here, each.winner_of, each.verdict) for each in done.record.transfer] == [
        (NATIVE, UML, "equivalent"),
        (UML, NATIVE, "equivalent"),
    ]
    verdicts = {each.quantity: (each.verdict, each.meaning) for each in done.record.equivalence}
    assert verdicts["dgemm NB"] == ("differs", "selection variability")
    assert verdicts["dgemm VECTOR"] == ("equivalent", None)
    assert verdicts["dgemm_nn"] == verdicts["good"] == ("equivalent", None)
    assert verdicts["line_size"] == ("equivalent", None)
    # There are three rounds of two winners and one library in two environments.
    assert sum("measure-" in line for line in done.story) == 3 * 3 * 2
    assert done.campaign.parameters(NATIVE) == b"nb = 64"


def test_an_environment_that_fails_does_not_lose_the_other(carry_out: Callable[..., Ran]) -> None:
    def fails(label: str, argv: Sequence[str], folder: Path) -> Any:
        if label.startswith("uml") and "--search" in argv:
            return b"vtax-agent: no room"
        return answer(label, argv, folder)

    done = carry_out(fails)
    first, second = done.record.environments
    assert first.winner and not first.failures and done.record.state == "complete"
    assert second.winner is None and "no room" in second.failures[0]
    assert done.record.transfer == ()
    assert {each.kind for each in done.record.equivalence} == {"probe", "performance"}


def test_what_a_machine_refuses_is_not_asked_again(carry_out: Callable[..., Ran]) -> None:
    def refuses(label: str, argv: Sequence[str], folder: Path) -> Any:
        given = folder / PARAMETERS
        if "--use" in argv and label.startswith("uml") and given.read_text() == "nb = 64":
            return b"vtax-agent: dgemm: this processor has no avx512"
        return answer(label, argv, folder)

    done = carry_out(refuses)
    assert sum("measure-" in line for line in done.story) == 3 * 3 * 2 - 2
    (moved,) = [each for each in done.record.transfer if each.here == UML]
    assert moved.verdict == "not known" and "no avx512" in (moved.reason or "")
    assert not any(each.failures for each in done.record.environments)


def test_one_failure_of_its_own_winner_does_not_end_its_rounds(
    carry_out: Callable[..., Ran],
) -> None:
    failed: list[str] = []

    def fails(label: str, argv: Sequence[str], folder: Path) -> Any:
        if "--use" in argv and label == "native" and not failed:
            failed.append((folder / PARAMETERS).read_text())
            return b"vtax-agent: out of luck"
        return answer(label, argv, folder)

    first = carry_out(fails, environments={NATIVE: build(NATIVE)}).record.environments[0]
    assert [each.n for each in first.routines] == [2] and "out of luck" in first.failures[0]


def test_a_log_is_kept_and_sent_back(carry_out: Callable[..., Ran], tmp_path: Path) -> None:
    sent: list[str | None] = []

    def notes(label: str, argv: Sequence[str], folder: Path) -> Any:
        if "--log" in argv:
            log = folder / LOG
            sent.append(log.read_text() if log.exists() else None)
        return answer(label, argv, folder)

    carry_out(notes)
    assert len(list((tmp_path / "cache/vtax/tune").iterdir())) == 2
    carry_out(notes)
    carry_out(notes, fresh=True)
    carry_out(notes, tuner=dataclasses.replace(TUNER, size=300))
    native, uml = "native\n", "uml-mem-256M\n"
    assert sent == [None, None, native, uml, None, None, None, None]


def test_the_log_of_a_search_that_fails_is_kept_too(
    carry_out: Callable[..., Ran], tmp_path: Path
) -> None:
    def fails(label: str, argv: Sequence[str], folder: Path) -> Any:
        found = answer(label, argv, folder)
        return b"killed" if "--log" in argv else found

    carry_out(fails)
    kept = (tmp_path / "cache/vtax/tune").iterdir()
    assert sorted(each.read_text() for each in kept) == ["native\n", "uml-mem-256M\n"]


def test_code_with_one_instruction_set_stands_beside_the_libraries(
    carry_out: Callable[..., Ran], tmp_path: Path
) -> None:
    logs: list[bool] = []

    def says(label: str, argv: Sequence[str], folder: Path) -> Any:
        if "--vectors" not in argv:
            return answer(label, argv, folder)
        if argv[argv.index("--vectors") + 1] == "sse2" and label.startswith("uml"):
            return b"vtax-agent: --vectors sse2: there are no such instructions; it can: portable"
        if "--search" in argv:
            assert argv[argv.index("--budget") + 1] == "1.250s"
            logs.append((folder / LOG).exists())
        answer(label, argv, folder)
        return tuned(10.01 if "scalar" in argv else 20.0) | {"complete": "sse2" in argv}

    done = carry_out(says, generated=("scalar", "sse2"))
    first, second = done.record.environments
    assert [(each.name, each.n, each.gflops, each.library) for each in first.peers] == [
        ("generated scalar", 3, 10.01, "generated by vtax"),
        ("generated sse2", 3, 20.0, "generated by vtax"),
        ("good", 3, 50.015625, "good.so"),
    ]
    assert first.notes == ("generated scalar: the budget ended its search",)
    assert [each.name for each in second.peers] == ["generated scalar", "good"]
    assert second.absent["generated sse2"] == "there are no such instructions"
    assert first.winner and first.winner["gflops"] == 40.015625
    assert not first.failures and not second.failures
    verdicts = {each.quantity: each.verdict for each in done.record.equivalence}
    assert verdicts["generated scalar"] == "equivalent" and "generated sse2" not in verdicts
    carry_out(says, generated=("scalar", "sse2"))
    assert logs == [False] * 3 + [True] * 3
    # Two searches ended in user-mode Linux, three natively.
    assert len(list((tmp_path / "cache/vtax/tune").iterdir())) == 5


def test_given_parameters_are_measured_without_a_search(carry_out: Callable[..., Ran]) -> None:
    done = carry_out(use=("blas.toml", b"nb = 96"))
    assert done.record.use == "blas.toml" and done.record.transfer == ()
    for each in done.record.environments:
        assert each.winner == {"VECTOR": "avx2", "NB": 96, "gflops": 40.015625}
        assert each.search_s is None
    assert sum("measure-" in line for line in done.story) == 3 * 2 * 2


@pytest.mark.parametrize(
    "said",
    [
        tuned(1.0) | {"routines": []},
        changed(routine="</script>"),
        changed(gflops=-1.0),
        changed(fields={"NB": [1]}),
        changed(fields={f"F{n}": n for n in range(99)}),
        ["not an object"],
        tuned(1.0) | {"notes": ["x" * 1000]},
        tuned(1.0) | {"size": "200"},
        tuned(1.0) | {"start": {"l1_bytes": 1, "l2_bytes": 2, "from": "a dream"}},
    ],
)
def test_what_a_machine_should_not_say_fails_its_search(
    said: Any, carry_out: Callable[..., Ran]
) -> None:
    def says(label: str, argv: Sequence[str], folder: Path) -> Any:
        return said if "--search" in argv else answer(label, argv, folder)

    for each in carry_out(says).record.environments:
        assert each.winner is None and len(each.failures) == 1
        assert "\n" not in each.failures[0] and len(each.failures[0]) < 300


@pytest.mark.parametrize(("slower", "expected"), [(104, {"104"}), (96, {"96", "200"})])
def test_all_measure_what_the_slowest_can_unless_it_is_much_slower(
    slower: int, expected: set[str], carry_out: Callable[..., Ran]
) -> None:
    sizes: set[str] = set()

    def slow(label: str, argv: Sequence[str], folder: Path) -> Any:
        found = answer(label, argv, folder)
        if "--size" in argv and "--search" not in argv:
            sizes.add(argv[argv.index("--size") + 1])
        small = "--search" in argv and label.startswith("uml")
        if "--use" in argv:
            return found | {"size": int(argv[argv.index("--size") + 1])}
        return found | {"size": slower} if small else found

    first, second = carry_out(slow).record.environments
    assert sizes == expected and first.routines and second.routines
    assert second.measured_size == slower


def test_another_size_is_not_compared(carry_out: Callable[..., Ran]) -> None:
    def slow(label: str, argv: Sequence[str], folder: Path) -> Any:
        found = answer(label, argv, folder)
        return found | {"size": 64} if "--use" in argv and label.startswith("uml") else found

    first, second = carry_out(slow).record.environments
    assert first.routines and not first.failures
    assert "it timed matrices of 64 rows" in second.failures[0] and not second.routines


def test_cache_edges_are_swept_with_the_winner(carry_out: Callable[..., Ran]) -> None:
    swept = {"size": 300, "l1_only": None, "l2_bytes": 1 << 20, "chosen": [65536, None],
             "points": [{"bytes": 65536, "MC": 8, "gflops": 3.0, "low": None, "high": None,
                         "runs": 2}]}  # fmt: skip

    def sweeps(label: str, argv: Sequence[str], folder: Path) -> Any:
        if "--cache-edge" not in argv:
            return answer(label, argv, folder)
        assert (folder / PARAMETERS).read_text().startswith("nb = ")
        return tuned(1.0) | {"routines": [], "cache_edge": swept, "complete": False}

    for each in carry_out(sweeps, cache_edge=True).record.environments:
        assert each.cache_edge and each.cache_edge.chosen == (65536, None)
        assert "CacheEdge: the time was over after 2 runs" in each.notes


def test_without_probes_and_libraries(carry_out: Callable[..., Ran]) -> None:
    done = carry_out(probe=False, peers={}, rounds=1)
    assert all(not each.probes and not each.peers for each in done.record.environments)
    verdicts = {each.quantity: each.verdict for each in done.record.equivalence}
    assert verdicts["dgemm_nn"] == "not known"
