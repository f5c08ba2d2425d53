"""README's commands on fresh machines: a minimal Debian, made, used and removed by `make fresh`.

Each release is a root folder by mmdebstrap, with the apt sources, the CA bundle and the settings of
apt, pip and cargo that this machine has. Every command enters it in a mount namespace of its own,
so that no mount outlives the command; what is left running is ended, and the folder is removed, now
or, after a `kill -9`, by the next run. The checkout in it is a clone, with what is committed.

    packaging/fresh.py [--release 12|13]... [--without-tests]
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent.parent
RELEASES = {"12": "bookworm", "13": "trixie"}
BEFOREHAND = ("git", "make", "python3", "ca-certificates")
"""The programs that README requires."""
README_COMMANDS = ("make demo", "make test")
VERBS = (
    "doctor",
    "compare --in native --in uml --in qemu:accel=tcg --reps 2 -- true",
    "compare --in native --in container --in gvisor --reps 2 -- true",
    "explain --in uml --reps 2 -- ls /usr",
    "prices --in uml --reps 1 --seconds 1 --only null,stat",
    "report $(ls -d runs/*-true | tail -1)",
    "fleet runs",
    "history runs/*-true",
    "submit $(ls -d runs/*-true/spec.yaml | tail -1)",
    "collect $(ls -d runs/*-true | tail -1)",
    "audit --in native --in uml",
    "memory --in native:mem=64M --sizes 1000-2000:500 --reps 1",
    "tune --in native --budget 20s --no-probe --size 500",
    "lab -- ls -l /dev/kvm",
    "record --every 1ms --out /tmp/run -- gzip -kc /usr/bin/git",
    "correlate /tmp/run",
    "timeline /tmp/run --event sched.switches",
    "export /tmp/run --perfetto /tmp/run.pftrace",
    "paging simulate gzip",
    "paging machines",
    "paging workloads",
    "paging sweep /tmp/sweep.toml",
    "paging trace --out /tmp/true.vtrace -- true",
    "paging lab -- random-touch --mem 64M",
    "paging switch --to shadow --dry-run",
    "paging control --for 2s",
    "paging watch --for 2s",
    "paging recover",
    "place measure --load tcp --speeds 100,50 --reps 1 --seconds 1",
    "place advise --for 1s",
    "place apply --undo",
    "place watch --for 1s",
    "study dav2m --quick",
)
SWEEP = """
workloads = ["gzip"]
machines = ["zen4"]
modes = ["nested"]
[simulation]
instructions = 1e7
"""
MAY_REFUSE = ("submit", "collect", "paging switch", "place apply", "place watch")
"""Verbs that have nothing to work on without Slurm's daemons, a KVM guest or a plan: they print one
line."""
MAY_FIND = {"audit --in native --in uml": "clock-step"}
"""Verbs whose exit code 1 says that a check failed, as clocks of user-mode Linux do, and a word of
the result that they print then."""
VTAX = ".venv/bin/vtax "
BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
BUNDLE_VARIABLES = ("PIP_CERT", "SSL_CERT_FILE", "CARGO_HTTP_CAINFO", "GIT_SSL_CAINFO")
HANDED_IN = re.compile(r"(PIP|CARGO_HTTP|CARGO_NET|CARGO_REGISTRIES|CARGO_SOURCE)_|(?i:.*_proxy$)")
PR_SET_CHILD_SUBREAPER = 36
ENTER = """
cd "$1"; shift
mount --bind . .; cd "$PWD"
for each in proc sys dev; do mount --rbind /$each $each; done
mkdir -p .outside; pivot_root . .outside; umount -l /.outside; rmdir /.outside
cd /root/vtax 2>/dev/null || cd /
exec "$@"
"""


def sources(codename: str) -> list[str]:
    """apt's lines for this release, from the addresses of this machine's own sources."""
    form = "$(ORIGIN)|$(CODENAME)|$(REPO_URI)|$(COMPONENT)"
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", form, "Created-By: Packages"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    lines = set()
    for line in listed.splitlines():
        origin, suite, place, component = line.split("|")
        if origin == "Debian" and component == "main":
            lines.add(f"deb {place} {re.sub('^[a-z]+', codename, suite)} main")
    return sorted(lines) or sys.exit("fresh: apt has no source of Debian on this machine")


def make_root(folder: Path, codename: str) -> None:
    """Make a minimal Debian with the required programs, and this machine's settings."""
    subprocess.run(
        ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(BEFOREHAND)}",
         codename, str(folder), *sources(codename)],
        check=True,
    )  # fmt: skip
    home = Path.home()
    settings = {
        Path("/etc/resolv.conf"): "etc/resolv.conf",
        Path("/etc/pip.conf"): "etc/pip.conf",
        home / ".config/pip/pip.conf": "root/.config/pip/pip.conf",
        home / ".cargo/config.toml": "root/.cargo/config.toml",
        bundle(): f"root{BUNDLE}",
    }
    for source, target in settings.items():
        if source.is_file():
            (folder / target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, folder / target)
    apt = subprocess.run(["apt-config", "dump", "Acquire"], capture_output=True, text=True).stdout
    kept = [
        line for line in apt.splitlines() if re.match(r"Acquire::https?::.*(Proxy|CAInfo)", line)
    ]
    (folder / "etc/apt/apt.conf.d/90outside").write_text("".join(f"{line}\n" for line in kept))
    (folder / "tmp/sweep.toml").write_text(SWEEP)
    clone = ["git", "clone", "--quiet", "--no-local", str(ROOT), str(folder / "root/vtax")]
    subprocess.run(clone, check=True)


def bundle() -> Path:
    """This machine's CA certificates."""
    return Path(os.environ.get("SSL_CERT_FILE", BUNDLE))


def variables() -> Mapping[str, str]:
    """The environment of a command in a root."""
    kept = {name: text for name, text in os.environ.items() if HANDED_IN.match(name)}
    return kept | dict.fromkeys(BUNDLE_VARIABLES, f"/root{BUNDLE}") | {
        "HOME": "/root", "LANG": "C.UTF-8", "TERM": "dumb",
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    }  # fmt: skip


def enter(folder: Path, line: str) -> tuple[int, str]:
    """Run a command line in the root and show its output; return its exit code and what it
    printed."""
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", ENTER, "sh"]
    command += [str(folder), "bash", "-c", line]
    said: list[str] = []
    with subprocess.Popen(
        command, env=variables(), text=True, errors="replace", start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        shown = threading.Thread(target=show, args=(process.stdout, said))
        shown.start()
        try:
            process.wait()
        finally:
            # Processes that it left behind may hold the pipe open.
            end_children()
            shown.join()
    return process.returncode, "".join(said)


def show(stream: IO[str] | None, said: list[str]) -> None:
    """Print lines as they come, and keep them."""
    for text in stream or ():
        print(f"    {text}", end="", flush=True)
        said.append(text)


def end_children() -> None:
    """End whatever a command left: orphans become children of this process, their reaper."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    deadline = time.monotonic() + 60
    while (left := children.read_text().split()) and time.monotonic() < deadline:
        for each in left:
            with suppress(ProcessLookupError):
                os.kill(int(each), signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        time.sleep(0.1)


@contextmanager
def place(codename: str) -> Iterator[Path]:
    """An empty folder that only this run uses; removed at the end, and before if a run was
    killed."""
    base = Path(os.environ.get("VTAX_FRESH", "/var/tmp")) / f"vtax-fresh-{codename}"
    base.mkdir(mode=0o755, exist_ok=True)
    with (base.parent / f"{base.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"fresh: another run uses {base}")
        try:
            shutil.rmtree(base / "root", ignore_errors=True)
            yield base / "root"
        finally:
            end_children()
            shutil.rmtree(base)
            Path(lock.name).unlink()


def commands(with_tests: bool) -> Iterator[str]:
    """The commands to run in each root, in this order."""
    yield from (each for each in README_COMMANDS if with_tests or each != "make test")
    yield "make setup"
    for verb in VERBS:
        yield f"{VTAX}{verb}"


def state(line: str, code: int, said: str) -> str:
    """How a command ended, in a word for the summary."""
    if code == 0 and "Traceback" not in said:
        return "ok"
    verb = line.removeprefix(VTAX)
    if verb in MAY_FIND and code == 1 and MAY_FIND[verb] in said and "Traceback" not in said:
        return "found"
    refused = code in (1, 2) and len(said.splitlines()) <= 2 and "Traceback" not in said
    return "refused" if verb.startswith(MAY_REFUSE) and refused else f"FAILED ({code})"


def trial(release: str, with_tests: bool) -> list[str]:
    """Run everything for one release; return a line of the summary for each command."""
    with place(RELEASES[release]) as folder:
        began = time.monotonic()
        make_root(folder, RELEASES[release])
        lines = [f"made in {time.monotonic() - began:.0f} s with {', '.join(BEFOREHAND)}"]
        for line in commands(with_tests):
            print(f"fresh: Debian {release}: {line}", flush=True)
            began = time.monotonic()
            code, said = enter(folder, line)
            took = time.monotonic() - began
            tests = re.findall(r"^=+ (.*(?:passed|failed).*) in ", said, re.MULTILINE)
            lines.append(f"{state(line, code, said):<11} {took:6.0f} s  {line}")
            lines += [f"            {each}" for each in tests]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--release", action="append", choices=RELEASES, help="default: each")
    parser.add_argument("--without-tests", action="store_true", help="leave 'make test' out")
    asked = parser.parse_args()
    missing = [each for each in ("mmdebstrap", "unshare", "git") if shutil.which(each) is None]
    if os.geteuid() != 0 or missing:
        sys.exit(f"fresh: needs root and {', '.join(missing or ['nothing else'])}: apt-get install")
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("fresh: ended"))
    summary = {each: trial(each, not asked.without_tests) for each in asked.release or RELEASES}
    for release, lines in summary.items():
        print(f"\nDebian {release} ({RELEASES[release]})", *lines, sep="\n  ")
    if any(line.startswith("FAILED") for lines in summary.values() for line in lines):
        sys.exit(1)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
