"""Runs in an S3-compatible store, here moto's server on loopback."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import fleet_data
from command_line import vtax

pytest.importorskip("obstore", reason="obstore is not installed: pip install 'vtax[dev]'")
pytest.importorskip("moto.server", reason="moto is not installed: pip install 'vtax[dev]'")
pytest.importorskip("flask_cors", reason="flask-cors is not installed: pip install 'vtax[dev]'")


@pytest.fixture(scope="module")
def store() -> Iterator[dict[str, str]]:
    """The variables that lead to a server with the bucket `bucket`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    argv = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{url}/moto-api/", timeout=5).close()
                break
            except OSError:
                time.sleep(0.1)
        made = urllib.request.Request(f"{url}/bucket", method="PUT")
        urllib.request.urlopen(made, timeout=60).close()
        yield {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
    finally:
        server.kill()
        server.wait()


def put(store: dict[str, str], folder: Path, prefix: str) -> None:
    from obstore.store import S3Store

    to = S3Store(
        "bucket",
        endpoint=store["AWS_ENDPOINT_URL"],
        access_key_id="test",
        secret_access_key="test",
        region="us-east-1",
        client_options={"allow_http": True},
    )
    for path in folder.rglob("*"):
        if path.is_file():
            to.put(f"{prefix}/{path.relative_to(folder)}", path.read_bytes())


def test_a_bucket_gives_what_its_folders_give(store: dict[str, str], tmp_path: Path) -> None:
    for number in range(3):
        fleet_data.host(tmp_path, f"web{number}", 80.0 - 10 * number, analysed=number == 1)
    put(store, tmp_path, "vtax")
    for more in ((), ("--query", "SELECT host, value FROM samples ORDER BY value")):
        here = vtax("fleet", str(tmp_path), "--json", *more)
        there = vtax("fleet", "s3://bucket/vtax", "--json", *more, environment=store)
        assert there.returncode == 0, there.stderr
        text = there.stdout.replace("s3://bucket/vtax", str(tmp_path))
        assert json.loads(text) == json.loads(here.stdout)


def test_damaged_and_too_large_objects_cost_a_line(
    store: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vtax.fleet import bucket
    from vtax.fleet.runs import find

    fleet_data.host(tmp_path / "runs", "good", 80.0)
    large = fleet_data.host(tmp_path / "runs", "large", 80.0)
    (large / "run.json").write_text("x" * 20_000)
    put(store, tmp_path / "runs", "bad")
    for name, value in store.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setitem(bucket.LIMITS, "run.json", 10_000)
    found = find(["s3://bucket/bad"], tmp_path, with_samples=False)
    assert [run.host for run in found.runs] == ["good"]
    (line,) = found.unreadable
    assert line.startswith("s3://bucket/bad/large") and "is larger than" in line
    assert not [path for path in tmp_path.rglob("run.json") if path.stat().st_size == 20_000
                and tmp_path / "runs" not in path.parents]  # fmt: skip


@pytest.mark.parametrize(
    ("url", "code", "said"),
    [
        ("s3://nothing/x", 1, "cannot list s3://nothing/x"),
        ("s3://bucket/empty", 2, "there is no run folder"),
        ("s3://", 2, "names no bucket"),
    ],
)
def test_a_wrong_url_is_one_line(store: dict[str, str], url: str, code: int, said: str) -> None:
    done = vtax("fleet", url, environment=store)
    assert (done.returncode, done.stderr.count("\n")) == (code, 1)
    assert said in done.stderr
