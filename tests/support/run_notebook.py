"""Runs a notebook's code as a notebook would, without Jupyter.

    python tests/support/run_notebook.py docs/paging-policy.ipynb     # run it and store its outputs

If a cell's last statement is an expression, its value is the output: a frame as an HTML table, a
figure as a picture (taken by the system's Chromium), anything else as text.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

Cell = dict[str, Any]
WIDTH, HEIGHT = 860, 420


def code_cells(path: Path) -> list[Cell]:
    """The cells of code, in order."""
    notebook = json.loads(path.read_text())
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def run(cells: list[Cell]) -> tuple[dict[str, Any], list[tuple[str, Any]]]:
    """The names that the cells left, and for each cell what it printed and its value."""
    names: dict[str, Any] = {"__name__": "__main__"}
    outputs = []
    for number, cell in enumerate(cells):
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        value = None
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(tree, f"cell {number + 1}", "exec"), names)
            if isinstance(last, ast.Expr):
                expression = ast.Expression(last.value)
                value = eval(compile(expression, f"cell {number + 1}", "eval"), names)
        outputs.append((printed.getvalue(), value))
    return names, outputs


def store(path: Path) -> None:
    """Run the notebook and store it with its outputs."""
    notebook = json.loads(path.read_text())
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    _, outputs = run(cells)
    for number, (cell, (printed, value)) in enumerate(zip(cells, outputs, strict=True)):
        cell["execution_count"] = number + 1
        cell["outputs"] = []
        if printed:
            cell["outputs"].append(
                {"output_type": "stream", "name": "stdout", "text": printed.splitlines(True)}
            )
        if value is not None:
            cell["outputs"].append({
                "output_type": "execute_result", "execution_count": number + 1, "metadata": {},
                "data": _data(value),
            })  # fmt: skip
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


def _data(value: Any) -> dict[str, Any]:
    import plotly.graph_objects
    import polars

    if isinstance(value, plotly.graph_objects.Figure):
        return {"image/png": _picture(value), "text/plain": ["a figure"]}
    if isinstance(value, polars.DataFrame):
        html = value._repr_html_()
        return {"text/html": html.splitlines(True), "text/plain": str(value).splitlines(True)}
    return {"text/plain": repr(value).splitlines(True)}


def _picture(figure: Any) -> str:
    from playwright.sync_api import sync_playwright

    figure = figure.update_layout(width=WIDTH, height=HEIGHT)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page = Path(folder, "figure.html")
        page.write_text(figure.to_html(include_plotlyjs=True, config={"staticPlot": True}))
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        tab = browser.new_page(viewport={"width": WIDTH + 16, "height": HEIGHT + 16})
        tab.goto(page.as_uri())
        picture = tab.locator(".plotly-graph-div").screenshot()
        browser.close()
    return base64.b64encode(picture).decode()


if __name__ == "__main__":
    store(Path(sys.argv[1]))
