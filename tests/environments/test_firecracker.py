"""Firecracker's guests: what is started, how they are reached, and how they end.

The real Firecracker is the one on PATH, or what packaging/setup.sh brings for tests. Without a KVM
that runs ordinary kernels its guests boot in the lab's emulated host only, which takes minutes.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from command_line import ROOT, SOURCE, vtax
from process_watch import descendants, ended, eventually, processes_naming
from vtax.core.errors import MisuseError, VtaxError
from vtax.core.formats.scratch import sweep
from vtax.environments import build, firecracker, guest_kernel, kvm_probe, sandbox
from vtax.environments.agent import MachineLostError
from vtax.environments.base import Allocation
from vtax.environments.channel import AcceptingChannel, ChannelClosedError, ChannelTimeoutError
from vtax.environments.firecracker import Firecracker
from vtax.environments.guest_kernel import GuestKernel

FOR_TESTS = ROOT / "target/setup/firecracker"
"""The folder of the Firecracker that setup brings for tests."""
HELLO = b'{"hello": {"agent": "0.1.0", "protocol": 1}}\n'


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch) -> str:
    """PATH with the real Firecracker."""
    found = f"{os.environ['PATH']}:{FOR_TESTS}"
    monkeypatch.setenv("PATH", found)
    for needed in (firecracker.program, firecracker.server, sandbox.bubblewrap):
        try:
            needed()
        except VtaxError as error:
            pytest.skip(str(error))
    return found


@pytest.fixture
def kvm(path: str) -> str:
    if reason := kvm_probe.obstacle():
        pytest.skip(f"Firecracker opens KVM first: {reason}")
    # Unpacked here, so that no test ends while it does that.
    guest_kernel.prepare(None)
    return path


def test_a_spec_says_cpus_and_memory() -> None:
    built = build("firecracker:mem=512M,cpus=1")
    assert isinstance(built, Firecracker)
    assert (
        (built.cpus, built.memory_bytes)
        == (1, 512 << 20)
        == (
            built.shape().cpus,
            built.shape().memory_bytes,
        )
    )
    assert built.sees_host_files() and built.is_guest and not built.is_remote
    for wrong in ("mem=64M", "cpus=0", "smp=1"):
        with pytest.raises(MisuseError):
            build(f"firecracker:{wrong}")


@pytest.mark.parametrize("euid", [0, 1000])
def test_what_is_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, euid: int) -> None:
    modules = [f"/modules/{name}.ko" for name in guest_kernel.ALL_MODULES]
    kernel = GuestKernel("6.1.0", tmp_path / "kernel", tmp_path / "init", tuple(modules), tmp_path)
    monkeypatch.setattr(guest_kernel, "prepare", lambda: kernel)
    monkeypatch.setattr(firecracker, "program", lambda: "/opt/it's here/firecracker")
    monkeypatch.setattr(firecracker, "server", lambda: "/usr/sbin/diod")
    monkeypatch.setattr(os, "geteuid", lambda: euid)
    machine = replace(Firecracker(2, 300 << 20), channel=tmp_path / "channel")
    launch = machine.launch(Allocation(tmp_path / "work", (3, 4), 9))
    line = list(launch.argv)
    assert line[:3] == ["taskset", "--cpu-list", "3,4"]
    assert line[-4:] == ["/run/vtax/firecracker", "--no-api", "--config-file", "/run/vtax/vm.json"]
    made = json.loads(line[line.index("/run/vtax/vm.json") - 1])
    assert made["machine-config"] == {"vcpu_count": 2, "mem_size_mib": 300}
    assert made["vsock"]["uds_path"] == "/run/vtax/vsock"
    assert made["boot-source"]["kernel_image_path"] == "/run/vtax/kernel"
    words = made["boot-source"]["boot_args"].split()
    (loaded,) = (word for word in words if word.startswith("vtax.modules="))
    assert all(f"/{name}.ko" in loaded for name in guest_kernel.VSOCK_MODULES)
    assert "virtio_pci" not in loaded and "ext4" not in loaded
    assert {"vtax.lower=9p.vsock:tree", "vtax.channel=vsock:1024"} <= set(words)
    # The agent's port is this host's socket; the server's socket is inside of the box alone.
    bound = dict(pairwise(line))
    assert bound[str(tmp_path / "channel")] == "/run/vtax/vsock_1024"
    assert bound[firecracker.program()] == "/run/vtax/firecracker"
    script = shlex.split(line[line.index("-c") + 1])
    assert script[script.index("--listen") + 1] == "/run/vtax/vsock_564"
    assert ("--squashuser" in script) == (euid == 0) == ("CAP_SETGID" in line)
    assert ("--unshare-user" in line) == (euid != 0)


def test_modules_of_other_guests_stay_as_they_are(tmp_path: Path) -> None:
    modules = tuple(f"/modules/{name}.ko" for name in guest_kernel.ALL_MODULES)
    kernel = GuestKernel("6.1.0", tmp_path, tmp_path, modules, tmp_path)
    assert kernel.without() == list(modules)
    left = kernel.without(*guest_kernel.VSOCK_MODULES)
    assert left == list(modules[: -len(guest_kernel.VSOCK_MODULES)])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("channel")


@settings(max_examples=25)
@given(
    cuts=st.lists(st.integers(1, len(HELLO) - 1), max_size=3),
    noise=st.sampled_from([b"", b"x\n", b"a line\nanother\n"]),
)
def test_an_agent_is_heard_however_its_words_arrive(
    place: Path, cuts: list[int], noise: bytes
) -> None:
    address = place / "socket"
    address.unlink(missing_ok=True)
    said = noise + HELLO
    parts = [said[i:j] for i, j in zip([0, *sorted(cuts)], [*sorted(cuts), len(said)], strict=True)]

    def agent() -> None:
        with socket.socket(socket.AF_UNIX) as guest:
            guest.connect(str(address))
            for part in parts:
                guest.sendall(part)
            guest.recv(1)

    ours, theirs = socket.socketpair()
    with socket.socket(socket.AF_UNIX) as listener, theirs:
        listener.bind(str(address))
        listener.listen(1)
        thread = threading.Thread(target=agent)
        thread.start()
        with AcceptingChannel(ours, listener) as channel:
            assert channel.hello(10.0, 1 << 10)["protocol"] == 1
            assert ours.fileno() == -1, "the descriptor of the process is not used any more"
        thread.join()


def test_a_machine_that_ends_or_says_nothing_is_no_hello(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen(1)
        ours, theirs = socket.socketpair()
        with theirs, pytest.raises(ChannelTimeoutError):
            AcceptingChannel(ours, listener).hello(0.05)
        begin = time.monotonic()
        with pytest.raises(ChannelClosedError):
            AcceptingChannel(ours, listener).hello(60.0)
        assert time.monotonic() - begin < 30


def test_the_log_says_why_it_ended() -> None:
    log = [
        "2026-11-30T02:21:32.12 [anonymous-instance:main] Running Firecracker v1.12.1",
        "2026-11-30T02:21:32.13 [anonymous-instance:main] RunWithoutApiError error: Failed: why",
        "Error: RunWithoutApiError(BuildMicroVMFromJson(...))",
        "2026-11-30T02:21:32.14 [anonymous-instance:main] Firecracker exiting with error.",
    ]
    assert Firecracker().explain_end(1, log) == ("Firecracker ended: Failed: why", None)
    assert Firecracker().explain_end(0, ["[    1.0] Kernel panic - not syncing"]) is None


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(VtaxError, match="Firecracker is missing; put 'firecracker' of one of"):
        Firecracker().check()
    monkeypatch.setattr(firecracker, "SERVER_PATH", str(tmp_path))
    with pytest.raises(VtaxError, match=r"diod is missing.*apt-get install diod"):
        firecracker.server()


def test_kvm_is_tried_where_the_processor_shows_none(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Path | None] = []

    def probe(_machine: object, _cpus: object, _key: str, binary: Path | None) -> str:
        tried.append(binary)
        return "it hangs"

    monkeypatch.setattr(kvm_probe, "probe", probe)
    monkeypatch.setattr(kvm_probe, "obstacle", lambda: "there is none")
    assert kvm_probe.doubt(Firecracker(), Path("/f")) == "there is none"
    monkeypatch.setattr(kvm_probe, "obstacle", lambda: None)
    monkeypatch.setattr(kvm_probe.Host, "cpu_flags", frozenset({"svm", "fpu"}))
    assert kvm_probe.doubt(Firecracker(), Path("/f")) is None and not tried
    monkeypatch.setattr(kvm_probe.Host, "cpu_flags", frozenset({"fpu"}))
    assert kvm_probe.doubt(Firecracker(), Path("/f")) == "it hangs"
    assert tried == [Path("/f")]


@pytest.mark.slow
def test_a_firecracker_that_ends_early_says_why(
    kvm: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "kernel").write_bytes(b"no kernel at all" * 1000)
    (tmp_path / "initramfs").write_bytes(b"")
    kernel = GuestKernel("0", tmp_path / "kernel", tmp_path / "initramfs", (), tmp_path)
    monkeypatch.setattr(guest_kernel, "prepare", lambda: kernel)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    work = tmp_path / "work"
    work.mkdir(mode=0o700)
    with pytest.raises(MachineLostError, match=r"Firecracker ended: .*kernel"):
        Firecracker(1, 256 << 20).start(work, [min(os.sched_getaffinity(0))])


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_a_guest_that_boots(
    kvm: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: signal.Signals
) -> None:
    """Ctrl-C and kill -9 while the guest boots, which without a good KVM it does for ever."""
    (tmp_path / "work").mkdir(mode=0o700)
    (tmp_path / "scratch").mkdir()
    code = (
        "import sys; from pathlib import Path; from vtax.environments import build;"
        "build('firecracker:mem=256M').start(Path(sys.argv[1]), [int(sys.argv[2])])"
    )
    one = str(min(os.sched_getaffinity(0)))
    settings = {"PYTHONPATH": str(SOURCE), "TMPDIR": str(tmp_path / "scratch"), "PATH": kvm}
    line = [sys.executable, "-c", code, str(tmp_path / "work"), one]
    started = subprocess.Popen(
        line,
        env={**os.environ, **settings},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    with ended(started) as process:
        assert eventually(lambda: len(_named(process.pid)) == 2, 60), _named(process.pid)
        (folder,) = (tmp_path / "scratch").glob("vtax-firecracker-*")
        assert folder.stat().st_mode & 0o777 == 0o700
        process.send_signal(number)
        process.wait(30)
    assert eventually(lambda: not processes_naming(str(tmp_path)))
    # The folder of who was killed is removed by whoever comes next.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    assert sweep() == (number == signal.SIGKILL)
    assert not folder.exists()


def _named(pid: int) -> set[str]:
    """The Firecracker and the server that a process started."""
    names = set()
    for each in descendants(pid):
        try:
            names.add(Path(f"/proc/{each}/comm").read_text().strip())
        except OSError:
            continue
    return names & {"firecracker", "diod"}


@pytest.mark.long
def test_one_table_of_native_and_firecracker_in_the_lab(path: str, tmp_path: Path) -> None:
    compare = ["compare", "--in", "native", "--in", "firecracker:mem=384M,cpus=1", "--reps", "2"]
    done = vtax(
        *("lab", "--mem", "2G", "--out", str(tmp_path), "--"),
        *("env", f"PATH={path}", f"PYTHONPATH={SOURCE}", sys.executable, "-m", "vtax.main"),
        *(*compare, "--out", str(tmp_path), "--", "/bin/sh", "-c", "id -u; uname -r"),
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = tmp_path.glob("*/run.json")
    recorded = json.loads(run.read_text())
    (guest,) = (each for each in recorded["environments"] if "firecracker" in each["spec"])
    assert guest["facts"]["monitor"]["name"] == "Firecracker"
    assert guest["facts"]["virtualization"]["kind"] == "kvm"
    assert "with KVM, Linux" in guest["description"]
    said = [each.read_text() for each in run.parent.glob("raw/firecracker*/r*/stdout")]
    assert said == 2 * [f"0\n{guest['facts']['kernel']['release']}\n"]
