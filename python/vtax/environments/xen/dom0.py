"""What runs in dom0: the scripts that start the toolstack, and the guest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from vtax.environments import guest_disk
from vtax.environments.emulated_host import exports, ports
from vtax.environments.xen import parts

Mode = Literal["pv", "pvh"]

SWAP_DEVICE = "/dev/xvda"
"""The guest's name of its disk."""
GONE, BROKEN = "gone", "broken"
"""States of a guest."""
CONSOLE = PurePosixPath("/dev/hvc0")
"""The guest's console, which is the channel to its agent: its kernel prints only why it died."""


_DISK = (
    f"format=raw,vdev=xvda,access=rw,script={parts.DISK_SCRIPT},"
    f"target={guest_disk.VIRTIO_DEVICES[0]}"
)
"""Its back end is dom0's kernel, by a script that the toolstack runs (xl-disk-configuration(5))."""


@dataclass(frozen=True, slots=True)
class Domain:
    """A guest of Xen's."""

    number: int
    mode: Mode
    memory_bytes: int
    cpus: int
    pinned: Sequence[int]
    """The physical CPU of each of its CPUs."""
    weight: int
    """Its share of CPU time under credit2, beside dom0's 256."""
    cap_percent: int
    """The most CPU time that it gets, in percent of one CPU; 0: no limit."""
    modules: Sequence[str]
    swaps: bool
    """Whether it has a disk: the first of dom0's."""
    linked: bool
    """Whether it has a network card, behind dom0's bridge."""


@dataclass(frozen=True, slots=True)
class Boot:
    """What a guest boots, and sees, by paths in dom0."""

    name: str
    kernel: PurePosixPath
    initramfs: PurePosixPath
    exports: PurePosixPath
    """The folder of its 9p exports."""
    tags: Sequence[str] = ("host",)
    """The exports that it has."""
    waits: bool = False
    """Whether its agent waits to be let in."""


def name(number: int) -> str:
    """The name that the toolstack knows a guest by."""
    return f"guest{number}"


def own_boot(number: int) -> Boot:
    """What a guest of the emulated machine boots."""
    files = parts.KERNEL, parts.INITRAMFS
    return Boot(name(number), *files, exports.FOLDER, exports.TAGS, waits=True)


def configuration_file(number: int) -> PurePosixPath:
    return PurePosixPath(f"/run/{name(number)}.cfg")


def shell(script: str) -> list[str]:
    """The command that runs shell commands in dom0."""
    return ["busybox", "sh", "-c", script]


def bridge_script() -> str:
    """Shell commands that join dom0's network card to a bridge for guests."""
    lines = ["set -e", f"busybox brctl addbr {parts.BRIDGE}"]
    lines += [f"busybox brctl addif {parts.BRIDGE} eth0", "busybox ip link set eth0 up"]
    return "\n".join([*lines, f"busybox ip link set {parts.BRIDGE} up"])


def toolstack_script() -> str:
    """Shell commands that ready dom0 for guests."""
    lines = ["set -e", parts.VARIABLES, "busybox --install -s /bin"]
    lines += ["ln -s /run /var/run"]
    lines += ["mkdir -p /run/xen /run/xenstored /var/lib/xen /var/lib/xenstored /var/log/xen"]
    lines += ["mkdir -p /etc/xen && echo 'autoballoon=\"off\"' > /etc/xen/xl.conf"]
    lines += ["mount -t xenfs xenfs /proc/xen"]
    # A toolstack of another version fails at its first call, and does not say why.
    lines += ["cd /sys/hypervisor/version", 'version="$(cat major).$(cat minor)"']
    lines += [f'[ "$version" = {parts.VERSION} ] || {{']
    lines += [f'echo "Xen is $version, its toolstack {parts.VERSION}" >&2; exit 1; }}']
    lines += [*ports.lines(), *exports.folders()]
    lines += ["xenstored --pid-file /run/xenstored.pid"]
    # It is there when its socket is.
    lines += ["i=0; until [ -S /run/xenstored/socket ]; do"]
    lines += ["i=$((i+1)); [ $i -lt 200 ] || exit 1; sleep 0.05; done"]
    return "\n".join([*lines, "xen-init-dom0", "xenconsoled --pid-file /run/xenconsoled.pid"])


def configuration(domain: Domain, boot: Boot) -> str:
    """The guest's configuration as xl takes it (xl.cfg(5))."""
    parameters = [
        f"console={CONSOLE.name}",
        "loglevel=1",
        "panic=-1",
        *exports.parameters("9p.xen", boot.tags),
        f"vtax.wait={int(boot.waits)}",
        f"vtax.channel={CONSOLE}",
        f"vtax.modules={':'.join(domain.modules)}",
    ]
    shared = [f"tag={tag},path={boot.exports / tag},security_model=none" for tag in boot.tags]
    values: dict[str, str | int | list[str]] = {
        "name": boot.name,
        "type": domain.mode,
        "kernel": str(boot.kernel),
        "ramdisk": str(boot.initramfs),
        "extra": " ".join(parameters),
        "memory": domain.memory_bytes >> 20,
        "maxmem": domain.memory_bytes >> 20,
        "vcpus": domain.cpus,
        "cpus": [str(number) for number in domain.pinned],
        "cpu_weight": domain.weight,
        "cap": domain.cap_percent,
        "p9": shared,
        "disk": [_DISK] if domain.swaps else [],
        "vif": [f"script={parts.INTERFACE_SCRIPT}"] if domain.linked else [],
        **dict.fromkeys(("on_poweroff", "on_reboot", "on_crash"), "destroy"),
    }
    return "".join(f"{name} = {_quoted(value)}\n" for name, value in values.items())


def start_script(number: int) -> str:
    """Shell commands that start a guest and join its console to its port."""
    port, own = ports.device(number), name(number)
    lines = ["set -e", parts.VARIABLES, 'before=" $(pidof xl || :) "']
    # Why the device model ended is in its log alone.
    log = f"cat /var/log/xen/qemu-dm-{own}.log >&2"
    lines += [f"xl create -q {configuration_file(number)} || {{ {log}; exit 1; }}"]
    lines += [f"store=/local/domain/$(xl domid {own})"]
    lines += ["tty=$(xenstore-read $store/console/tty)"]
    lines += [f"xenstore-read $store/image/device-model-pid > {_back_end(number)}"]
    lines += ['stty raw -echo < "$tty"']
    # A port can be opened once.
    lines += [f"exec 3<> {port} 2> /dev/null", 'cat < "$tty" >&3 &', 'cat <&3 > "$tty" &']
    # xl waits for the domain's end. Nothing closes the port's other end: a line that is no answer
    # says that nobody answers any more, or that the guest's files are gone with its back end.
    lines += ['for xl in $(pidof xl); do case "$before" in *" $xl "*) ;; *) break ;; esac; done']
    lines += [f"qemu=$(cat {_back_end(number)})"]
    lines += [f"(while kill -0 $xl $qemu; do sleep 1; done; echo; echo {GONE}) >&3 2> /dev/null &"]
    return "\n".join(lines)


def each_script(verb: str, count: int) -> str:
    """Shell commands that run `xl VERB` for each guest."""
    return "\n".join(["set -e", parts.VARIABLES, *(f"xl {verb} {name(n)}" for n in range(count))])


def state_script(number: int) -> str:
    """Shell commands that print GONE or BROKEN for a guest that is no more, or has lost its files,
    and nothing for one that lives."""
    lives = f"kill -0 $(cat {_back_end(number)}) 2> /dev/null"
    # The back end of a domain that is destroyed ends some seconds before the domain does.
    lines = [parts.VARIABLES, f"said=; {lives} || {{ said={BROKEN}; sleep 5; }}"]
    lines += [f"xl domid {name(number)} > /dev/null 2>&1 || said={GONE}"]
    return "\n".join([*lines, 'echo "$said"'])


def _back_end(number: int) -> PurePosixPath:
    """The file with the process that is the back end of a guest's exports."""
    return PurePosixPath(f"/run/{name(number)}.qemu")


def _quoted(value: str | int | list[str]) -> str:
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return f'"{value}"'
    return f"[ {', '.join(_quoted(each) for each in value)} ]"
