"""docs/paging-policy.ipynb: its code runs, and its stored outputs are small and name no machine."""

from __future__ import annotations

import json

import pytest

import run_notebook
from command_line import ROOT

PATH = ROOT / "docs" / "paging-policy.ipynb"
pytest.importorskip("vtax._native", reason="the extension is not built: make setup")


def test_the_policy_takes_at_most_30_lines() -> None:
    first = "".join(run_notebook.code_cells(PATH)[0]["source"])
    policy = first[first.index("class ") : first.index("results = ")]
    assert len([line for line in policy.splitlines() if line.strip()]) <= 30


def test_every_cell_runs() -> None:
    cells = run_notebook.code_cells(PATH)
    names, outputs = run_notebook.run(cells)
    table, figure, parts = (value for _, value in outputs[1:])
    overhead = dict(table.select("mode", "swim %").iter_rows())
    assert overhead["native"] == 0.0
    # The notebook's text says this, whatever the figures become.
    assert overhead["TryBoth"] < overhead["nested"]
    assert set(table["mode"]) == {
        "native",
        "shadow",
        "nested",
        "dav2m",
        "vtax",
        "TryBoth",
        "oracle",
    }
    assert len(figure.data) == 4
    assert parts.height == 6
    assert names["results"].keys() == {"gcc", "swim"}


def test_stored_outputs_are_complete_small_and_of_no_machine() -> None:
    text = PATH.read_text()
    assert len(text) < 100_000
    assert not [word for word in ("/home/", "/root/", "/tmp/", "Traceback") if word in text]
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == [1, 2, 3, 4]
    assert all(cell["outputs"] for cell in cells[1:])
