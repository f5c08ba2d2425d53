"""The roles of threads that vtax knows are those that `vtax-host` gives."""

import re
from pathlib import Path

from vtax.place.cputune import EMULATOR, IO_THREAD
from vtax.place.service_domain import RUNS_A_GUEST, SHARED

DECLARATION = Path(__file__).parents[2] / "crates/host/src/place/role.rs"


def test_roles_are_those_of_the_program() -> None:
    text = DECLARATION.read_text()
    names = dict(re.findall(r'Self::(\w+) => "([\w-]+)"', text))
    shared = re.search(r"fn is_shared.*?matches!\((.*?)\)", text, re.DOTALL)
    assert shared is not None
    assert {names[each] for each in re.findall(r"Self::(\w+)", shared[1])} == SHARED
    assert RUNS_A_GUEST | {IO_THREAD, *EMULATOR} <= set(names.values())
