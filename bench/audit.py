"""What an audit costs a program on the CPU next to the audited one.

    make bench                      # about a minute and a half
    .venv/bin/python bench/audit.py --rounds 10

A spinning loop does the same work, alone and while `vtax audit` looks at a machine on the last CPU.
Its wall time includes the time for which the audit or other programs took the CPU; its CPU time
includes only what slowed the loop, and has far less noise. Needs two CPUs.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from interleaved import VTAX, about, ratio, ratio_text, rounds, seconds

from vtax.core import binaries

WORK = ["workload", "gups", "--count", "400000000", "--mem", "1M"]
"""Work of about two seconds, in the cache."""
STARTED_S = 2.0
"""Time until the audit's machine runs."""


def work() -> tuple[float, float]:
    """Wall and CPU time of the work."""
    cpu = min(os.sched_getaffinity(0))
    argv = ["taskset", "-c", str(cpu), str(binaries.find("vtax-agent")), *WORK]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    wall_s = seconds(lambda: subprocess.run(argv, stdout=subprocess.DEVNULL, check=True))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall_s, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def beside() -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as folder:
        argv = [*VTAX, "audit", "--quick", "--quiet", "--in", "native:cpus=1", "--out", folder]
        audit = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
        time.sleep(STARTED_S)
        took = work()
        if audit.poll() is not None:
            print("the audit was over before the work was", file=sys.stderr)
        audit.wait()
        if not any(Path(folder).glob("*-audit/run.json")):
            raise SystemExit("the audit left no result")
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    if len(os.sched_getaffinity(0)) < 2:
        print("not measured: it takes two CPUs", file=sys.stderr)
        return
    found = rounds(options.rounds, [work, beside])
    about()
    for what, index in (("wall", 0), ("CPU", 1)):
        alone, audited = ([each[index] for each in times] for times in found)
        text = ratio_text(ratio(audited, alone))
        print(f"spinning loop beside an audit, {what} time: {text} of that alone, "
              f"target 1.005x (n={options.rounds})")  # fmt: skip


if __name__ == "__main__":
    main()
