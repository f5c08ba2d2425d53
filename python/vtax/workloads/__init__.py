"""Workloads by name. A new workload is a file here and a name in `registry.BUILT_IN`."""

from vtax.workloads.registry import names, parse, registry

__all__ = ["names", "parse", "registry"]
