"""Guests as people have them, switched on real KVM; runs inside `vtax lab`, with no vtax but the
program for hosts.

`python switch_trial.py FOLDER CROSSINGS [GUEST...]` starts guests from the kernel and initramfs in
FOLDER, switches the host that many times, ends the guests and prints a JSON object with what each
of them says about itself and what is on its disk. Each guest writes to a disk, checks its memory,
and exchanges messages over a tap device all the time.
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TRIAL = Path("/run/trial")
USER = 4242
"""A user, and its group, that no program of the host has."""
KVM_GROUP = 4300
PORT, END_PORT = 7007, 7008
BLOCK = 512
DISK_BYTES = 256 << 20
PATIENCE_S = 240.0
TUNSETIFF, IFF_TAP_NO_PI_VNET = 0x400454CA, 0x2 | 0x1000 | 0x4000
LIMITS = {resource.RLIMIT_NOFILE: (2000, 3000), resource.RLIMIT_CORE: (0, 0)}
KEPT = ("Uid", "Gid", "Groups", "Umask", "Cpus_allowed_list")
"""What `/proc/PID/status` has to say of the new QEMU as of the old one."""


def say(text: str) -> None:
    print(f"{time.monotonic():.1f} {text}", file=sys.stderr, flush=True)


def tap(name: str) -> int:
    """A tap device that vanishes with the descriptor."""
    number = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(number, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP_NO_PI_VNET))
    return number


def run(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def until(what: str, holds: Callable[[], Any]) -> Any:
    """What `holds` returns once it is true."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := holds()):
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.1)
    return found


@dataclass
class Guest:
    """A guest: how its QEMU is started, and what was seen of it."""

    number: int
    name: str
    machine: Sequence[str]
    disk: Sequence[str]
    network: Sequence[str]
    folder: Path
    format: str = "raw"
    user: int = 0
    opened: tuple[int, ...] = ()
    """Descriptors that the QEMU is given."""
    seen: dict[str, Any] = field(default_factory=dict)

    @property
    def device(self) -> str:
        return f"trial{self.number}"

    @property
    def address(self) -> str:
        return f"10.77.{self.number}.2"

    @property
    def server(self) -> str:
        return f"10.77.{self.number}.1"

    @property
    def image(self) -> Path:
        return self.folder / f"{self.name}.img"

    @property
    def console(self) -> Path:
        return self.folder / f"{self.name}.console"

    @property
    def group(self) -> Path:
        return Path("/sys/fs/cgroup") / f"trial-{self.name}"

    def start(self, files: Path) -> None:
        """Start the QEMU and the peer of its connection; the device is up only with the former."""
        size = 128 << 20
        line = ["qemu-system-x86_64", "-name", self.name, "-accel", "kvm", "-cpu", "EPYC"]
        line += [*self.machine, "-m", f"{size >> 20}M", "-nodefaults", "-no-user-config"]
        line += ["-display", "none", "-no-reboot", "-kernel", str(TRIAL / "kernel")]
        line += ["-initrd", str(TRIAL / "initramfs"), "-append"]
        line += [f"console=ttyS0 quiet panic=-1 address={self.address} server={self.server}:{PORT}"]
        line += ["-chardev", f"file,id=console,path={self.console}", "-serial", "chardev:console"]
        line += ["-qmp", f"unix:{self.folder / self.name}.qmp,server=on,wait=off"]
        line += [*self.disk, *self.network]
        self.group.mkdir(exist_ok=True)

        def becomes() -> None:
            (self.group / "cgroup.procs").write_text(str(os.getpid()))
            os.umask(0o027)
            for limit, values in LIMITS.items():
                resource.setrlimit(limit, values)
            os.setgroups([KVM_GROUP, KVM_GROUP + 1] if self.user else [])
            os.setgid(self.user)
            os.setuid(self.user)

        self.process = subprocess.Popen(
            line,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=self.opened,
            preexec_fn=becomes,
        )
        for number in self.opened:
            os.close(number)
        until(f"{self.device}", Path(f"/sys/class/net/{self.device}").exists)
        run("ip", "address", "add", f"{self.server}/24", "dev", self.device)
        run("ip", "link", "set", self.device, "up")
        agent = [str(files / "vtax-agent"), "workload", "echo", f"--listen={self.server}:{PORT}"]
        self.echo = subprocess.Popen([*agent, "--json"], stdout=subprocess.PIPE, text=True)

    def waits(self) -> None:
        """Wait until its programs run."""

        def runs() -> bool:
            assert self.process.poll() is None, f"{self.name}: {self.text()}"
            return "running" in self.text()

        until(f"{self.name} boots", runs)

    def text(self) -> str:
        return self.console.read_text(errors="replace") if self.console.exists() else ""

    def state(self, pid: int) -> dict[str, Any]:
        """What a switch has to keep of the process `pid`."""
        lines = (
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        )
        status = {name: value.split() for name, value in lines}
        limits = Path(f"/proc/{pid}/limits").read_text()
        group = Path(f"/proc/{pid}/cgroup").read_text()
        # Root opens every file of /proc, whoever the process belongs to.
        links = [str(each.readlink()) for each in Path(f"/proc/{pid}/fd").iterdir()]
        return {
            **{name: status[name] for name in KEPT},
            "limits": limits,
            "group": group,
            "environment": Path(f"/proc/{pid}/environ").read_text(),
            "vhost": sum(each == "/dev/vhost-net" for each in links),
            "workers": sum(each == f"vhost-{pid}" for each in kernel_threads()),
        }

    def written(self) -> int:
        """How many blocks in a row, from the first, are on the disk as the guest wrote them."""
        raw = self.image
        if self.format != "raw":
            raw = self.image.with_suffix(".raw")
            run("qemu-img", "check", str(self.image))
            run("qemu-img", "convert", "-O", "raw", str(self.image), str(raw))
        number = 0
        with raw.open("rb") as disk:
            while (block := disk.read(BLOCK)) == numbers(number):
                number += 1
        return number if block.count(0) == len(block) else -number

    def ends(self) -> dict[str, Any]:
        """Let the guest end; its reports, and what is on its disk."""
        socket.create_connection((self.address, END_PORT), PATIENCE_S).close()
        until(f"{self.name} ends", lambda: "ended" in self.text())
        reports = [json.loads(line) for line in self.text().splitlines() if line.startswith("{")]
        echo = json.loads(self.echo.communicate(timeout=PATIENCE_S)[0])
        pid = self.seen["pid"]
        until(f"{self.name} is gone", lambda: not Path(f"/proc/{pid}/exe").exists())
        trip, disk = reports
        return {"trip": trip, "disk": disk, "echo": echo, "written": self.written(), **self.seen}


def numbers(block: int) -> bytes:
    return struct.pack(f"={BLOCK // 8}Q", *range(block, block + BLOCK // 8))


def kernel_threads() -> Sequence[str]:
    found = []
    for each in Path("/proc").glob("[0-9]*/comm"):
        try:
            found.append(each.read_text().strip())
        except OSError:
            continue
    return found


def named(number: int, folder: Path) -> Guest:
    """A PC with a qcow2 image, and a tap that its QEMU opens, with vhost."""
    guest = Guest(number, "named", ["-machine", "q35,memory-backend=ram"], [], [], folder)
    guest.machine = [*guest.machine, "-object"]
    guest.machine += ["memory-backend-memfd,id=ram,size=128M,share=on"]
    guest.format = "qcow2"
    run("qemu-img", "create", "-q", "-f", "qcow2", str(guest.image), str(DISK_BYTES))
    guest.disk = ["-drive", f"if=none,id=disk,file={guest.image},format=qcow2"]
    guest.disk += ["-device", "virtio-blk-pci,drive=disk"]
    guest.network = [
        "-netdev",
        f"tap,id=net,ifname={guest.device},script=no,downscript=no,vhost=on",
    ]
    guest.network += ["-device", "virtio-net-pci,netdev=net,romfile="]
    return guest


def given(number: int, folder: Path) -> Guest:
    """A PC of another user, in a control group of its own, that is given all that it opens: its
    disk, its tap, vhost."""
    os.chown(folder, USER, USER)
    guest = Guest(number, "given", ["-machine", "q35,memory-backend=ram"], [], [], folder)
    guest.user = USER
    guest.machine = [*guest.machine, "-object"]
    guest.machine += ["memory-backend-memfd,id=ram,size=128M,share=on"]
    with guest.image.open("wb") as image:
        image.truncate(DISK_BYTES)
    # Only root may open it: the QEMU has it by the descriptors alone.
    guest.image.chmod(0o600)
    reads, writes = os.open(guest.image, os.O_RDONLY), os.open(guest.image, os.O_RDWR)
    network, vhost = tap(guest.device), os.open("/dev/vhost-net", os.O_RDWR)
    guest.disk = ["-add-fd", f"set=7,fd={reads},opaque=reads", "-add-fd", f"fd={writes},set=7"]
    guest.disk += ["-blockdev", "driver=file,node-name=file,filename=/dev/fdset/7"]
    guest.disk += ["-blockdev", "driver=raw,node-name=disk,file=file"]
    guest.disk += ["-device", "virtio-blk-pci,drive=disk"]
    guest.network = ["-netdev", f"tap,id=net,fd={network},vhost=on,vhostfd={vhost}"]
    guest.network += ["-device", "virtio-net-pci,netdev=net,romfile="]
    guest.opened = (reads, writes, network, vhost)
    return guest


KINDS = {"named": named, "given": given}


def switch(program: str, guests: Sequence[Guest]) -> dict[str, Any]:
    """Switch to the other mode once; what is seen of the guests has to be as before."""
    before = {guest.name: guest.state(guest.seen["pid"]) for guest in guests}
    done = subprocess.run(
        [program, "paging", "switch", "--to", "other", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"switch: {done.stderr}")
    report: dict[str, Any] = json.loads(done.stdout)
    after = {each["name"]: each for each in report["guests"]}
    for guest in guests:
        guest.seen["pid"] = after[guest.name]["pid_after"]
        state = guest.state(guest.seen["pid"])
        assert state == before[guest.name], (before[guest.name], state)
        assert state["vhost"] == state["workers"] == 1, state
    return report


def main() -> None:
    files, crossings, names = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] or list(KINDS)
    program = str(files / "vtax-host")
    Path("/dev/kvm").chmod(0o660)
    os.chown("/dev/kvm", 0, KVM_GROUP)
    guests = []
    TRIAL.mkdir()
    for name in ("kernel", "initramfs"):
        # The folder of a test is closed to other users.
        shutil.copy(files / name, TRIAL / name)
    for number, name in enumerate(names):
        folder = TRIAL / name
        folder.mkdir()
        guests.append(KINDS[name](number, folder))
    for guest in guests:
        guest.start(files)
        guest.seen["pid"] = guest.process.pid
    for guest in guests:
        guest.waits()
        say(f"{guest.name} runs")
    reports = []
    for _ in range(crossings):
        time.sleep(1)
        reports.append(switch(program, guests))
        say(f"switched: {[each['pause_ms'] for each in reports[-1]['guests']]}")
    time.sleep(1)
    found = {guest.name: guest.ends() for guest in guests}
    print(json.dumps({"switches": reports, "guests": found}))


if __name__ == "__main__":
    main()
