"""Linux under Xen on an emulated machine, and without Xen (docs/environments.md)."""

from vtax.environments.xen.environment import Xen

__all__ = ["Xen"]
