"""Paths in a tree that changes while it is searched."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vtax.core.matching import matching


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Path]:
    for name in ("a/x/key", "b/.x/key", "c/y/z/key", "d/x/other"):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.touch()
    yield tmp_path


def test_all_depths_and_hidden_folders(tree: Path) -> None:
    found = {str(path.relative_to(tree)) for path in matching(tree, "**/key")}
    assert found == {"a/x/key", "b/.x/key", "c/y/z/key"}
    assert [str(path.relative_to(tree)) for path in matching(tree, "*/.x/k*")] == ["b/.x/key"]


@pytest.mark.parametrize("error", [FileNotFoundError, PermissionError, OSError])
def test_a_folder_that_goes_takes_nothing_else_along(
    tree: Path, monkeypatch: pytest.MonkeyPatch, error: type[OSError]
) -> None:
    read = os.scandir

    def scandir(path: Any = ".") -> Any:
        if os.fspath(path).rstrip("/").endswith("/b"):
            raise error("gone")
        return read(path)

    monkeypatch.setattr(os, "scandir", scandir)
    found = {str(path.relative_to(tree)) for path in matching(tree, "**/key")}
    assert found == {"a/x/key", "c/y/z/key"}
