"""A guest's host beside its samples: which guest is meant, what is read, a host that is lost."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from command_line import command, one_line, run
from process_watch import descendants, ended, eventually, processes_naming
from ssh_server import SshServer, keygen
from tested_machines import GUEST_ENVIRONMENT, checked
from vtax.core.errors import MisuseError, VtaxError
from vtax.core.formats.folder import load
from vtax.environments import build, host_guests, host_reading
from vtax.environments.base import allowed_cpus
from vtax.environments.capabilities import HostReadings, Link
from vtax.environments.host_reading import Reading
from vtax.environments.kvm_counters import Counters
from vtax.environments.machine import Machine
from vtax.environments.ssh import Ssh
from vtax.workloads.loads import ports

STAT = "cpu  300 0 200 9000 10 5 5 70 100 0\n"
ROLES = {(7, 7): "main-loop", (7, 8): "vcpu", (7, 9): "unknown", (90, 90): "vhost"}
SPENT = {(7, 7): (1.0, 0.1), (7, 8): (5.0, 0.5), (7, 9): (0.25, 0.0), (90, 90): (0.5, 0.0)}


def test_keys_of_a_guests_host() -> None:
    own = build("ssh:vm1,host=ssh:me@hyp1:2222,domain=web,config=/c,dir=/d")
    assert isinstance(own, Ssh) and own.host is not None and own.host.domain == "web"
    host = own.host.environment
    assert isinstance(host, Ssh) and host.login.line()[-1] == "me@hyp1"
    assert (host.login.port, host.login.config, host.folder) == (2222, "/c", "/d")
    assert HostReadings in own.offered() and HostReadings not in build("ssh:vm1").offered()
    assert build("ssh:vm1,host=native,pid=7") != build("ssh:vm1,host=native")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ssh:vm1,host=hyp1", "host=hyp1 is not native or ssh:"),
        ("ssh:vm1,host=ssh", "host=ssh is not native or ssh:"),
        ("ssh:vm1,host=native:cpus=1", "'cpus'|not native or ssh:"),
        ("ssh:vm1,host=qemu", "host=qemu is not native"),
        ("ssh:vm1,domain=web", "domain= says what a guest is called on host="),
        ("ssh:vm1,host=native,pid=0", "pid=0 must be a whole number"),
        ("ssh:host=vm1,domain=web", "domain= says what a guest is called on host="),
    ],
)
def test_a_bad_host_is_refused(text: str, said: str) -> None:
    with pytest.raises(MisuseError, match=said):
        build(text)


def test_totals_of_what_the_host_prints() -> None:
    said = f"{STAT}/proc/7/task/8/schedstat:5000000000 500000000 12\nno such line\n"
    assert host_reading.totals(said) == (5.1, {(7, 8): (5.0, 0.5)})
    for wrong in ("", "cpu0 1 2 3 4 5 6 7 8\n", "cpu  1 2\n", "cpu  a b c d e f g h\n"):
        with pytest.raises(VtaxError, match="/proc/stat"):
            host_reading.totals(wrong)


@given(st.text())
def test_no_output_of_a_host_does_harm(said: str) -> None:
    try:
        busy_s, threads = host_reading.totals(said)
    except VtaxError:
        return
    assert busy_s >= 0 and all(cpu >= 0 and wait >= 0 for cpu, wait in threads.values())


def reading(
    begin_s: float, threads: Mapping[tuple[int, int], tuple[float, float]], **more: object
) -> Reading:
    own: dict[str, object] = {"busy_s": begin_s, "roles": ROLES, **more}
    return Reading(begin_s, begin_s + 0.01, threads=threads, **own)  # type: ignore[arg-type]


def values(before: Reading, after: Reading, own_s: float) -> tuple[dict[str, float], list[str]]:
    found, absent = host_reading.metrics(before, after, own_s)
    return {each.name: each.value for each in found}, list(absent)


def test_what_threads_do_between_two_readings() -> None:
    before = reading(
        0.0, dict.fromkeys(SPENT, (0.0, 0.0)), kvm=Counters({"exits": 5}, frozenset(), 1.0)
    )
    more = {**SPENT, (7, 11): (0.125, 0.0)}
    after = reading(10.0, more, kvm=Counters({"exits": 12}, frozenset(), 3.5))
    found, absent = values(before, after, 9.5)
    assert not absent and found.pop("host.bracket_s") == pytest.approx(10.01)
    assert found == {
        "host.busy_s": 10.0, "host.vcpu_s": 5.0, "host.steal_s": 0.5, "host.service_s": 1.625,
        "host_cpu_s": 6.875, "host.others_s": 3.125, "kvm.exits": 7.0, "kvm.guest_s": 2.5,
    }  # fmt: skip


def test_what_was_not_seen_is_absent_and_not_zero() -> None:
    start = reading(0.0, dict.fromkeys(SPENT, (0.0, 0.0)))
    late = values(start, reading(10.0, SPENT), 8.0)
    assert late[0] == {} and "1.2 times" in late[1][0]
    gone = {each: spent for each, spent in SPENT.items() if each != (7, 8)}
    found, absent = values(start, reading(10.0, gone), 10.0)
    assert not {"host.vcpu_s", "host.steal_s"} & found.keys() and found["host.service_s"] == 1.5
    assert absent == ["a virtual CPU of the guest has ended there"]
    ended = values(start, reading(10.0, {}), 10.0)[0]
    assert ended.keys() == {"host.bracket_s", "host.busy_s"}
    lost = Reading(10.0, 10.0, ("the host is lost",))
    assert values(start, lost, 10.0) == values(lost, lost, 10.0) == ({}, ["the host is lost"])
    ticks = values(start, reading(10.0, SPENT, busy_s=6.0), 10.0)
    assert "host.others_s" not in ticks[0] and "ran" in ticks[1][0]
    unnamed = dict.fromkeys(ROLES, "unknown")
    assert "host.vcpu_s" not in values(start, reading(10.0, SPENT, roles=unnamed), 10.0)[0]


_SPANS = st.floats(0, 1e6)
_THREADS = st.dictionaries(st.sampled_from([*ROLES, (7, 12)]), st.tuples(_SPANS, _SPANS))


@given(_THREADS, _THREADS)
def test_parts_of_a_guests_time_add_up(
    before: Mapping[tuple[int, int], tuple[float, float]],
    after: Mapping[tuple[int, int], tuple[float, float]],
) -> None:
    found, _ = values(reading(0.0, before), reading(10.0, after), 10.0)
    assert all(value >= 0 for name, value in found.items() if name != "host.steal_s")
    if "host.vcpu_s" in found:
        parts = found["host.vcpu_s"] + found["host.service_s"]
        assert parts <= found["host_cpu_s"] * (1 + 1e-9) + 1e-6


def thread(pid: int, tid: int, role: str, guest: str | None) -> dict[str, object]:
    return {"pid": pid, "tid": tid, "role": role, "guest": guest}


def test_guests_and_all_that_serves_them() -> None:
    shared = [thread(3, 3, "softirq", None)]
    web = [
        thread(7, 7, "main-loop", "web"),
        thread(7, 8, "vcpu", "web"),
        thread(90, 90, "vhost", "web"),
    ]
    (one,) = host_guests.guests({"threads": [*shared, *web]})
    assert (one.pid, one.name, one.pids) == (7, "web", (7, 90))
    assert one.roles == {(7, 7): "main-loop", (7, 8): "vcpu", (90, 90): "vhost"}
    twin = [thread(20, 20, "main-loop", "web"), thread(20, 21, "vcpu", "web")]
    first, second = host_guests.guests({"threads": [*shared, *web, *twin]})
    assert (first.pids, second.pids) == ((7,), (20,)), "whose the helper is nobody knows"
    assert not host_guests.guests({"threads": shared})


def test_which_guest_is_meant() -> None:
    known = [host_guests.Guest(n, name, (n,), {}) for n, name in ((7, "web"), (8, "db"), (9, "db"))]
    own, other = uuid.uuid4(), uuid.uuid4()

    def chosen(domain: str | None = None, pid: int | None = None,
               own: uuid.UUID | None = None, **there: uuid.UUID) -> list[int]:  # fmt: skip
        theirs = {int(name[1:]): value for name, value in there.items()}
        found = host_guests.fitting(known, domain, pid, own, lambda each: theirs.get(each.pid))
        return [each.pid for each in found]

    assert chosen() == [7, 8, 9] and chosen("db") == [8, 9] and chosen("db", 9) == [9]
    assert chosen("web", 9) == chosen("mail") == []
    assert chosen(None, None, own, p8=own) == [8]
    assert chosen(None, None, own, p8=other, p9=other) == [7], "the others are other machines"
    assert chosen("web", None, own, p7=other) == []


def test_uuids_are_read_where_they_are() -> None:
    own = uuid.uuid4()
    line = f"/usr/bin/qemu-system-x86_64\0-uuid\0{own}\0-S\0".encode()
    assert host_guests.uuid_of_process({"/proc/7/cmdline": line}.__getitem__, 7) == own
    assert host_guests.uuid_of_process(lambda _: b"qemu\0-S\0-uuid", 7) is None
    assert host_guests.own_uuid(lambda path: f"{own}\n".encode()) == own

    def refused(path: str) -> bytes:
        raise VtaxError(f"open {path}: Permission denied")

    assert host_guests.own_uuid(refused) is host_guests.uuid_of_process(refused, 7) is None


@contextmanager
def stopped_guest(name: str) -> Iterator[int]:
    """A QEMU whose guest does not run: its process, and the threads of a guest."""
    qemu = shutil.which("qemu-system-x86_64")
    if qemu is None:
        pytest.skip("no qemu-system-x86_64: apt-get install qemu-system-x86")
    line = [qemu, "-S", "-nodefaults", "-display", "none", "-accel", "tcg", "-m", "16M"]
    line += ["-name", f"guest={name},debug-threads=on"]
    with ended(subprocess.Popen(line, stdin=subprocess.DEVNULL)) as process:
        tasks = Path(f"/proc/{process.pid}/task")
        assert eventually(lambda: any("CPU" in p.read_text() for p in tasks.glob("*/comm")))
        yield process.pid


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SshServer, SshServer]]:
    """A guest's server and its host's."""
    folder = tmp_path_factory.mktemp("servers")
    with SshServer(folder / "guest") as guest, SshServer(folder / "host") as host:
        both = guest.known_hosts.read_text() + host.known_hosts.read_text()
        guest.known_hosts.write_text(both)
        (guest.folder / "config").write_text(
            guest.config.read_text() + f"IdentityFile {host.folder / 'user'}\n"
        )
        yield guest, host


@pytest.mark.slow
def test_a_host_that_does_not_have_the_guest_is_one_line(
    servers: tuple[SshServer, SshServer], tmp_path: Path, environment: dict[str, str]
) -> None:
    guest, host = servers

    def refused(options: str) -> str:
        own = build(f"{guest.spec},{options}")
        work = tmp_path / options[:60].replace("/", "-")
        work.mkdir()
        with pytest.raises(VtaxError) as raised, own.session():
            own.check()
            own.start(work, [0])
        return str(raised.value)

    with stopped_guest("vtax-test-one") as one, stopped_guest("vtax-test-two"):
        argv = ["compare", "--in", f"{guest.spec},host=native", "--baseline", "none"]
        said = one_line(run(environment, *argv, "--out", str(tmp_path / "runs"), "--", "true"), 1)
        assert "several guests of QEMU may be it" in said and "domain= or pid=" in said
        assert f"vtax-test-one (process {one})" in said and "vtax-test-two (process" in said
        said = refused(f"host=native,domain=vtax-test-two,pid={one}")
        assert "no guest of QEMU there is it" in said and f"vtax-test-one (process {one})" in said
    closed = refused(f"host=ssh:127.0.0.1:{unused_port()},pid=1")
    assert "cannot use 127.0.0.1" in closed and "Connection refused" in closed
    assert eventually(lambda: not guest.sessions() and not host.sessions())


@pytest.mark.slow
def test_a_host_that_is_cut_off_costs_no_sample_of_the_guest(
    servers: tuple[SshServer, SshServer], tmp_path: Path, environment: dict[str, str]
) -> None:
    guest, host = servers
    (tmp_path / "far").mkdir()
    spec = (
        f"{guest.spec},dir={tmp_path / 'far'},host=ssh:127.0.0.1:{host.port},domain=vtax-test-cut"
    )
    argv = ["compare", "--in", spec, "--baseline", "none", "--reps", "6"]
    argv += ["--no-warm-up", "--no-control"]
    with stopped_guest("vtax-test-cut"):
        process = subprocess.Popen(
            command(*argv, "--out", str(tmp_path / "runs"), "--", "sleep", "1.0555"),
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        with ended(process):
            files = lambda: [*tmp_path.glob("runs/*/samples.jsonl")]  # noqa: E731
            assert eventually(lambda: any("host.steal_s" in f.read_text() for f in files()), 120)
            host.signal(signal.SIGKILL)
            printed = process.communicate(timeout=120)[0]
    (folder,) = (tmp_path / "runs").iterdir()
    record, samples = load(folder)
    assert process.returncode == 0 and not record.failures, printed
    metrics = [each.metric for each in samples]
    assert metrics.count("wall_s") == 6
    assert 1 <= metrics.count("host.steal_s") == metrics.count("host.bracket_s") < 6, printed
    (own,) = record.environments
    (lost,) = (count for why, count in own.absent.items() if why.startswith("host=ssh:"))
    assert lost == 6 - metrics.count("host.steal_s")
    assert printed.count("absent-values") == 1
    assert eventually(lambda: not processes_naming(str(tmp_path / "far")))
    assert eventually(lambda: not guest.sessions() and not host.sessions())


@pytest.mark.slow
def test_nothing_is_left_on_guest_or_host_when_vtax_is_killed(
    servers: tuple[SshServer, SshServer], tmp_path: Path, environment: dict[str, str]
) -> None:
    guest, host = servers
    (tmp_path / "far").mkdir()
    spec = f"{guest.spec},dir={tmp_path / 'far'},host=ssh:127.0.0.1:{host.port}"
    argv = ["compare", "--in", f"{spec},domain=vtax-test-kill", "--baseline", "none"]
    line = command(*argv, "--out", str(tmp_path / "runs"), "--", "sleep", "86376")
    with stopped_guest("vtax-test-kill"):
        process = subprocess.Popen(line, env=environment, stderr=subprocess.DEVNULL)
        with ended(process):
            assert eventually(lambda: processes_naming("sleep 86376")[1:], 120)
    assert eventually(lambda: not any((tmp_path / "far").iterdir()))
    assert eventually(lambda: not guest.sessions() and not host.sessions())
    assert not processes_naming("sleep 86376")


@contextmanager
def guest_with_ssh(folder: Path) -> Iterator[tuple[str, Machine]]:
    """A guest of QEMU's emulator with an OpenSSH server inside: its spec, and the machine."""
    environment = checked("qemu:accel=tcg,mem=512M,net=slirp")
    sshd = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin")
    if sshd is None or shutil.which("ssh") is None:
        pytest.skip("no OpenSSH server and client: apt-get install openssh-server")
    (folder / "work/sshd").mkdir(mode=0o700, parents=True)
    with ExitStack() as stack:
        machine = environment.start(folder / "work", allowed_cpus()[-1:])
        assert isinstance(machine, Machine)
        stack.callback(machine.close)
        link = machine.offer(Link)
        assert link is not None
        own, inside = folder / "work/sshd", machine.launch.work_inside / "sshd"
        for name in ("host", "user"):
            keygen(name, own)
        shutil.copy(own / "user.pub", own / "authorized")
        (own / "settings").write_text(
            f"Port {ports.HTTP}\nHostKey {inside}/host\nAuthorizedKeysFile {inside}/authorized\n"
            "StrictModes no\nUsePAM no\nPermitRootLogin yes\nPidFile none\n"
        )
        known = f"[{link.address}]:{ports.HTTP} {(own / 'host.pub').read_text()}"
        (folder / "known").write_text(known)
        proxy = shlex.join(link.client(["busybox", "nc", "%h", "%p"]))
        (folder / "config").write_text(
            f"Host *\nUserKnownHostsFile {folder}/known\nGlobalKnownHostsFile /dev/null\n"
            f"IdentityFile {own}/user\nIdentitiesOnly yes\nProxyCommand {proxy}\n"
        )
        # The host's passwords are hidden from the guest, and sshd refuses users without any entry.
        script = "mkdir -p /run/sshd; rm -f /etc/shadow; echo 'root:*:1:0:99999:7:::' >/etc/shadow"
        line = ["sh", "-c", f"{script}; chown -R 0:0 {inside}; exec {sshd} -f {inside}/settings"]
        done = machine.run(line, GUEST_ENVIRONMENT, "sshd", 60, leave=True)
        assert done.outcome.exit_code == 0, (own / "stderr").read_text()
        yield f"ssh:{link.address}:{ports.HTTP},config={folder}/config", machine


def schedules(pid: int) -> dict[int, tuple[int, int]]:
    """CPU time and run-queue wait of a process's threads, in ns, read by the test itself."""
    found = {}
    for path in Path(f"/proc/{pid}/task").iterdir():
        words = (path / "schedstat").read_text().split()
        found[int(path.name)] = int(words[0]), int(words[1])
    return found


@pytest.mark.slow
def test_a_guest_and_its_host_agree_with_what_the_kernel_counted(tmp_path: Path) -> None:
    """The test reads the same totals inside and outside of the readings: they bound the values. A
    process that competes for the virtual CPU's CPU takes half of it."""
    with ExitStack() as stack:
        spec, machine = stack.enter_context(guest_with_ssh(tmp_path))
        (qemu,) = (pid for pid in descendants(machine.pid) if name_of(pid).startswith("qemu"))
        (vcpu,) = (t for t in schedules(qemu) if name_of(t).startswith("CPU 0"))
        environment = build(f"{spec},host=native,pid={qemu}")
        environment.check()
        stack.enter_context(environment.session())
        (tmp_path / "far").mkdir()
        guest = environment.start(tmp_path / "far", [0])
        stack.callback(guest.close)
        host = guest.offer(HostReadings)
        assert host is not None
        (tmp_path / "far/r0").mkdir()
        pinned = f"import os\nos.sched_setaffinity(0, {os.sched_getaffinity(vcpu)})\n"
        hog = [sys.executable, "-c", f"{pinned}while True: pass"]
        stack.enter_context(ended(subprocess.Popen(hog)))
        outer = schedules(qemu)
        before = host.read()
        inner = schedules(qemu)
        loop = "cat /proc/sys/kernel/hostname; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"
        finished = guest.run(["sh", "-c", loop], GUEST_ENVIRONMENT, "r0", timeout_s=120)
        inner_end = schedules(qemu)
        after = host.read()
        outer_end = schedules(qemu)
    assert (tmp_path / "far/r0/stdout").read_text() == "vtax-guest\n"
    assert finished.outcome.wall_s < after.end_s - before.begin_s
    found, absent = values(before, after, after.end_s - before.begin_s)
    for name, which in (("host.vcpu_s", 0), ("host.steal_s", 1)):
        least = (inner_end[vcpu][which] - inner[vcpu][which]) / 1e9
        most = (outer_end[vcpu][which] - outer[vcpu][which]) / 1e9
        assert least - 1e-6 <= found[name] <= most + 1e-6, (name, absent)
    others = [tid for tid in inner if tid != vcpu and tid in outer_end]
    least = sum(inner_end[t][0] - inner[t][0] for t in others if t in inner_end) / 1e9
    assert found["host.service_s"] >= least - 1e-6
    assert found["host_cpu_s"] >= found["host.vcpu_s"] + found["host.service_s"] - 1e-6
    share = found["host.steal_s"] / (found["host.steal_s"] + found["host.vcpu_s"])
    assert share > 0.3, found
    assert found["host.busy_s"] > found["host.vcpu_s"]


def name_of(tid: int) -> str:
    return Path(f"/proc/{tid}/comm").read_text().strip()


def unused_port() -> int:
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        return int(chosen.getsockname()[1])
