"""The limit on what a workload writes into its folder: the count, and the clear end in real
machines."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from command_line import vtax
from tested_machines import checked
from vtax.environments.output_limit import OutputLimit, OutputLimitError, allocated

MIB = 1 << 20


def test_what_is_allocated_is_counted_and_links_are_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "a/b").mkdir(parents=True)
    empty = allocated(folder)
    (folder / "a/b/file").write_bytes(os.urandom(MIB))
    with (folder / "sparse").open("wb") as sparse:
        sparse.truncate(1 << 40)
    (tmp_path / "outside").write_bytes(os.urandom(MIB))
    (folder / "link").symlink_to(tmp_path)
    assert MIB <= allocated(folder) - empty < 1.1 * MIB
    assert allocated(tmp_path / "absent") == 0


MESSAGE = "stopped: wrote more than 1 MiB into its result folder; --max-output to raise"


@pytest.mark.parametrize("where", ["r1", "elsewhere"])
def test_only_what_is_new_counts(
    tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vtax.environments.output_limit.EVERY_S", 0.0)
    for name in ("r0", "r1", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "r0/before").write_bytes(os.urandom(2 * MIB))
    limit = OutputLimit(tmp_path, "r1", MIB)
    assert limit.check() >= 0
    (tmp_path / where / "after").write_bytes(os.urandom(MIB))
    with pytest.raises(OutputLimitError, match=MESSAGE):
        limit.check()


def test_a_short_command_is_judged_by_its_results(tmp_path: Path) -> None:
    (tmp_path / "r1").mkdir()
    limit = OutputLimit(tmp_path, "r1", MIB)
    (tmp_path / "r1/much").write_bytes(os.urandom(MIB))
    assert limit.check() > 0
    with pytest.raises(OutputLimitError, match=MESSAGE):
        limit.end()


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["native", "uml:mem=256M", "qemu:accel=tcg,mem=512M"])
@pytest.mark.parametrize("size_mib", [4, 64], ids=["in many files", "in one file"])
def test_a_runaway_writer_is_stopped(tmp_path: Path, spec: str, size_mib: int) -> None:
    checked(spec)
    # The program ends by itself after 512 MiB.
    write = f"head -c {size_mib}M /dev/zero > $i || exit 1; i=$((i+1))"
    script = f"cd $VTAX_RESULTS; i=0; while [ $i -lt {512 // size_mib} ]; do {write}; done"
    argv = ["--in", spec, "--baseline", "none", "--no-control", "--no-warm-up", "--reps", "1"]
    argv += ["--max-output", "16M", "--out", str(tmp_path), "--json", "--quiet"]
    done = vtax("compare", *argv, "--", "sh", "-c", script)
    assert done.returncode == 1, done.stderr
    (folder,) = tmp_path.glob("*")
    record = json.loads((folder / "run.json").read_text())
    (failure,) = record["failures"]
    end = "stopped: wrote more than 16 MiB into its result folder; --max-output to raise"
    assert failure["message"] == end
    assert allocated(folder / "raw") < 480 * MIB
