"""A realistic comparison for the tests of the report: HPCC in user-mode Linux and QEMU.

The repetitions are drawn from a seeded generator; the results are computed from them, so that
figures, table and samples agree.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Group

from vtax.compare import html
from vtax.compare.analysis import compare as analyse
from vtax.compare.page import page
from vtax.core.formats.model import Better, ComparisonRecord, EnvironmentRecord, Failure, Sample
from vtax.core.page import render_terminal
from vtax.core.statistics.results import Comparison, Control, Flag, Result

BASELINE = "native:cpus=1,mem=1G"
CONTROL = "native:cpus=1,mem=1G#aa"
UML = "uml:mem=1G"
TCG = "qemu:accel=tcg,mem=1G"
LABELS = (BASELINE, CONTROL, UML, TCG)
REPETITIONS = 7
MARGIN = 2.0
HOSTILE = "</script><img src=x onerror=alert(1)><b>&amp;\u2028%{x}\x1b[31m{{7*7}}"

_Renamed = TypeVar("_Renamed", Sample, Result)
# Metric, unit, better, native value, share of it in UML and in TCG, relative spread.
_Row = tuple[str, str, Better, float, float, float, float]
METRICS: Sequence[_Row] = (
    ("HPL_Tflops", "Tflop/s", "higher", 0.0463, 0.978, 0.031, 0.006),
    ("HPL_time", "s", "lower", 1.84, 0.979, 0.031, 0.006),
    ("StarDGEMM_Gflops", "Gflop/s", "higher", 52.1, 1.002, 0.028, 0.004),
    ("SingleDGEMM_Gflops", "Gflop/s", "higher", 52.4, 0.999, 0.028, 0.004),
    ("PTRANS_GBs", "GB/s", "higher", 2.31, 0.902, 0.113, 0.02),
    ("MPIRandomAccess_LCG_GUPs", "GUP/s", "higher", 0.0314, 0.712, 0.061, 0.04),
    ("MPIRandomAccess_GUPs", "GUP/s", "higher", 0.0297, 0.655, 0.058, 0.05),
    ("StarRandomAccess_LCG_GUPs", "GUP/s", "higher", 0.0721, 0.941, 0.092, 0.02),
    ("StarRandomAccess_GUPs", "GUP/s", "higher", 0.0715, 0.938, 0.091, 0.02),
    ("SingleRandomAccess_LCG_GUPs", "GUP/s", "higher", 0.0724, 0.944, 0.093, 0.02),
    ("SingleRandomAccess_GUPs", "GUP/s", "higher", 0.0718, 0.957, 0.092, 0.03),
    ("StarSTREAM_Copy", "GB/s", "higher", 11.92, 0.988, 0.172, 0.008),
    ("StarSTREAM_Scale", "GB/s", "higher", 11.31, 0.991, 0.118, 0.008),
    ("StarSTREAM_Add", "GB/s", "higher", 12.84, 1.004, 0.131, 0.006),
    ("StarSTREAM_Triad", "GB/s", "higher", 12.77, 1.001, 0.127, 0.006),
    ("SingleSTREAM_Copy", "GB/s", "higher", 12.03, 0.994, 0.175, 0.02),
    ("SingleSTREAM_Triad", "GB/s", "higher", 12.81, 1.034, 0.128, 0.005),
    ("StarFFT_Gflops", "Gflop/s", "higher", 1.92, 0.984, 0.052, 0.004),
    ("SingleFFT_Gflops", "Gflop/s", "higher", 1.94, 0.975, 0.053, 0.03),
    ("MPIFFT_Gflops", "Gflop/s", "higher", 1.21, 0.914, 0.049, 0.02),
    ("MaxPingPongLatency_usec", "\N{MICRO SIGN}s", "lower", 0.512, 0.431, 0.044, 0.05),
    ("RandomlyOrderedRingLatency_usec", "\N{MICRO SIGN}s", "lower", 0.637, 0.447, 0.041, 0.06),
    ("MinPingPongBandwidth_GBytes", "GB/s", "higher", 8.31, 0.867, 0.143, 0.03),
    ("NaturallyOrderedRingBandwidth_GBytes", "GB/s", "higher", 4.44, 0.854, 0.139, 0.03),
    ("RandomlyOrderedRingBandwidth_GBytes", "GB/s", "higher", 4.39, 0.861, 0.141, 0.04),
    ("wall_s", "s", "lower", 3.92, 0.861, 0.046, 0.012),
    ("cpu_s", "s", "lower", 3.87, 0.852, 0.046, 0.012),
)
UNMEASURED = (TCG, "MPIFFT_Gflops")
FAILED = (TCG, 3)


@cache
def order() -> tuple[tuple[str, int], ...]:
    """The randomised order of the run."""
    generator, planned = random.Random(20261120), []
    for repetition in range(REPETITIONS):
        labels = list(LABELS)
        generator.shuffle(labels)
        planned += [(label, repetition) for label in labels]
    return tuple(planned)


@cache
def samples() -> tuple[Sample, ...]:
    """Every repetition of every environment, with drift in one metric and an outlier in another."""
    generator = random.Random(7)
    return tuple(
        _sample(row, label, repetition, position, generator)
        for position, (label, repetition) in enumerate(order())
        if (label, repetition) != FAILED
        for row in METRICS
        if (label, row[0]) != UNMEASURED
    )


def _sample(
    row: _Row, label: str, repetition: int, position: int, generator: random.Random
) -> Sample:
    metric, unit, better, native, uml, tcg, spread = row
    speed = {UML: uml, TCG: tcg}.get(label, 1.0) * generator.gauss(1, spread)
    if (label, metric) == (UML, "PTRANS_GBs"):
        speed *= 1 - 0.03 * repetition
    if (label, metric, repetition) == (UML, "StarFFT_Gflops", 4):
        speed *= 0.81
    wall = 3.92 / {UML: 0.861, TCG: 0.046}.get(label, 1.0)
    return Sample(
        environment=label,
        workload="hpcc",
        metric=metric,
        unit=unit,
        better=better,
        value=native * speed if better == "higher" else native / speed,
        repetition=repetition,
        boot=repetition,
        position=position,
        wall_s=wall,
        cpu_s=wall * 0.99,
        steal_s=0.004 if label in (BASELINE, CONTROL) else None,
        host_wall_s=wall + 0.003,
        max_rss_bytes=182 << 20,
        minor_faults=48211,
        major_faults=0,
        voluntary_switches=212,
        involuntary_switches=37,
    )


@cache
def results() -> tuple[Result, ...]:
    """The results of all environments, baseline first."""
    return analyse(record(), samples(), "runs/x", [row[:3] for row in METRICS]).results


def facts(**changes: Any) -> dict[str, Any]:
    """A machine's facts as the agent prints them, with whole sections replaced."""
    flags = "fpu vme de pse tsc msr pae cx8 sse sse2 ht avx avx2 fma aes rdrand hypervisor"
    return {
        "agent": "0.1.0",
        "kernel": {"release": "6.18.5", "version": "#1 SMP PREEMPT_DYNAMIC", "machine": "x86_64"},
        "virtualization": {"kind": "kvm", "hypervisor_vendor": "KVMKVMKVM", "source": "cpuid"},
        "cpu": {
            "vendor": "GenuineIntel",
            "model": "Intel(R) Xeon(R) Platinum 8488C",
            "family": 6,
            "model_number": 143,
            "stepping": 8,
            "microcode": "0x2b000603",
            "online": [0, 1],
            "possible": 2,
            "threads_per_core": 2,
            "smt": True,
            "flags": [*flags.split(), "avx512f", "avx512bw", "avx512vl"],
            "caches": [
                {"level": 1, "type": "Data", "size_bytes": 49152, "shared_by": 2},
                {"level": 2, "type": "Unified", "size_bytes": 2097152, "shared_by": 2},
                {"level": 3, "type": "Unified", "size_bytes": 110100480, "shared_by": 2},
            ],
        },
        "memory": {
            "total_bytes": 25258516480,
            "available_bytes": 21978152960,
            "swap_total_bytes": 0,
            "transparent_hugepages": "madvise",
            "hugepages_total": 0,
            "numa_nodes": 1,
        },
        "clock": {
            "clocksource": "kvm-clock",
            "available": ["kvm-clock", "tsc", "acpi_pm"],
            "steal_clock": True,
            "steal_reason": "kvm-clock reports steal",
        },
        "governor": None,
        "mitigations": {"meltdown": "Not affected", "spectre_v2": "Mitigation: Enhanced IBRS"},
        "cgroup": {"version": 2, "memory_limit_bytes": 1073741824, "cpu_quota": None},
        "affinity": [0],
        "pmu": {"present": False, "reason": "no PMU: the hypervisor exposes none"},
        "mounts_read_only_root": False,
        "uptime_s": 52344.1,
        **changes,
    }


def _uml_facts() -> dict[str, Any]:
    return facts(
        kernel={"release": "6.1.176", "version": "#1 Debian", "machine": "x86_64"},
        virtualization={"kind": "uml", "hypervisor_vendor": None, "source": "cpuinfo"},
        memory={"total_bytes": 1042284544, "available_bytes": 998244352, "numa_nodes": 1},
        clock={
            "clocksource": "timer-lib",
            "available": ["timer-lib"],
            "steal_clock": None,
            "steal_reason": "user-mode Linux has no steal clock",
        },
        mounts_read_only_root=True,
        uptime_s=1.4,
    )


def _tcg_facts() -> dict[str, Any]:
    flags = "fpu vme de pse tsc msr pae cx8 sse sse2 ht aes rdrand hypervisor svm 3dnow"
    return facts(
        kernel={"release": "6.1.0-49-amd64", "version": "#1 SMP Debian", "machine": "x86_64"},
        virtualization={"kind": "qemu", "hypervisor_vendor": "TCGTCGTCGTCG", "source": "cpuid"},
        cpu={"vendor": "AuthenticAMD", "model": "QEMU TCG CPU", "flags": flags.split()},
        memory={"total_bytes": 1017118720, "available_bytes": 931135488, "numa_nodes": 1},
        uptime_s=5.2,
    )


_BLAS = "/usr/lib/x86_64-linux-gnu/openblas-pthread/libblas.so.3 (0.3.21)"


def environments() -> tuple[EnvironmentRecord, ...]:
    """The four environments as run.json describes them."""
    native = "this machine (KVM virtual machine, Linux 6.18.5), 1 CPU, 1 GiB"
    return (
        EnvironmentRecord(
            label=BASELINE,
            spec=BASELINE,
            role="baseline",
            baseline=None,
            description=native,
            facts=facts(),
            libraries={"libblas.so.3": _BLAS},
            boot_s=(0.004, 0.005, 0.004),
        ),
        EnvironmentRecord(
            label=CONTROL,
            spec=BASELINE,
            role="control",
            baseline=BASELINE,
            description=f"{native}, a second time",
            facts=facts(),
            libraries={"libblas.so.3": _BLAS},
            boot_s=(0.004, 0.004, 0.005),
        ),
        EnvironmentRecord(
            label=UML,
            spec=UML,
            role="measured",
            baseline=BASELINE,
            description="user-mode Linux 6.1.176, 1 CPU, 1 GiB",
            facts=_uml_facts(),
            libraries={"libblas.so.3": _BLAS},
            boot_s=(1.38, 1.41, 1.36, 1.52),
            differences=(
                "The guest runs Linux 6.1.176 and the baseline 6.18.5.",
                "User-mode Linux has no transparent huge pages; the baseline has them on madvise.",
            ),
        ),
        EnvironmentRecord(
            label=TCG,
            spec=TCG,
            role="measured",
            baseline=BASELINE,
            description="QEMU 7.2 full system, software emulation (TCG), 1 CPU, 1 GiB",
            facts=_tcg_facts(),
            libraries={"libblas.so.3": _BLAS.replace("0.3.21", "0.3.21, core type Barcelona")},
            boot_s=(5.11, 5.04, 5.42),
            differences=("The emulated CPU has no AVX-512, so the BLAS chooses another kernel.",),
            notes=(
                "KVM was not used: /dev/kvm does not exist (load kvm_intel or enable nesting).",
            ),
        ),
    )


def flags() -> tuple[Flag, ...]:
    """Flags of several kinds; two say the same thing twice."""
    drift = "PTRANS_GBs fell by 16 % from the first to the last repetition."
    return (
        Flag(
            TCG,
            None,
            "failures",
            "1 of 7 repetitions failed: HPL residual check failed in repetition 3.",
        ),
        Flag(UML, None, "steal-unknown", "user-mode Linux has no steal clock."),
        Flag(TCG, None, "steal-unknown", "this guest has no steal clock."),
        Flag(UML, "PTRANS_GBs", "drift", drift),
        Flag(UML, "PTRANS_GBs", "drift", drift),
        Flag(
            UML,
            "wall_s",
            "timer-inversion",
            "CPU time was above wall time in 2 of 7 repetitions, by up to 0.8 %.",
        ),
        *_control_flags(),
    )


def _control_flags() -> list[Flag]:
    return [
        Flag(
            CONTROL,
            result.metric,
            "aa-control",
            f"the control is at {result.percent_of_baseline:.1f} % of the baseline, "
            "which is a difference.",
        )
        for result in results()
        if result.control is Control.DIFFERS
    ]


def record(**changes: Any) -> ComparisonRecord:
    """The run's record, with fields replaced."""
    fields: dict[str, Any] = {
        "vtax_version": "0.1.0",
        "command_line": (
            *("vtax", "compare", "--in", "native", "--in", UML, "--in", TCG),
            *("--repetitions", "7", "--seed", "20261120", "hpcc", "--preset", "small"),
        ),
        "name": "hpcc small",
        "started_utc": "2026-11-20T21:03:43+00:00",
        "finished_utc": "2026-11-20T21:17:02+00:00",
        "state": "complete",
        "workload": "hpcc",
        "workload_parameters": {"preset": "small", "sizes": [1000], "processes": 1},
        "environment_variables": {"OMP_NUM_THREADS": "1"},
        "scrubbed_variables": {"OPENBLAS_CORETYPE": "Haswell"},
        "repetitions": REPETITIONS,
        "reboot": "each",
        "budget_s": 1200.0,
        "margin_percent": MARGIN,
        "seed": 20261120,
        "order": order(),
        "environments": environments(),
        "failures": (
            Failure(
                environment=FAILED[0],
                repetition=FAILED[1],
                message="hpcc: HPL residual check failed (|| Ax-b || = 21.4, limit 16.0)",
            ),
        ),
    }
    return ComparisonRecord(**{**fields, **changes})


def comparison(**changes: Any) -> Comparison:
    """The whole comparison, with fields of its record replaced."""
    return Comparison(
        run="20261120T210343Z-hpcc-small",
        record=record(**changes),
        baseline=BASELINE,
        results=results(),
        flags=flags(),
    )


def hostile() -> tuple[Comparison, tuple[Sample, ...]]:
    """The comparison with every foreign text replaced by one that tries to break out."""
    evil_environments = tuple(
        env.model_copy(
            update={
                "label": HOSTILE + env.label,
                "spec": HOSTILE,
                "baseline": env.baseline and HOSTILE + env.baseline,
                "description": HOSTILE,
                "facts": {
                    HOSTILE: {HOSTILE: [HOSTILE, {"a": HOSTILE}]},
                    "virtualization": {"kind": HOSTILE},
                    "cpu": {"flags": [HOSTILE, 3, None], "caches": [HOSTILE, {"level": HOSTILE}]},
                    "memory": {"total_bytes": float("nan")},
                    "clock": HOSTILE,
                },
                "libraries": {HOSTILE: HOSTILE},
                "differences": (HOSTILE,),
                "notes": (HOSTILE,),
            }
        )
        for env in environments()
    )
    evil_record = record(
        environments=evil_environments,
        name=HOSTILE,
        workload=HOSTILE,
        command_line=("vtax", HOSTILE),
        workload_parameters={HOSTILE: HOSTILE},
        environment_variables={HOSTILE: HOSTILE},
        scrubbed_variables={HOSTILE: HOSTILE},
        started_utc=HOSTILE,
        order=tuple((HOSTILE + label, repetition) for label, repetition in order()),
        failures=(Failure(environment=HOSTILE + TCG, repetition=3, message=HOSTILE),),
    )
    names = {"environment": HOSTILE, "metric": HOSTILE, "unit": HOSTILE}
    evil = Comparison(
        run=HOSTILE,
        record=evil_record,
        baseline=HOSTILE + BASELINE,
        results=tuple(_prefixed(result, names, reason=HOSTILE) for result in results()),
        flags=tuple(Flag(HOSTILE, HOSTILE, HOSTILE, HOSTILE) for _ in range(2)),
    )
    return evil, tuple(_prefixed(sample, names) for sample in samples())


def _prefixed(row: _Renamed, names: dict[str, str], **more: Any) -> _Renamed:
    changed: dict[str, Any] = {
        field: prefix + getattr(row, field) for field, prefix in names.items()
    }
    return dataclasses.replace(row, **changed, **more)


def render(found: Comparison, samples: Sequence[Sample]) -> str:
    """The report of a comparison."""
    return html.render(page(found, samples), found)


def write_report(found: Comparison, samples: Sequence[Sample], path: Path) -> None:
    """Write the report of a comparison."""
    html.write_report(page(found, samples), found, path)


def on_terminal(found: Comparison) -> Group:
    """What a terminal shows of a comparison."""
    return Group(*render_terminal.parts(page(found)))
