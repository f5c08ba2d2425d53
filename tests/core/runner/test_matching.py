"""Like with like: which baselines a campaign gets, and which differences are stated."""

import pytest

from vtax.core.errors import MisuseError
from vtax.core.runner.matching import Observed, compared_variants, differences


def roles(*specs: str) -> list[tuple[str, str, str | None]]:
    return [(each.label, each.role, each.baseline) for each in compared_variants(specs)]


def test_guests_of_one_shape_share_a_capped_baseline_with_its_control() -> None:
    base = "native:cpus=1,mem=1G"
    assert roles("native", "uml:mem=1G", "qemu:accel=tcg") == [
        (base, "baseline", None),
        (f"{base}#aa", "control", base),
        ("uml:mem=1G", "measured", base),
        ("qemu:accel=tcg", "measured", base),
    ]


def test_guests_of_two_shapes_get_two_baselines() -> None:
    found = roles("native", "uml:mem=512M", "qemu:mem=1G")
    assert [label for label, role, _ in found if role == "baseline"] == [
        "native:cpus=1,mem=512M",
        "native:cpus=1,mem=1G",
    ]
    assert ("uml:mem=512M", "measured", "native:cpus=1,mem=512M") in found


def test_a_native_in_so_many_words_is_the_baseline_of_its_shape() -> None:
    found = roles("native:mem=1G,cpus=1", "uml:mem=1G")
    assert found[0] == ("native:mem=1G,cpus=1", "baseline", None)
    assert found[-1] == ("uml:mem=1G", "measured", "native:mem=1G,cpus=1")


def test_a_capped_native_without_guests_is_measured_against_the_bare_one() -> None:
    assert roles("native:mem=256M") == [
        ("native", "baseline", None),
        ("native#aa", "control", "native"),
        ("native:mem=256M", "measured", "native"),
    ]


def test_native_alone_is_a_baseline_and_its_control() -> None:
    assert roles("native") == [("native", "baseline", None), ("native#aa", "control", "native")]


def test_a_baseline_that_is_asked_for_is_the_only_one() -> None:
    found = compared_variants(("uml:mem=512M", "qemu:mem=1G", "native"), baseline="native:cpus=1")
    assert [(each.label, each.role, each.baseline) for each in found] == [
        ("native:cpus=1", "baseline", None),
        ("native:cpus=1#aa", "control", "native:cpus=1"),
        ("uml:mem=512M", "measured", "native:cpus=1"),
        ("qemu:mem=1G", "measured", "native:cpus=1"),
        ("native", "measured", "native:cpus=1"),
    ]
    assert not any(each.note for each in found)
    again = compared_variants(("qemu:mem=1G", "uml"), control=False, baseline="uml")
    assert [(each.label, each.role) for each in again] == [
        ("uml", "baseline"),
        ("qemu:mem=1G", "measured"),
    ]


def test_without_a_baseline_nothing_runs_natively_and_the_report_says_so() -> None:
    found = compared_variants(("uml:mem=512M", "qemu:mem=1G"), baseline="none")
    assert [(each.label, each.role, each.baseline) for each in found] == [
        ("uml:mem=512M", "baseline", None),
        ("uml:mem=512M#aa", "control", "uml:mem=512M"),
        ("qemu:mem=1G", "measured", "uml:mem=512M"),
    ]
    assert found[0].note and "--baseline none" in found[0].note


def test_memory_beside_a_baseline_that_is_a_guest() -> None:
    guest = Observed({"memory": {"total_bytes": 1 << 30}}, is_guest=True)
    smaller = Observed({"memory": {"total_bytes": 1 << 29}})
    assert differences(guest, smaller) == (
        "The kernel leaves 512 MiB of memory to programs here, 1 GiB in the baseline.",
    )
    assert differences(guest, Observed(guest.facts)) == ()


@pytest.mark.parametrize("specs", [(), ("uml", "uml")])
def test_nothing_or_the_same_twice_is_a_misuse(specs: tuple[str, ...]) -> None:
    with pytest.raises(MisuseError):
        compared_variants(specs)


FACTS = {
    "kernel": {"release": "6.1"},
    "cpu": {"flags": ["avx2", "avx512f", "fma"]},
    "memory": {"total_bytes": 1 << 30, "transparent_hugepages": "madvise"},
    "virtualization": {"kind": "kvm"},
    "clock": {"clocksource": "tsc"},
    "mitigations": {"meltdown": "Not affected", "retbleed": "Not affected"},
}


def test_equal_machines_have_no_differences() -> None:
    assert differences(Observed(FACTS), Observed(FACTS)) == ()


def test_what_differs_is_said_and_what_is_unknown_is_not() -> None:
    other = FACTS | {
        "cpu": {"flags": ["avx2", "fma"]},
        "clock": {"clocksource": None},
        "mitigations": {"meltdown": "Vulnerable", "retbleed": "Not affected"},
    }
    found = " ".join(
        differences(
            Observed(FACTS, {"libblas.so.3": "a"}, "no permission"),
            Observed(other, {"libblas.so.3": "b"}),
        )
    )
    for part in ("avx512f", "libblas.so.3 is b here", "not capped: no permission", "meltdown"):
        assert part in found
    assert "Clock source" not in found and "retbleed" not in found
