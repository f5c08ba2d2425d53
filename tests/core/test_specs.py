"""Environment specs: what is understood, and what the error says when it is not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtax.core.errors import MisuseError
from vtax.core.specs import Spec, parse_spec
from vtax.environments import build

WORD = st.text("abcdefghij0123456789_", min_size=1, max_size=8)


@given(WORD, st.dictionaries(WORD, WORD, max_size=4))
def test_a_spec_survives_being_written_and_read(name: str, options: dict[str, str]) -> None:
    spec = Spec(name, options)
    assert parse_spec(str(spec)) == spec


@given(st.text(max_size=40))
def test_any_text_is_a_spec_or_a_misuse(text: str) -> None:
    try:
        build(text)
    except MisuseError as error:
        assert str(error).isprintable()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("natve", "unknown environment 'natve'; did you mean 'native'?"),
        ("uml:memory=1G", "unknown key for environment 'uml': 'memory'; did you mean 'mem'?"),
        ("uml:mem", "'mem' is not key=value"),
        ("uml:mem=1G,mem=2G", "'mem' is given twice"),
        ("uml:mem=8M", "too small to boot"),
        ("uml:mem=900T", "is more than the host's"),
        ("qemu:accel=xen", "use auto, kvm or tcg"),
        ("qemu:smp=0", "must be a whole number from 1 to"),
        ("qemu:smp=4096", "must be a whole number from 1 to"),
        ("qemu:cpu=max;reboot", "not the name of a CPU model"),
        ("qemu:kernel=/nowhere", "is not a file"),
        ("native:mem=1k", "too small"),
    ],
)
def test_a_bad_spec_is_one_line_with_the_remedy(text: str, message: str) -> None:
    with pytest.raises(MisuseError) as caught:
        build(text)
    assert message in str(caught.value)
