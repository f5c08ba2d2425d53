"""Environments by name. A new one is a file here and a name in `base.BUILT_IN`."""

from vtax.environments.base import BASELINE, Environment, build, registry

__all__ = ["BASELINE", "Environment", "build", "registry"]
