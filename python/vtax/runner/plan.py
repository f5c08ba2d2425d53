"""The order of a campaign: every environment once per block, each block in a new random order.

Interleaving keeps slow changes of the machine (neighbours, heat) from falling on one environment;
shuffling keeps one environment from always following the same other (Abedi & Brecht 2017).
"""

from __future__ import annotations

import random
from collections.abc import Sequence


def interleaved(labels: Sequence[str], repetitions: int, seed: int) -> tuple[tuple[str, int], ...]:
    """(label, repetition) in the order to run; the same seed gives the same order."""
    source = random.Random(seed)
    order: list[tuple[str, int]] = []
    for repetition in range(repetitions):
        block = list(labels)
        source.shuffle(block)
        order += [(label, repetition) for label in block]
    return tuple(order)
