"""What the guests of `switch_trial.py` boot, and the call of it inside `vtax lab`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from command_line import vtax
from vtax.core import binaries
from vtax.environments import guest_kernel
from vtax.environments.emulated_host import contents
from vtax.environments.initramfs import newc
from vtax.environments.kernel_image import ModuleTree

HERE = Path(__file__).parent
PATIENCE_S = 300.0
"""The limit of a boot, and of each crossing, on a busy machine."""
MODULES = ("virtio_pci", "virtio_blk", "virtio_net")
INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sys /sys
mount -t devtmpfs dev /dev; mount -t tmpfs tmp /tmp
for module in $(cat /modules/order); do insmod /modules/$module.ko; done
ip link set lo up; ip address add $address/24 dev eth0; ip link set eth0 up
cd /tmp
vtax-agent workload round-trip --mem 4M --seconds 3000 --connect $server --json >trip 2>errors &
trip=$!
until netstat -tn | grep -q ESTABLISHED; do sleep 0.2; done
disk-writer /dev/vda >disk &
disk=$!
echo running
nc -l -p 7008 </dev/null
kill -TERM $trip $disk; wait
cat trip disk errors; dmesg | grep -E 'BUG:|Oops|I/O error|hung'
echo ended
poweroff -f
"""


def make(folder: Path) -> None:
    """Put the kernel, the initramfs and the programs into `folder`."""
    kernel, agent = guest_kernel.prepare(), binaries.find("vtax-agent")
    writer = folder / "disk-writer"
    source = HERE / "disk_writer.c"
    subprocess.run(
        ["gcc", "-O2", "-static", "-pthread", "-o", str(writer), str(source)], check=True
    )
    modules = ModuleTree(kernel.tree).closure(MODULES)
    files = {f"modules/{name}.ko": content for name, content in modules}
    files |= {
        "modules/order": " ".join(name for name, _ in modules).encode(),
        "init": INIT.encode(),
        "bin/busybox": contents.busybox().read_bytes(),
        "bin/vtax-agent": agent.read_bytes(),
        "bin/disk-writer": writer.read_bytes(),
    }
    (folder / "initramfs").write_bytes(newc(files, ("bin", "dev", "modules", "proc", "sys", "tmp")))
    shutil.copy(kernel.kernel, folder / "kernel")
    for program in (agent, binaries.find("vtax-host")):
        shutil.copy(program, folder / program.name)


def crossed(folder: Path, crossings: int, *guests: str, smp: int = 1) -> dict[str, Any]:
    """The report of `switch_trial.py`, run in a lab on the files that `make` put into `folder`."""
    script = [sys.executable, str(HERE / "switch_trial.py"), str(folder), str(crossings), *guests]
    lab = ("lab", "--quiet", "--smp", str(smp), "--share", str(HERE))
    done = vtax(*lab, "--", *script, cwd=folder, timeout=PATIENCE_S * (1 + crossings))
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(report, dict)
    return report
