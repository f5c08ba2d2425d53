"""Workloads by name. A new one is a file here and a line in this list."""

from vtax.workloads import command, dgemm, hpcc, stream
from vtax.workloads.registry import names, parse, register

__all__ = ["command", "dgemm", "hpcc", "names", "parse", "register", "stream"]
