"""What guests need: kernels and machines to run them in, and the box that holds them."""

from __future__ import annotations

import errno
import os
import re

from vtax.doctor.host import Host
from vtax.doctor.model import Check, Finding, register

KVM_API = 12
"""The only version since 2007; another one is no KVM that QEMU can use."""


@register
class BareMetal(Check):
    """A percentage of `native` is a percentage of what this machine is, not of the hardware."""

    name = "bare-metal"
    purpose = "what 'native' means"

    def find(self, host: Host) -> Finding:
        vendor = host.read("/sys/class/dmi/id/sys_vendor")
        product = host.read("/sys/class/dmi/id/product_name")
        model = " ".join(part for part in (vendor, product) if part)
        hypervisor = host.read("/sys/hypervisor/type")
        if not host.cpu_flags:
            return self.degraded("not known: /proc/cpuinfo lists no CPU flags")
        if not host.is_guest and hypervisor is None:
            return self.ok(f"this is the hardware itself{f' ({model})' if model else ''}")
        what = ", ".join(part for part in (hypervisor, model) if part)
        return self.degraded(
            f"this host is itself a guest{f' ({what})' if what else ''}: "
            "'native' is not bare metal here",
            "measure on bare metal, or say so beside every figure (the report does)",
        )


@register
class UserModeLinux(Check):
    """The paravirtualized guest that needs neither hardware support nor root."""

    name = "uml"
    purpose = "environment uml"

    def find(self, host: Host) -> Finding:
        program = host.which("linux.uml")
        if program is None:
            return self.missing(
                "linux.uml is not installed", host.install("user-mode-linux", "user-mode Linux")
            )
        output = host.run([program, "--version"])
        if output.code != 0:
            return self.missing(
                f"{program} does not run: {output.last_error}",
                host.install("--reinstall user-mode-linux", "user-mode Linux anew"),
            )
        # It runs guest processes under ptrace.
        scope = host.read("/proc/sys/kernel/yama/ptrace_scope")
        if scope == "3":
            return self.impossible("kernel.yama.ptrace_scope is 3: no ptrace until a restart")
        if scope == "2" and host.euid != 0:
            return self.missing(
                "kernel.yama.ptrace_scope is 2: only root may use ptrace",
                "sysctl kernel.yama.ptrace_scope=1",
            )
        return self.ok(f"{program}, Linux {output.first_line}, 1 CPU")


@register
class Bubblewrap(Check):
    """Guests run in it: it is what keeps a hostile guest from the host's files."""

    name = "bubblewrap"
    purpose = "the read-only box of every guest"

    def find(self, host: Host) -> Finding:
        program = host.which("bwrap")
        if program is None:
            return self.missing("bwrap is not installed", host.install("bubblewrap", "bubblewrap"))
        # The namespaces that vtax asks for; a version number would not tell whether they are let.
        box = ["--ro-bind", "/", "/", "--unshare-net", "--unshare-pid", "--unshare-ipc"]
        output = host.run([program, *box, "--unshare-uts", "--cap-drop", "ALL", "true"])
        if output.code == 0:
            return self.ok(f"{program} makes a read-only box without network")
        return self.missing(*self._reason(host, output.last_error))

    def _reason(self, host: Host, error: str) -> tuple[str, str | None]:
        for setting, forbids, wanted in (
            ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),  # Ubuntu since 23.10
            ("kernel.unprivileged_userns_clone", "0", "1"),  # Debian's own switch
            ("user.max_user_namespaces", "0", "10000"),
        ):
            if host.read(f"/proc/sys/{setting.replace('.', '/')}") == forbids:
                return (
                    f"user namespaces are forbidden: {setting} is {forbids} ({error})",
                    f"sysctl {setting}={wanted} (as root)",
                )
        return f"bwrap cannot make its box: {error}", "run vtax outside of the container it is in"


@register
class Qemu(Check):
    """The full-system guest: emulated (TCG) anywhere, or at speed with KVM."""

    name = "qemu"
    purpose = "environment qemu"

    def find(self, host: Host) -> Finding:
        program = host.which("qemu-system-x86_64")
        if program is None:
            return self.missing(
                "qemu-system-x86_64 is not installed", host.install("qemu-system-x86", "QEMU")
            )
        output = host.run([program, "--version"])
        version = re.search(r"version (\S+)", output.first_line)
        if output.code != 0 or version is None:
            return self.missing(
                f"{program} does not run: {output.last_error}",
                host.install("--reinstall qemu-system-x86", "QEMU anew"),
            )
        return self.ok(f"{program}, version {version[1]}")


@register
class QemuKernel(Check):
    """The full-system guest boots a kernel of this distribution, with its modules."""

    name = "qemu-kernel"
    purpose = "environment qemu"

    def find(self, host: Host) -> Finding:
        unreadable = None
        for image in reversed(host.glob("/boot/vmlinuz-*")):
            release = image.name.removeprefix("vmlinuz-")
            # A cloud kernel has no 9p, by which the guest sees the host's tree.
            if "/9p.ko" not in (host.read(f"/lib/modules/{release}/modules.dep") or ""):
                continue
            if os.access(image, os.R_OK):
                return self.ok(f"/boot/{image.name}")
            unreadable = image.name
        cached = sorted((host.cache / "vtax/kernels").glob("package-*/boot/vmlinuz-*"))
        if cached:
            return self.ok(f"{cached[-1].name}, in the cache of vtax")
        if host.uses_apt:
            # vtax unpacks the package into its cache, which needs no root.
            if host.glob("/var/lib/apt/lists/*_Packages*"):
                return self.ok(
                    "the distribution's package, fetched at first use (apt-get download)"
                )
            return self.missing("apt has no package lists to fetch a kernel by", "apt-get update")
        if unreadable:
            return self.missing(
                f"/boot/{unreadable} may be read by root alone", f"chmod a+r /boot/{unreadable}"
            )
        return self.missing(
            "no kernel with a 9p module in /boot", "install a kernel package of the distribution"
        )


@register
class Kvm(Check):
    """Presence is no proof: a device may be there that cannot run an ordinary kernel."""

    name = "kvm"
    purpose = "environment qemu:accel=kvm"

    def find(self, host: Host) -> Finding:
        hardware = host.cpu_flags & {"vmx", "svm"}
        device = host.path("/dev/kvm")
        if not device.exists():
            if hardware:
                module = "kvm_intel" if "vmx" in hardware else "kvm_amd"
                return self.missing("the CPU can, but there is no /dev/kvm", f"modprobe {module}")
            where = "the hypervisor above" if host.is_guest else "the CPU or its firmware setting"
            return self.impossible(f"no /dev/kvm and no vmx or svm: {where} does not offer it")
        try:
            version = host.kvm_version(device)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM):
                return self.missing(
                    "/dev/kvm is there, but not for this user", "usermod -aG kvm USER, new login"
                )
            return self.impossible(f"/dev/kvm does not open: {error.strerror}")
        if version != KVM_API:
            return self.impossible(f"/dev/kvm answers as version {version}, not {KVM_API}")
        if not hardware:
            return self.degraded(
                "/dev/kvm answers, but the CPU shows neither vmx nor svm: guests may hang or crawl",
                "use qemu:accel=auto, which tries a short boot first",
            )
        return self.ok("/dev/kvm answers; a short boot decides before it is used")
