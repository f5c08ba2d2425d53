"""Facts that separate some hosts from the others.

It is a difference, and no cause: with a hundred facts and few hosts some fact separates by chance.
So each has its chance: the share of all choices of as many hosts that the same fact would separate
as well. A fact that has a value of its own on each host, such as a serial number, separates every
single host; its chance is 1 and it is left out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from vtax.compare.facts import MAX_DEPTH, VOLATILE
from vtax.core.formats.model import EnvironmentRecord
from vtax.core.page.format import one_line

MOST_CHANCE = 0.5
"""A fact that separates a random choice more often than not says nothing."""
MOST_FACTS = 1000
LONGEST_TEXT = 4096

Facts = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Separation:
    """A fact whose value some of the chosen hosts share, and no host that was not chosen has."""

    fact: str
    value: str
    hosts: tuple[str, ...]
    """Those that share it."""
    others: tuple[str, ...]
    """The values of the hosts that were not chosen, the most frequent first."""
    chance: float
    """The share of all choices of as many hosts that this fact separates, too."""


def separations(facts: Mapping[str, Facts], chosen: frozenset[str]) -> list[Separation]:
    """What separates chosen hosts from the others in `facts` (the facts of each host).

    A fact that is not known of every host separates nothing. What separates the most of the chosen
    comes first, then what is the least likely by chance.
    """
    if not chosen or not chosen < facts.keys():
        return []
    known = set.intersection(*(set(each) for each in facts.values()))
    found = [each for fact in known for each in _separations(fact, facts, chosen)]
    return sorted(found, key=lambda each: (-len(each.hosts), each.chance, each.fact, each.value))


def _separations(
    fact: str, facts: Mapping[str, Facts], chosen: frozenset[str]
) -> Iterator[Separation]:
    by_value: dict[str, list[str]] = {}
    for host in sorted(facts):
        by_value.setdefault(facts[host][fact], []).append(host)
    sizes = Counter(map(len, by_value.values()))
    outside = Counter(own[fact] for host, own in facts.items() if host not in chosen)
    for value, hosts in by_value.items():
        # The choices that this fact separates are the hosts of one value, where they are as many.
        chance = sizes[len(hosts)] / math.comb(len(facts), len(hosts))
        if value not in outside and chance <= MOST_CHANCE:
            others = tuple(other for other, _ in outside.most_common())
            yield Separation(fact, value, tuple(hosts), others, chance)


def facts_of(environment: EnvironmentRecord) -> Facts:
    """The facts of a machine as text, by dotted path; what is null is not known."""
    found = dict(islice(_flat(environment.facts), MOST_FACTS))
    found |= {f"libraries.{one_line(name)}": text for name, text in environment.libraries.items()}
    return {path: text for path, text in found.items() if path not in VOLATILE}


def _flat(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and depth < MAX_DEPTH:
        for key, inner in value.items():
            yield from _flat(inner, f"{path}.{one_line(str(key))}".lstrip("."), depth + 1)
    elif value is not None and path:
        text = ",".join(map(_plain, value)) if isinstance(value, list) else _plain(value)
        yield path[:LONGEST_TEXT], text[:LONGEST_TEXT]


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{key}={each}" for key, each in sorted(value.items()))
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


def shown(separation: Separation, limit: int = 60) -> tuple[str, str]:
    """The value here and there in few words: of long lists, what one has and the other has not."""
    here, there = separation.value, separation.others[0]
    if max(len(here), len(there)) > limit and "," in here + there:
        ours, theirs = set(here.split(",")), set(there.split(","))
        here, there = (",".join(sorted(each)) or "nothing more" for each in
                       (ours - theirs, theirs - ours))  # fmt: skip
    more = len(separation.others) - 1
    texts = [f"{text[: limit - 1]}…" if len(text) > limit else text for text in (here, there)]
    return texts[0], texts[1] + (f" (or {more} other{'s' * (more > 1)})" if more else "")
