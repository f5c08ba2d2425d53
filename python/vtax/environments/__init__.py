"""Environments by name. A new one is a file here and a line in this list."""

from vtax.environments import lab, native, qemu, uml
from vtax.environments.base import REGISTRY, Environment, build

__all__ = ["REGISTRY", "Environment", "build", "lab", "native", "qemu", "uml"]
