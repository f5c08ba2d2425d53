"""`perf kvm stat` in the emulated host of a lab: the program of this machine, seen by 9p."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from vtax.environments.emulated_host.host import EmulatedHost

TREE = "/run/vtax/host"
"""The real host's tree in the emulated one, after `enter`."""
FOLDER = "/tmp/perf"
REPORT_TIMEOUT_S = 300.0

_BEGIN = f"""\
set -e
mount -t tracefs tracefs /sys/kernel/tracing
for each in proc sys dev tmp; do mount --rbind /$each {TREE}/$each; done
mkdir {FOLDER}; cd {FOLDER}
echo ': > {FOLDER}/ready; while [ ! -e {FOLDER}/stop ]; do sleep 0.1; done' > wait
chroot {TREE} "$0" kvm --host stat record --all-cpus --mmap-pages 4M --output {FOLDER}/data \\
    -- sh {FOLDER}/wait > said 2>&1 &
echo $! > pid
i=0
until [ -e ready ]; do
    kill -0 "$(cat pid)" || {{ cat said >&2; exit 1; }}
    i=$((i+1)); [ $i -lt 600 ] || exit 1
    sleep 0.1
done
"""
"""perf starts its command when its events already count, so `ready` says that they count."""
_END = f"""\
cd {FOLDER}; : > stop; i=0
while kill -0 "$(cat pid)" 2>/dev/null; do
    i=$((i+1)); [ $i -lt 600 ] || exit 1
    sleep 0.1
done
"""


def program() -> Path:
    """The path of this machine's perf, or a skip."""
    found = shutil.which("perf")
    if found is None:
        pytest.skip("perf is not installed (Debian: linux-perf)")
    path = Path(found).resolve()
    if path.read_bytes()[:4] != b"\x7fELF":
        pytest.skip(f"{path} is a wrapper script that needs the perf of a kernel")
    return path


@dataclass(frozen=True, slots=True)
class Counted:
    """What perf counted; reasons by perf's names."""

    exits: Counter[str]
    """Events `kvm:kvm_exit` in perf's file."""
    reported: Counter[str]
    """Exits in `perf kvm stat report`: those that an entry followed."""


class PerfKvm:
    """A running `perf kvm stat record` over all CPUs of the emulated host."""

    def __init__(self, host: EmulatedHost) -> None:
        """Start perf; return when it counts."""
        self._host = host
        self._program = program()
        host.enter()
        line = ["busybox", "sh", "-c", _BEGIN, str(self._program)]
        host.must(line, "start perf", leave=True)

    def stop(self) -> None:
        """Stop perf; no event is counted after this."""
        self._host.shell(_END, "end perf")

    def counted(self) -> Counted:
        """Read what perf counted; fails when it says that it lost events."""
        events, _ = self._perf("script --show-lost-events -i {} -F event,trace")
        assert "PERF_RECORD_LOST" not in events
        exits = re.findall(r"kvm:kvm_exit: vcpu \d+,? reason (\S+)", events)
        # The tracepoint's name is in every line that shows one of its events, whatever the form.
        assert len(exits) == events.count("kvm:kvm_exit:")
        # perf prints its table as a message, on stderr.
        report = "".join(self._perf("kvm --host -i {} stat report --event=vmexit"))
        table = re.findall(r"^\s*(\S+)\s+(\d+)\s+[\d.]+%\s", report, re.MULTILINE)
        reported = Counter({reason: int(samples) for reason, samples in table})
        total = re.search(r"Total Samples:(\d+)", report)
        assert total is not None and int(total[1]) == reported.total(), report
        return Counted(Counter(exits), reported)

    def _perf(self, arguments: str) -> tuple[str, str]:
        """What perf prints on stdout and on stderr."""
        line = f"chroot {TREE} {self._program} {arguments.format(f'{FOLDER}/data')}"
        # The agent's output has a limit, so files carry it.
        script = f"{line} > {FOLDER}/out 2> {FOLDER}/said"
        done = self._host.run(["busybox", "sh", "-c", script], timeout_s=REPORT_TIMEOUT_S)
        out, said = (
            self._host.pull(f"{FOLDER}/{name}", 64 << 20).decode(errors="replace")
            for name in ("out", "said")
        )
        assert done.outcome.exit_code == 0, f"{line}: {said}"
        return out, said
