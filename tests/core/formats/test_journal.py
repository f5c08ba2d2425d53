"""The journal: whole lines are kept whatever ends the writer, and torn ones are never believed."""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vtax.core.errors import VtaxError
from vtax.core.formats.journal import Journal

PIECES = [{"number": number, "text": "ä\n" * number} for number in range(5)]


@given(st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_a_journal_cut_anywhere_keeps_every_whole_line(tmp_path_factory, cut: int) -> None:  # type: ignore[no-untyped-def]
    journal = Journal(tmp_path_factory.mktemp("journal") / "pieces.jsonl")
    journal.append(PIECES)
    content = journal.path.read_bytes()
    content = content[: cut % (len(content) + 1)]
    journal.path.write_bytes(content)
    kept = PIECES[: content.count(b"\n")]
    assert list(journal.read()) == kept
    # The next writer goes on behind the last whole line.
    journal.append([{"after": True}])
    assert list(journal.read()) == [*kept, {"after": True}]


def test_a_torn_line_longer_than_a_block_is_removed(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "pieces.jsonl")
    journal.append(PIECES)
    with journal.path.open("ab") as file:
        file.write(b"x" * 200_000)
    journal.append([{"after": True}])
    assert list(journal.read()) == [*PIECES, {"after": True}]


def test_no_journal_has_no_pieces(tmp_path: Path) -> None:
    assert list(Journal(tmp_path / "none.jsonl").read()) == []


@pytest.mark.parametrize(
    "line", [b"not json\n", b"[1]\n", b"\n", b"\xff\n", b"[" * 100_000 + b"\n"]
)
def test_a_damaged_line_is_named(tmp_path: Path, line: bytes) -> None:
    journal = Journal(tmp_path / "pieces.jsonl")
    journal.append(PIECES[:1])
    with journal.path.open("ab") as file:
        file.write(line)
    with pytest.raises(VtaxError, match=r"pieces.jsonl is damaged: line 2"):
        list(journal.read())


def test_a_folder_in_its_place_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(VtaxError, match="cannot read"):
        list(Journal(tmp_path).read())
    with pytest.raises(VtaxError, match="cannot write"):
        Journal(tmp_path).append(PIECES)


def test_kill_9_loses_nothing_that_was_appended(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from vtax.core.formats.journal import Journal\n"
        "journal = Journal(Path(sys.argv[1]))\n"
        "for number in range(10**9):\n"
        "    journal.append([{'number': number}]); print(number, flush=True)\n"
    )
    path = tmp_path / "pieces.jsonl"
    process = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    for _ in range(200):
        process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    reported = 199 + len(process.stdout.read().splitlines())
    process.wait()
    found = [piece["number"] for piece in Journal(path).read()]
    assert found == list(range(len(found))) and len(found) > reported


def test_a_full_disk_is_one_line_and_loses_nothing_before(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "pieces.jsonl", "make room")
    journal.append(PIECES)
    size = journal.path.stat().st_size
    child = os.fork()
    if child == 0:
        # A limit instead of a full disk: there is a signal to ignore, then the same failed write.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, size + 10))
        try:
            journal.append([{"long": "x" * 100}])
        except VtaxError as error:
            os._exit(0 if "make room" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert list(journal.read()) == PIECES
