"""Loads of a disk: programs that read and write files.

They work on the machine's own disk where it has one (`DISK`), else in the folder of results. What
serves that folder depends on the machine: QEMU by 9p, gVisor's gofer, user-mode Linux's own
process.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from vtax.core.errors import VtaxError
from vtax.workloads.base import Command
from vtax.workloads.loads.base import (
    PERCENTILES,
    Load,
    LoadResult,
    bounded,
    json_object,
    number,
    positive,
    unreadable,
)
from vtax.workloads.loads.inside import ROUND_S, Rounds
from vtax.workloads.variables import DISK

SIZE = "32M"
"""The size of all files together: one round fits on a small disk, and into the time of a
measurement."""
_THERE = 'PATH="$PATH:/usr/sbin:/sbin"; [ ! -d "$0" ] || cd "$0" || exit; '
"""Begins a shell script whose `$0` is the disk's folder: bonnie++ is where only root looks."""
_DIRECTLY = (
    'PATH="$PATH:/usr/sbin"; if [ -d "$0" ]; then cd "$0" && set -- "$@" --direct=1; fi; "$@"'
)
"""A disk of the machine's own is read past the guest's page cache; the host's files cannot be."""
_CLIENT = "/usr/share/dbench/client.txt"
_SYSBENCH = """\
seconds=$1; shift
sysbench "$@" prepare >/dev/null || exit; sysbench "$@" --time="$seconds" run; code=$?
sysbench "$@" cleanup >/dev/null; exit $code
"""
_POSTMARK = 'printf "%s\\n" "$@" | postmark | grep "seconds of transactions"'
_THROUGHPUT = re.compile(r"^Throughput ([0-9.]{1,15}) MB/sec", re.MULTILINE)
_PER_SECOND = re.compile(r"^ *(?:reads|writes|fsyncs)/s: +([0-9.]{1,15})$", re.MULTILINE)


@dataclass(frozen=True)
class Disk(Load):
    """fio: random reads and writes of 4 KiB, past the page cache of a guest that has a disk."""

    name: str
    about: str
    needs: ClassVar[tuple[str, ...]] = ("fio",)

    def command(self, seconds: int) -> Command:
        job = ["--name=disk", "--filename=disk", f"--size={SIZE}", "--unlink=1", "--bs=4k"]
        job += ["--rw=randrw", "--randseed=1", "--ioengine=psync", "--thread"]
        line = ("fio", *job, f"--runtime={seconds}", "--time_based", "--output-format=json")
        return Command(("sh", "-c", _DIRECTLY, DISK, *line), timeout_s=seconds + ROUND_S)

    def read(self, stdout: str) -> LoadResult:
        jobs = json_object("fio", stdout).get("jobs")
        if not (isinstance(jobs, list) and len(jobs) == 1):
            raise unreadable("fio", stdout)
        (job,) = jobs
        if number("fio", job, "error"):
            raise VtaxError(f"fio failed with error {job['error']}")
        ways = ("read", "write")
        rate = sum(number("fio", job, way, "iops") for way in ways)
        done = sum(number("fio", job, way, "total_ios") for way in ways)
        found = {
            percent: number("fio", job, "read", "clat_ns", "percentile", f"{percent}.000000") * 1e-9
            for percent in PERCENTILES
        }
        value = positive("fio", "the rate", rate)
        return LoadResult(value, "operations/s", percentiles=found, requests=int(done))


@dataclass(frozen=True)
class Dbench(Load):
    """dbench: the file operations of an office file server, one client."""

    name: str
    about: str
    needs: ClassVar[tuple[str, ...]] = ("dbench",)

    def command(self, seconds: int) -> Command:
        # In one second it counts nothing.
        line = ("dbench", "-t", str(max(2, seconds)), "-D", ".", "-c", _CLIENT, "1")
        return Command(_on_disk(line), timeout_s=seconds + ROUND_S)

    def read(self, stdout: str) -> LoadResult:
        if (found := _THROUGHPUT.search(bounded("dbench", stdout))) is None:
            raise unreadable("dbench", stdout)
        return LoadResult(positive("dbench", "the throughput", _decimal(found[1])), "MB/s")


@dataclass(frozen=True)
class Sysbench(Load):
    """sysbench fileio: random reads and writes of 16 KiB past the page cache, with fsync."""

    name: str
    about: str
    needs: ClassVar[tuple[str, ...]] = ("sysbench",)

    def command(self, seconds: int) -> Command:
        files = ("--file-num=4", f"--file-total-size={SIZE}", "--file-test-mode=rndrw")
        line = ("sysbench", str(seconds), "fileio", *files, "--file-extra-flags=direct")
        return Command(_on_disk(("sh", "-c", _SYSBENCH, *line)), timeout_s=seconds + ROUND_S)

    def read(self, stdout: str) -> LoadResult:
        rates = _PER_SECOND.findall(bounded("sysbench", stdout))
        if len(rates) != 3:
            raise unreadable("sysbench", stdout)
        value = positive("sysbench", "the rate", sum(map(_decimal, rates)))
        return LoadResult(value, "operations/s")


def disk_loads() -> tuple[Load, ...]:
    """All loads of a disk. bonnie++ and postmark have an amount of work instead of a time: their
    rounds are counted."""
    bonnie = ("bonnie++", "-q", "-f", "-d", ".", "-s", SIZE, "-n", "0", "-r", "16", "-u", "root")
    mails = ("set number 200", "set transactions 500", "set size 500 10000", "run", "quit")
    return (
        Disk("disk", "random reads and writes of 4 KiB, past the page cache of its disk (fio)"),
        Dbench("dbench", "the file operations of an office's file server (dbench)"),
        Sysbench("sysbench", "random reads and writes of 16 KiB, with fsync (sysbench fileio)"),
        Rounds("bonnie", f"a file of {SIZE} written, rewritten, read and sought in (bonnie++)",
               ("bonnie++",), _on_disk(bonnie)),
        Rounds("postmark", "small files made, read, appended to and deleted (postmark)",
               ("postmark",), _on_disk(("sh", "-c", _POSTMARK, "sh", *mails))),
    )  # fmt: skip


def _on_disk(argv: Sequence[str]) -> tuple[str, ...]:
    """The command line in the folder of the machine's disk."""
    return ("sh", "-c", _THERE + 'exec "$@"', DISK, *argv)


def _decimal(text: str) -> float:
    """A number of digits and points; NaN for what is no number, which nothing accepts."""
    try:
        return float(text)
    except ValueError:
        return float("nan")
