"""Virtual machines that libvirt runs (docs/environments.md)."""

from vtax.environments.libvirt.environment import Libvirt

__all__ = ["Libvirt"]
