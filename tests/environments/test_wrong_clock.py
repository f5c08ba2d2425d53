"""A machine over ssh whose wall clock is five minutes ahead: nothing that vtax says follows it."""

from __future__ import annotations

import contextlib
import csv
import os
import shlex
import shutil
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from command_line import run
from ssh_server import SSHD, keygen
from tested_machines import GUEST_ENVIRONMENT, checked
from vtax.core.formats.exchange import Exchange
from vtax.core.formats.folder import load
from vtax.environments.agent import REQUEST_TIMEOUT_S
from vtax.environments.capabilities import Link
from vtax.environments.machine import Machine

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="a guest's link needs root"),
    pytest.mark.skipif(
        not (SSHD and shutil.which("busybox")), reason="apt-get install openssh-server busybox"
    ),
]
AHEAD_S = 300.0
CONFIGURATION = """\
Port 2222
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
StrictModes no
UsePAM no
PermitRootLogin yes
PidFile none
"""
# A guest does not see this machine's passwords; without any, sshd takes its root for locked.
SERVE = """\
rm -f /etc/shadow && echo 'root:*:19000:0:99999:7:::' >/etc/shadow
mkdir -p /run/sshd && exec {sshd} -f {folder}/sshd_config
"""


@pytest.fixture(scope="module")
def ahead(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The spec of the machine, which is user-mode Linux: a kernel with a wall clock of its own."""
    here = tmp_path_factory.mktemp("ahead")
    (here / "work").mkdir()
    for name in ("host", "user"):
        keygen(name, here)
    environment = checked("uml:net=vde,mem=512M")
    with contextlib.closing(environment.start(here / "work", [0])) as machine:
        assert isinstance(machine, Machine)
        machine._agent.request("clock", REQUEST_TIMEOUT_S, realtime_s=time.time() + AHEAD_S)
        inside = machine.launch.work_inside / "sshd"
        exchange = Exchange(here / "work", "sshd")
        exchange.create(
            {name: (here / name).read_bytes() for name in ("host", "user.pub")}
            | {"sshd_config": CONFIGURATION.format(folder=inside).encode()}
        )
        script = SERVE.format(sshd=SSHD, folder=inside)
        machine.run(("/bin/sh", "-c", script), GUEST_ENVIRONMENT, "sshd", 30, leave=True)
        link = machine.offer(Link)
        assert link is not None, exchange.read_text("stderr")
        proxy = shlex.join(link.client(["busybox", "nc", link.address, "2222"]))
        (here / "config").write_text(
            f"Host ahead\nProxyCommand {proxy}\nIdentityFile {here / 'user'}\nUser root\n"
            f"UserKnownHostsFile {here / 'known'}\nStrictHostKeyChecking accept-new\n"
        )
        yield f"ssh:ahead,config={here / 'config'},dir=/run"


def test_durations_order_and_dates_do_not_follow_it(
    ahead: str, environment: dict[str, str], tmp_path: Path
) -> None:
    begin, runs = datetime.now(UTC), tmp_path / "runs"
    argv = ["compare", "--baseline", "native:cpus=1", "--reps", "2", "--no-warm-up"]
    argv += ["--metric", "clock:s:higher=clock ([0-9]+)", "--no-control", "--out", str(runs)]
    program = ["--", "sh", "-c", "sleep 0.3; echo clock $(date +%s)"]
    done = run(environment, *argv, "--in", ahead, *program)
    assert done.returncode == 0, done.stderr
    end = datetime.now(UTC)
    (first,) = runs.iterdir()
    record, samples = load(first)
    assert record.state == "complete" and not record.failures
    # The programs do see the wrong clock.
    clocks = [(each.environment, each.value) for each in samples if each.metric == "clock"]
    assert sorted(each for each, seen in clocks if seen > begin.timestamp() + 200) == [ahead] * 2
    walls = [each.value for each in samples if each.metric == "wall_s"]
    assert len(walls) == 4 and all(0.3 <= each < 30 for each in walls)
    times = [datetime.fromisoformat(str(t)) for t in (record.started_utc, record.finished_utc)]
    assert begin.replace(microsecond=0) <= times[0] <= times[1] <= end
    # A later run comes later, and is held against it.
    against = ["--in", "native:cpus=1", "--against", str(first), "--fail-over", "90%"]
    done = run(environment, *argv, *against, *program)
    assert done.returncode == 0, done.stderr
    (second,) = set(runs.iterdir()) - {first}
    table = tmp_path / "all.csv"
    done = run(environment, "history", str(second), str(first), "--out", str(table))
    assert done.returncode == 0, done.stderr
    found = [row["time"] for row in csv.DictReader(table.open())]
    assert found == [load(each)[0].started_utc for each in (first, second)]
