"""The tables of simulated coverage and error rates in docs/statistics.md, and the program that
writes them.

    python bench/error_rates.py [TABLE...]

Each row is a simulation of whole campaigns whose truth is known. A test repeats every cell with
fewer trials and other random numbers.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))

import noises  # noqa: E402
from vtax.core.statistics.means import log_ratio_of_means  # noqa: E402
from vtax.core.statistics.results import Control, Verdict  # noqa: E402
from vtax.core.statistics.rounds import Run, log_ratio, one_each, sign_flip_p  # noqa: E402
from vtax.core.statistics.statistics import Estimate  # noqa: E402
from vtax.core.statistics.unpaired import log_ratio_of_medians  # noqa: E402
from vtax.core.statistics.verdicts import ERROR, both, judge, judge_control  # noqa: E402
from vtax.record.timeline.phases import changes  # noqa: E402

PAGE = ROOT / "docs" / "statistics.md"
TRIALS = 1000
MARGIN = 2.0
FAIL_OVER = 3.0
"""The margin of `--fail-over` in the examples."""

Random = np.random.Generator
Sides = tuple[list[Run], list[Run]]


@dataclass(frozen=True, slots=True)
class Row:
    """What is simulated, and which campaigns count."""

    name: str
    trial: Callable[[Random, int], bool | None]
    """Decides from random numbers and repetitions whether the event happened; None: the trial does
    not count."""


@dataclass(frozen=True, slots=True)
class Rates:
    """A table: percent of trials, by row and number of repetitions."""

    heading: str
    sizes: Sequence[int]
    rows: Sequence[Row]

    def cells(self, row: Row, trials: int, seed: int) -> Iterator[tuple[int, int]]:
        """For each size, how often the event happened in how many trials."""
        for size in self.sizes:
            random = np.random.default_rng([seed, size])
            found = [row.trial(random, size) for _ in range(trials)]
            counted = [each for each in found if each is not None]
            yield sum(counted), len(counted)

    def markdown(self, trials: int, seed: int = 1) -> str:
        head = [self.heading, *(f"n = {self.sizes[0]}", *map(str, self.sizes[1:]))]
        lines = [head, ["---"] * len(head)]
        for row in self.rows:
            cells = self.cells(row, trials, seed)
            lines.append([row.name, *(f"{100 * hits / of:.1f}" for hits, of in cells)])
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def alike(noise: noises.Noise, random: Random, rounds: int, runs: int = 3) -> Sides:
    """One run against the other runs of a round, all alike, in random order."""
    logs = random.permuted(noise(random, rounds, runs), axis=1)
    return noises.runs(logs[:, :1]), noises.runs(logs[:, 1:])


def slow_runs(slow: float, random: Random, rounds: int) -> Sides:
    """One side is slow in a tenth of its runs; both have a noise of 2 %."""
    own, base = (np.exp(0.02 * random.standard_normal(rounds)) for _ in range(2))
    own *= np.where(random.random(rounds) < 0.1, slow, 1.0)
    return one_each(own.tolist()), one_each(base.tolist())


def two_runs(noise: noises.Noise, random: Random, rounds: int) -> Sides:
    """Two runs of the same, one after the other, which share no rounds."""
    return noises.runs(noise(random, rounds, 1)), noises.runs(noise(random, rounds, 1))


def rounded(step: float, noise: float, true: float, random: Random, rounds: int) -> Sides:
    """Times of 0.1 to 0.2 s, of which the program or the clock shows whole steps only."""
    length = random.uniform(0.1, 0.2)
    sides = []
    for middle in (length / true, length):
        values = middle * np.exp(noise * random.standard_normal(rounds))
        steps = np.maximum(np.round(values / step), 1.0)
        sides.append(one_each([round(float(each) * step, 6) for each in steps]))
    return sides[0], sides[1]


def _covers(found: Estimate | None, truth: float) -> bool:
    assert found is not None
    return abs(found.value - truth) <= found.half_width() + 1e-9


def _verdict(own: Sequence[Run], base: Sequence[Run]) -> Verdict:
    typical, mean = log_ratio(own, base), log_ratio_of_means(own, base)
    assert typical is not None and mean is not None
    return both(judge(-typical, MARGIN), judge(-mean, MARGIN))


def _alarm(own: Sequence[Run], base: Sequence[Run]) -> bool:
    ratio = log_ratio(own, base)
    assert ratio is not None
    chance = sign_flip_p(own, base, ERROR)
    return judge_control(ratio, MARGIN, 1, chance) is Control.DIFFERS


def _showed(own: Sequence[Run]) -> bool:
    return max(run.value for run in own) > 1.2


SAME: Mapping[str, noises.Noise] = {
    "lognormal, 5 %": noises.lognormal,
    "exponential above a floor, 5 %": noises.floor,
    "drift of 20 % over the run": noises.drift,
    "AR(1), 0.8": noises.remembered,
    "Student's t, 3 degrees of freedom": noises.heavy_tails,
    "every tenth run, of both sides, 1.3 times as slow": noises.disturbed,
    "every tenth run, of both sides, twice as slow": noises.doubled,
}
ROUNDING = {
    "step 50 ms, noise 0.5 %": (0.05, 0.005),
    "step 10 ms, noise 0.5 %": (0.01, 0.005),
    "step 10 ms, noise 5 %": (0.01, 0.05),
    "step 10 ms, noise 10 %: values dither": (0.01, 0.1),
}


def _same(name: str, estimator: Callable[..., Estimate | None], noise: noises.Noise) -> Row:
    return Row(name, lambda random, n: _covers(estimator(*alike(noise, random, n)), 0.0))


def _against(name: str, noise: noises.Noise, truth: float = 1.0) -> Row:
    """Whether a run fails in which performance is `truth` of that in the earlier run."""

    def fails(random: Random, n: int) -> bool:
        now, then = two_runs(noise, random, n)
        found = log_ratio_of_medians(now, then, int(random.integers(1 << 32)))
        assert found is not None
        shifted = dataclasses.replace(found, value=found.value - math.log(truth))
        return judge(-shifted, FAIL_OVER) is Verdict.SLOWER

    return Row(name, fails)


def _tails() -> Iterator[Row]:
    for slow, name in ((1.3, "1.3 times"), (2.0, "twice")):
        truth = math.log1p(0.1 * (slow - 1.0))

        def showed(random: Random, n: int, slow: float = slow) -> bool:
            return _showed(slow_runs(slow, random, n)[0])

        def covered(random: Random, n: int, slow: float = slow, truth: float = truth) -> bool:
            return _covers(log_ratio_of_means(*slow_runs(slow, random, n)), truth)

        def of_those(
            random: Random, n: int, slow: float = slow, truth: float = truth
        ) -> bool | None:
            own, base = slow_runs(slow, random, n)
            return _covers(log_ratio_of_means(own, base), truth) if _showed(own) else None

        def equivalent(random: Random, n: int, slow: float = slow) -> bool | None:
            own, base = slow_runs(slow, random, n)
            return _verdict(own, base) is Verdict.EQUIVALENT if _showed(own) else None

        yield Row(f"{name} as slow: campaigns with a slow run", showed)
        yield Row("the mean covered", covered)
        yield Row("covered where a slow run showed", of_those)
        yield Row("*equivalent* where a slow run showed", equivalent)


def _coarse() -> Iterator[Row]:
    for name, (step, noise) in ROUNDING.items():
        for word, estimator in (("typical run", log_ratio), ("mean", log_ratio_of_means)):

            def covered(
                random: Random,
                n: int,
                step: float = step,
                noise: float = noise,
                estimator: Callable[..., Estimate | None] = estimator,
            ) -> bool:
                sides = rounded(step, noise, 0.98, random, n)
                return _covers(estimator(*sides), -math.log(0.98))

            yield Row(f"{name}: {word} covered", covered)

        def wrong(random: Random, n: int, step: float = step, noise: float = noise) -> bool:
            return _verdict(*rounded(step, noise, 0.93, random, n)) is Verdict.EQUIVALENT

        yield Row(f"{name}: 93 % called *equivalent*", wrong)


def _wandering(mean: float, rho: float) -> Row:
    def found(random: Random, n: int) -> bool:
        return bool(changes(noises.wandering_counts(random, n, 1, mean, rho)))

    return Row(f"Poisson, {mean:g} a bin, log rate AR(1) of {rho:g}", found)


TABLES: Mapping[str, Rates] = {
    "typical": Rates(
        "typical run covered, noise",
        (3, 5, 10, 30),
        [_same(name, log_ratio, noise) for name, noise in SAME.items()],
    ),
    "mean": Rates(
        "mean covered, noise",
        (3, 5, 10, 30),
        [_same(name, log_ratio_of_means, noise) for name, noise in SAME.items()],
    ),
    "tails": Rates("one side slow in a tenth of its runs", (5, 10, 30, 100), list(_tails())),
    "coarse": Rates("values in steps, a true 98 %", (3, 10, 30), list(_coarse())),
    "control": Rates(
        "control *differs*, noise",
        (5, 10, 30),
        [
            Row(name, lambda random, n, noise=noise: _alarm(*alike(noise, random, n, 2)))
            for name, noise in SAME.items()
        ],
    ),
    "against": Rates(
        "a metric *fails*, noise",
        (5, 10, 30),
        [
            *(_against(f"no change: {name}", noise) for name, noise in SAME.items()),
            _against("3 % slower, the edge: lognormal, 5 %", noises.lognormal, 0.97),
            _against("10 % slower: lognormal, 5 %", noises.lognormal, 0.9),
            _against("20 % slower: lognormal, 5 %", noises.lognormal, 0.8),
        ],
    ),
    "phases": Rates(
        "a change in counts without one",
        (50, 200, 1000),
        [_wandering(mean, rho) for mean in (1.0, 5.0, 50.0) for rho in (0.8, 0.95, 0.99)],
    ),
}


def shown(page: str, name: str) -> list[list[str]]:
    """The cells of a table on the page, without its heading."""
    inside = page.partition(f"<!-- simulated {name} -->\n")[2].partition("<!-- end -->")[0]
    lines = [line.strip("| ").split("|") for line in inside.splitlines()]
    return [[cell.strip() for cell in line] for line in lines[2:]]


def rewrite(name: str, trials: int) -> None:
    """Replace a table on the page."""
    made = TABLES[name].markdown(trials)
    begin = f"<!-- simulated {name} -->\n"
    before, found, rest = PAGE.read_text().partition(begin)
    if not found:
        raise SystemExit(f"{PAGE.name} has no line {begin.strip()}")
    _, end, after = rest.partition("<!-- end -->")
    PAGE.write_text(f"{before}{begin}{made}\n{end}{after}")
    print(f"{name}: done", flush=True)


if __name__ == "__main__":
    for asked in sys.argv[1:] or TABLES:
        rewrite(asked, TRIALS)
