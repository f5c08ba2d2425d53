"""Growing files come out of streams, whatever a machine puts instead of them."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from vtax.core.runner.following import Following


def test_all_that_is_written_comes_out(tmp_path: Path) -> None:
    out, err = io.BytesIO(), io.BytesIO()
    with Following(tmp_path, {"stdout": out, "stderr": err}):
        with (tmp_path / "stdout").open("ab") as file:
            for number in range(1000):
                file.write(b"%d\n" % number)
                file.flush()
        (tmp_path / "stderr").write_bytes(bytes(3 << 20))
    assert out.getvalue() == b"".join(b"%d\n" % number for number in range(1000))
    assert err.getvalue() == bytes(3 << 20)


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_only_regular_files_are_read(tmp_path: Path, kind: str) -> None:
    (tmp_path / "secret").write_text("secret")
    folder = tmp_path / "results"
    folder.mkdir()
    if kind == "link":
        (folder / "stdout").symlink_to(tmp_path / "secret")
    elif kind == "pipe":
        os.mkfifo(folder / "stdout")
    else:
        (folder / "stdout").mkdir()
    out, err = io.BytesIO(), io.BytesIO()
    with Following(folder, {"stdout": out, "stderr": err}):
        (folder / "stderr").write_text("said")
    assert (out.getvalue(), err.getvalue()) == (b"", b"said")


def test_a_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(OSError, match="link"):
        Following(tmp_path / "link", {})


def test_a_reader_that_has_gone_ends_nothing(tmp_path: Path) -> None:
    class Gone(io.BytesIO):
        def write(self, _content: object) -> int:
            raise BrokenPipeError

    err = io.BytesIO()
    with Following(tmp_path, {"stdout": Gone(), "stderr": err}):
        (tmp_path / "stdout").write_text("lost")
        (tmp_path / "stderr").write_text("said")
    assert err.getvalue() == b"said"
