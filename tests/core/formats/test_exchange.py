"""The guest's writable folder as the host sees it: a hostile guest gains nothing."""

import os
from pathlib import Path

import pytest

from vtax.core.errors import VtaxError
from vtax.core.formats.exchange import Exchange


@pytest.fixture
def folder(tmp_path: Path) -> Exchange:
    exchange = Exchange(tmp_path, "r000")
    exchange.create({"input": b"1 2 3"})
    return exchange


def test_input_is_there_and_private(folder: Exchange) -> None:
    assert folder.read_text("input") == "1 2 3"
    assert (folder.path.stat().st_mode & 0o777, (folder.path / "input").stat().st_mode & 0o777) == (
        0o700,
        0o600,
    )


def test_a_link_is_not_followed(folder: Exchange, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (folder.path / "result").symlink_to(tmp_path / "secret")
    with pytest.raises(VtaxError):
        folder.read_text("result")


def test_a_pipe_does_not_block(folder: Exchange) -> None:
    os.mkfifo(folder.path / "result")
    with pytest.raises(VtaxError, match="not a regular file"):
        folder.read_text("result")


def test_a_large_file_is_refused(folder: Exchange) -> None:
    (folder.path / "result").write_bytes(b"x" * 11)
    assert len(folder.read_bytes("result", limit_bytes=11)) == 11
    with pytest.raises(VtaxError, match="larger than 10 bytes"):
        folder.read_bytes("result", limit_bytes=10)


def test_a_folder_that_the_guest_made_first_is_refused(folder: Exchange, tmp_path: Path) -> None:
    (tmp_path / "r001").symlink_to("/tmp")
    with pytest.raises(VtaxError, match="cannot make"):
        Exchange(tmp_path, "r001").create({"input": b""})
    with pytest.raises(VtaxError, match="cannot make"):
        folder.create({})


def test_a_folder_that_became_a_link_is_not_followed(folder: Exchange, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    folder.path.rename(elsewhere)
    folder.path.symlink_to(elsewhere)
    with pytest.raises(VtaxError, match="was removed or replaced"):
        folder.read_text("input")
    folder.path.unlink()
    with pytest.raises(VtaxError, match="was removed or replaced"):
        folder.check()


def test_a_missing_result_is_named(folder: Exchange) -> None:
    with pytest.raises(VtaxError, match="no result file 'result'"):
        folder.read_text("result")
