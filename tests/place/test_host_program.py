"""`vtax-host place` on a host around a machine: here this machine is that host."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from process_watch import processes_naming
from vtax.core import binaries
from vtax.core.clocks import Skew
from vtax.core.errors import MisuseError, VtaxError
from vtax.environments.background import Background
from vtax.environments.capabilities import Completed
from vtax.place import host_program
from vtax.place.host_program import THIS_HOST, HostAround
from vtax.place.service_domain import backends, look, slowed, watched
from vtax.workloads.base import Outcome

ENDED: dict[str, Any] = dict.fromkeys(Outcome.__dataclass_fields__, 0)


class ThisShell:
    """A `Shell` of this machine."""

    def must(self, argv: Sequence[str], what: str, *, leave: bool = False) -> str:
        done = self.run(argv)
        if done.outcome.exit_code != 0:
            raise VtaxError(f"cannot {what}: {done.stderr}")
        return done.stdout

    def run(self, argv: Sequence[str]) -> Completed:
        # Files and no pipes: what runs on in the background keeps them open.
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            code = subprocess.run(argv, stdout=out, stderr=err, check=False).returncode
            out.seek(0), err.seek(0)
            text = [each.read().decode() for each in (out, err)]
        return Completed(Outcome(**{**ENDED, "exit_code": code}), *text)

    def push(self, path: str, content: bytes, permissions: int = 0o600) -> None:
        raise AssertionError("nothing is pushed")

    def pull(self, path: str, limit_bytes: int = 16 << 20) -> bytes:
        return Path(path).read_bytes()

    def tail(self, path: str, size: int = 64 << 10) -> bytes:
        return Path(path).read_bytes()[-size:]

    def clock_skew(self) -> Skew:
        raise AssertionError("no clock is asked for")


@pytest.fixture
def around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HostAround:
    monkeypatch.setattr(host_program, "FOLDERS_THERE", PurePosixPath(tmp_path / "there"))
    return HostAround(ThisShell(), str(binaries.find("vtax-host")))


@pytest.fixture
def spinning() -> Iterator[int]:
    """A process that computes."""
    process = subprocess.Popen(["sh", "-c", "while :; do :; done"])
    yield process.pid
    process.kill()
    process.wait()


def test_it_answers_as_on_this_host(around: HostAround, tmp_path: Path) -> None:
    running = around.start("backends", "--json")
    there = running.rest(20)
    here = THIS_HOST.start("backends", "--json").rest(20)
    assert there == here
    assert backends(), "the same program"
    assert not list((tmp_path / "there").iterdir()), "nothing is left"


def test_a_refusal_has_the_words_of_the_program(around: HostAround) -> None:
    with pytest.raises(MisuseError, match="no such process"):
        look((1 << 22,), on=around)
    with pytest.raises(VtaxError, match="no such thread"), slowed("hog", 50, [1 << 22], 0, around):
        pass


def test_a_window_lasts_as_long_as_its_block(around: HostAround, spinning: int) -> None:
    begin = time.monotonic()
    with watched([spinning], around) as found:
        time.sleep(0.3)
    assert 0.3 <= found[0].window_s <= time.monotonic() - begin


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make real-time threads")
def test_threads_are_slow_within_the_block_alone(around: HostAround, spinning: int) -> None:
    before = os.sched_getaffinity(spinning)
    cpu = min(before)
    with slowed("hog", 60, [spinning], cpu, around) as held:
        assert held.backend == "hog" and held.obtained_percent is not None
        assert os.sched_getaffinity(spinning) == {cpu}
    assert os.sched_getaffinity(spinning) == before
    with pytest.raises(KeyboardInterrupt), slowed("hog", 60, [spinning], cpu, around):
        raise KeyboardInterrupt
    deadline = time.monotonic() + 20
    while os.sched_getaffinity(spinning) != before:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_program_that_does_not_answer_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "there"
    monkeypatch.setattr(host_program, "FOLDERS_THERE", PurePosixPath(there))
    program = tmp_path / "vtax-host"
    program.write_text("#!/bin/sh\nexec sleep 100\n")
    program.chmod(0o700)
    running = HostAround(ThisShell(), str(program)).start("backends")
    with pytest.raises(VtaxError, match="did not answer within 0 s"):
        running.first_line(0.2)
    assert list(there.iterdir())
    running.end()
    assert not list(there.iterdir()), "nothing is left"
    assert not processes_naming(str(program))


def test_names_with_spaces_and_quotes_are_names(tmp_path: Path) -> None:
    folder = PurePosixPath(tmp_path / "it's a folder")
    running = Background(ThisShell(), folder)
    running.start(["printf", "%s|", "a b", "it's", "$HOME", "*"], "print")
    assert running.ended(100)
    assert running.output() == b"a b|it's|$HOME|*|"
    assert running.code() == 0
    running.remove()
    assert not Path(folder).exists()
