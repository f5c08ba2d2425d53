"""What runs in dom0: the scripts that start the toolstack, and the guest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from vtax.environments import sandbox, swap
from vtax.environments.emulated_host import contents, ports
from vtax.environments.xen import parts

Mode = Literal["pv", "pvh"]

GUEST = "guest"
"""The name of the domain."""
GONE = "gone"
SWAP_DEVICE = "/dev/xvda"
"""The guest's name of its disk."""
CONFIGURATION = PurePosixPath("/run/guest.cfg")
CONSOLE = PurePosixPath("/dev/hvc0")
"""The guest's console, which is the channel to its agent: its kernel prints only why it died."""


_DISK = f"format=raw,vdev=xvda,access=rw,script={parts.DISK_SCRIPT},target={swap.VIRTIO_DEVICE}"
"""Its back end is dom0's kernel, by a script that the toolstack runs (xl-disk-configuration(5))."""


@dataclass(frozen=True, slots=True)
class Domain:
    """A guest of Xen's."""

    mode: Mode
    memory_bytes: int
    cpus: int
    weight: int
    """Its share of CPU time under credit2, beside dom0's 256."""
    cap_percent: int
    """The most CPU time that it gets, in percent of one CPU; 0: no limit."""
    modules: Sequence[str]
    swaps: bool
    """Whether it has a disk: the first of dom0's."""


def toolstack_script() -> str:
    """Shell commands that ready dom0 for guests."""
    lines = ["set -e", parts.VARIABLES, "busybox --install -s /bin"]
    lines += ["ln -s /run /var/run"]
    lines += ["mkdir -p /run/xen /run/xenstored /var/lib/xen /var/lib/xenstored /var/log/xen"]
    lines += ["mkdir -p /etc/xen && echo 'autoballoon=\"off\"' > /etc/xen/xl.conf"]
    lines += ["mount -t xenfs xenfs /proc/xen"]
    lines += ports.lines()
    lines += ["xenstored --pid-file /run/xenstored.pid"]
    # It is there when its socket is.
    lines += ["i=0; until [ -S /run/xenstored/socket ]; do"]
    lines += ["i=$((i+1)); [ $i -lt 200 ] || exit 1; sleep 0.05; done"]
    return "\n".join([*lines, "xen-init-dom0", "xenconsoled --pid-file /run/xenconsoled.pid"])


def configuration(domain: Domain) -> str:
    """The guest's configuration as xl takes it (xl.cfg(5))."""
    parameters = [
        f"console={CONSOLE.name}",
        "loglevel=1",
        "panic=-1",
        "vtax.lower=9p.xen:host",
        "vtax.work=9p.xen:work",
        f"vtax.channel={CONSOLE}",
        f"vtax.modules={':'.join(domain.modules)}",
    ]
    exports = {"host": contents.TREE, "work": sandbox.WORK}
    shared = [f"tag={tag},path={path},security_model=none" for tag, path in exports.items()]
    values: dict[str, str | int | list[str]] = {
        "name": GUEST,
        "type": domain.mode,
        "kernel": str(parts.KERNEL),
        "ramdisk": str(parts.INITRAMFS),
        "extra": " ".join(parameters),
        "memory": domain.memory_bytes >> 20,
        "maxmem": domain.memory_bytes >> 20,
        "vcpus": domain.cpus,
        # The first CPU is dom0's.
        "cpus": [str(number + 1) for number in range(domain.cpus)],
        "cpu_weight": domain.weight,
        "cap": domain.cap_percent,
        "p9": shared,
        "disk": [_DISK] if domain.swaps else [],
        **dict.fromkeys(("on_poweroff", "on_reboot", "on_crash"), "destroy"),
    }
    return "".join(f"{name} = {_quoted(value)}\n" for name, value in values.items())


def start_script() -> str:
    """Shell commands that start the guest and join its console to its port."""
    port = ports.device(0)
    lines = ["set -e", parts.VARIABLES]
    # Why the device model ended is in its log alone.
    log = f"cat /var/log/xen/qemu-dm-{GUEST}.log >&2"
    lines += [f"xl create -q {CONFIGURATION} || {{ {log}; exit 1; }}"]
    lines += [f"tty=$(xenstore-read /local/domain/$(xl domid {GUEST})/console/tty)"]
    lines += ['stty raw -echo < "$tty"']
    # A port can be opened once.
    lines += [f"exec 3<> {port} 2> /dev/null", 'cat < "$tty" >&3 &', 'cat <&3 > "$tty" &']
    # xl waits for the domain's end. Nothing closes the port's other end: a line that is no answer
    # says that nobody answers any more.
    lines += ["xl=$(pidof xl)"]
    lines += [f"(while kill -0 $xl; do sleep 1; done; echo; echo {GONE}) >&3 2> /dev/null &"]
    return "\n".join(lines)


def lives_script() -> str:
    """Shell commands that fail when the guest is no more."""
    return f"{parts.VARIABLES}; xl domid {GUEST} > /dev/null 2>&1"


def _quoted(value: str | int | list[str]) -> str:
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return f'"{value}"'
    return f"[ {', '.join(_quoted(each) for each in value)} ]"
