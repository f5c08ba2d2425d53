"""What vtax itself costs, beside the plain commands: interleaved, as ratios with intervals.

    make bench                      # about 3 minutes
    .venv/bin/python bench/compare.py --json

Each figure is measured in rounds, every round once per contender, in shuffled order. The ratio's
95 % interval is the one that vtax reports for workloads.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from interleaved import VTAX, about, quiet, ratio, ratio_text, rounds, seconds, versions

from vtax.core import binaries
from vtax.environments import build, guest_kernel
from vtax.environments.base import allowed_cpus
from vtax.environments.initramfs import newc
from vtax.environments.machine import Machine
from vtax.environments.uml import kernel as uml_kernel

Measure = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured cost in seconds, its target, and the plain command's cost if there is one."""

    name: str
    target_s: float
    values_s: tuple[float, ...]
    plain_name: str | None = None
    plain_s: tuple[float, ...] = ()
    added: bool = False
    """Whether the target is for what comes on top of the plain command."""

    @property
    def median_s(self) -> float:
        return statistics.median(self.values_s)

    @property
    def cost_s(self) -> float:
        """The cost that the target is for."""
        return self.median_s - (statistics.median(self.plain_s) if self.added else 0.0)

    def ratio(self) -> tuple[float, float, float] | None:
        """The ratio to the plain command, with its 95 % interval."""
        return ratio(self.values_s, self.plain_s) if self.plain_s else None


def start_up(count: int) -> Figure:
    """The time from starting vtax to the first run of the workload, by the workload's own clock."""

    def vtax() -> float:
        with tempfile.TemporaryDirectory() as out:
            argv = [*VTAX, "compare", "--in", "native", "--reps", "1", "--no-warm-up"]
            argv += ["--no-control", "--quiet", "--out", out, "--", "command", "date", "+%s.%N"]
            begin = time.time()
            quiet(argv)
            (printed,) = Path(out).glob("*/raw/*/r000/stdout")
            return float(printed.read_text()) - begin

    (values,) = rounds(count, [vtax])
    return Figure("start-up to the first run", 0.5, values)


def per_repetition(count: int) -> Figure:
    """What one more native repetition of /bin/true takes, against running it from Python."""
    many = 200

    def vtax() -> float:
        with tempfile.TemporaryDirectory() as out:
            quiet([*VTAX, "compare", "--in", "native", "--reps", str(many), "--no-warm-up",
                   "--no-control", "--quiet", "--out", out, "--", "command", "true"])  # fmt: skip
            (journal,) = Path(out).glob("*/samples.parquet")
            return _span(journal.parent, many)

    def plain() -> float:
        return seconds(lambda: [quiet(["true"]) for _ in range(many)]) / many

    ours, theirs = rounds(count, [vtax, plain])
    name = "one native repetition of true"
    return Figure(name, 0.005, ours, "subprocess.run(true)", theirs, added=True)


def _span(run: Path, many: int) -> float:
    """Seconds per repetition, from the times at which the working folders were made."""
    made = sorted(path.stat().st_mtime for path in run.glob("raw/*/r*/stdout"))
    return (made[-1] - made[0]) / (many - 1)


def boot(spec: str, target_s: float, plain_name: str, plain: Measure, count: int) -> Figure:
    """The time from starting the machine to the first instruction of a workload in it."""
    environment = build(spec)
    cpus = allowed_cpus()[-1:]

    def vtax() -> float:
        with tempfile.TemporaryDirectory() as work:
            begin = time.perf_counter()
            with Machine(environment, Path(work), cpus) as machine:
                Path(work, "r").mkdir()
                machine.run(["/bin/true"], {"PATH": "/bin"}, "r")
                return time.perf_counter() - begin

    ours, theirs = rounds(count, [vtax, plain])
    return Figure(f"{spec}: boot to the workload", target_s, ours, plain_name, theirs)


def bare_uml() -> float:
    """The same kernel on the same CPU, no sandbox, no overlay: init ends at once."""
    with tempfile.TemporaryDirectory() as folder:
        argv = ["taskset", "--cpu-list", str(allowed_cpus()[-1]), str(uml_kernel()), "mem=1024M"]
        argv += [f"uml_dir={folder}/", "umid=bare", "root=/dev/root", "rootfstype=hostfs"]
        argv += ["rootflags=/", "init=/bin/true", "con=null", "con0=null,fd:1", "quiet", "panic=-1"]
        environment = os.environ | {
            "LD_PRELOAD": str(binaries.find("libvtax_umlfix.so")),
            "TMPDIR": "/dev/shm",
        }
        return seconds(
            lambda: subprocess.run(
                argv, env=environment, check=False, stdin=subprocess.DEVNULL, capture_output=True
            )
        )


def bare_qemu(image: Path) -> Measure:
    """The distribution's own image with an init that ends at once: no modules, no shared tree."""

    def one() -> float:
        with tempfile.TemporaryDirectory() as folder:
            initramfs = Path(folder, "initramfs")
            initramfs.write_bytes(newc({"init": binaries.find("vtax-agent").read_bytes()}))
            argv = ["taskset", "--cpu-list", str(allowed_cpus()[-1]), "qemu-system-x86_64"]
            argv += ["-accel", "tcg", "-machine", "q35", "-cpu", "max", "-m", "1024M"]
            argv += ["-nodefaults", "-no-reboot", "-display", "none", "-serial", "stdio"]
            argv += ["-kernel", str(image), "-initrd", str(initramfs)]
            argv += ["-append", "console=ttyS0 quiet panic=-1"]
            return seconds(lambda: quiet(argv))

    return one


def figures(count: int) -> list[Figure]:
    """All figures; one whose programs are missing is left out and named."""
    found = [start_up(count), per_repetition(count)]
    if shutil.which("linux.uml") and shutil.which("bwrap"):
        found.append(boot("uml:mem=1G", 2.0, "bare linux.uml, init=/bin/true", bare_uml, count))
    else:
        print("not measured: user-mode Linux or bubblewrap is missing", file=sys.stderr)
    if shutil.which("qemu-system-x86_64") and shutil.which("bwrap"):
        image = guest_kernel.image_path()
        found.append(
            boot("qemu:accel=tcg", 8.0, "bare QEMU, the same bzImage", bare_qemu(image), count)
        )
    else:
        print("not measured: QEMU or bubblewrap is missing", file=sys.stderr)
    return found


def text(figure: Figure) -> str:
    verdict = "met" if figure.cost_s <= figure.target_s else "MISSED"
    line = f"{figure.name}: median {figure.median_s:.4g} s (n={len(figure.values_s)}); "
    line += f"adds {figure.cost_s:.4g} s, " if figure.added else ""
    line += f"target {figure.target_s:g} s: {verdict}"
    if figure.plain_s:
        plain = statistics.median(figure.plain_s)
        line += f"\n    {ratio_text(figure.ratio())} of {figure.plain_name} ({plain:.4g} s)"
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = figures(options.rounds)
    if options.json:
        rows = [
            {
                "name": each.name,
                "median_s": each.median_s,
                "cost_s": each.cost_s,
                "target_s": each.target_s,
                "values_s": each.values_s,
                "plain": each.plain_name,
                "plain_s": each.plain_s,
                "ratio": each.ratio(),
            }
            for each in found
        ]
        print(json.dumps({"versions": versions(), "figures": rows}, indent=1))
        return
    about()
    for each in found:
        print(text(each))


if __name__ == "__main__":
    main()
