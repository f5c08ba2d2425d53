"""What a study takes on a machine: the best that the machine has, and what it says of the rest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtax.doctor.checks import registered
from vtax.environments import build
from vtax.study.verb import installed
from vtax_studies import roles
from vtax_studies.atlas import setup as atlas
from vtax_studies.explain import setup as explain
from vtax_studies.hpcc import setup as hpcc
from vtax_studies.roles import KINDS, Machine, Role, Way, said
from vtax_studies.vrtprof import setup as vrtprof

KNOWN = ("a", "b", "c")
WAYS = st.builds(
    Way, st.sampled_from(("one", "two")), st.frozensets(st.sampled_from(KNOWN)), st.integers(1, 4)
)
MACHINES = st.builds(Machine, st.frozensets(st.sampled_from(KNOWN)), st.integers(1, 4))
WITH_KVM = KINDS["bare metal"]
WITHOUT = KINDS["cloud VM"]


@given(st.lists(WAYS, max_size=4), MACHINES)
def test_the_first_way_that_fits_is_taken(ways: list[Way], machine: Machine) -> None:
    taken = Role("r", ways).on(machine)
    fitting = [way for way in ways if way.needs <= machine.has and way.cpus <= machine.cpus]
    assert taken == (fitting[0] if fitting else None)


def test_a_substitute_is_named_and_what_is_left_out_too() -> None:
    role = Role("guest", (Way("kvm", frozenset({"a"})), Way("tcg", instead_of="KVM")))
    assert list(said([role], Machine(frozenset("a"), 1))) == [("guest", "kvm")]
    assert list(said([role], Machine(frozenset(), 1))) == [("guest", "tcg, instead of KVM")]
    alone = Role("guest", (Way("kvm", frozenset({"a"})),))
    assert list(said([alone], Machine(frozenset(), 1))) == [("guest", "nothing: it is left out")]


def test_what_ways_need_are_checks_of_doctor() -> None:
    checks = {each.name for each in registered()}
    needed = {
        name
        for study in installed().values()
        for role in study.parts().roles  # type: ignore[attr-defined]
        for way in role.ways
        for name in way.needs
    }
    assert needed and needed <= checks
    assert all(kind.has <= checks for kind in KINDS.values())


def test_kvm_is_taken_where_it_boots() -> None:
    assert hpcc.KVM in hpcc.specs_on(WITH_KVM) and hpcc.TCG not in hpcc.specs_on(WITH_KVM)
    assert hpcc.TCG in hpcc.specs_on(WITHOUT) and hpcc.KVM not in hpcc.specs_on(WITHOUT)
    plan = explain.FULL.environments
    assert explain.environments_on(WITHOUT, plan) == list(plan)
    assert explain.KVM in explain.environments_on(WITH_KVM, plan)
    assert explain.TCG not in explain.environments_on(WITH_KVM, plan)


@pytest.mark.parametrize("guests", [1, 2, 4, 8])
def test_guests_under_kvm_are_real_where_they_can_be(guests: int) -> None:
    # Without KVM eight guests have no memory to boot with, and are not asked for.
    emulated = [(WITHOUT, "lab")] if guests <= vrtprof.COPIES else []
    for machine, name in [(WITH_KVM, "qemu"), *emulated]:
        spec = vrtprof.guests_spec(machine, guests)
        assert spec is not None and spec.partition(":")[0] == name
        assert build(spec).host_cpus() >= 1
    assert vrtprof.guests_spec(KINDS["arm64 server"], guests) is None


def test_as_many_copies_as_the_papers_run_where_each_guest_has_a_cpu() -> None:
    assert vrtprof.copies_on(WITH_KVM) == 8
    assert vrtprof.copies_on(Machine(WITH_KVM.has, 4)) == 4
    assert vrtprof.copies_on(Machine(WITHOUT.has, 64)) == 4


def test_this_machine_has_kvm_only_if_a_kernel_boots(monkeypatch: pytest.MonkeyPatch) -> None:
    found = roles.here()
    assert found.cpus >= 1 and roles.QEMU in found.has | {roles.QEMU}
    monkeypatch.setattr(roles, "_boots", lambda: False)
    roles.here.cache_clear()
    assert roles.KVM not in roles.here().has
    roles.here.cache_clear()


def test_each_kernel_of_atlas_has_a_place() -> None:
    assert {each.kernel for each in atlas.PLACES} == set(atlas.KERNELS)
