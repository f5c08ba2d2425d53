"""Recordings of Xen's events in dom0: tiny domains with known counts, the recorder, xenalyze."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from vtax.environments import packages
from vtax.environments.xen import parts
from vtax.environments.xen.machine import XenMachine

SOURCES = Path(__file__).parent / "tiny_domains"
BITS = {"pv": 64, "pvh": 32}
DOMU_CPU = 1
"""The physical CPU that domUs have to themselves; dom0 has the other."""
XENALYZE = "usr/bin/xenalyze"
HEAD = re.compile(r"\|-- (?:Default domain|Domain (\d+)) --\|")
UNKNOWN = -1
"""What ran before xenalyze knew the domain."""
CALL = re.compile(r"^ +\w+ +\[ *(\d+)\]: +(\d+)$")
EXIT = re.compile(r"^ VMEXIT_(\w+) +(\d+) ")
COUNT = re.compile(r"^  ([a-z][a-z_() ]*[a-z)])  (\d+)$")
RUNS = re.compile(r"^ +running: +(\d+) ")


def tiny(mode: str, count: int, folder: Path) -> bytes:
    """A kernel that does `count` of each, by the mode of its domain; skips without a compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc) for the tiny domains")
    kernel = folder / f"tiny-{mode}"
    linked = "-Wl,--build-id=none,-Ttext-segment=0x100000,-z,noexecstack"
    line = [compiler, f"-m{BITS[mode]}", f"-DN={count}", "-nostdlib", "-static", "-no-pie", linked]
    source = SOURCES / f"{mode}.S"
    subprocess.run([*line, "-o", str(kernel), str(source)], check=True, capture_output=True)
    return kernel.read_bytes()


@dataclass(frozen=True, slots=True)
class Recorded:
    """A finished recording, on this machine."""

    folder: Path
    record: Mapping[str, Any]
    rows: pl.DataFrame

    def sums(self, cpu: int) -> dict[str, int]:
        """What was counted on a physical CPU, without the zeros."""
        own = self.rows.filter(pl.col("cpu") == cpu)
        names = [name for name in own.columns if name.startswith("xen.")]
        return {name: count for name in names if (count := own[name].sum())}

    def columns(self) -> list[dict[str, Any]]:
        """The descriptions of the columns."""
        found: list[dict[str, Any]] = json.loads((self.folder / "events.json").read_bytes())[
            "columns"
        ]
        return found


class Dom0:
    """dom0 of a started machine, whose own domU makes no events meanwhile."""

    FOLDER = "/run/recorded"

    def __init__(self, machine: XenMachine) -> None:
        self._machine = machine
        self.shell("xl pause guest0")

    def shell(self, script: str) -> str:
        """Run a script in dom0; what it starts in the background stays."""
        line = ["busybox", "sh", "-c", f"{parts.VARIABLES}; {script}"]
        return self._machine.host.must(line, "do this", leave=True)

    def begin(self, *options: str) -> None:
        """Start the recorder, and wait for its first record."""
        line = f"{parts.RECORDER} record --out out --raw raw {' '.join(options)}"
        start = f"{{ {line} > said 2>&1 & echo $! > pid; }}"
        self.shell(f"rm -rf {self.FOLDER}; mkdir {self.FOLDER}; cd {self.FOLDER}; {start}")
        self._wait("[ -e out/intervals.arrows ]", 300)

    def end(self, folder: Path) -> Recorded:
        """End the recorder, and fetch what it wrote."""
        # Xen tells what a CPU lost with the CPU's next record.
        self.shell("xl unpause guest0; sleep 2; xl pause guest0")
        self.shell(f"cd {self.FOLDER}; kill -INT $(cat pid)")
        for _ in range(6):
            if "ended" in self.shell(
                f"cd {self.FOLDER}; i=0; while kill -0 $(cat pid) 2> /dev/null; do "
                "i=$((i+1)); [ $i -lt 100 ] || exit 0; sleep 0.1; done; echo ended"
            ):
                break
        folder.mkdir(exist_ok=True)
        host = self._machine.host
        for name in ("out/intervals.parquet", "out/events.json", "out/record.json", "raw", "said"):
            content = host.pull(f"{self.FOLDER}/{name}", 1 << 29)
            (folder / Path(name).name).write_bytes(content)
        record = json.loads((folder / "record.json").read_bytes())
        return Recorded(folder, record, pl.read_parquet(folder / "intervals.parquet"))

    def run(self, mode: str, kernel: bytes) -> int:
        """Run a tiny domain to its end; returns its number."""
        self._machine.host.push("/run/tiny", kernel)
        values = {"name": "tiny", "type": mode, "kernel": "/run/tiny", "on_poweroff": "destroy"}
        text = "".join(f'{name}="{value}"\n' for name, value in values.items())
        text += f'memory=16\nvcpus=1\ncpus=["{DOMU_CPU}"]\non_crash="preserve"\n'
        self._machine.host.push("/run/tiny.cfg", text.encode())
        number = int(self.shell("xl create -q -p /run/tiny.cfg; xl domid tiny; xl unpause tiny"))
        self._wait("! xl domid tiny > /dev/null 2>&1", 450)
        return number

    def left(self) -> int:
        """Bytes of records in Xen's buffers that nobody has read."""
        return int(self.shell("xentrace -X -T 1 /run/left 2> /dev/null; wc -c < /run/left"))

    def _wait(self, until: str, tenths: int) -> None:
        self.shell(
            f"cd {self.FOLDER}; i=0; until {until}; do i=$((i+1)); "
            f"[ $i -lt {tenths} ] || {{ cat said >&2; exit 1; }}; sleep 0.1; done"
        )


@dataclass(frozen=True, slots=True)
class Analyzed:
    """What xenalyze counts of a domain, over its virtual CPUs."""

    calls: Counter[int]
    """Hypercalls by their numbers, those in multicalls too."""
    exits: Counter[str]
    """VM exits by their reasons."""
    counts: Counter[str]
    """The counts of other events, by xenalyze's names."""


def xenalyze(recorded: Recorded) -> dict[int, Analyzed]:
    """xenalyze's summary of the recorded trace, by domains."""
    program = packages.fetch(parts.SHELF, "xen", with_needs=parts.PACKAGES) / XENALYZE
    hertz = str(recorded.record["tsc_hz"])
    line = [str(program), "--svm-mode", "--cpu-hz", hertz, "-s", "--show-default-domain-summary"]
    trace = str(recorded.folder / "raw")
    done = subprocess.run([*line, trace], capture_output=True, text=True, check=True)
    found: dict[int, Analyzed] = {}
    domain = None
    for text in done.stdout.splitlines():
        if head := HEAD.match(text):
            domain = found[int(head[1] or UNKNOWN)] = Analyzed(Counter(), Counter(), Counter())
        elif domain is None:
            continue
        elif call := CALL.match(text):
            domain.calls[int(call[1])] += int(call[2])
        elif left := EXIT.match(text):
            domain.exits[left[1]] += int(left[2])
        elif count := COUNT.match(text):
            domain.counts[count[1]] += int(count[2])
        elif runs := RUNS.match(text):
            domain.counts["running"] += int(runs[1])
    return found
