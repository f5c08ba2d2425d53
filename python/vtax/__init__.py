"""vtax measures what virtualization costs a workload, and whether to believe the number."""

__version__ = "0.1.0"
