"""Where vtax keeps what it can make again."""

from __future__ import annotations

from pathlib import Path

import pytest

from vtax.core import cache
from vtax.core.errors import VtaxError


def homeless() -> Path:
    raise RuntimeError("Could not determine home directory.")


def test_a_user_without_a_home_names_a_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Path, "home", homeless)
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.home() is None
    with pytest.raises(VtaxError, match="set HOME or XDG_CACHE_HOME"):
        cache.folder("kernels")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.folder("kernels") == tmp_path / "vtax" / "kernels"
