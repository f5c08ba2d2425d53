"""What `vtax paging control` costs: CPU time of the process, by guests on a host of files.

The trees contain what KVM reports about 1, 15 and 100 guests; reading a file of debugfs costs about
as much as reading one of tmpfs, and the perf events of a processor with counters are not in it.
Run: .venv/bin/python bench/paging_control.py [SECONDS]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/support")]

from counter_page import FakeHost  # noqa: E402
from vtax.core import binaries  # noqa: E402

GUESTS = (1, 15, 100)
TMPFS = Path("/dev/shm")


def cpu_seconds(pid: int) -> float:
    """The CPU time of all threads of a process."""
    on_cpu = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(path.read_text().split()[0]) for path in on_cpu) / 1e9


def share(guests: int, seconds: float) -> tuple[float, int]:
    """The share of one CPU after the first window, and the number of windows."""
    with tempfile.TemporaryDirectory(dir=TMPFS if TMPFS.is_dir() else None) as folder:
        root = Path(folder) / "root"
        root.mkdir()
        host = FakeHost(root, guests)
        output = Path(folder) / "lines"
        argv = [str(binaries.find("vtax-host")), "paging", "control", f"--root={root}", "--json"]
        argv += [f"--state-dir={folder}/state", f"--guest={host.page}", "--policy=dav2m"]
        with output.open("wb") as lines:
            daemon = subprocess.Popen(argv, stdout=lines)
        stop = threading.Event()

        def busy() -> None:
            while not stop.wait(0.5):
                host.goes_on(faults=1000, instructions=1_000_000_000, misses=1_000_000)

        feeder = threading.Thread(target=busy)
        feeder.start()
        try:
            time.sleep(2.2)
            before, begun = cpu_seconds(daemon.pid), time.monotonic()
            time.sleep(seconds)
            spent, took = cpu_seconds(daemon.pid) - before, time.monotonic() - begun
        finally:
            stop.set()
            feeder.join()
            daemon.terminate()
            daemon.wait()
        return spent / took, len(output.read_text().splitlines())


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    print(f"CPU time of the controller, windows of 1 s, {seconds:.0f} s each")
    for guests in GUESTS:
        used, windows = share(guests, seconds)
        print(f"{guests:4} guests  {used * 100:6.3f} % of a CPU  {windows} windows")


if __name__ == "__main__":
    main()
