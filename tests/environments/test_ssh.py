"""Machines over ssh: a real server on loopback, its faults, and what they leave behind."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from command_line import command, one_line, run
from process_watch import eventually, processes_naming
from ssh_server import SshServer, keygen
from tested_machines import GUEST_ENVIRONMENT
from vtax.core.errors import MisuseError, VtaxError
from vtax.core.formats.folder import load
from vtax.environments import build, lease, ssh
from vtax.environments.capabilities import Files, RecordInside, RecordOutside
from vtax.environments.machine import MachineLostError
from vtax.environments.ssh import RemoteMachine, Ssh

Start = Callable[..., RemoteMachine]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SshServer]:
    with SshServer(tmp_path / "server") as running:
        yield running


@pytest.fixture
def start_over(server: SshServer, tmp_path: Path) -> Iterator[Start]:
    """Starts machines on the server; `far` below the test's folder holds what they make on it."""
    machines: list[RemoteMachine] = []
    (tmp_path / "far").mkdir()

    def one(options: str = "", pushed: tuple[Path, ...] = ()) -> RemoteMachine:
        environment = build(f"{server.spec},dir={tmp_path / 'far'}{options}").with_pushed(pushed)
        environment.check()
        work = tmp_path / f"work{len(machines)}"
        work.mkdir()
        machine = environment.start(work, [])
        assert isinstance(machine, RemoteMachine)
        machines.append(machine)
        return machine

    yield one
    for machine in machines:
        machine.close()


def shell(machine: RemoteMachine, tmp_path: Path, script: str, name: str = "r0") -> str:
    (tmp_path / "work0" / name).mkdir()
    finished = machine.run(["/bin/sh", "-c", script], GUEST_ENVIRONMENT, name, timeout_s=30)
    assert finished.outcome.exit_code == 0
    return (tmp_path / "work0" / name / "stdout").read_text()


def left_on(far: Path) -> bool:
    return any(far.iterdir()) or bool(processes_naming(str(far)))


def test_files_go_there_and_come_back_and_nothing_stays(start_over: Start, tmp_path: Path) -> None:
    machine = start_over()
    assert machine.facts["cpu"]["online"] >= 1 and machine.boot_s > 0
    folder = tmp_path / "work0" / "r0"
    folder.mkdir()
    (folder / "input").write_text("question\n")
    script = "cat input; mkdir deep; echo answer >deep/output; ln -s /etc/passwd link"
    machine.run(["/bin/sh", "-c", script], GUEST_ENVIRONMENT, "r0", timeout_s=30)
    assert (folder / "stdout").read_text() == "question\n"
    assert (folder / "deep/output").read_text() == "answer\n"
    assert not (folder / "link").exists()
    assert left_on(tmp_path / "far")
    machine.close()
    assert eventually(lambda: not left_on(tmp_path / "far"))


def test_a_user_whose_shell_greets_is_served(tmp_path: Path) -> None:
    greeting = 'ForceCommand echo welcome; echo "{ not json"; eval "$SSH_ORIGINAL_COMMAND"'
    plain = greeting.replace('; echo "{ not json"', "")
    with SshServer(tmp_path / "server", plain) as server:
        machine = build(server.spec).start(tmp_path, [])
        assert machine.facts["kernel"]["release"] == os.uname().release
        machine.close()


def test_cpus_and_capabilities(start_over: Start) -> None:
    machine = start_over(",cpus=1")
    assert len(machine.facts["affinity"]) == 1
    assert machine.offer(Files) and machine.offer(RecordInside) and not machine.offer(RecordOutside)


def test_a_command_cannot_have_more_processes_than_it_may(
    start_over: Start, tmp_path: Path
) -> None:
    machine = start_over(",pids=20")
    if "process_limit_error" in machine.hello and os.geteuid() == 0:
        pytest.skip(f"nothing limits root here: {machine.hello['process_limit_error']}")
    shell(machine, tmp_path, "(for i in $(seq 30); do sleep 5 & done; wait); true")
    assert "fork" in (tmp_path / "work0/r0/stderr").read_text()


def test_what_is_pushed_is_found_by_name_and_in_the_folder(
    start_over: Start, tmp_path: Path
) -> None:
    program = tmp_path / "far-program"
    program.write_text("#!/bin/sh\ncat data/deep/number\n")
    program.chmod(0o755)
    (tmp_path / "data/deep").mkdir(parents=True)
    (tmp_path / "data/deep/number").write_text("42\n")
    machine = start_over(pushed=(program, tmp_path / "data"))
    assert shell(machine, tmp_path, "far-program") == "42\n"
    assert shell(machine, tmp_path, "./far-program", "r1") == "42\n"
    (tmp_path / "work0/r2").mkdir()
    with pytest.raises(VtaxError, match="no-such-program"):
        machine.run(["no-such-program"], GUEST_ENVIRONMENT, "r2")


def test_the_lease_is_renewed_while_nothing_and_while_something_runs(
    start_over: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "LEASE_S", 1)
    monkeypatch.setattr(lease, "RENEW_EVERY_S", 0.2)
    machine = start_over()
    time.sleep(2.5)
    assert shell(machine, tmp_path, "sleep 2.5; echo done") == "done\n"


def test_a_black_hole_is_noticed_on_both_sides(
    server: SshServer, start_over: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "LEASE_S", 3)
    monkeypatch.setattr(lease, "RENEW_EVERY_S", 0.5)
    monkeypatch.setattr(ssh, "ALIVE_EVERY_S", 1)
    monkeypatch.setattr(ssh, "ALIVE_COUNT", 2)
    machine = start_over()
    (tmp_path / "work0/r0").mkdir()
    running = tmp_path / "running"

    def stop_when_it_runs() -> None:
        assert eventually(running.exists)
        server.signal(signal.SIGSTOP)

    threading.Thread(target=stop_when_it_runs, daemon=True).start()
    script = f"touch {running}; exec sleep 86373"
    begin = time.monotonic()
    with pytest.raises(MachineLostError, match="silent for too long"):
        machine.run(["/bin/sh", "-c", script], GUEST_ENVIRONMENT, "r0", timeout_s=600)
    assert time.monotonic() - begin < 30
    # The server's side is still stopped: the agent has ended by itself.
    assert eventually(lambda: not processes_naming("sleep 86373"))
    assert eventually(lambda: not left_on(tmp_path / "far"))


def test_a_cut_connection_ends_the_workload_and_loses_no_finished_repetition(
    server: SshServer, tmp_path: Path, environment: dict[str, str]
) -> None:
    far = tmp_path / "far"
    far.mkdir()
    process = start_comparison(server, tmp_path, environment, "0.07333")
    server.signal(signal.SIGKILL)
    printed = process.communicate(timeout=60)[0]
    (folder,) = (tmp_path / "runs").iterdir()
    record, samples = load(folder)
    assert process.returncode == 1, printed
    assert record.state == "complete" and len(record.failures) in (1, 2), printed
    # Each repetition has two samples: all that did not fail are present, including those after the
    # cut.
    assert len(samples) == 2 * (60 - len(record.failures))
    assert "Traceback" not in printed
    assert eventually(lambda: not left_on(far))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_there_when_vtax_is_ended(
    server: SshServer, tmp_path: Path, environment: dict[str, str], number: int
) -> None:
    far = tmp_path / "far"
    far.mkdir()
    process = start_comparison(server, tmp_path, environment, "0.07444")
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert eventually(lambda: not left_on(far))
    assert eventually(lambda: not server.sessions())
    (folder,) = (tmp_path / "runs").iterdir()
    assert load(folder)[1]


def test_two_campaigns_at_once_on_one_machine_both_end_well(
    server: SshServer, tmp_path: Path, environment: dict[str, str]
) -> None:
    far = tmp_path / "far"
    far.mkdir()
    argv = ["compare", "--in", f"{server.spec},dir={far}", "--baseline", "none", "--reps", "20"]
    both = [
        subprocess.Popen(
            command(*argv, "--out", str(tmp_path / f"runs{number}"), "--", "sleep", "0.02"),
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for number in range(2)
    ]
    printed = [each.communicate(timeout=300)[0] for each in both]
    assert [each.returncode for each in both] == [0, 0], printed
    for number in range(2):
        (folder,) = (tmp_path / f"runs{number}").iterdir()
        record, samples = load(folder)
        assert record.state == "complete" and not record.failures
        assert len(samples) == 2 * 20 * 2
    assert eventually(lambda: not left_on(far) and not server.sessions())


def start_comparison(
    server: SshServer, tmp_path: Path, environment: dict[str, str], seconds: str
) -> subprocess.Popen[str]:
    """A comparison of two machines on the server, one of them in the middle of its 30
    repetitions."""
    spec = f"{server.spec},dir={tmp_path / 'far'}"
    argv = ["compare", "--in", spec, "--in", f"{spec},cpus=1", "--reps", "30", "--no-control"]
    process = subprocess.Popen(
        command(*argv, "--out", str(tmp_path / "runs"), "--", "sleep", seconds),
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    found = eventually(
        lambda: any(p.stat().st_size > 3000 for p in tmp_path.glob("runs/*/samples.jsonl")),
        within_s=300,
    )
    if not found:
        process.kill()
        raise AssertionError(f"no samples came: {process.communicate()[0]}")
    return process


def unreachable(server: SshServer, environment: dict[str, str], tmp_path: Path) -> str:
    """The one-line error of a comparison that has no result and leaves nothing."""
    runs = tmp_path / "runs"
    done = run(environment, "compare", "--in", server.spec, "--out", str(runs), "--", "true")
    assert not runs.exists() or not list(runs.iterdir())
    return one_line(done, 1)


def test_a_changed_host_key_is_said(
    server: SshServer, environment: dict[str, str], tmp_path: Path
) -> None:
    keygen("other", server.folder)
    server.know("other")
    said = unreachable(server, environment, tmp_path)
    assert "its host key has changed" in said and "ssh-keygen -R" in said
    assert f"ssh -F {server.config} -p {server.port} 127.0.0.1 true" in said


def test_an_unknown_host_key_is_said(
    server: SshServer, environment: dict[str, str], tmp_path: Path
) -> None:
    server.known_hosts.write_text("")
    said = unreachable(server, environment, tmp_path)
    assert "its host key is not known here; connect once by hand" in said


def test_a_user_who_is_not_let_in_is_told_how(
    server: SshServer, environment: dict[str, str], tmp_path: Path
) -> None:
    (server.folder / "authorized").write_text("")
    assert "ssh-copy-id" in unreachable(server, environment, tmp_path)


def test_a_port_where_nobody_listens_is_said(
    server: SshServer, environment: dict[str, str], tmp_path: Path
) -> None:
    server.process.kill()
    server.process.wait()
    assert "Connection refused" in unreachable(server, environment, tmp_path)


@pytest.mark.parametrize(("size", "says"), [("1m", "no room for the agent"), ("6m", "No space")])
def test_no_space_there_is_said_and_nothing_stays(
    server: SshServer, tmp_path: Path, size: str, says: str
) -> None:
    if os.geteuid() != 0:
        pytest.skip("a small file system to fill needs root")
    small, large = tmp_path / "small", tmp_path / "large"
    small.mkdir()
    large.write_bytes(bytes(8 << 20))
    mounted = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(small)]
    assert subprocess.run(mounted, check=False).returncode == 0
    try:
        environment = build(f"{server.spec},dir={small}").with_pushed((large,))
        with pytest.raises(VtaxError, match=says):
            environment.start(tmp_path, [])
        assert eventually(lambda: not left_on(small))
    finally:
        subprocess.run(["umount", str(small)], check=True)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may turn swap on")
SWAPPING = ",mem=64M,swap=32M"
NO_SWAPON = 'ForceCommand exec setpriv --bounding-set=-sys_admin /bin/sh -c "$SSH_ORIGINAL_COMMAND"'


def own_swap(cache: Path) -> list[str]:
    lines = Path("/proc/swaps").read_text().splitlines()
    return [line.split()[0] for line in lines if line.startswith(str(cache))]


@pytest.mark.slow
@needs_root
@pytest.mark.usefixtures("swap_alone")
def test_swap_is_made_there_and_what_a_killed_agent_left_goes_with_the_next(tmp_path: Path) -> None:
    cache = tmp_path / "far-cache"
    with SshServer(tmp_path / "server", f"SetEnv XDG_CACHE_HOME={cache}") as server:
        environment = build(f"{server.spec}{SWAPPING}")
        work = tmp_path / "work0"
        work.mkdir()
        machine = environment.start(work, [])
        (first,) = own_swap(cache)
        os.kill(int(Path(first).name.split("-")[1]), signal.SIGKILL)
        with pytest.raises(MachineLostError):
            machine.run(["true"], GUEST_ENVIRONMENT, "r")
        assert own_swap(cache) == [first]
        machine = environment.start(work, [])
        (second,) = own_swap(cache)
        assert second != first
        machine.close()
        assert eventually(lambda: own_swap(cache) == [])
        assert list((cache / "vtax" / "swap").iterdir()) == []


@pytest.mark.slow
@needs_root
def test_who_may_turn_no_swap_on_there_is_told_in_one_line(tmp_path: Path) -> None:
    cache = tmp_path / "far-cache"
    setting = f"SetEnv XDG_CACHE_HOME={cache}\n{NO_SWAPON}"
    with SshServer(tmp_path / "server", setting) as server:
        with pytest.raises(MachineLostError, match=r"only root may turn swap on$"):
            build(f"{server.spec}{SWAPPING}").start(tmp_path, [])
        assert list((cache / "vtax" / "swap").iterdir()) == []


def test_a_folder_that_cannot_be_made_is_said(server: SshServer, tmp_path: Path) -> None:
    with pytest.raises(MachineLostError, match=r"cannot make /proc/vtax-.*dir="):
        build(f"{server.spec},dir=/proc").start(tmp_path, [])


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("node7", "node7", None),
        ("me@node7:2222", "me@node7", 2222),
        ("me@[::1]:22", "me@::1", 22),
        ("[fe80::1%eth0]", "fe80::1%eth0", None),
        ("host=node7", "node7", None),
    ],
)
def test_hosts(text: str, host: str, port: int | None) -> None:
    found = build(f"ssh:{text}")
    assert isinstance(found, Ssh) and (found.login.host, found.login.port) == (host, port)


@pytest.mark.parametrize(
    "spec",
    [
        "ssh",
        "ssh:-oProxyCommand=x",
        "ssh:-v",
        "ssh:me@-v",
        "ssh:node7:0",
        "ssh:node7:ssh",
        "ssh:::1",
        "ssh:a b",
        "ssh:node7,host=node8",
        "ssh:node7,cpus=0",
        "ssh:node7,mem=1k",
        "ssh:node7,swap=1G",
        "ssh:node7,dir=$(id)",
        "ssh:node7,dir=relative",
    ],
)
def test_specs_that_are_refused(spec: str) -> None:
    with pytest.raises(MisuseError):
        build(spec)


def test_cpus_that_are_not_there(server: SshServer) -> None:
    with pytest.raises(MisuseError, match="CPUs"):
        build(f"{server.spec},cpus=100000").check()
