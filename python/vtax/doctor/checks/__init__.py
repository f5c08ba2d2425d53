"""The checks; importing a module registers its checks, in the order in which they are shown."""

# isort: off
from vtax.doctor.checks import environments
from vtax.doctor.checks import lab
from vtax.doctor.checks import workloads
from vtax.doctor.checks import events
from vtax.doctor.checks import clocks
from vtax.doctor.checks import processor
from vtax.doctor.checks import limits

__all__ = ["clocks", "environments", "events", "lab", "limits", "processor", "workloads"]
