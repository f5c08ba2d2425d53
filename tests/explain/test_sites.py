"""The call sites of a bill's lines, from folded stacks."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from priced_data import USER, price_list, used
from vtax.explain.bill import Counted, bill
from vtax.explain.sites import MOST_SITES, Sites, by_class, with_sites

STACKS = """\
stat;tar;tar`_start;libc.so.6`__libc_start_main;tar`main;tar`walk;libc.so.6`fstatat64 70
stat;tar;tar`_start;libc.so.6`__libc_start_main;tar`main;tar`names;libc.so.6`fstatat64 20
stat;sh;tar`walk;libpthread-2.31.so`stat 9
stat;tar;tar+0x15223;libc.so.6`fstatat64 6
stat;tar;ld-linux-x86-64.so.2+0x209e6 5
stat;tar;[no file] 4
stat;tar 3
read;tar;tar`operator()(int, char);ld-musl-x86_64.so.1`read 2
"""


def test_a_site_is_the_innermost_function_outside_the_c_library() -> None:
    assert by_class(STACKS.splitlines()) == {
        "stat": Counter({
            ("tar", "walk"): 79, ("tar", "names"): 20, ("tar", "+0x15223"): 6,
            ("ld-linux-x86-64.so.2", ""): 5, ("tar", ""): 7,
        }),
        "read": Counter({("tar", "operator()(int, char)"): 2}),
    }  # fmt: skip


@pytest.mark.parametrize("line", ["", "stat", "stat;tar;tar`walk", "stat;tar x"])
def test_what_is_no_stack_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"unpack|literal"):
        by_class([line])


@given(st.lists(st.text(st.characters(exclude_characters="; \n"), max_size=9), max_size=5))
def test_no_call_is_lost_whatever_the_names_are(names: list[str]) -> None:
    (found,) = by_class([";".join(["stat", "a b", *names]) + " 12"]).values()
    assert found.total() == 12


def test_the_dearest_lines_have_their_dearest_sites() -> None:
    prices = price_list({"stat": (500.0, 12_500.0), "read": (300.0, 20_300.0), **USER})
    counted = Counted({"calls.stat": (117.0,), "calls.read": (2.0,), "calls.read_bytes": (2.0,)})
    own = bill("uml", "native", used(0.26, 0.26), used(0.10, 0.11), counted, prices)
    found = with_sites(own, Sites(by_class(STACKS.splitlines()), ""))
    lines = {line.operation: line for line in found.lines}
    stat = lines["stat"].sites
    assert [each.function for each in stat] == ["walk", "names", ""][:MOST_SITES]
    assert stat[0].count == 79 and stat[0].share == pytest.approx(79 / 117)
    assert [each.module for each in lines["read"].sites] == ["tar"]
    assert not lines["user code"].sites
    assert with_sites(own, Sites({}, "")) == own
