"""Nodes of a cluster that Slurm allocates (docs/environments.md)."""

from vtax.environments.slurm.environment import Slurm

__all__ = ["Slurm"]
