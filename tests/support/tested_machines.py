"""The machines that tests start, and what the tests give their commands."""

from __future__ import annotations

import os

import pytest

from vtax.core.errors import VtaxError
from vtax.environments import Environment, build
from vtax.workloads.base import Outcome

REAL = ("native:cpus=1,mem=512M", "uml:mem=256M", "qemu:accel=tcg,mem=512M")
"""One machine of each kind with a kernel of its own, and the baseline, small enough to boot
often."""
CONTAINED = ("container:cpus=1,mem=512M", "gvisor:cpus=1,mem=512M")
"""Machines that a container's runtime starts."""
LOCAL = REAL + CONTAINED

OUTCOME = Outcome(
    wall_s=1.0,
    instructions=None,
    instructions_user=None,
    cycles=None,
    tsc_ticks=3_000_000_000,
    user_s=0.9,
    system_s=0.05,
    steal_s=None,
    max_rss_bytes=1000,
    minor_faults=1,
    major_faults=0,
    voluntary_switches=1,
    involuntary_switches=1,
    exit_code=0,
    signal=None,
    timed_out=False,
)
"""The outcome of a command that succeeded; tests change the fields that they are about."""

GUEST_ENVIRONMENT = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LANG": "C.UTF-8"}


def checked(spec: str) -> Environment:
    """The environment, or a skip with the reason why this machine cannot provide it."""
    environment = build(spec)
    try:
        environment.check()
    except VtaxError as error:
        pytest.skip(f"{spec}: {error}")
    return environment


HUNGRY = "x = bytearray(400 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1"
"""A program that touches 400 MiB."""
