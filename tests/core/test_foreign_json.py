"""JSON from other programs: it is parsed as it is, or raises one kind of error."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtax.core.foreign_json import LARGEST_INTEGER, SMALLEST_INTEGER, parse, parse_object

SOURCE = Path(__file__).parents[2] / "python/vtax"

WHOLE_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(SMALLEST_INTEGER, LARGEST_INTEGER)
    | st.floats(allow_nan=False, allow_infinity=False)
    | WHOLE_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WHOLE_TEXT, inner, max_size=4),
    max_leaves=20,
)


@given(VALUES, st.booleans(), st.booleans())
def test_json_is_read_as_it_is(value: object, ascii_only: bool, as_bytes: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert parse(text.encode() if as_bytes else text) == value


@given(st.binary(max_size=200) | st.text(max_size=200))
def test_anything_else_is_a_value_error(text: str | bytes) -> None:
    try:
        found = parse(text)
    except ValueError:
        return
    json.dumps(found, ensure_ascii=False, allow_nan=False).encode()


@given(st.sampled_from(["[", '{"a":', '[{"a":[']), st.integers(1, 200_000), st.booleans())
def test_depth_is_no_traceback(opening: str, depth: int, closed: bool) -> None:
    closing = "".join({"[": "]", "{": "}"}[each] for each in reversed(opening) if each in "[{")
    text = opening * depth + ("0" + closing * depth if closed else "")
    try:
        parse(text)
    except ValueError:
        return
    assert closed and depth < sys.getrecursionlimit() * 10


@given(st.integers(LARGEST_INTEGER + 1) | st.integers(max_value=SMALLEST_INTEGER - 1))
def test_integers_that_fit_nowhere_are_refused(number: int) -> None:
    with pytest.raises(ValueError, match="digits"):
        parse(f'{{"n": {number}}}')


@pytest.mark.parametrize("text", ["NaN", "-Infinity", "[Infinity]", "1e999", "-1e400", "9" * 5000])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse(text)


@given(st.integers(0xD800, 0xDFFF), WHOLE_TEXT)
def test_half_a_pair_can_be_written(half: int, around: str) -> None:
    quoted = json.dumps(around)[1:-1]
    text = f'{{"{quoted}\\u{half:04x}": ["\\u{half:04X} {quoted}"]}}'
    found = parse_object(text)
    json.dumps(found, ensure_ascii=False).encode()
    assert found == {f"{around}\ufffd": [f"\ufffd {around}"]}


@pytest.mark.parametrize("text", ["[]", "1", "null", '"x"', ""])
def test_an_object_is_asked_for(text: str) -> None:
    with pytest.raises(ValueError):
        parse_object(text)


def test_nothing_else_reads_json() -> None:
    for file in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute) and ast.unparse(node) in ("json.loads", "json.load"):
                assert file.name == "foreign_json.py", f"{file}: foreign_json.parse"
