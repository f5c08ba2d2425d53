"""What a policy costs in the lab beside the two modes: a table, and docs/closed-loop.svg.

    .venv/bin/python bench/paging_loop.py [--phases N] [--figure FILE] [--lines FOLDER]

A guest alternates between two programs (tests/support/closed_loop.py). Counts of the guest are real
or of the model that the lab names, cycles are *model*, pauses are real and not in the cycles. The
default takes about 5 minutes on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/support")]

from closed_loop import POLICIES, PROGRAMS, STATIC, Run, closed_loop  # noqa: E402

FIGURE = ROOT / "docs/closed-loop.svg"
WIDTH, HEIGHT = 920, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 800, 40, 350
THINNED = 4
"""One in N looks is drawn; they are 0.1 s apart."""
COLOURS = ("#888888", "#c0504d", "#1f6fb2", "#2e8b57")


def table(runs: Sequence[Run]) -> Iterator[str]:
    """Cycles per instruction by phase, the sum, and the switches, in Markdown."""
    names = [PROGRAMS[n % len(PROGRAMS)][0] for n in range(len(runs[0].cpi))]
    yield f"| | {' | '.join(names)} | all, 10^6 cycles | beside the best mode | switches |"
    yield "| --- " * (len(names) + 4) + "|"
    best = min(run.cycles for run in runs if run.name in STATIC)
    for run in runs:
        cells = [f"{each:.2f}" for each in run.cpi]
        cells += [f"{run.cycles / 1e6:,.0f}", f"{run.cycles / best - 1:+.0%}"]
        cells += [str(len(run.switches)) if run.name in POLICIES else ""]
        yield f"| `{run.name}` | {' | '.join(cells)} |"


def svg(runs: Sequence[Run]) -> Iterator[str]:
    """Modelled cycles over the guest's instructions: the lower line is the cheaper run."""
    wide = max(run.course[-1][0] for run in runs)
    high = max(run.course[-1][1] for run in runs)

    def place(instructions: float, cycles: float) -> tuple[float, float]:
        x = LEFT + (RIGHT - LEFT) * instructions / wide
        return round(x, 1), round(BOTTOM - (BOTTOM - TOP) * cycles / high, 1)

    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
    yield 'font-family="system-ui, sans-serif" font-size="13" role="img" aria-label="Modelled'
    yield 'cycles over the instructions of a guest, in each paging mode and by policies.">'
    yield rectangle(0, 0, WIDTH, HEIGHT, "#ffffff")
    phases = len(runs[0].cpi)
    for number in range(phases):
        x, y = place(wide * number / phases, high)
        shade = "#f6f6f6" if number % 2 else "#e8f0fa"
        yield rectangle(x, y, (RIGHT - LEFT) / phases, BOTTOM - TOP, shade)
        yield text(x + 6, y - 10, PROGRAMS[number % len(PROGRAMS)][0])
    for cycles in (0, high / 2, high):
        x, y = place(0, cycles)
        yield text(x - 8, y + 4, f"{cycles / 1e9:.1f}", "end")
    for instructions, anchor in ((0, "start"), (wide, "end")):
        x, y = place(instructions, 0)
        yield text(x, y + 18, f"{instructions / 1e6:,.0f}", anchor)
    yield text((LEFT + RIGHT) / 2, BOTTOM + 38, "instructions of the guest, 10^6", "middle")
    yield text(LEFT, 16, "cycles (model), 10^9", "middle")
    below = float(HEIGHT)
    costs = sorted(zip(runs, COLOURS, strict=True), key=lambda each: each[0].course[-1][1])
    for run, colour in costs:
        points = [place(*point) for point in [(0, 0), *run.course[::THINNED], run.course[-1]]]
        line = " ".join(f"{x},{y}" for x, y in points)
        yield f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>'
        # Names of lines that end close together stand above one another.
        below = min(points[-1][1] + 4, below - 16)
        yield text(RIGHT + 8, below, run.name, colour=colour)
    yield "</svg>"


def rectangle(x: float, y: float, wide: float, high: float, fill: str) -> str:
    return f'<rect x="{x}" y="{y}" width="{wide:.1f}" height="{high}" fill="{fill}"/>'


def text(x: float, y: float, words: str, anchor: str = "start", colour: str = "#111") -> str:
    return f'<text x="{x}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{words}</text>'


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--phases", type=int, default=4)
    parser.add_argument("--instructions", type=int, default=200_000_000, help="of each phase")
    parser.add_argument("--figure", type=Path, default=FIGURE, metavar="FILE")
    parser.add_argument("--lines", type=Path, metavar="FOLDER", help="keep the controllers' lines")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vtax-bench-") as work, closed_loop(Path(work)) as loop:
        runs = [
            loop.run(name, options.phases, options.instructions) for name in (*STATIC, *POLICIES)
        ]
        intact = all(each["verified"] for each in loop.reports())
    if options.lines:
        options.lines.mkdir(exist_ok=True)
        for run in runs:
            kept = "".join(f"{json.dumps(line)}\n" for line in run.lines)
            (options.lines / f"{run.name}.jsonl").write_text(kept)
    print("\n".join(table(runs)))
    if not intact:
        sys.exit("bench: a program's memory is not what it must be")
    options.figure.write_text("\n".join(svg(runs)) + "\n")


if __name__ == "__main__":
    main()
