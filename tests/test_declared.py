"""What each kind of part declares: in the docs, in help and doctor, kept by its machines."""

from __future__ import annotations

import ast
import json
import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from docs_tables import PAGES, tables, with_tables

from command_line import ROOT, vtax
from tested_machines import checked
from vtax.core import binaries
from vtax.core.command.declared import (
    complete_events,
    complete_instrument,
    complete_spec,
)
from vtax.core.errors import MisuseError
from vtax.core.recorder import sources
from vtax.core.runner.instruments import INSTRUMENTS, chosen, usable
from vtax.doctor.checks import purposes, registered
from vtax.environments import build, registry
from vtax.environments.base import BUILT_IN, allowed_cpus, offering, require
from vtax.environments.capabilities import (
    ALL,
    Files,
    GuestPage,
    KvmCounters,
    Pause,
    RecordInside,
    Switch,
)

PACKAGES = {"": ROOT / "python/vtax", "studies/": ROOT / "studies/src/vtax_studies"}
FILES = {
    f"{beside}{path.relative_to(package)}": path
    for beside, package in PACKAGES.items()
    for path in sorted(package.rglob("*.py"))
}
"""The modules of vtax and, beside it, of the studies."""

ALLOWED = {
    "verbs.py": "`lab` is a verb too",
    "record/timeline/page.py": "`container` is a frame of reference in plotly",
    "compare/summary.py": "names of hypervisors in vtax-agent's facts",
    "studies/explain/setup.py": "a study names environments as a user does",
    "studies/vrtprof/setup.py": "a study names environments as a user does",
    "studies/asymmetric_cores/setup.py": "a study names environments as a user does",
    "studies/atlas/setup.py": "a study names environments as a user does",
    "studies/hpcc/setup.py": "a study names environments as a user does",
    "studies/roles.py": "checks of `vtax doctor` that studies ask for; what boots under KVM",
    "doctor/checks/clocks.py": "`xen` is a clocksource of Linux",
    "place/advise.py": "`libvirt` is a form in which advice is given",
    "place/service_domain.py": "`xen` is a kind of service thread",
    "paging/trace/verb.py": "`qemu` is a field of its JSON: which QEMU",
    "paging/sweep/verb.py": "`native` is a paging mode of the model",
    "paging/sweep/page.py": "`native` is a paging mode of the model",
    "studies/atlas/traced.py": "`native` is a paging mode of the model",
}
ORDINARY = {"container"}
"""Words that have other meanings too; as specs with options they are found."""
MODEL = ("paging/", "studies/dav2m/")
"""Folders of the model, in which `native` is a paging mode."""


def test_docs_have_the_tables_of_the_code() -> None:
    pages = [(ROOT / name).read_text() for name in PAGES]
    for page in pages:
        assert with_tables(page) == page, "run 'make docs'"
    for name in tables():
        assert "".join(pages).count(f"<!-- table {name} -->") == 1


def test_sources_are_declared_once() -> None:
    """The recorder's events, help and doctor follow the sources that the recorder declares."""
    declared = {each.name: each for each in sources.declared()}
    listed = vtax("record", "--list", "--json").stdout
    names = [event["name"] for event in json.loads(listed)]
    own = [name for each in declared.values() for name in each.events]
    assert [name for name in names if name in own] == own
    # All others are what the kernel calls events of this machine's PMUs.
    pmus = {path.name for path in Path("/sys/bus/event_source/devices").iterdir()}
    others = [name.split(".")[:2] for name in names if name not in own]
    assert all(layer == "hw" and pmu in pmus for layer, pmu in others)
    assert {name.partition(".")[0] for name in names} == declared.keys() - {"guest", "app"}
    checks = {check.name for check in registered()}
    needed = {need for each in declared.values() for need in each.needs}
    assert needed <= checks
    help_text = vtax("record", "--help").stdout
    for each in declared.values():
        assert re.search(rf"^ *{each.name} .*{each.about.split()[0]}", help_text, re.MULTILINE)
    known = purposes()
    assert known["pmu"] == "events hw"
    assert known["steal-clock"] == "stolen time; events steal"
    assert all(known.values()), "a check that says of nothing what it is for"


def test_without_a_recorder_there_are_no_sources(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(binaries, "FOLDER", tmp_path)
    assert sources.declared.__wrapped__() == ()


def modules() -> Iterator[tuple[str, ast.Module]]:
    for name, path in FILES.items():
        if not name.startswith("environments/"):
            yield name, ast.parse(path.read_text())


def test_nothing_outside_names_an_environment() -> None:
    """No module imports an environment's module or has its spec as a text; help and messages are
    sentences."""
    found = []
    for name, tree in modules():
        if name.startswith(MODEL) or name in ALLOWED:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                word, colon, _ = node.value.partition(":")
                words = [word] if colon or word not in ORDINARY else []
            elif isinstance(node, ast.ImportFrom) and "vtax.environments" in (node.module or ""):
                words = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            else:
                continue
            found += [f"{name}:{node.lineno}" for word in words if word in BUILT_IN]
    assert found == []


def test_no_environment_may_import_another() -> None:
    """`make lint` checks that for the environments in the contract."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (contract,) = (each for each in settings["contracts"] if each["type"] == "independence")
    assert set(contract["modules"]) == {f"vtax.environments.{name}" for name in BUILT_IN}


def test_each_exception_is_one() -> None:
    for name in ALLOWED:
        words = ast.walk(ast.parse(FILES[name].read_text()))
        texts = [node.value for node in words if isinstance(node, ast.Constant)]
        assert any(str(text).partition(":")[0] in BUILT_IN for text in texts) or "native" in str(
            texts
        )


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="some examples take two CPUs")
@pytest.mark.parametrize("name", BUILT_IN)
def test_examples_and_offers_are_specs(name: str) -> None:
    cls = registry()[name.replace("_", "-")]
    assert cls.examples
    for spec in (*cls.examples, *cls.offers.values()):
        assert type(build(spec)) is cls
    for capability, spec in cls.offers.items():
        assert capability in build(spec).offered()
        assert capability in ALL


@pytest.mark.slow
@pytest.mark.parametrize(
    "spec",
    [
        "native",
        "uml:mem=256M",
        "qemu:accel=tcg,mem=512M",
        "lab",
        "xen",
        pytest.param("lab:guest=builtin", marks=pytest.mark.long),
    ],
)
def test_a_machine_offers_what_its_environment_declares(spec: str, tmp_path: Path) -> None:
    environment = checked(spec)
    machine = environment.start(tmp_path, allowed_cpus()[-environment.host_cpus() :])
    try:
        assert {each for each in ALL if machine.offer(each)} == environment.offered()
        files = machine.offer(Files)
        assert files
        files.push("/tmp/pushed-by-a-test", b"some\0bytes")
        assert files.pull("/tmp/pushed-by-a-test") == b"some\0bytes"
        pause, counters = machine.offer(Pause), machine.offer(KvmCounters)
        # Where there are none, tests/audit/test_campaign.py sees that it stands still.
        if pause and counters:
            pause.pause()
            before = counters.read().values["exits"]
            assert counters.read().values["exits"] == before
            pause.resume()
            machine.run(("/run/vtax/vtax-agent", "--version"), {}, "after", 60)
            assert counters.read().values["exits"] > before
    finally:
        machine.close()
        Path("/tmp/pushed-by-a-test").unlink(missing_ok=True)


def test_a_need_that_is_not_met_names_who_meets_it() -> None:
    with pytest.raises(MisuseError, match=r"'switch'.*environments that do: lab:guest=builtin$"):
        require(build("uml"), Switch, "switching")
    with pytest.raises(MisuseError, match="lab does not offer 'switch'"):
        require(build("lab"), Switch, "switching")
    require(build("lab:guest=builtin"), Switch, "switching")
    with pytest.raises(MisuseError, match="does not offer 'guest-page'"):
        require(build("lab:guest=builtin"), GuestPage, "--guest")
    assert set(offering(RecordInside)) >= {"native", "uml", "qemu", "ssh:HOST"}
    assert "gvisor" not in offering(RecordInside)


def test_instruments_are_used_where_a_machine_can() -> None:
    lab, native = build("lab"), build("native")
    always = chosen((), (native,))
    assert [each.name for each in usable(always, lab)] == ["kvm-counters"]
    assert usable(always, native) == ()
    assert [each.name for each in usable(chosen(("record",), (lab,)), native)] == ["record"]
    for name, make in INSTRUMENTS.items():
        assert make().name == name
    with pytest.raises(MisuseError, match="environments that do: lab"):
        chosen(("kvm-counters",), (native,))
    with pytest.raises(MisuseError, match="did you mean 'record'"):
        chosen(("recrod",), (native,))


def test_completion_knows_environments_keys_and_instruments() -> None:
    assert complete_spec("u") == ["uml"]
    assert complete_spec("qemu:smp=2,m") == ["qemu:smp=2,mem=", "qemu:smp=2,mpi="]
    assert complete_spec("nothing:") == []
    assert complete_instrument("k") == ["kvm-counters"]


def test_completion_knows_layers_and_their_events() -> None:
    assert complete_events("s") == ["sw", "steal", "sched"]
    assert complete_events("default,fa") == ["default,faults"]
    assert complete_events("faults") == [
        *("faults", "faults.user", "faults.kernel"),
        *("faults.anonymous", "faults.file", "faults.cow"),
    ]
    assert complete_events("hw,faults.") == [
        *("hw,faults.user", "hw,faults.kernel"),
        *("hw,faults.anonymous", "hw,faults.file", "hw,faults.cow"),
    ]
    assert complete_events("nothing.") == []


@pytest.mark.parametrize(
    "words",
    [
        ("memory", "--sizes", "1,2", "--runs=1"),
        ("memory", "--sizes", "1,2", "--runs", "1"),
        ("compare", "--rounds", "1", "--no-control", "--no-warm-up"),
    ],
)
def test_earlier_names_of_an_option_still_work(words: tuple[str, ...], tmp_path: Path) -> None:
    spec = "native:mem=256M"
    checked(spec)
    command = ("sh", "-c", ": --runs --rounds {size}")
    done = vtax(*words, "--in", spec, "--", *command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (run,) = tmp_path.glob("runs/*")
    recorded = (run / "run.json").read_text()
    assert ": --runs --rounds" in recorded
    assert json.loads(recorded).get("repetitions", 1) == 1
    assert "--runs" not in vtax(words[0], "--help").stdout
