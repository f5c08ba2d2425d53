"""A number in what a program printed: read whole, with its unit, or refused."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from vtax.core.errors import VtaxError
from vtax.workloads.metric_names import unit_of
from vtax.workloads.metric_units import MULTIPLES, PREFIXES, TIMES, known

LEAST, MOST = Fraction(1, 10**100), Fraction(10**100)
"""Beyond these limits, squares and ratios leave the range of a float."""

_SEPARATORS = (
    ",_:'\N{RIGHT SINGLE QUOTATION MARK}\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}\N{THIN SPACE}"
)
_BLOB = re.compile(
    rf"0[xX][0-9A-Fa-f]+|\.?[0-9](?:[0-9]|[eEdD][+-]?(?=[0-9])|\.|[{_SEPARATORS}](?=[0-9]))*"
)
"""Every character that may belong to one number."""
_PLAIN = re.compile(r"(?:[0-9]+(?:_[0-9]+)*\.?[0-9]*|\.[0-9]+)(?:[eEdD][+-]?[0-9]{1,4})?")
_GROUPED = re.compile(
    rf"[1-9][0-9]{{0,2}}(?P<by>[{_SEPARATORS.replace('_:', '')}])[0-9]{{3}}(?:(?P=by)[0-9]{{3}})*"
    r"(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,4})?"
)
_NUMBER = r"[+-]?(?:[0-9][0-9.,]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_POWER = re.compile(r"[ \t]*[x*\u00d7\u00b7\u22c5][ \t]*10(?:\^|\*\*)([+-]?[0-9]{1,3})(?![0-9.])")
_POWER_OF_TEN = re.compile(r"[ \t]*[x*\u00d7\u00b7\u22c5][ \t]*10(?![0-9.])")
_ASIDE = re.compile(rf"(?:/{_NUMBER})+|[ \t]*(?:\u00b1|\+/-|\+-)[ \t]*{_NUMBER}\)?")
"""Further numbers of a list, or the number's uncertainty, before their common unit."""
_UNIT = re.compile(
    r"(?P<gap>[ \t\u00a0\u202f]*)(?P<open>[\[(]?)(?P<word>[A-Za-z%#\u00b5\u03bc][\w%]*)?"
    r"(?:(?P<slash>[ ]?/[ ]?|[ ]+per[ ]+)(?P<per>[A-Za-z][\w-]*))?"
)
_BEFORE = re.compile(r"[\[(]([^\[\]()\s][^\[\]()]{0,20})[\])][ \t]*[:=]?[ \t]*[+-]?$")
_LABEL = re.compile(
    r"(?<![0-9] )(?<![^\s,;|(])([^\s,;|=:()\[\]]{2,40})(?:[ \t]*[:=][ \t]*|[ \t]+)[+-]?$"
)
_PART = re.compile(
    r"[ \t]?(?:,|and)?[ \t]?([0-9]+(?:\.[0-9]+)?)[ \t]*([A-Za-z\u00b5\u03bc]+)(?![A-Za-z0-9/])"
)
"""A further part of a duration such as `2m 3.5s`."""
_SIZES = {**TIMES, "m": Fraction(60), **dict.fromkeys(("w", "week", "weeks"), Fraction(604800))}
_PRODUCT = re.compile(
    r"[ ]?[*\u00b7\u22c5][ ]?[A-Za-z]|[\u00b7\u22c5 ]?[A-Za-z]*(?:\^?-[1-9]|\u207b)(?![0-9.])"
)
"""Further factors of a unit such as `MB s-1`."""
_PROSE = re.compile(
    "of|in|on|at|and|or|for|to|the|with|from|by|after|before|per|is|was|are|were|over|during|total"
    "|avg|mean|median|stddev|stdev|std|max|maximum|minimum|each|all|as|than"
)
"""Words that continue the sentence behind a number."""
_WORD = re.compile(r"[ \t\u00a0\u202f]*([A-Za-z\u00b5\u03bc]+)(?![\w/.-])")
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[ -/]+[0-~])")
_STATISTICS = re.compile(r"\b(?:max|maximum|avg|mean|median)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Printed:
    """A number and the unit beside it."""

    value: Fraction
    unit: str | None
    """None: no unit that the table knows is beside the number."""
    word: str = ""
    """The word behind a number without a unit, which may be a unit that vtax does not know."""


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a match: the group in the line, and the whole match around it."""

    line: str
    begin: int
    end: int
    match_begin: int
    match_end: int


def shown(text: str) -> str:
    """A text as a terminal shows it: without colours, and with backspaces applied."""
    if "\x1b" in text:
        text = _ESCAPE.sub("", text)
    if "\b" not in text:
        return text
    kept: list[str] = []
    for letter in text:
        if letter != "\b":
            kept.append(letter)
        elif kept and kept[-1] != "\n":
            kept.pop()
    return "".join(kept)


def read(place: Place, declared: str) -> Printed:
    """The whole number of which the group covers at least a piece.

    Raises VtaxError, without the metric's name, when the number cannot be read exactly.
    """
    begin, end = _number_around(place)
    text = (
        place.line[begin:end].rstrip(".")
        if place.line[begin:end].count(".") > 1
        else (place.line[begin:end])
    )
    value = _value(place, text)
    behind = place.line[begin + len(text) :]
    negative = _sign(place.line, begin, place.begin)
    if (power := _POWER.match(behind)) is not None:
        value *= Fraction(10) ** int(power[1])
        behind = behind[power.end() :]
    elif _POWER_OF_TEN.match(behind):
        raise _refused(place, "a power of ten that cannot be read follows")
    factor, unit = _unit(place, behind, declared, begin)
    value *= factor * (-1 if negative else 1)
    if value and not LEAST <= abs(value) <= MOST:
        raise _refused(place, "its size is not between 1e-100 and 1e100")
    _require_only_number(place, begin, unit)
    return Printed(value, unit, "" if unit else _word_behind(place, behind))


def _refused(place: Place, reason: str) -> VtaxError:
    shown = place.line[max(0, place.begin - 20) : place.end + 20].strip()
    return VtaxError(f"{shown!r:.70}: {reason}")


def _number_around(place: Place) -> tuple[int, int]:
    """The begin and end of the number of which the group covers a piece."""
    group = place.line[place.begin : place.end]
    low = place.begin + len(group) - len(group.lstrip())
    high = place.begin + len(group.rstrip())
    found = [m for m in _BLOB.finditer(place.line) if m.start() < high and m.end() > low]
    if len(found) != 1:
        raise VtaxError(f"{group!r:.60} is not a number")
    begin, end = found[0].span()
    whole = found[0][0]
    # Text that the expression itself matches beside the group may separate two numbers.
    left = [m.end() for m in re.finditer("[,:']", whole) if begin + m.end() <= low]
    right = [m.start() for m in re.finditer("[,:']", whole) if begin + m.start() >= high]
    cut_left = left and begin + left[-1] - 1 >= place.match_begin
    cut_right = right and begin + right[0] < place.match_end
    if cut_left or cut_right:
        if _GROUPED.fullmatch(whole):
            raise _refused(place, "it may be one number with separators, or several")
        end = begin + right[0] if cut_right else end
        begin = begin + left[-1] if cut_left else begin
    if any(letter.isnumeric() for letter in place.line[max(0, begin - 1) : begin]):
        raise _refused(place, "it is a piece of a number")
    if any(letter.isnumeric() for letter in place.line[end : end + 1]):
        raise _refused(place, "it is a piece of a number")
    _refuse_spaced(place, begin, end)
    return begin, end


def _refuse_spaced(place: Place, begin: int, end: int) -> None:
    """Refuse `1 234`, unless the expression matches the other part itself."""
    before = re.search(r"(?<![0-9.,])[0-9]{1,3}((?: [0-9]{3})*) $", place.line[:begin])
    here = place.line[begin:end]
    if before and re.match(r"[0-9]{3}(?![0-9])", here) and before.start() < place.match_begin:
        raise _refused(place, "it may be a piece of a number with spaces")
    after = re.match(r" [0-9]{3}(?![0-9])", place.line[end:])
    if after and re.fullmatch(r"[0-9]{1,3}", here) and end + after.end() > place.match_end:
        raise _refused(place, "it may be a piece of a number with spaces")


def _value(place: Place, text: str) -> Fraction:
    if _GROUPED.fullmatch(text):
        text = re.sub(r"[^0-9.eE+-]", "", text)
    elif not _PLAIN.fullmatch(text):
        raise _refused(place, f"{text!r:.40} is not a number")
    text = re.sub("[dD]", "e", text).replace("_", "")
    exponent = text.lower().partition("e")[2]
    if exponent and abs(int(exponent)) > 400:
        raise _refused(place, "its size is not between 1e-100 and 1e100")
    mantissa, _, power = text.lower().partition("e")
    return Fraction(f"0{mantissa}" if mantissa[0] == "." else mantissa.rstrip(".")) * (
        Fraction(10) ** int(power or 0)
    )


def _sign(line: str, begin: int, group_begin: int) -> bool:
    before = line[:begin]
    if before[-1:] not in ("+", "-", "\N{MINUS SIGN}"):
        return False
    other = before[-2:-1]
    if other.isdigit():
        raise VtaxError(f"{line[max(0, begin - 20) : begin + 20].strip()!r}: it may be a range")
    # `run-5` is a name; `([-0-9]+)` includes the sign itself.
    own = group_begin < begin
    return before[-1] != "+" and (own or not (other.isalnum() or other in ("-", "_")))


def _unit(place: Place, behind: str, declared: str, begin: int) -> tuple[int, str | None]:
    """The multiple that follows the number, and the unit."""
    while (aside := _ASIDE.match(behind)) is not None:
        behind = behind[aside.end() :]
    glued = behind[:1]
    if glued == "-" and behind[1:2].isdigit():
        raise _refused(place, "it may be a range")
    if behind[:1] == ")":
        behind = behind[1:]
    match = _UNIT.match(behind)
    word = str(match["word"] or "") if match else ""
    if match is None or not (word or match["slash"]):
        return 1, _unit_before(place, begin)
    tight = not match["gap"] and not match["open"]
    _refuse_parts(place, match, behind)
    multiple = 1
    if word.lower().rstrip("s") in MULTIPLES:
        word = word.lower().rstrip("s")
    elif word.lower().startswith(tuple(MULTIPLES)):
        raise _refused(place, f"{word!r:.40} is not a unit")
    if word in PREFIXES or word in MULTIPLES:
        if match["slash"]:
            return _multiple(place, word, declared), f"/{match['per']}"
        rest = behind[match.end("word") :]
        following = _UNIT.match(rest)
        multiple = _multiple(place, word, declared)
        if following is None or not (following["word"] or following["slash"]):
            return multiple, None
        match, tight, word = following, False, following["word"]
    return multiple, _known_unit(place, match, declared, tight)


def _refuse_parts(place: Place, match: re.Match[str], behind: str) -> None:
    """Refuse `1h2m3s` and `5 min 3 s`: durations of which this number is only a part."""
    word = re.match("[A-Za-z\u00b5\u03bc]*", match["word"] or "")
    name = word[0] if word else ""
    if name not in _SIZES:
        return
    part = _PART.match(behind[match.start("word") + len(name) :])
    # In a row such as `635.91us    0.89ms` each is a duration of its own.
    whole = "." not in place.line[place.line.rfind(" ", 0, place.begin) + 1 : place.end]
    if part is not None and whole and _SIZES.get(part[2], 0) < _SIZES[name] and part[2] in _SIZES:
        raise _refused(place, "it is a duration in several parts; let the program print seconds")


def _multiple(place: Place, word: str, declared: str) -> int:
    unit = known(declared) if declared else None
    if unit and unit.dimension.startswith("information") and word in "kKMGTPE":
        raise _refused(place, f"{word!r} may be a power of 1000 or of 1024")
    return PREFIXES[word] if word in PREFIXES else MULTIPLES[word]


def _known_unit(place: Place, match: re.Match[str], declared: str, tight: bool) -> str | None:
    word = match["word"] or ""
    if _PRODUCT.match(match.string[match.end("word") :]):
        raise _refused(place, "the unit behind it is a product that cannot be read")
    if match["slash"]:
        compound = f"{word}/{match['per']}"
        if (further := re.match(r"(?:/[A-Za-z]\w*)+", match.string[match.end() :])) is not None:
            return compound + further[0]
        if compound == declared or known(compound):
            return compound
        slash = "/" in match["slash"]
        if slash and (tight or known(word) or known(match["per"])):
            return compound
    if not word:
        return None
    if word == declared or (known(word) and not _is_count(word)):
        if word.lower() == "min" and _STATISTICS.search(place.line) and word != declared:
            raise _refused(place, "'min' may be minutes or the least value")
        return word
    if tight and any(letter.isdigit() for letter in word):
        raise _refused(place, f"{word!r:.40} behind it is not a unit")
    ahead = len(place.line) - len(match.string) + match.end("word")
    said_by_the_user = ahead <= place.match_end
    if tight or (declared and not known(word) and not (said_by_the_user or _PROSE.fullmatch(word))):
        return word
    return None


def _word_behind(place: Place, behind: str) -> str:
    """The word behind the number; "" where the sentence continues, or the user's expression matches
    the word."""
    found = _WORD.match(behind)
    if found is None or _PROSE.fullmatch(found[1]):
        return ""
    end = len(place.line) - len(behind) + found.end()
    return "" if end <= place.match_end else found[1]


def _is_count(word: str) -> bool:
    """Whether the word says what is counted, behind a plain number."""
    unit = known(word)
    return unit is not None and unit.better is None and unit.dimension not in (
        "information", "flop", "percent", "times",
    )  # fmt: skip


def _unit_before(place: Place, begin: int) -> str | None:
    """The unit in `time (ms): 5`."""
    found = _BEFORE.search(place.line[:begin])
    if found:
        return found[1] if known(found[1]) else None
    label = _LABEL.search(place.line[:begin])
    if label is None or label[1].lower() == "min":
        return None
    if ("/" in label[1] or not _is_count(label[1])) and known(label[1]):
        return label[1]
    return unit_of(label[1]) or None


def _require_only_number(place: Place, begin: int, unit: str | None) -> None:
    """Raise VtaxError unless the group has only a sign, the number and its unit."""
    group = place.line[place.begin : place.end].strip()
    rest = re.sub(rf"^[+\-\u2212]?(?:{_BLOB.pattern})?", "", group).strip(" .,")
    if place.begin < begin and not re.fullmatch(
        r"\s*[+\-\u2212]?\s*", place.line[place.begin : begin]
    ):
        raise VtaxError(f"{group!r:.60} is not a number")
    if rest and not re.fullmatch(r"[eEdD]?[+-]?|[kKMGTPE]i?", rest) and rest != unit:
        raise VtaxError(f"{group!r:.60} is not a number")
