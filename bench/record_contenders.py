"""What bench/record.py compares: settings of vtax record, and the other programs that record."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from vtax.core import binaries

MS = 1_000_000
US = 1_000
TIMER = Path(__file__).with_name("record_timer.py")
START_LIMIT_S = 20.0
STOP_LIMIT_S = 60.0
SETTLE_S = 0.2
"""Wait after a recorder is seen to record, so that its start is over."""

GUEST = "guest-port"
"""The work whose events are KVM's; each step leaves KVM to the monitor's process."""

PRIVATE_TRACEFS = (
    'test -e /sys/kernel/tracing/events || mount -t tracefs tracefs /sys/kernel/tracing; exec "$@"'
)
"""Mounts tracefs in a mount namespace of its own, so that nothing stays mounted."""

TRACEPOINTS = (
    "sched:sched_switch",
    "sched:sched_wakeup",
    "sched:sched_migrate_task",
    "irq:irq_handler_entry",
    "irq:softirq_entry",
    "irq_vectors:local_timer_entry",
    "irq_vectors:reschedule_entry",
    "irq_vectors:call_function_entry",
    "irq_vectors:call_function_single_entry",
    "exceptions:page_fault_user",
    "exceptions:page_fault_kernel",
)
"""The tracepoints that vtax counts by default (crates/vtax-record/src/sources)."""
KVM_TRACEPOINTS = (
    "kvm:kvm_entry",
    "kvm:kvm_exit",
    "kvm:kvm_page_fault",
    "kvm:kvm_inj_virq",
    "kvm:kvm_inj_exception",
    "kvm:kvm_cr",
    "kvm:kvm_msr",
    "kvm:kvm_pio",
    "kvm:kvm_mmio",
    "kvm:kvm_fast_mmio",
    "kvm:kvm_emulate_insn",
    "kvm:kvm_halt_poll_ns",
    "kvm:kvm_hypercall",
    "kvm:kvm_cpuid",
    "kvm:kvm_invlpga",
    "kvm:kvm_userspace_exit",
    "kvm:kvm_vcpu_wakeup",
)
"""The tracepoints of `kvm`, without its memory management, which a guest of one page does not
use."""
SOFTWARE = ("page-faults", "context-switches", "cpu-migrations")
HARDWARE = ("instructions", "cycles", "cache-misses", "branch-misses", "dTLB-load-misses")


class Absent(Exception):
    """This contender does not work here; the text says why."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The facts about the machine that command lines depend on."""

    tracepoints: frozenset[str]
    hardware: bool

    @classmethod
    def look(cls) -> Self:
        events = "/sys/kernel/tracing/available_events"
        listed = subprocess.run(private(["cat", events]), capture_output=True, text=True)
        pmu = Path("/sys/bus/event_source/devices/cpu").exists()
        return cls(frozenset(listed.stdout.split()), pmu)

    def counted(self, kind: str) -> list[str]:
        """Tracepoints of this machine that vtax counts with this work."""
        wanted = TRACEPOINTS + (KVM_TRACEPOINTS if kind == GUEST else ())
        return [name for name in wanted if name in self.tracepoints]

    def perf_events(self, kind: str) -> list[str]:
        names = [*(HARDWARE if self.hardware else ()), *SOFTWARE]
        if kind == GUEST:
            names += [name for name in KVM_TRACEPOINTS if name in self.tracepoints]
        return names


Command = Callable[[Machine, int, str, Path], list[str]]
"""Machine, process to record, kind of its work, folder for the files."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A recorder with its settings."""

    name: str
    interval_ns: int | None
    """Length of the recorder's rows; None where it writes every event."""
    command: Command
    ready: Callable[[int, Path], bool]
    """Whether the process with this number, with its files in this folder, records."""
    program: str | None = None
    """A program of another project; also the name of Debian's package unless `package` has that."""
    package: str | None = None
    role: Literal["ours", "peer", "floor"] = "peer"
    guests_only: bool = False
    tracing: bool = False
    """Whether it changes the global tracing switch."""

    @property
    def ours(self) -> bool:
        return self.role == "ours"

    def require(self, machine: Machine) -> None:
        """Raise Absent, with the reason, if the contender cannot run here."""
        if self.program is None:
            return
        if not shutil.which(self.program):
            package = self.package or self.program
            raise Absent(f"{self.program} is not installed: apt-get install {package}")
        if self.guests_only and "kvm:kvm_exit" not in machine.tracepoints:
            raise Absent("this kernel has no tracepoints of KVM")


def private(argv: Sequence[str]) -> list[str]:
    """The command in a namespace where tracefs is mounted; its process is the one that is
    started."""
    unshare = ["unshare", "--mount", "--propagation", "private"]
    return [*unshare, "sh", "-c", PRIVATE_TRACEFS, "sh", *argv]


def vtax(every: str, interval_ns: int) -> Contender:
    def command(_machine: Machine, pid: int, kind: str, out: Path) -> list[str]:
        target = "--vm" if kind == GUEST else "--pid"
        events = "default,kvm" if kind == GUEST else "default"
        argv = [str(binaries.find("vtax-host")), "record", "--every", every]
        return [*argv, "--events", events, target, str(pid), "--out", str(out)]

    return Contender(f"vtax record, {every}", interval_ns, command, vtax_ready, role="ours")


def vtax_ready(_pid: int, out: Path) -> bool:
    """Whether the stream exists, which is made when all is attached."""
    return (out / "intervals.arrows").exists()


def perf_ready(pid: int, _out: Path) -> bool:
    try:
        links = [str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return False
    return any("perf_event" in link for link in links)


def timer(interval_ns: int) -> Command:
    def command(_machine: Machine, pid: int, _kind: str, _out: Path) -> list[str]:
        return [sys.executable, str(TIMER), str(pid), str(interval_ns)]

    return command


def perf_stat(machine: Machine, pid: int, kind: str, out: Path) -> list[str]:
    events = ",".join(["task-clock", *machine.perf_events(kind)])
    argv = ["perf", "stat", "-I", "1", "-x", ",", "-o", str(out / "stat"), "-e", events]
    return private([*argv, "-p", str(pid)])


def perf_record(interval_ns: int) -> Command:
    def command(machine: Machine, pid: int, kind: str, out: Path) -> list[str]:
        group = ",".join(["cpu-clock", *machine.perf_events(kind)])
        argv = ["perf", "record", "-q", "-e", f"{{{group}}}:S", "-c", str(interval_ns)]
        return private([*argv, "-p", str(pid), "-o", str(out / "data")])

    return command


def perf_kvm(_machine: Machine, pid: int, _kind: str, out: Path) -> list[str]:
    return private(["perf", "kvm", "stat", "record", "-p", str(pid), "-o", str(out / "data")])


def trace_cmd(_machine: Machine, _pid: int, _kind: str, out: Path) -> list[str]:
    return private(["stdbuf", "-oL", "trace-cmd", "record", "-e", "kvm", "-o", str(out / "data")])


def trace_cmd_ready(_pid: int, out: Path) -> bool:
    return "Ctrl" in (out / "stdout").read_text(errors="replace")


def bpftrace(interval: str) -> Command:
    def command(machine: Machine, pid: int, kind: str, _out: Path) -> list[str]:
        script = " ".join(
            f'tracepoint:{name} /pid == {pid}/ {{ @counts["{name}"] = count(); }}'
            for name in machine.counted(kind)
        )
        script += f" interval:{interval} {{ print(@counts); clear(@counts); }}"
        return private(["bpftrace", "-B", "line", "-e", script])

    return command


def bpftrace_ready(_pid: int, out: Path) -> bool:
    """Whether the first intervals have been printed, each with at least an empty line."""
    return (out / "stdout").read_bytes().count(b"\n") > 3


OURS = (vtax("1ms", MS), vtax("100us", 100 * US), vtax("20ms", 20 * MS))
"""vtax's settings; the last is the one that `vtax study vrtprof` uses for the paper's setting
without a PMU."""
FLOORS = (
    Contender("timer alone, 1ms", MS, timer(MS), perf_ready, role="floor"),
    Contender("timer alone, 100us", 100 * US, timer(100 * US), perf_ready, role="floor"),
)
"""No recorder: the cost of the reference event on this machine, for any recorder."""
PEERS = (
    Contender("perf stat -I 1", MS, perf_stat, perf_ready, "perf", "linux-perf"),
    Contender("perf record :S, 1ms", MS, perf_record(MS), perf_ready, "perf", "linux-perf"),
    Contender(
        "perf record :S, 100us", 100 * US, perf_record(100 * US), perf_ready, "perf", "linux-perf"
    ),
    Contender("bpftrace, 1ms", MS, bpftrace("ms:1"), bpftrace_ready, "bpftrace"),
    Contender("bpftrace, 100us", 100 * US, bpftrace("us:100"), bpftrace_ready, "bpftrace"),
    Contender(
        "perf kvm stat record", None, perf_kvm, perf_ready, "perf", "linux-perf", guests_only=True
    ),
    Contender(
        "trace-cmd record -e kvm",
        None,
        trace_cmd,
        trace_cmd_ready,
        "trace-cmd",
        guests_only=True,
        tracing=True,
    ),
)


def contenders(kind: str) -> list[Contender]:
    """The contenders that record something of this work."""
    return [each for each in (*OURS, *FLOORS, *PEERS) if kind == GUEST or not each.guests_only]


class Recording:
    """A running recorder; a context manager that begins when it records and ends when it is gone.

    Raises Absent if it does not begin, or ends by itself.
    """

    def __init__(
        self, argv: Sequence[str], ready: Callable[[int, Path], bool], out: Path, tracing: bool
    ) -> None:
        self._argv, self._ready, self._out = argv, ready, out
        self._tracing = tracing_switch() if tracing else None

    def __enter__(self) -> Self:
        self._out.mkdir(parents=True)
        # A shell's background jobs ignore SIGINT, and children inherit that.
        argv = ["env", "--default-signal=INT", *self._argv]
        with (
            (self._out / "stdout").open("wb") as output,
            (self._out / "stderr").open("wb") as errors,
        ):
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )
        try:
            self._await()
        except BaseException:
            self._end()
            raise
        time.sleep(SETTLE_S)
        return self

    def _await(self) -> None:
        deadline = time.monotonic() + START_LIMIT_S
        while not self._ready(self._process.pid, self._out):
            if self._process.poll() is not None:
                raise Absent(self._why())
            if time.monotonic() > deadline:
                raise Absent(f"did not begin to record in {START_LIMIT_S:g} s")
            time.sleep(0.01)

    def _why(self) -> str:
        """The recorder's last words and how it ended."""
        text = (self._out / "stderr").read_text(errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        code = self._process.returncode
        ended = f"signal {-code}" if code < 0 else f"exit code {code}"
        return "; ".join([*lines[-2:], f"ended with {ended}"])

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        early = self._process.poll() is not None
        self._end()
        # perf raises the signal that ended it once more.
        if error is None and (early or self._process.returncode not in (0, -signal.SIGINT)):
            raise Absent(self._why())

    def _end(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(timeout=STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        # End the processes that a failed recorder has left.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        if self._tracing is not None:
            tracing_switch(self._tracing)

    def written_bytes(self) -> int:
        """The size of the recorder's files."""
        return sum(path.stat().st_size for path in self._out.iterdir())


def tracing_switch(value: str | None = None) -> str:
    """Read or set the global switch of the kernel's ring buffers."""
    path = "/sys/kernel/tracing/tracing_on"
    script = f"cat {path}" if value is None else f'echo "$1" > {path}'
    argv = private(["sh", "-c", script, "sh", value or ""])
    return subprocess.run(argv, capture_output=True, text=True).stdout.strip()


def record_json(out: Path) -> dict[str, Any]:
    """What vtax-host says about a finished recording."""
    found: dict[str, Any] = json.loads((out / "record.json").read_text())
    return found


def versions() -> dict[str, str]:
    """The versions of all that is compared, and of what it runs on."""
    facts = json.loads(subprocess.check_output([binaries.find("vtax-agent"), "facts"]))
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    found = {
        "machine": f"{facts['cpu']['model']}, {len(facts['affinity'])} CPUs, "
        f"{facts['virtualization']['kind']}, Linux {facts['kernel']['release']}",
        "load before": load,
    }
    own = str(binaries.find("vtax-host"))
    for name in (own, "perf", "trace-cmd", "bpftrace"):
        if shutil.which(name):
            said = subprocess.run([name, "--version"], capture_output=True, text=True)
            lines = (said.stdout + said.stderr).strip().splitlines()
            found[Path(name).name] = lines[0].strip() if lines else "says no version"
    return found
