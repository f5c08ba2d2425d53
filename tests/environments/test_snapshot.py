"""Saved emulated hosts: complete or absent, bounded in number, not removed while in use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vtax.core.errors import VtaxError
from vtax.environments.emulated_host import snapshot
from vtax.environments.emulated_host.snapshot import Name, Store


def name_of(shape: str, key: str = "0") -> Name:
    return Name(shape * 16, key * 16)


def make(store: Store, wanted: Name) -> None:
    with store.making(wanted) as folder:
        (folder / "ram").write_bytes(b"memory")
        store.complete(folder, b"state", {"host": {}, "guests": [{}]})


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path, keep=2)


def test_a_complete_snapshot_is_found(store: Store) -> None:
    assert store.find(name_of("a")) is None
    make(store, name_of("a"))
    with store.find(name_of("a")) as found:  # type: ignore[union-attr]
        assert (found.state, found.ram.read_bytes()) == (b"state", b"memory")
        assert found.meta == {"host": {}, "guests": [{}]}


def test_a_snapshot_that_was_not_finished_is_not_there(store: Store, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), store.making(name_of("a")):
        raise KeyboardInterrupt
    assert store.find(name_of("a")) is None
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


def test_what_a_killed_maker_left_is_removed_by_the_next(store: Store, tmp_path: Path) -> None:
    script = (
        "import os, sys, pathlib\n"
        "from vtax.environments.emulated_host.snapshot import Name, Store\n"
        "with Store(pathlib.Path(sys.argv[1]), 2).making(Name('a' * 16, '1' * 16)) as folder:\n"
        "    (folder / 'ram').write_bytes(b'half'); os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False, timeout=300)
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == 1
    make(store, name_of("b"))
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == [str(name_of("b"))]


def test_a_maker_at_work_keeps_its_folder(store: Store, tmp_path: Path) -> None:
    with store.making(name_of("a")) as folder:
        (folder / "ram").write_bytes(b"memory")
        make(Store(tmp_path, keep=2), name_of("b"))
        assert (folder / "ram").exists()
        store.complete(folder, b"", {})
    assert store.find(name_of("a")) is not None


def test_a_new_one_of_the_same_shape_replaces_the_old(store: Store) -> None:
    make(store, name_of("a", "1"))
    make(store, name_of("a", "2"))
    assert store.find(name_of("a", "1")) is None
    assert store.find(name_of("a", "2")) is not None


def test_the_least_recently_used_goes(store: Store, tmp_path: Path) -> None:
    for age, shape in ((300, "a"), (200, "b")):
        make(store, name_of(shape))
        then = tmp_path.stat().st_mtime - age
        os.utime(tmp_path / str(name_of(shape)), (then, then))
    held = store.find(name_of("a"))
    assert held is not None
    held.release()
    make(store, name_of("c"))
    assert store.find(name_of("b")) is None
    assert store.find(name_of("a")) is not None


def test_one_in_use_is_not_removed(store: Store, tmp_path: Path) -> None:
    make(store, name_of("a", "1"))
    held = store.find(name_of("a", "1"))
    assert held is not None
    make(store, name_of("a", "2"))
    assert held.ram.exists()
    held.release()
    make(store, name_of("a", "3"))
    assert not held.ram.exists()


def test_a_damaged_one_is_an_error(store: Store, tmp_path: Path) -> None:
    make(store, name_of("a"))
    (tmp_path / str(name_of("a")) / "meta.json").write_text("{")
    with pytest.raises(VtaxError, match="damaged"):
        store.find(name_of("a"))


def test_the_key_follows_the_files_and_the_shape_does_not(tmp_path: Path) -> None:
    file = tmp_path / "qemu"
    file.write_bytes(b"1")
    first = snapshot.name({"npt": True}, [file], ["7.2"])
    assert first == snapshot.name({"npt": True}, [file], ["7.2"])
    newer = snapshot.name({"npt": True}, [file], ["8.2"])
    file.write_bytes(b"22")
    changed = snapshot.name({"npt": True}, [file], ["7.2"])
    assert first.shape == newer.shape == changed.shape
    assert len({first.key, newer.key, changed.key}) == 3
    assert snapshot.name({"npt": False}, [file], ["7.2"]).shape != first.shape
