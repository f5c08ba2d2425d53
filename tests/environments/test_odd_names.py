"""Folders whose names mean something to a shell, an engine or an emulator."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tested_machines import GUEST_ENVIRONMENT, LOCAL, checked
from vtax.core.formats.exchange import Exchange
from vtax.environments.container import _mount
from vtax.environments.hiding import Shown
from vtax.environments.machine import Machine

NAMES = ("o,u:t", "q\"u'o te\\b", "$(id) `id` %s", "a=b;readonly", "ü [1] *", "-v")


ANY = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@given(st.lists(ANY, min_size=1))
def test_an_engine_reads_back_any_path(names: list[str]) -> None:
    fields = ["type=bind", *(f"source=/{name}" for name in names)]
    option, row = _mount(*fields)
    assert option == "--mount"
    assert list(csv.reader(io.StringIO(row, newline=""))) == [fields]


@pytest.mark.slow
@pytest.mark.parametrize("spec", LOCAL)
def test_results_come_from_a_folder_of_any_name(tmp_path: Path, spec: str) -> None:
    environment = checked(spec)
    for name in NAMES:
        work, folder = tmp_path / f"{name} work", tmp_path / name
        work.mkdir(mode=0o700)
        folder.mkdir()
        (folder / "input").write_text(name)
        Exchange(work, "r0").create({})
        shown = environment.with_shown(Shown(folder))
        workdir = folder if shown.has_folder(folder) else None
        with Machine(shown, work, [0]) as machine:
            script = 'cat input 2>/dev/null; pwd >"$VTAX_RESULTS/where"'
            done = machine.run(["sh", "-c", script], GUEST_ENVIRONMENT, "r0", 60, workdir=workdir)
        assert done.outcome.exit_code == 0
        if workdir is not None:
            assert Exchange(work, "r0").read_text("stdout") == name
            assert Exchange(work, "r0").read_text("where").strip() == str(folder)
