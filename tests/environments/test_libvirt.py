"""Virtual machines of libvirt: a daemon of the test's own, its faults, and what stays there."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from command_line import command, one_line, run
from libvirt_domain import LibvirtDaemon
from process_watch import descendants, eventually, processes_naming
from ssh_server import SshServer
from tested_machines import GUEST_ENVIRONMENT
from vtax.core.errors import MisuseError, VtaxError
from vtax.core.formats.folder import load
from vtax.environments import build, lease
from vtax.environments.capabilities import Files, RecordInside
from vtax.environments.libvirt.domain import Domain, alias
from vtax.environments.libvirt.environment import DomainMachine
from vtax.environments.machine import MachineLostError

SSH = shutil.which("ssh")
KILL_AGENT = """cd /proc; for pid in [0-9]*; do
[ "$(cat $pid/comm)" != vtax-agent ] || kill -9 $pid; done 2>/dev/null"""
needs_virsh = pytest.mark.skipif(
    shutil.which("virsh") is None, reason="no virsh: apt-get install libvirt-clients"
)


@pytest.fixture(scope="module")
def daemon(session_cache: Path) -> Iterator[LibvirtDaemon]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(session_cache))
        running = LibvirtDaemon()
    with running:
        running.define("web1")
        running.define("locked", ["-b", "guest-exec,guest-exec-status,guest-file-open"])
        running.start("web1")
        yield running


@pytest.fixture
def web1(daemon: LibvirtDaemon) -> Iterator[str]:
    """The spec of a domain that runs, in which nothing is left when the test ends."""
    yield spec(daemon, "web1")
    assert eventually(lambda: not daemon.left("web1")), daemon.left("web1")
    assert eventually(lambda: not own(daemon)), own(daemon)


def own(daemon: LibvirtDaemon) -> list[str]:
    """The processes of vtax on this machine that belong to domains of the daemon."""
    lines = processes_naming(str(daemon.folder))
    return [line for line in lines if "libvirt.relay" in line or "virsh" in line]


def spec(daemon: LibvirtDaemon, name: str) -> str:
    return f"libvirt:{name},connect={daemon.uri}"


def start(spec: str, work: Path) -> DomainMachine:
    environment = build(spec)
    environment.check()
    machine = environment.start(work, [])
    assert isinstance(machine, DomainMachine)
    return machine


@pytest.mark.slow
def test_a_domain_is_compared_and_called_emulated(
    web1: str, daemon: LibvirtDaemon, tmp_path: Path, environment: dict[str, str]
) -> None:
    runs = tmp_path / "runs"
    environment |= {"LIBVIRT_DEFAULT_URI": daemon.uri}
    argv = ["compare", "--in", "native", "--in", "libvirt:web1,host=native", "--reps", "3"]
    argv += ["--no-control", "--out", str(runs), "--", "sh", "-c", "cat /proc/uptime; sleep 3"]
    done = run(environment, *argv)
    assert done.returncode == 0, done.stderr
    record, samples = load(next(runs.iterdir()))
    assert record.state == "complete" and not record.failures
    (guest,) = (each for each in record.environments if each.label.startswith("libvirt:web1"))
    of_guest = [each for each in samples if each.environment == guest.label]
    assert [each.metric for each in of_guest].count("wall_s") == 3
    # Its host has the domain under its name; the test's QEMU works all the time a little.
    assert {"host.vcpu_s", "host.service_s"} <= {each.metric for each in of_guest}
    assert "the virtual machine web1, emulated (TCG), QEMU " in guest.description
    known = guest.facts["libvirt"]
    assert known["uuid"] == daemon.virsh("domuuid", "web1").strip()
    assert known["type"] == "qemu" and known["machine"].startswith("pc-q35-")
    assert known["vcpus"] == 1 and known["memory_bytes"] == 256 << 20
    assert known["cpu_mode"] == "custom" and known["libvirt"].count(".") == 2


@needs_virsh
@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("libvirt:test,connect=test:///default", "libvirt:test: it is a domain of test, not of "),
        ("libvirt:web1,connect=qemu+unix:///session?socket=/no", "failed to connect .*; start "),
    ],
)
def test_what_cannot_be_entered_is_said(spec: str, says: str) -> None:
    with pytest.raises(VtaxError, match=says):
        build(spec).check()


@needs_virsh
def test_an_unknown_domain_is_one_line(environment: dict[str, str], tmp_path: Path) -> None:
    argv = ["--in", "libvirt:web1,connect=test:///default", "--out", str(tmp_path / "runs")]
    said = one_line(run(environment, "compare", *argv, "--", "true"), 1)
    assert "failed to get domain 'web1'; look at: virsh --connect test:///default list" in said
    assert not list(tmp_path.iterdir())


def test_a_domain_has_to_be_named_and_its_socket_within_reach() -> None:
    with pytest.raises(MisuseError, match="no domain is given; write for example libvirt:web1"):
        build("libvirt:cpus=1")
    for uri in ("qemu://hyp1/system", "qemu+tcp://hyp1/system", "qemu+libssh://hyp1/system"):
        with pytest.raises(MisuseError, match="of this machine and over ssh"):
            Domain("web1", uri).reach()
    line = Domain("web1", "qemu+ssh://me@hyp1:2222/system").reach()
    assert line[-4:] == ["-p", "2222", "--", "me@hyp1"] and "BatchMode=yes" in line
    with pytest.raises(MisuseError, match="is not"):
        Domain("web1", "qemu+ssh://-oProxyCommand=x/system").reach()
    assert Domain("web1", "qemu:///system").reach() == []


WORDS = st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="<&'"))
XML = """<domain type='{type}'><name>{name}</name><currentMemory unit='KiB'>{memory}</currentMemory>
<vcpu current='{current}'>4</vcpu><os><type machine='{machine}'>hvm</type></os></domain>"""


FIELDS = {
    **dict.fromkeys(
        ("name", "memory", "current", "machine"),
        WORDS | st.integers().map(str) | st.integers(1, 9000).map(lambda digits: "9" * digits),
    ),
    "type": st.sampled_from(["kvm", "qemu", "xen"]),
}


@given(st.text() | st.fixed_dictionaries(FIELDS).map(lambda each: XML.format(**each)))
def test_any_xml_of_a_domain_is_read_or_refused(text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Domain, "run", lambda self, line, stdin="": text if "dumpxml" in line else "")
        try:
            facts = Domain("web1").facts()
        except VtaxError as error:
            assert str(error).startswith("libvirt:web1: ")
            return
    assert facts["type"] in ("kvm", "qemu") and set(facts) <= set(KNOWN)
    assert all(isinstance(facts[name], KNOWN[name]) for name in facts)
    assert all(len(each) <= 200 for each in facts.values() if isinstance(each, str))


KNOWN = dict.fromkeys(("domain", "type", "machine"), str) | {"vcpus": int, "memory_bytes": int}


def test_facts_are_those_of_the_xml_and_entities_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    xml = XML.format(type="kvm", name="a &lt;b>", memory=1024, current=2, machine="pc")
    version = "Running hypervisor: QEMU 7.2.22\nRunning against daemon: 9.0.0\n"
    answers = {"dumpxml": xml, "version": version}
    monkeypatch.setattr(
        Domain, "run", lambda self, line, stdin="": answers[{*line}.intersection(answers).pop()]
    )
    known = Domain("web1").facts()
    assert known["domain"] == "a <b>" and known["type"] == "kvm" and known["machine"] == "pc"
    assert (known["vcpus"], known["memory_bytes"]) == (2, 1 << 20)
    assert (known["hypervisor"], known["libvirt"]) == ("QEMU 7.2.22", "9.0.0")
    answers["dumpxml"] = "<!DOCTYPE d [<!ENTITY a 'aa'>]>" + xml
    with pytest.raises(VtaxError, match="not as libvirt writes it"):
        Domain("web1").facts()


KEYS = st.sampled_from(["pid", "exited", "exitcode", "out-data", "err-data"])


@given(
    st.recursive(
        st.none() | st.integers() | st.text(),
        lambda each: st.lists(each) | st.dictionaries(KEYS, each),
    )
)
def test_any_answer_of_a_guest_agent_is_read_or_refused(answer: object) -> None:
    text = json.dumps({"return": answer})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Domain, "run", lambda self, line, stdin="": text)
        try:
            assert isinstance(Domain("web1").execute("-c", "true"), int)
            code, out, err = Domain("web1").ended(1, -1)
            assert (type(code), type(out), type(err)) == (int, str, str)
        except VtaxError as error:
            assert str(error).startswith("libvirt:web1: ")


@pytest.mark.slow
@pytest.mark.usefixtures("web1")
def test_a_domain_of_another_host_is_reached_as_virsh_reaches_it(
    daemon: LibvirtDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("nc") is None:
        pytest.skip("no nc: apt-get install netcat-openbsd")
    with SshServer(tmp_path / "server") as server:
        tools = tmp_path / "tools"
        tools.mkdir()
        (tools / "ssh").write_text(f'#!/bin/sh\nexec {SSH} -F {server.config} "$@"\n')
        (tools / "ssh").chmod(0o700)
        monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
        where = daemon.uri.replace("qemu+unix://", f"qemu+ssh://127.0.0.1:{server.port}")
        with start(f"libvirt:web1,connect={where},cpus=1,mem=64M", tmp_path) as machine:
            content = secrets.token_bytes(1 << 20)
            (tmp_path / "r0").mkdir()
            (tmp_path / "r0/input").write_bytes(content)
            machine.run(["cp", "input", "output"], GUEST_ENVIRONMENT, "r0", timeout_s=30)
            assert (tmp_path / "r0/output").read_bytes() == content
            assert machine.offer(Files) and machine.offer(RecordInside)
            assert daemon.left("web1")
            # QEMU does not close the port's socket when the guest closes the port.
            daemon.inside("web1", KILL_AGENT)
            begin = time.monotonic()
            with pytest.raises(MachineLostError, match="died"):
                machine.run(["true"], GUEST_ENVIRONMENT, "r0", timeout_s=600)
            assert time.monotonic() - begin < 60
        assert eventually(lambda: not server.sessions())


@pytest.mark.slow
@pytest.mark.usefixtures("web1")
def test_domains_that_cannot_be_entered_are_said_with_the_remedy(daemon: LibvirtDaemon) -> None:
    with pytest.raises(VtaxError, match=r"has been disabled.*; allow guest-exec .*qemu-ga"):
        daemon.start("locked")
        build(spec(daemon, "locked")).check()
    daemon.virsh("suspend", "locked")
    with pytest.raises(VtaxError, match=r"is paused; virsh --connect 'qemu\S+' resume locked"):
        build(spec(daemon, "locked")).check()
    daemon.virsh("destroy", "locked")
    with pytest.raises(VtaxError, match=r"is shut off; virsh --connect 'qemu\S+' start locked"):
        build(spec(daemon, "locked")).check()
    with pytest.raises(VtaxError, match=r"failed to get domain 'web2' *; look at: virsh .*--all"):
        build(spec(daemon, "web2")).check()
    with pytest.raises(MisuseError, match="cpus=100: it has 1 CPUs"):
        build(spec(daemon, "web1,cpus=100")).check()


def started(
    spec: str, tmp_path: Path, environment: dict[str, str], name: str = "runs", reps: int = 400
) -> subprocess.Popen[str]:
    """A comparison that is in the middle of its repetitions."""
    runs = tmp_path / name
    argv = ["compare", "--in", spec, "--baseline", "none", "--reps", str(reps), "--no-control"]
    process = subprocess.Popen(
        command(*argv, "--out", str(runs), "--", "sleep", "0.0733"),
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    saved = eventually(
        lambda: any(p.stat().st_size > 2500 for p in runs.glob("*/samples.jsonl")), within_s=100
    )
    if not saved:
        process.kill()
        raise AssertionError(process.communicate()[0])
    return process


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_when_vtax_is_ended(
    web1: str, tmp_path: Path, environment: dict[str, str], number: int
) -> None:
    process = started(web1, tmp_path, environment)
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert load(next((tmp_path / "runs").iterdir()))[1]


@pytest.mark.slow
def test_two_runs_at_once_and_one_of_them_killed_with_all_it_started(
    web1: str, daemon: LibvirtDaemon, tmp_path: Path, environment: dict[str, str]
) -> None:
    killed = started(web1, tmp_path, environment, "a")
    other = started(web1, tmp_path, environment, "b", reps=20)
    for pid in [killed.pid, *descendants(killed.pid)]:
        os.kill(pid, signal.SIGKILL)
    killed.communicate()
    printed = other.communicate(timeout=100)[0]
    assert other.returncode == 0, printed
    record, samples = load(next((tmp_path / "b").iterdir()))
    assert not record.failures and len(samples) == 2 * 20
    # The port of the killed run is left, without an agent in the guest. An agent that was about to
    # answer waits for its lease.
    (port,) = ports(daemon)
    assert eventually(lambda: "vtax-agent" not in daemon.left("web1"), lease.LEASE_S + 20)
    old, young = (f"vtax-{int(time.time()) + s:x}-{'0' * 12}" for s in (-3600, 3600))
    attach(daemon, old)
    attach(daemon, young)
    start(web1, tmp_path).close()
    assert set(ports(daemon)) - {port} == {young}
    for each in ports(daemon):
        daemon.virsh("detach-device-alias", "web1", alias(each))


def ports(daemon: LibvirtDaemon) -> list[str]:
    words = daemon.virsh("dumpxml", "web1").split("'")
    return sorted({word for word in words if word.startswith("vtax-")})


def attach(daemon: LibvirtDaemon, port: str) -> None:
    xml = daemon.folder / "port.xml"
    target = f"<target type='virtio' name='{port}'/><alias name='{alias(port)}'/>"
    xml.write_text(f"<channel type='unix'><source mode='bind'/>{target}</channel>")
    daemon.virsh("attach-device", "web1", str(xml), "--live")


@pytest.mark.slow
def test_a_domain_destroyed_in_the_middle_costs_no_finished_sample(
    daemon: LibvirtDaemon, tmp_path: Path, environment: dict[str, str]
) -> None:
    process = started(spec(daemon, "web1"), tmp_path, environment, reps=60)
    daemon.virsh("destroy", "web1")
    printed = process.communicate(timeout=60)[0]
    assert process.returncode == 1 and "Traceback" not in printed
    record, samples = load(next((tmp_path / "runs").iterdir()))
    assert record.failures and samples
    assert "the domain is " in record.failures[0].message
    assert "is shut off; virsh --connect" in record.failures[-1].message
    assert eventually(lambda: not own(daemon)), own(daemon)
