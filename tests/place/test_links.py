"""The use of guests' links on hosts that are a folder."""

from __future__ import annotations

from pathlib import Path

from place_hosts import threads
from vtax.place.links import used

HEAD = "Inter-|   Receive\n face |bytes\n"
DOMAIN = "process 23741"


def host(root: Path, received: int, sent: int, iff: str = "iff:\ttap0\n") -> Path:
    folder = root / "proc/23741"
    (folder / "fdinfo").mkdir(parents=True, exist_ok=True)
    (folder / "net").mkdir(exist_ok=True)
    (folder / "fdinfo/7").write_text(f"pos:\t0\nflags:\t0104002\n{iff}")
    (folder / "net/dev").write_text(
        f"{HEAD}    lo: 9 1 0 0 0 0 0 0 9 1 0 0 0 0 0 0\n"
        f"  tap0: {received} 1 0 0 0 0 0 0 {sent} 1 0 0 0 0 0 0\n"
    )
    return root


def test_the_busier_direction_counts(tmp_path: Path) -> None:
    with used(threads("uml_vde"), 1e6, host(tmp_path, 1000, 1000)) as found:
        host(tmp_path, 2000, 101_000)
    assert list(found) == [DOMAIN] and found[DOMAIN] > 0
    with used(threads("uml_vde"), 1e6, tmp_path) as still:
        pass
    assert still == {DOMAIN: 0.0}


def test_what_is_not_known_is_left_out(tmp_path: Path) -> None:
    with used(threads("uml_vde"), None, host(tmp_path, 1, 1)) as without_rate:
        pass
    with used(threads("uml_vde"), 1e6, host(tmp_path, 1, 1, iff="")) as without_tap:
        pass
    with used(threads("uml_vde"), 1e6, host(tmp_path, 1, 1, iff="iff:\ttap9\n")) as elsewhere:
        pass
    with used(threads("uml_vde"), 1e6, host(tmp_path, 1, 1)) as ended:
        (tmp_path / "proc/23741/net/dev").unlink()
    assert without_rate == without_tap == elsewhere == ended == {}
