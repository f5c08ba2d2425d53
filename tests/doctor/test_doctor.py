"""vtax doctor on machines that are a folder and a few functions, and once on this one."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from syrupy.assertion import SnapshotAssertion

from command_line import SOURCE
from vtax.core.checks.host import Host, Output
from vtax.core.checks.model import Check, Finding, State
from vtax.core.checks.syscalls import Count
from vtax.core.errors import MisuseError
from vtax.core.page import tables
from vtax.doctor import render
from vtax.doctor.checks import registered
from vtax.doctor.examine import examine

GIB = 1 << 30
CPU = "sys/devices/system/cpu"
STATIC = "\x7fELF\x02\x01" + "\0" * 58
"""A 64-bit ELF program without any segment, so without a dynamic linker."""
QEMU = "QEMU emulator version 7.2.22 (Debian 1:7.2)\n"
QEMU_10 = "QEMU emulator version 10.0.13 (Debian 1:10.0.13+ds-0+deb13u1)\n"
QEMU_HELP = "x86 EPYC\n  npt svm\ntcg\n"
"""The output of `-cpu help` and `-accel help`, as far as a check looks; a program here has one
answer."""

BARE_METAL: Mapping[str, str] = {
    "proc/cpuinfo": "processor: 0\nflags\t\t: fpu vmx sse2\n",
    "proc/self/status": "Name:\tvtax\nCapEff:\t000001ffffffffff\n",
    "proc/self/cgroup": "0::/user.slice\n",
    "proc/filesystems": "nodev\tsysfs\nnodev\ttracefs\n",
    "proc/meminfo": "MemTotal: 33554432 kB\nMemAvailable: 16777216 kB\n",
    "proc/sys/kernel/perf_event_paranoid": "-1",
    "sys/class/dmi/id/sys_vendor": "Dell Inc.",
    "sys/class/dmi/id/product_name": "PowerEdge",
    "sys/class/powercap/intel-rapl:0/energy_uj": "1",
    "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc",
    f"{CPU}/cpu0/cpufreq/scaling_governor": "performance",
    f"{CPU}/cpu1/cpufreq/scaling_governor": "performance",
    f"{CPU}/intel_pstate/no_turbo": "1",
    f"{CPU}/smt/active": "0",
    f"{CPU}/online": "0-1",
    "sys/fs/cgroup/user.slice/cgroup.controllers": "cpu memory pids",
    "sys/fs/cgroup/user.slice/cgroup.subtree_control": "memory",
    "sys/kernel/btf/vmlinux": "",
    "sys/kernel/tracing/events/kvm/enable": "0",
    "dev/kvm": "",
    "boot/vmlinuz-6.1.0-1-amd64": "",
    "bin/busybox": STATIC,
    "lib/modules/6.1.0-1-amd64/kernel/fs/9p/9p.ko": "",
    "lib/modules/6.1.0-1-amd64/kernel/arch/x86/kvm/kvm-amd.ko": "",
    "lib/modules/6.1.0-1-amd64/modules.dep": "kernel/fs/9p/9p.ko: kernel/net/9p/9pnet.ko\n",
    "usr/lib/x86_64-linux-gnu/openblas-pthread/libblas.so.3": "",
    "dev/net/tun": "",
    "etc/os-release": "ID=debian\nVERSION_CODENAME=bookworm\n",
}

PROGRAMS: Mapping[str, Output] = {
    "linux.uml": Output(0, "6.1.176\n", ""),
    "bwrap": Output(0, "", ""),
    "qemu-system-x86_64": Output(0, QEMU + QEMU_HELP, ""),
    "qemu-system-aarch64": Output(0, QEMU, ""),
    "hpcc": Output(0, "", ""),
    "mpirun": Output(0, "mpirun (Open MPI) 4.1.4\n", ""),
    "podman": Output(0, "podman version 4.3.1\n", ""),
    "runsc": Output(0, "runsc version release-20240401.0\n", "  -overlay2 value\n  systrap\n"),
    "firecracker": Output(0, "Firecracker v1.12.1\n", ""),
    "diod": Output(0, "", ""),
    "ssh": Output(0, "", "OpenSSH_9.2p1\n"),
    "salloc": Output(0, "slurm-wlm 22.05.8\n", ""),
    "virsh": Output(0, "web1\ndb\n\n", ""),
    "sinfo": Output(0, "batch* 4 idle\nlong 2 down\n", ""),
    **dict.fromkeys(("unshare", "nsenter", "ip", "tc", "vde_switch"), Output(0, "", "")),
    **dict.fromkeys(("nginx", "wrk", "ab", "iperf3", "fio"), Output(0, "", "")),
    "apt-get": Output(0, "", ""),
    "vtax-agent": Output(0, "vtax-agent 0.1.0\n", ""),
    "vtax-host": Output(0, '{"backends": [{"name": "hog", "possible": true, "reason": null}]}', ""),
}


def machine(
    root: Path,
    files: Mapping[str, str] = BARE_METAL,
    programs: Mapping[str, Output] = PROGRAMS,
    facts: Mapping[str, Any] | None = None,
    **rest: Any,
) -> Host:
    """A host made of `files`, on which `programs` answer whatever they are asked."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    blas = root / "usr/lib/x86_64-linux-gnu/libblas.so.3"
    if "usr/lib/x86_64-linux-gnu/openblas-pthread/libblas.so.3" in files:
        alternative = root / "etc/alternatives/libblas.so.3"
        alternative.parent.mkdir(parents=True)
        alternative.symlink_to("/usr/lib/x86_64-linux-gnu/openblas-pthread/libblas.so.3")
        blas.symlink_to("/etc/alternatives/libblas.so.3")

    own = root / "usr/bin/vtax-host"
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text(STATIC)

    def run(argv: Sequence[str]) -> Output:
        if argv[1:] == ["facts"]:
            return Output(0, json.dumps(facts or {}), "")
        return programs[Path(argv[0]).name]

    settings: dict[str, Any] = {
        "machine": "x86_64",
        "cache": root / "cache",
        "work": root,
        "which": lambda program: f"/usr/bin/{program}" if program in programs else None,
        "run": run,
        "euid": 1000,
        "agent": lambda: "/usr/bin/vtax-agent" if "vtax-agent" in programs else None,
        "arm64_agent": lambda: "/bin/aarch64/vtax-agent",
        "program": lambda: str(own) if "vtax-host" in programs else None,
        "count_cycles": lambda: Count(0, 100_000, 50_000),
        "try_bpf": lambda: 0,
        "kvm_version": lambda path: 12,
        "free_bytes": lambda path: 100 * GIB,
    }
    return Host(root=root, **{**settings, **rest})


def changed(*without: str, **with_: str) -> dict[str, str]:
    """BARE_METAL without the paths that begin like these, and with others (`__` stands for `/`)."""
    files = {name: text for name, text in BARE_METAL.items() if not name.startswith(without)}
    return files | {name.replace("__", "/"): text for name, text in with_.items()}


def programs_but(*without: str, **with_: Output) -> dict[str, Output]:
    kept = {name: output for name, output in PROGRAMS.items() if name not in without}
    return kept | with_


def look(name: str, host: Host) -> Finding:
    (check,) = (check for check in registered() if check.name == name)
    return check.find(host)


HYBRID = changed(
    **{f"{CPU}/cpu{cpu}/cpu_capacity".replace("/", "__"): str(512 + 512 * cpu) for cpu in (0, 1)}
)
NO_BACKEND = '{"backends": [{"name": "hog", "possible": false, "reason": "no real time"}]}'
GUEST = changed(
    "sys/class/powercap",
    f"{CPU}/cpu",
    f"{CPU}/intel_pstate",
    "dev/kvm",
    proc__cpuinfo="flags : fpu sse2 hypervisor\n",
    sys__class__dmi__id__sys_vendor="QEMU",
    sys__class__dmi__id__product_name="Standard PC",
)
ARM64 = {"machine": "aarch64"}
NO_PMU = {"count_cycles": lambda: Count(errno.ENOENT)}


def test_a_complete_machine_is_all_ok(tmp_path: Path) -> None:
    findings = examine(machine(tmp_path, euid=0))
    assert {finding.name: finding.state for finding in findings if finding.state != "ok"} == {}


def test_without_root_there_is_no_gvisor_and_a_container_has_fewer_limits(tmp_path: Path) -> None:
    findings = examine(machine(tmp_path))
    states = {finding.name: finding.state for finding in findings if finding.state != "ok"}
    without = dict.fromkeys(("gvisor", "link", "slow-cores"), "missing")
    assert states == {"container": "degraded", **without}


def test_a_slurm_is_said_with_its_nodes_or_why_it_does_not_answer(tmp_path: Path) -> None:
    asked = look("slurm", machine(tmp_path))
    assert asked.detail == "partitions and nodes: batch* 4 idle, long 2 down"
    silent = {"sinfo": Output(1, "", "sinfo: error: Unable to contact slurm controller\n")}
    finding = look("slurm", machine(tmp_path / "silent", programs=programs_but(**silent)))
    assert finding.state == "degraded" and "Unable to contact" in finding.detail
    finding = look("slurm", machine(tmp_path / "none", programs=programs_but("salloc")))
    assert finding.state == "impossible"


def test_libvirt_is_said_with_the_domains_that_run_or_why_it_does_not_answer(
    tmp_path: Path,
) -> None:
    asked = look("libvirt", machine(tmp_path))
    assert asked.detail == "/usr/bin/virsh; domains that run: web1, db"
    silent = {"virsh": Output(1, "", "error: failed to connect to the hypervisor\n")}
    finding = look("libvirt", machine(tmp_path / "silent", programs=programs_but(**silent)))
    assert finding.state == "degraded" and "failed to connect" in finding.detail
    finding = look("libvirt", machine(tmp_path / "none", programs=programs_but("virsh")))
    assert finding.state == "missing" and "libvirt-clients" in str(finding.remedy)


def test_an_old_runsc_is_named_with_the_remedy(tmp_path: Path) -> None:
    old = {"runsc": Output(0, "runsc version 0.0~20210101.0\n", "  -overlay\n")}
    finding = look("gvisor", machine(tmp_path, programs=programs_but(**old), euid=0))
    assert finding.state == "missing" and "too old" in finding.detail


def test_plain_output_of_a_cloud_guest(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    programs = programs_but("linux.uml", "hpcc")
    host = machine(tmp_path, GUEST, programs, facts={"clock": {"steal_clock": False}}, **NO_PMU)
    assert tables.plain(*render.parts(examine(host)), width=tables.UNFOLDED) == snapshot


def test_terminal_table_names_purpose_state_and_remedy(tmp_path: Path) -> None:
    findings = examine(machine(tmp_path, programs=programs_but("hpcc")))
    text = tables.plain(*render.parts(findings, 120), width=120)
    assert "workload hpcc" in text
    assert "-> apt-get install hpcc" in text


def test_an_empty_machine_answers_every_check(tmp_path: Path) -> None:
    findings = examine(machine(tmp_path, {}, {}, **NO_PMU))
    assert len(findings) == len(registered())
    assert not any("check failed" in finding.detail for finding in findings), findings


@pytest.mark.parametrize(
    ("name", "files", "programs", "settings", "state", "words"),
    [
        ("bare-metal", GUEST, PROGRAMS, {}, "degraded", "itself a guest (QEMU"),
        ("bare-metal", BARE_METAL, {}, ARM64, "degraded", "not known: the firmware does not say"),
        ("steal-clock", BARE_METAL, {}, ARM64, "missing", "vtax-agent gave no facts"),
        ("uml", BARE_METAL, PROGRAMS, ARM64, "impossible", "for x86, this machine is aarch64"),
        ("lab", BARE_METAL, PROGRAMS, ARM64, "impossible", "the agent is for aarch64"),
        ("qemu", BARE_METAL, PROGRAMS, ARM64, "impossible", "the agent is for aarch64"),
        ("rapl", GUEST, PROGRAMS, ARM64, "impossible", "aarch64 has no such counters"),
        ("cpufreq", GUEST, PROGRAMS, ARM64, "missing", "no frequency driver"),
        ("uml", BARE_METAL, {}, {}, "missing", "not installed"),
        ("core-classes", BARE_METAL, PROGRAMS, {}, "ok", "all cores are alike"),
        ("core-classes", HYBRID, PROGRAMS, {}, "ok", "fast 1 (100 %), slow 0 (50 %)"),
        ("core-classes", changed(f"{CPU}/online"), PROGRAMS, {}, "degraded", "not known"),
        ("slow-cores", BARE_METAL, {}, {}, "missing", "not part of this installation"),
        (
            "slow-cores",
            BARE_METAL,
            programs_but(**{"vtax-host": Output(1, "", "bad\n")}),
            {},
            "missing",
            "does not run: bad",
        ),
        (
            "slow-cores",
            BARE_METAL,
            programs_but(**{"vtax-host": Output(0, NO_BACKEND, "")}),
            {"euid": 0},
            "impossible",
            "hog: no real time",
        ),
        ("lab", BARE_METAL, {}, {}, "missing", "QEMU is not installed"),
        ("qemu-arm64", BARE_METAL, {}, {}, "missing", "qemu-system-aarch64 is not installed"),
        ("qemu-arm64", BARE_METAL, PROGRAMS, {"arm64_agent": lambda: None}, "missing", "not built"),
        ("qemu-arm64", changed("etc/os-release"), PROGRAMS, {}, "impossible", "only Debian has"),
        (
            "lab",
            BARE_METAL,
            programs_but(**{"qemu-system-x86_64": Output(0, QEMU, "")}),
            {},
            "missing",
            "it knows no EPYC, svm, npt, tcg",
        ),
        (
            "lab",
            BARE_METAL,
            programs_but(**{"qemu-system-x86_64": Output(0, QEMU_10 + QEMU_HELP, "")}),
            {},
            "ok",
            "Debian 12's QEMU, fetched at first use",
        ),
        (
            "lab",
            changed("etc/os-release"),
            programs_but(**{"qemu-system-x86_64": Output(0, QEMU_10 + QEMU_HELP, "")}),
            {},
            "degraded",
            "nested paging only: QEMU 10.0.13 cannot",
        ),
        ("lab", changed("bin/busybox"), PROGRAMS, {}, "missing", "busybox is missing"),
        ("lab", changed(bin__busybox="#!/bin/sh"), PROGRAMS, {}, "missing", "not statically"),
        (
            "lab",
            changed("lib/modules/6.1.0-1-amd64/kernel/arch"),
            PROGRAMS,
            {},
            "missing",
            "no module kvm_amd",
        ),
        (
            "uml",
            changed(proc__sys__kernel__yama__ptrace_scope="2"),
            PROGRAMS,
            {},
            "missing",
            "only root",
        ),
        (
            "uml",
            changed(proc__sys__kernel__yama__ptrace_scope="3"),
            PROGRAMS,
            {},
            "impossible",
            "no ptrace",
        ),
        (
            "bubblewrap",
            changed(proc__sys__kernel__apparmor_restrict_unprivileged_userns="1"),
            programs_but(bwrap=Output(1, "", "bwrap: setting up uid map: Permission denied\n")),
            {},
            "missing",
            "apparmor_restrict_unprivileged_userns is 1",
        ),
        (
            "bubblewrap",
            BARE_METAL,
            programs_but(bwrap=Output(124, "", "no answer within 1.5 s")),
            {},
            "missing",
            "no answer",
        ),
        ("qemu", BARE_METAL, {}, {}, "missing", "not installed"),
        ("qemu-kernel", changed("lib/modules"), {}, {}, "missing", "no kernel"),
        ("qemu-kernel", changed("lib/modules"), PROGRAMS, {}, "missing", "package lists"),
        (
            "qemu-kernel",
            changed("lib/modules", var__lib__apt__lists__x_Packages=""),
            PROGRAMS,
            {},
            "ok",
            "apt-get download",
        ),
        ("kvm", changed("dev/kvm"), PROGRAMS, {}, "missing", "no /dev/kvm"),
        ("kvm", GUEST, PROGRAMS, {}, "impossible", "the hypervisor above"),
        (
            "kvm",
            {**GUEST, "dev/kvm": ""},
            PROGRAMS,
            {},
            "degraded",
            "neither vmx nor svm",
        ),
        (
            "kvm",
            BARE_METAL,
            PROGRAMS,
            {"kvm_version": lambda path: (_ for _ in ()).throw(PermissionError(errno.EACCES, ""))},
            "missing",
            "not for this user",
        ),
        ("agent", BARE_METAL, {}, {}, "missing", "not part of this installation"),
        ("hpcc", BARE_METAL, {}, {}, "missing", "not installed"),
        ("mpi", BARE_METAL, {}, {}, "missing", "not installed"),
        ("blas", changed("usr/lib"), PROGRAMS, {}, "missing", "no libblas.so.3"),
        (
            "blas",
            {"usr/lib/x86_64-linux-gnu/libblas.so.3": ""},
            PROGRAMS,
            {},
            "degraded",
            "reference BLAS",
        ),
        ("pmu", GUEST, PROGRAMS, NO_PMU, "impossible", "ENOENT"),
        (
            "pmu",
            changed(proc__sys__kernel__perf_event_paranoid="3"),
            PROGRAMS,
            {"count_cycles": lambda: Count(errno.EACCES)},
            "missing",
            "perf_event_paranoid is 3",
        ),
        (
            "pmu",
            BARE_METAL,
            PROGRAMS,
            {"count_cycles": lambda: Count(0, 0, 10_000)},
            "degraded",
            "counts nothing",
        ),
        (
            "ebpf",
            changed(proc__self__status="CapEff:\t0000000000000000\n"),
            PROGRAMS,
            {},
            "missing",
            "CAP_BPF",
        ),
        ("ebpf", BARE_METAL, PROGRAMS, {"try_bpf": lambda: errno.EPERM}, "impossible", "refused"),
        ("ebpf", changed("sys/kernel/btf"), PROGRAMS, {}, "degraded", "BTF"),
        ("ebpf", BARE_METAL, PROGRAMS, {"program": lambda: None}, "missing", "not part of this"),
        ("ebpf", BARE_METAL, PROGRAMS, {"program": lambda: "/bin/sh"}, "ok", "is dynamic"),
        ("tracefs", changed("sys/kernel/tracing"), PROGRAMS, {"euid": 0}, "missing", "not mounted"),
        ("tracefs", changed(proc__filesystems="nodev\tsysfs"), PROGRAMS, {}, "impossible", "built"),
        ("rapl", GUEST, PROGRAMS, {}, "impossible", "do not pass"),
        (
            "clocksource",
            changed(
                sys__devices__system__clocksource__clocksource0__current_clocksource="hpet",
                sys__devices__system__clocksource__clocksource0__available_clocksource="hpet tsc",
            ),
            PROGRAMS,
            {},
            "degraded",
            "hpet",
        ),
        ("steal-clock", GUEST, {}, {}, "missing", "not known"),
        (
            "steal-clock",
            GUEST,
            PROGRAMS,
            {"facts": {"clock": {"steal_clock": True}}},
            "ok",
            "reports",
        ),
        ("steal-clock", GUEST, PROGRAMS, {"facts": {}}, "impossible", "cannot tell"),
        (
            "cpufreq",
            {**BARE_METAL, f"{CPU}/cpu1/cpufreq/scaling_governor": "powersave"},
            PROGRAMS,
            {},
            "degraded",
            "powersave",
        ),
        (
            "turbo",
            {**BARE_METAL, f"{CPU}/intel_pstate/no_turbo": "0"},
            PROGRAMS,
            {},
            "degraded",
            "temperature",
        ),
        ("smt", {**BARE_METAL, f"{CPU}/smt/active": "1"}, PROGRAMS, {}, "degraded", "pairs"),
        (
            "cgroups",
            {**BARE_METAL, "sys/fs/cgroup/user.slice/cgroup.controllers": "cpu pids"},
            PROGRAMS,
            {},
            "missing",
            "memory controller",
        ),
        (
            "cgroups",
            BARE_METAL,
            PROGRAMS,
            {"writable": lambda path: False},
            "missing",
            "cannot be limited",
        ),
        (
            "cgroups",
            {"proc/self/cgroup": "5:memory:/\n0::/\n", "sys/fs/cgroup/memory/tasks": ""},
            PROGRAMS,
            {},
            "ok",
            "version 1",
        ),
        ("memory", changed(proc__meminfo="MemAvailable: 900000 kB"), PROGRAMS, {}, "degraded", "0"),
        ("disk", BARE_METAL, PROGRAMS, {"free_bytes": lambda path: 5 << 20}, "degraded", "0.0 GiB"),
    ],
)
def test_what_is_said_of_a_machine(
    tmp_path: Path,
    name: str,
    files: Mapping[str, str],
    programs: Mapping[str, Output],
    settings: Mapping[str, Any],
    state: str,
    words: str,
) -> None:
    finding = look(name, machine(tmp_path, files, programs, **settings))
    assert (finding.state, words in finding.detail) == (state, True), finding
    if finding.state is State.MISSING:
        assert finding.remedy, "what is missing comes with its remedy"
    assert "\n" not in finding.detail + (finding.remedy or "")


def test_the_trial_of_cgroups_leaves_nothing(tmp_path: Path) -> None:
    host = machine(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    assert look("cgroups", host).state is State.OK
    assert sorted(tmp_path.rglob("*")) == before


class Faulty(Check):
    name: ClassVar[str] = "faulty"
    purpose: ClassVar[str] = "a test"

    def find(self, host: Host) -> Finding:
        raise ValueError("no")


class Hanging(Check):
    name: ClassVar[str] = "hanging"
    purpose: ClassVar[str] = "a test"

    def find(self, host: Host) -> Finding:
        time.sleep(30)
        return self.ok("late")


class Fine(Check):
    name: ClassVar[str] = "fine"
    purpose: ClassVar[str] = "a test"

    def find(self, host: Host) -> Finding:
        return self.ok("here")


def test_a_failing_and_a_hanging_check_spoil_no_other(tmp_path: Path) -> None:
    start = time.monotonic()
    findings = examine(machine(tmp_path), [Faulty(), Hanging(), Fine()], limit_s=0.3)
    assert time.monotonic() - start < 2
    assert [finding.name for finding in findings] == ["faulty", "hanging", "fine"]
    assert "ValueError: no" in findings[0].detail
    assert "no answer within 0.3 s" in findings[1].detail
    assert findings[2].state is State.OK


def test_an_unknown_required_name_is_misuse_with_the_nearest() -> None:
    from vtax.doctor.verb import doctor

    with pytest.raises(MisuseError, match="did you mean 'blas'"):
        doctor(require=["blass"])


def run_doctor(*arguments: str) -> subprocess.CompletedProcess[str]:
    code = (
        "import typer; from vtax.doctor.verb import doctor;"
        "app = typer.Typer(); app.command()(doctor); app()"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )


def test_here_in_json() -> None:
    done = run_doctor("--json")
    assert (done.returncode, done.stderr) == (0, "")
    findings = json.loads(done.stdout)["findings"]
    assert [finding["name"] for finding in findings] == [check.name for check in registered()]
    assert {finding["state"] for finding in findings} <= set(State)
    assert not [finding for finding in findings if "check failed" in finding["detail"]]


def test_require_sets_the_exit_code() -> None:
    states = {finding.name: finding.state for finding in examine()}
    for name in ("disk", "pmu", "bare-metal"):
        done = run_doctor("--require", name)
        assert done.returncode == (0 if states[name] is State.OK else 1), name
