"""What the emulated AMD host needs beside QEMU and a kernel."""

from __future__ import annotations

from vtax.core.checks.host import Host
from vtax.core.checks.model import Check, Finding, State
from vtax.core.errors import VtaxError
from vtax.environments import packages, unpacked_qemu
from vtax.environments.emulated_host import plugins
from vtax.environments.emulated_host.contents import BUSYBOX_PATHS, busybox
from vtax.environments.emulated_host.emulator import svm_obstacle
from vtax.environments.lab import program
from vtax.environments.qemu_program import PROGRAM, QemuKernel


class Installed(Check):
    """Stock KVM on an emulated CPU, so that paging can be measured where there is no KVM."""

    name = "lab"
    purpose = "environment lab"

    def find(self, host: Host) -> Finding:
        qemu = host.which(PROGRAM)
        if not host.is_x86:
            return self.impossible(f"its machines are x86, and the agent is for {host.machine}")
        if qemu is None:
            return self.missing("QEMU is not installed", host.install("qemu-system-x86", "QEMU"))
        models, accelerators = (host.run([qemu, option, "help"]) for option in ("-cpu", "-accel"))
        if obstacle := svm_obstacle(models.stdout, accelerators.stdout):
            return self.missing(f"{qemu} {obstacle}", host.install("qemu-system-x86", "QEMU"))
        try:
            busybox([host.path(str(path)) for path in BUSYBOX_PATHS])
        except VtaxError as error:
            return self.missing(error.message, host.install("busybox-static", "a static busybox"))
        kernel = QemuKernel().find(host)
        if kernel.state is not State.OK:
            return self.missing(f"no kernel to boot: {kernel.detail}", kernel.remedy)
        if not self._kvm(host):
            return self.missing(
                "the kernel for guests has no module kvm_amd",
                "install the distribution's generic kernel",
            )
        needs = "1.5 GB of memory are needed"
        version = unpacked_qemu.version(host.run([qemu, "--version"]).stdout)
        if version is None or not program.is_wrong(version):
            return self.ok(f"{qemu} emulates SVM with nested paging; {needs}")
        if why := packages.obstacle(packages.DEBIAN_12, host.path("/")):
            half = f"nested paging only: {program.wrong(version)}, and {why}"
            return self.degraded(half, plugins.REMEDY)
        return self.ok(
            f"Debian 12's QEMU, fetched at first use, as {qemu} lacks shadow paging; {needs}"
        )

    def _kvm(self, host: Host) -> bool:
        """Whether the kernel has KVM. Where no kernel is there yet, the distribution's package will
        have it."""
        trees = host.glob("/lib/modules/*/kernel")
        trees += (host.cache / "vtax/kernels").glob("package-*/lib/modules/*/kernel")
        trees += (host.cache / "vtax/kernels").glob("package-*/usr/lib/modules/*/kernel")
        able = [tree for tree in trees if any(tree.glob("fs/9p/9p.ko*"))]
        return not able or any(any(tree.glob("arch/x86/kvm/kvm-amd.ko*")) for tree in able)
