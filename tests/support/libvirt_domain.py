"""A libvirt daemon of its own, and a virtual machine in it as people have one, for tests.

The daemon is the session daemon of a private folder, without root's one and without systemd. Its
domain is emulated (TCG), and boots the distribution's kernel and qemu-ga out of its memory.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import pytest

from process_watch import eventually
from vtax.environments import guest_kernel
from vtax.environments.initramfs import newc
from vtax.environments.kernel_image import ModuleTree
from vtax.environments.libvirt.domain import Domain

PATHS = os.environ.get("PATH", "") + ":/usr/sbin"
PROGRAMS = ("libvirtd", "virsh", "qemu-ga", "qemu-system-x86_64", "busybox")
BOOT_S = 90.0
NOBODY = 65534
_ORDINARY_USER = (
    ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    if os.geteuid() == 0
    else []
)
"""The daemon of root is not a session's."""
INIT = """\
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp; mkdir -p /run /var/run
for module in {modules}; do insmod /modules/$module.ko; done
while :; do
    for port in /sys/class/virtio-ports/*; do
        [ "$(cat $port/name)" = org.qemu.guest_agent.0 ] || continue
        qemu-ga --path /dev/${{port##*/}} {options}
    done
    sleep 0.2
done
"""
DOMAIN = """\
<domain type='qemu'>
  <name>{name}</name>
  <memory unit='MiB'>256</memory>
  <vcpu>1</vcpu>
  <os>
    <type arch='x86_64' machine='q35'>hvm</type>
    <kernel>{folder}/kernel</kernel>
    <initrd>{initramfs}</initrd>
    <cmdline>console=ttyS0 quiet panic=-1</cmdline>
  </os>
  <features><acpi/></features>
  <on_reboot>destroy</on_reboot>
  <devices>
    <emulator>{emulator}</emulator>
    <controller type='usb' model='none'/>
    <serial type='file'><source path='{folder}/{name}.console'/></serial>
    <channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>
    <memballoon model='none'/>
  </devices>
</domain>
"""


class LibvirtDaemon:
    """A running daemon; `variables` lead the programs of libvirt to it and to no other."""

    def __init__(self) -> None:
        found = {name: shutil.which(name, path=PATHS) for name in PROGRAMS}
        if lacking := [name for name, path in found.items() if path is None]:
            packages = "libvirt-daemon libvirt-daemon-driver-qemu libvirt-clients qemu-guest-agent"
            pytest.skip(f"no {', '.join(lacking)}: apt-get install {packages}")
        # A short path, as of a socket, which an ordinary user may enter.
        self.folder = folder = Path(tempfile.mkdtemp(prefix="vtax-libvirt-", dir="/tmp"))
        self._programs = {name: str(path) for name, path in found.items()}
        for each in ("run", "config", "config/libvirt", "cache"):
            (folder / each).mkdir(mode=0o700)
        socket = folder / "run/libvirt/libvirt-sock"
        self.uri = f"qemu+unix:///session?socket={socket}"
        # QEMU's words go to a file, not to one more daemon.
        (folder / "config/libvirt/qemu.conf").write_text('stdio_handler = "file"\n')
        kernel = guest_kernel.prepare()
        shutil.copy(kernel.kernel, folder / "kernel")
        tree = ModuleTree(kernel.tree)
        self._modules = dict(tree.closure(("virtio_pci", "virtio_console")))
        if os.geteuid() == 0:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, NOBODY, NOBODY)
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [*_ORDINARY_USER, self._programs["libvirtd"]],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment(),
            )
        assert eventually(socket.exists, 30), self._log()

    def _environment(self) -> dict[str, str]:
        own = {"RUNTIME_DIR": "run", "CONFIG_HOME": "config", "CACHE_HOME": "cache"}
        own = {f"XDG_{name}": str(self.folder / below) for name, below in own.items()}
        return {**os.environ, **own, "HOME": str(self.folder)}

    def _log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def virsh(self, *arguments: str, check: bool = True) -> str:
        done = subprocess.run(
            [self._programs["virsh"], "--connect", self.uri, *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0 or not check, f"{arguments}: {done.stderr}{self._log()}"
        return done.stdout

    def define(self, name: str, agent_options: Sequence[str] = ()) -> None:
        """Define a domain; it is shut off."""
        initramfs = self.folder / f"{name}.initramfs"
        initramfs.write_bytes(self._archive(agent_options))
        text = DOMAIN.format(
            name=name,
            folder=self.folder,
            initramfs=initramfs,
            emulator=self._programs["qemu-system-x86_64"],
        )
        path = self.folder / f"{name}.xml"
        path.write_text(text)
        self.virsh("define", str(path))

    def start(self, name: str) -> None:
        """Start a domain, and wait until its guest agent answers."""
        self.virsh("start", name)
        ping = ("qemu-agent-command", name, '{"execute":"guest-ping"}')
        console = self.folder / f"{name}.console"
        answered = eventually(lambda: "return" in self.virsh(*ping, check=False), BOOT_S)
        assert answered, console.read_text(errors="replace")

    def inside(self, name: str, script: str) -> str:
        """What a shell in the guest prints."""
        domain = Domain(name, self.uri)
        code, out, err = domain.ended(domain.execute("-c", script), 20)
        assert code == 0, err
        return out

    def left(self, name: str) -> str:
        """What vtax has left in a guest and of ports; nothing when all is well."""
        ports = [line for line in self.virsh("dumpxml", name).splitlines() if "'vtax-" in line]
        return self.inside(name, "ls /tmp; ps | grep '[v]tax-agent' || true") + "".join(ports)

    def _archive(self, options: Sequence[str]) -> bytes:
        """An initramfs with busybox, qemu-ga and its libraries."""
        files = {"bin/busybox": Path(self._programs["busybox"])}
        files["bin/qemu-ga"] = agent = Path(self._programs["qemu-ga"])
        said = subprocess.run(["ldd", str(agent)], capture_output=True, text=True, check=True)
        for word in said.stdout.split():
            if word.startswith("/"):
                files[word.lstrip("/")] = Path(word)
        programs = {name: path.read_bytes() for name, path in files.items()}
        for name, content in self._modules.items():
            programs[f"modules/{name}.ko"] = content
        init = INIT.format(modules=" ".join(self._modules), options=" ".join(options))
        programs["init"] = init.encode()
        folders = {str(parent) for name in programs for parent in Path(name).parents}
        folders |= {"proc", "sys", "dev", "tmp"}
        return newc(programs, tuple(sorted(folders - {"."})))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for name in self.virsh("list", "--name", check=False).split():
            self.virsh("destroy", name, check=False)
        self._process.terminate()
        self._process.wait(30)
        shutil.rmtree(self.folder)
