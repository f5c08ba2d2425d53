"""The units that programs print behind a number: dimension, factor and the direction they imply.

Prefixes are those of the standards: kB and KB are 1000 bytes, KiB is 1024. What vtax's own options
take as sizes and durations is in `vtax.core.units`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from vtax.core.formats.model import Better

PREFIXES: Mapping[str, int] = {
    **{letter: 1000**power for power, letter in enumerate("kMGTPE", 1)},
    **{f"{letter}i": 1024**power for power, letter in enumerate("KMGTPE", 1)},
    **{"K": 1000, "ki": 1024},
}
"""Prefixes, which stand before a unit, or alone behind a number."""
MULTIPLES: Mapping[str, int] = {
    **{"hundred": 100, "thousand": 10**3, "million": 10**6},
    **{"billion": 10**9, "trillion": 10**12},
}


@dataclass(frozen=True, slots=True)
class Unit:
    """What a unit measures; units of one dimension are converted by their factors."""

    dimension: str
    factor: Fraction
    better: Better | None
    """None: either direction can be meant."""


def _times() -> Mapping[str, Fraction]:
    stems = [
        ("s sec secs second seconds", Fraction(1)),
        ("ms msec msecs millis millisecond milliseconds", Fraction(1, 10**3)),
        ("us usec usecs microsecond microseconds micros", Fraction(1, 10**6)),
        ("\N{MICRO SIGN}s \N{GREEK SMALL LETTER MU}s", Fraction(1, 10**6)),
        ("ns nsec nsecs nanos nanosecond nanoseconds", Fraction(1, 10**9)),
        ("ps psec picosecond picoseconds", Fraction(1, 10**12)),
        ("min mins minute minutes", Fraction(60)),
        ("h hr hrs hour hours", Fraction(3600)),
        ("d day days", Fraction(86400)),
    ]
    found = {name: factor for names, factor in stems for name in names.split()}
    prefixes = [("m milli", 3), ("u \N{MICRO SIGN} \N{GREEK SMALL LETTER MU} micro", 6)]
    for letters, power in [*prefixes, ("n nano", 9), ("p pico", 12)]:
        for prefix, stem in itertools.product(
            letters.split(), ("sec", "secs", "second", "seconds")
        ):
            found[prefix + stem] = Fraction(1, 10**power)
    return found


TIMES = _times()
_INFORMATION = {
    **dict.fromkeys(("B", "byte", "bytes", "Byte", "Bytes"), 8),
    **dict.fromkeys(("bit", "bits", "Bit", "Bits", "b"), 1),
}
_LONG_PREFIXES = {"kilo": "k", "mega": "M", "giga": "G", "tera": "T"}
_LONG_PREFIXES |= {"kibi": "Ki", "mebi": "Mi", "gibi": "Gi", "tebi": "Ti"}
_FLOP = frozenset({"flop", "Flop", "FLOP"})
_RATES = {
    **dict.fromkeys(("flops", "FLOPS", "Flops", "FLOPs", "flop/s"), "flop"),
    **{"IOPS": "io", "iops": "io", "IPS": "instruction", "Hz": "1", "bps": "bit", "Bps": "byte"},
    **{"fps": "frame", "FPS": "frame", "rps": "request", "RPS": "request", "pps": "packet"},
    **{"qps": "query", "QPS": "query", "tps": "transaction", "TPS": "transaction"},
}
"""Names that include "per second", and what they count."""
_NOUNS = {
    "op": "op ops operation operations",
    "request": "request requests req reqs",
    "iteration": "iteration iterations iter iters it",
    "transaction": "transaction transactions trans txn txns tx",
    "query": "query queries",
    "packet": "packet packets pkt pkts",
    "io": "io ios IO IOs",
    "call": "call calls syscall syscalls",
    "instruction": "instruction instructions instr insn insns",
    "cycle": "cycle cycles clock clocks",
}
_NOUN = {name: noun for noun, names in _NOUNS.items() for name in names.split()}
_PLAIN = {"%": "percent", "percent": "percent", "x": "times", "": "1", "1": "1", "#": "1"}
_UNWANTED = re.compile(
    "abort|bad|bounce|collision|conflict|contention|context|corrupt|crash|discard|drop|error|evict"
    "|exit|fail|fault|idle|interrupt|invalid|irq|kill|leak|los[st]|migration|miss|overrun|panic"
    "|pause|reject|restart|retransmi|retr(?:y|ies)|stale|stall|steal|swap|switch|throttl|timeout"
    "|trap|underrun|vmexit|wait|wast"
)
"""Beginnings of words whose rate may be better higher or lower."""
_WORD = re.compile(r"[A-Za-z_#1][A-Za-z0-9_-]*")
_COMPOUND = re.compile(r"(?P<of>[^/]*?)(?:\s*/\s*|\s+per\s+|^per\s+)(?P<per>[^/\s]+)")


def known(text: str) -> Unit | None:
    """The unit of a text such as `ms`, `MB/s`, `ops per second`, `ns/op`; None: unknown."""
    text = text.strip()
    if len(text) > 2 and text.lower() in TIMES:
        text = text.lower()
    if text in TIMES:
        return Unit("time", TIMES[text], "lower")
    if text in _PLAIN:
        return Unit(_PLAIN[text], Fraction(1), None)
    for stem, of in _RATES.items():
        if (factor := _prefixed(text, stem)) is not None:
            bits = 8 if of == "byte" else 1
            dimension = "information" if of in ("bit", "byte") else of
            return Unit(f"{dimension}/time", Fraction(factor * bits), "higher")
    if (match := _COMPOUND.fullmatch(text)) is not None:
        return _compound(match["of"].strip(), match["per"])
    return _amount(text)


def unwanted(text: str) -> bool:
    """Whether one of its words counts what nobody wants more of."""
    words = re.split("[^A-Za-z]+|(?<=[a-z])(?=[A-Z])", text)
    return any(_UNWANTED.match(word.lower()) for word in words)


def _compound(of: str, per: str) -> Unit | None:
    if len(per) > 2 and per.lower() in TIMES:
        per = per.lower()
    if per in TIMES and of not in TIMES:
        amount = _amount(of) or _unnamed(of)
        if amount is None:
            return None
        better: Better | None = None if unwanted(of) else "higher"
        return Unit(f"{amount.dimension}/time", amount.factor / TIMES[per], better)
    over = _amount(per) or _unnamed(per)
    if over is None or per in TIMES:
        return None
    if of in TIMES:
        return Unit(f"time/{over.dimension}", TIMES[of] / over.factor, "lower")
    if _NOUN.get(of) == "cycle":
        return Unit(f"cycle/{over.dimension}", 1 / over.factor, "lower")
    return None


def _amount(text: str) -> Unit | None:
    """The unit of a known amount, which may have a prefix."""
    if text in ("", "1", "#"):
        return Unit("1", Fraction(1), None)
    for stem, bits in _INFORMATION.items():
        if (factor := _prefixed(text, stem)) is not None and not (stem == "b" and factor == 1):
            return Unit("information", Fraction(factor * bits), None)
    for stem in _FLOP:
        if (factor := _prefixed(text, stem)) is not None:
            return Unit("flop", Fraction(factor), None)
    for stem, noun in _NOUN.items():
        if (factor := _prefixed(text, stem)) is not None:
            return Unit(noun, Fraction(factor), None)
    return None


def _prefixed(text: str, stem: str) -> int | None:
    if not text.endswith(stem):
        return None
    before = text.removesuffix(stem)
    before = _LONG_PREFIXES.get(before.lower(), before)
    return 1 if not before else PREFIXES.get(before)


def _unnamed(text: str) -> Unit | None:
    """The unit of an amount that no table knows, with a dimension of its own."""
    if not _WORD.fullmatch(text):
        return None
    noun = text[:-1] if len(text) > 2 and text.endswith("s") else text
    return Unit(noun, Fraction(1), None)


def conversion(printed: str, wanted: str) -> Fraction | None:
    """The factor from the printed unit to the wanted one; None: their dimensions differ."""
    if printed == wanted:
        return Fraction(1)
    own, other = known(printed), known(wanted)
    if own is None or other is None or own.dimension != other.dimension:
        return None
    return own.factor / other.factor
