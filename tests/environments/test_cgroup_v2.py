"""What forks without end under control groups of version 2, and without one, in a guest of its own.

It never runs on this machine: the guest's limit of processes is its own.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tested_machines import GUEST_ENVIRONMENT
from vtax.core.formats.exchange import Exchange
from vtax.environments import Environment
from vtax.environments.machine import Machine

pytestmark = pytest.mark.slow

Start = Callable[[str | Environment], Machine]

SPEC = "qemu:accel=tcg,mem=512M"
MOST = 60
PREPARE = """set -e
mount -t cgroup2 none /sys/fs/cgroup
cp /run/vtax/vtax-agent /run/agent; chmod 755 /run/agent
mkdir /run/all; chmod 777 /run/all"""
RELAYS = """: RELAY; cd /run/all; own=$(cut -d: -f3 /proc/self/cgroup)
group=/sys/fs/cgroup${own%/}; echo $group > group
echo $(cat $group/pids.max) $(cd $group; ls cgroup.kill) > limits
next() { [ $1 -gt 0 ] && next $(($1 - 1)) & }
for i in 1 2 3 4 5 6 7 8 9 10; do next 20000; done
echo > begun; sleep 60"""
"""Ten processes at a time, each of which forks the next one and ends."""
LEFT = "grep -l '[R]ELAY' /proc/[0-9]*/cmdline || echo none"
GROUPS = "find /sys/fs/cgroup -name 'vtax-[0-9]*'"
AS_NOBODY = "setpriv --reuid 65534 --regid 65534 --clear-groups"


class Guest:
    """A guest with cgroup2 alone, and its shell."""

    def __init__(self, machine: Machine, work: Path) -> None:
        self._machine, self._work, self._runs = machine, work, 0
        assert self.shell(PREPARE) == ("", "")

    def shell(self, script: str) -> tuple[str, str]:
        """What a script printed on its two outputs."""
        exchange = Exchange(self._work, f"r{self._runs}")
        self._runs += 1
        exchange.create({})
        argv = ["/bin/sh", "-c", script]
        self._machine.run(argv, GUEST_ENVIRONMENT, exchange.name, timeout_s=180)
        return exchange.read_text("stdout"), exchange.read_text("stderr")


@pytest.fixture
def guest(start: Start, tmp_path: Path) -> Guest:
    return Guest(start(SPEC), tmp_path / "work0")


def agent(options: str) -> str:
    """A command line of the guest's agent that runs the relays."""
    return f"/run/agent run --pids {MOST} {options} -- sh -c {shlex.quote(RELAYS)}"


def test_version_2_ends_what_forks_without_end(guest: Guest) -> None:
    # The group has cgroup.kill, so nothing has to be frozen and found.
    said, errors = guest.shell(agent("--timeout 8s"))
    assert json.loads(said)["timed_out"] is True, errors
    assert guest.shell("cat /run/all/limits")[0] == f"{MOST} cgroup.kill\n"
    assert guest.shell(LEFT)[0] == "none\n"
    assert guest.shell(GROUPS)[0] == ""

    # An agent that is itself killed cannot end them; the next agent does.
    wait = "while [ ! -e /run/all/begun ]; do sleep 0.1; done"
    count = "wc -l < $(cat /run/all/group)/cgroup.procs"
    kill = f"rm -f /run/all/begun; exec {agent('')} & {wait}; kill -9 $!; wait; {count}"
    said, errors = guest.shell(f"{kill}; /run/agent sweep; {GROUPS}")
    left, removed = map(int, said.split())
    assert left > 0 and removed == 1, errors


def test_a_user_without_a_delegated_group_is_told_and_all_ends(guest: Guest) -> None:
    said, errors = guest.shell(f"cd /run/all; {AS_NOBODY} {agent('--timeout 5s')}")
    assert json.loads(said)["timed_out"] is True, errors
    assert "run as root or under systemd-run --user --scope -p Delegate=yes" in errors
    assert f"; instead the user may have {MOST + 1} in all" in errors
    assert guest.shell("cat /run/all/group")[0] == "/sys/fs/cgroup\n"
    assert guest.shell(LEFT)[0] == "none\n"
