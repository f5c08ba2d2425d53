"""The nested guest: its command line in the emulated host, and the paths that belong to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from vtax.environments.emulated_host import exports, ports
from vtax.environments.lab import host_initramfs
from vtax.environments.lab.guest_initramfs import Kind
from vtax.environments.qemu_program import CHANNEL

GUESTS = PurePosixPath("/run/vtax/guests")
TAP = "tap0"
HOST_ADDRESS = "192.168.77.1/24"
GUEST_ADDRESS = "192.168.77.2/24"
IMAGE_DEVICE = "/dev/vda"


@dataclass(frozen=True, slots=True)
class Nested:
    """What all nested guests of a lab have in common."""

    kind: Kind
    memory_bytes: int
    smp: int
    modules: tuple[str, ...]


def folder(number: int) -> PurePosixPath:
    """Where guest `number` has its QMP socket, PID file and console."""
    return GUESTS / str(number)


def command(nested: Nested, number: int) -> list[str]:
    """The command line of guest `number`.

    Its memory is a shared file and its monitor a socket, so that another QEMU can take the guest
    over. Its channel is the emulated host's own port, so that no program relays. microvm has no PCI
    bus whose devices a new QEMU would have to make again.
    """
    own = folder(number)
    line = [str(host_initramfs.QEMU), "-L", str(host_initramfs.FIRMWARE_FOLDER)]
    line += ["-name", f"guest-{number}", "-accel", "kvm", "-cpu", "EPYC"]
    # Without the second I/O APIC there are 8 virtio-mmio transports, not 24: each costs a new
    # QEMU time when it takes the guest over.
    line += ["-machine", "microvm,rtc=on,ioapic2=off,memory-backend=ram", "-smp", str(nested.smp)]
    line += ["-bios", host_initramfs.GUEST_FIRMWARE]
    size = f"{nested.memory_bytes >> 20}M"
    line += ["-m", size, "-object"]
    # Without the alignment none of its pages could become a huge one.
    memory = f"memory-backend-file,id=ram,size={size},mem-path=/dev/shm/guest-{number}"
    line += [f"{memory},share=on,align=2M"]
    line += ["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]
    line += ["-chardev", f"file,id=console,path={own / 'console'}", "-serial", "chardev:console"]
    line += ["-kernel", str(host_initramfs.GUEST_KERNEL)]
    line += ["-initrd", str(host_initramfs.GUEST_INITRAMFS)]
    line += ["-append", " ".join(_parameters(nested))]
    line += ["-qmp", f"unix:{own / 'qmp'},server=on,wait=off"]
    line += ["-device", "virtio-serial-device"]
    line += ["-chardev", f"pipe,id=agent,path={ports.device(number)}"]
    line += ["-device", f"virtserialport,chardev=agent,name={CHANNEL}"]
    if number == 0:
        # Each guest has a tap device of its own.
        line += ["-netdev", f"tap,id=net,ifname={TAP},script=no,downscript=no"]
        line += ["-device", "virtio-net-device,netdev=net"]
    if nested.kind == "host":
        line += _export("host", "readonly=on,multidevs=remap")
        line += _export("work", "multidevs=remap")
    if nested.kind == "disk":
        line += ["-drive", f"if=none,id=image,file={IMAGE_DEVICE},format=raw,readonly=on"]
        line += ["-device", "virtio-blk-device,drive=image"]
    return [*line, "-daemonize", "-pidfile", str(own / "pid")]


def prepare_script(count: int) -> str:
    """Shell commands that ready the emulated host for its guests."""
    lines = ["set -e", "busybox --install -s /bin", *ports.lines()]
    lines += exports.folders()
    lines += [f"mkdir -p {' '.join(str(folder(number)) for number in range(count))}"]
    lines += ["mkdir -p /dev/net", "[ -e /dev/net/tun ] || mknod /dev/net/tun c 10 200"]
    lines += [
        f"tunctl -t {TAP}",
        f"ip address add {HOST_ADDRESS} dev {TAP}",
        f"ip link set {TAP} up",
    ]
    return "\n".join(lines)


def pause_script(count: int) -> str:
    """Shell commands that stop the guests' QEMUs, all threads of them.

    QEMU cannot restore an emulated CPU that was saved while it ran a guest's code ("vCPU set in
    guest-mode inconsistent with migrated kernel nested state"); a stopped thread is out of it.
    """
    lines = []
    for number in range(count):
        lines += [f"pid=$(cat {folder(number) / 'pid'})", 'kill -STOP "$pid"', "i=0"]
        lines += ["while cut -d ' ' -f 3 /proc/$pid/task/*/stat | grep -qv T; do"]
        lines += ["i=$((i+1))", '[ "$i" -lt 100 ] || exit 1', "sleep 0.05", "done"]
    return "\n".join(["set -e", *lines])


def resume_script(count: int) -> str:
    """Shell commands that undo `pause_script`."""
    return "\n".join(f"kill -CONT $(cat {folder(number) / 'pid'})" for number in range(count))


def furnish_script(busybox: str) -> str:
    """Shell commands that make a guest with nothing but busybox usable."""
    lines = ["set -e", f"{busybox} --install -s /bin"]
    # Only the first guest has a network device.
    lines += ["[ -e /sys/class/net/eth0 ] || exit 0"]
    lines += [f"ip address add {GUEST_ADDRESS} dev eth0", "ip link set eth0 up"]
    return "\n".join(lines)


def _parameters(nested: Nested) -> Sequence[str]:
    lower = {
        "host": [*exports.parameters("9p"), "vtax.wait=1"],
        "builtin": ["vtax.lower=initramfs"],
        "initramfs": ["vtax.lower=initramfs"],
        "disk": [f"vtax.lower=disk:{IMAGE_DEVICE}"],
    }[nested.kind]
    return [
        "console=ttyS0",
        "quiet",
        "panic=-1",
        *lower,
        f"vtax.channel=virtio:{CHANNEL}",
        f"vtax.modules={':'.join(nested.modules)}",
    ]


def _export(tag: str, options: str) -> list[str]:
    return [
        "-fsdev",
        f"local,id={tag},path={exports.FOLDER / tag},security_model=none,{options}",
        "-device",
        f"virtio-9p-device,fsdev={tag},mount_tag={tag}",
    ]
