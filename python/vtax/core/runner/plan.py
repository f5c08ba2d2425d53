"""The order of a campaign: in rounds, each with every environment, in a new random order.

Interleaving keeps slow changes of the machine (neighbours, heat) from falling on one environment;
shuffling keeps one environment from always following the same other (Abedi & Brecht 2017).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence

Repetition = tuple[str, int]
"""A label and the number of a repetition within the label, from 0."""


class Interleaving:
    """Makes the order, a round at a time; the same seed and rounds give the same order."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._counts: Counter[str] = Counter()
        self.order: list[Repetition] = []
        self.rounds: dict[Repetition, int] = {}
        """The round of each repetition, from 0."""

    def add(self, runs: Mapping[str, int]) -> Sequence[Repetition]:
        """Add a round, with the given number of runs of each label."""
        number = 1 + max(self.rounds.values(), default=-1)
        labels = [label for label, count in runs.items() for _ in range(count)]
        self._random.shuffle(labels)
        added = []
        for label in labels:
            added.append((label, self._counts[label]))
            self._counts[label] += 1
        self.order += added
        self.rounds |= dict.fromkeys(added, number)
        return added
