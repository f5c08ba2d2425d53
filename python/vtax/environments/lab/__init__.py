"""Stock KVM on an emulated AMD machine, with nested guests in it (docs/environments.md)."""

from vtax.environments.lab.environment import Lab

__all__ = ["Lab"]
