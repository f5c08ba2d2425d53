"""Secrets of the host: which of them are hidden from guests, and that no guest can read them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tested_machines import CONTAINED, GUEST_ENVIRONMENT, REAL, checked
from vtax.core import binaries
from vtax.core.errors import MisuseError
from vtax.core.formats.exchange import Exchange
from vtax.environments import Environment, build, sharing
from vtax.environments.hiding import Shown, View, view
from vtax.environments.machine import Machine

Start = Callable[[str | Environment], Machine]
GUESTS = (*REAL[1:], *CONTAINED)
PASSWD = """\
root:x:0:0::/root:/bin/sh
bin:x:2:2::/bin:/usr/sbin/nologin
daemon:x:1001:1::/usr/sbin:/usr/sbin/nologin
ann:x:1002:1002::/export/people/ann:/bin/sh
web:x:1003:1003::/srv:/bin/sh
none:x:1004:1004::/:/bin/sh
odd:x:1005:1005::/exp*/[a]/b:/bin/sh
nobody:x:65534:65534::/export/nobody:/bin/sh
broken
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    files = (
        "etc/shadow", "etc/shadow-", "etc/sudoers", "etc/hosts", "etc/ssh/ssh_host_rsa_key",
        "etc/ssh/ssh_host_rsa_key.pub", "etc/ssl/private/key.pem", "etc/ssl/certs/ca.pem",
        "root/.bashrc", "home/bob/.ssh/id_rsa", "home/bob/.cargo/credentials.toml",
        "home/bob/project/main.c", "export/people/ann/mail", "export/nobody/x", "srv/www",
        "usr/sbin/x", "exp/a/b/x",
    )  # fmt: skip
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "etc/passwd").write_text(PASSWD)
    return tmp_path


def hidden(found: View, *names: str) -> list[str]:
    return [name for name in names if found.hides(Path(name))]


def test_secrets_and_homes_are_hidden_and_all_else_is_seen(root: Path) -> None:
    found = view(Shown(), root, Path("/home/bob"))
    secret = [
        "/etc/shadow", "/etc/shadow-", "/etc/sudoers", "/etc/ssh/ssh_host_rsa_key",
        "/etc/ssl/private/key.pem", "/home/bob/.ssh/id_rsa", "/home/bob/project/main.c",
        "/home/new", "/export/people/ann/mail", str(Path("/", "root", ".bashrc")),
    ]  # fmt: skip
    assert hidden(found, *secret) == secret
    seen = (
        "/", "/etc", "/etc/hosts", "/etc/passwd", "/etc/ssh/ssh_host_rsa_key.pub",
        "/etc/ssl/certs/ca.pem", "/srv/www", "/usr/sbin/x", "/bin/sh", "/export/nobody/x",
        "/exp/a/b/x",
    )  # fmt: skip
    assert hidden(found, *seen) == []
    # Nothing is covered twice: each mount costs time, and inside a covered folder there is no mount
    # point.
    assert Path("/home/bob/.ssh") not in found.covered


@pytest.mark.parametrize("home", ["/", "/tmp", "/srv", "/usr/share/me", "relative/home", "/../.."])
def test_a_folder_of_the_system_is_no_home(root: Path, home: str) -> None:
    assert view(Shown(), root, Path(home)) == view(Shown(), root, Path("/home/bob"))


def test_the_working_folder_is_seen_and_what_lies_beside_it_is_not(root: Path) -> None:
    found = view(Shown(Path("/home/bob/project")), root)
    assert not found.hides(Path("/home/bob/project/main.c"))
    assert hidden(found, "/home/bob/.ssh/id_rsa", "/home/ann", "/home/bob") == [
        "/home/bob/.ssh/id_rsa", "/home/ann", "/home/bob",
    ]  # fmt: skip


@pytest.mark.parametrize("working", ["/home/bob", "/home", "/"])
def test_keys_are_hidden_also_in_a_working_folder(root: Path, working: str) -> None:
    found = view(Shown(Path(working)), root)
    keys = ("/home/bob/.ssh/id_rsa", "/home/bob/.cargo/credentials.toml", "/etc/shadow")
    assert hidden(found, *keys) == list(keys)
    assert found.hides(Path("/home/bob/project")) == (working != "/home/bob")


def test_what_is_shared_is_seen_with_all_in_it(root: Path) -> None:
    found = view(Shown(None, (Path("/home/bob"), Path("/etc/shadow"))), root)
    assert hidden(found, "/home/bob/.ssh/id_rsa", "/etc/shadow", "/etc/shadow-", "/home/ann") == [
        "/etc/shadow-", "/home/ann",
    ]  # fmt: skip
    everything = view(Shown(None, (Path("/"),)), root)
    assert everything == View({})


def test_a_home_that_is_a_link_is_hidden_where_it_leads(root: Path) -> None:
    (root / "disk2").mkdir()
    (root / "home").rename(root / "disk2/home")
    (root / "home").symlink_to("disk2/home")
    found = view(Shown(), root)
    assert found.hides(Path("/disk2/home/bob/.ssh/id_rsa"))


def test_vtax_is_seen_wherever_it_is_installed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "FOLDER", Path("/home/bob/venv/vtax/_bin"))
    found = view(Shown(), root)
    assert not found.hides(Path("/home/bob/venv/vtax/_bin/vtax-agent"))
    assert found.hides(Path("/home/bob/venv/secret"))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of vtax's user with a key, and a project in it."""
    home = tmp_path / "people/me"
    for name, content in (
        (".ssh/id", "the-key"), ("letter", "the-letter"), ("project/data", "the-data"),
        ("tools/bin/tool", "#!/bin/sh\necho the-tool\n"),
    ):  # fmt: skip
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(content)
    (home / "tools/bin/tool").chmod(0o755)
    monkeypatch.setenv("HOME", str(home))
    return home


def test_a_program_in_a_hidden_folder_is_refused_with_what_to_share(home: Path) -> None:
    tool, link = home / "tools/bin/tool", home.parent / "link"
    link.symlink_to(tool)
    machines = {"native": build("native"), "uml": build("uml")}
    for program in (tool, link, home / "project/../tools/bin/tool"):
        with pytest.raises(MisuseError) as caught:
            sharing.require_seen(machines, program)
        assert f"hidden from uml; --share {home}/tools" in str(caught.value)
    sharing.require_seen(machines, Path("/bin/sh"))
    sharing.require_seen({"native": build("native"), "c": build("container:image=x")}, tool)
    shared = {"uml": build("uml").with_shown(Shown(None, (home / "tools",)))}
    sharing.require_seen(shared, tool)
    # The message does not propose the home itself for a program in its bin.
    (home / "bin").mkdir()
    with pytest.raises(MisuseError, match=f"--share {home}/bin$"):
        sharing.require_seen(machines, home / "bin/tool")


@pytest.mark.parametrize(
    ("spec", "path", "message"),
    [
        ("uml", "/nonexistent", "--share /nonexistent: it does not exist"),
        ("uml", "/dev/null", "--share /dev/null: uml has its own /dev/null"),
        ("native", "/etc", "no environment here hides this machine's files"),
        ("ssh:x", "/etc", "no environment here hides this machine's files"),
        ("container:image=x", "/etc", "no environment here hides this machine's files"),
    ],
)
def test_what_cannot_be_shared_is_refused(spec: str, path: str, message: str) -> None:
    with pytest.raises(MisuseError, match=message):
        sharing.shown({spec: build(spec)}, [Path(path)])


READ = """
export LIBMOUNT_FORCE_MOUNT2=always  # the newer calls of util-linux 2.39 refuse hostfs's options
mkdir -p /tmp/m
for root in '' /tmp/m; do
    cat {home}/letter $root{home}/.ssh/id $root/etc/shadow $root{home}/project/data
    umount {home} {home}/.ssh /etc/shadow
    mount -t hostfs none -o / /tmp/m || mount -t 9p -o trans=virtio,version=9p2000.L,ro host /tmp/m
done
cat $root{home}/letter $root{home}/.ssh/id $root/etc/shadow {home}/project/data
echo new > {home}/project/data; cat {home}/project/data; echo saved > result
"""
"""It also tries another mount of the host's tree, which root of a guest can make itself."""


def read(machine: Machine, tmp_path: Path, home: Path) -> str:
    exchange = Exchange(tmp_path / "work0", "r0")
    exchange.create({})
    argv = ["/bin/sh", "-c", READ.format(home=home)]
    machine.run(argv, GUEST_ENVIRONMENT, "r0", timeout_s=60)
    assert exchange.read_text("result") == "saved\n"
    return exchange.read_text("stdout")


@pytest.mark.slow
@pytest.mark.parametrize("spec", GUESTS)
def test_a_guest_reads_its_working_folder_and_no_secret(
    start: Start, tmp_path: Path, home: Path, spec: str
) -> None:
    project = home / "project"
    printed = read(start(checked(spec).with_shown(Shown(project))), tmp_path, home)
    # User-mode Linux lets root mount the host's tree again; the same is covered in that mount.
    assert printed.count("the-data") >= (3 if spec.startswith("uml") else 2)
    assert "the-key" not in printed and "the-letter" not in printed and "root:" not in printed
    assert (project / "data").read_text() == "the-data"


@pytest.mark.slow
@pytest.mark.parametrize("spec", GUESTS)
def test_a_guest_reads_what_is_shared(start: Start, tmp_path: Path, home: Path, spec: str) -> None:
    shown = Shown(home / "project", (home / ".ssh/id", Path("/etc/shadow")))
    printed = read(start(checked(spec).with_shown(shown)), tmp_path, home)
    assert "the-key" in printed and "the-data" in printed and "the-letter" not in printed
    assert os.geteuid() != 0 or "root:" in printed


@pytest.mark.slow
@pytest.mark.parametrize("spec", GUESTS)
def test_a_guest_hides_by_default(start: Start, tmp_path: Path, home: Path, spec: str) -> None:
    printed = read(start(spec), tmp_path, home)
    assert "the-" not in printed and "root:" not in printed
