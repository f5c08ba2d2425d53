"""Environment variables: which of them change a result, and what a machine gets.

A thread count or a CPU type forced on a BLAS, an allocator's tunables or a preloaded library
changes results by more than the virtualization does. A run without ``--keep-env`` is free of them;
what was taken away is recorded in run.json. All other variables of the user are passed on, without
secrets and the plumbing of the session.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vtax.core.errors import MisuseError

PREFIXES: tuple[str, ...] = (
    # BLAS libraries: threads, CPU type, block sizes
    "OPENBLAS_", "GOTO_", "BLIS_", "ATLAS_", "MKL_", "VECLIB_", "FLEXIBLAS", "AOCL_",
    # OpenMP runtimes: threads, binding, waiting
    "OMP_", "GOMP_", "KMP_", "LIBOMP_", "ACC_",
    # MPI, its launchers and topology: transports, binding, huge messages
    "OMPI_", "PMIX_", "PRTE_", "PMI_", "MPICH_", "MPIR_", "HYDRA_", "I_MPI_", "FI_", "UCX_",
    "HWLOC_", "OPAL_", "ORTE_",
    # The C library, its allocator and the dynamic linker
    "MALLOC_", "GLIBC_", "LD_", "JEMALLOC_", "TCMALLOC_", "MIMALLOC_", "HUGETLB_",
    # Run times of languages
    "NUMEXPR_", "NUMBA_", "JULIA_", "GOGC", "GOMEMLIMIT", "GOMAXPROCS", "GODEBUG", "RAYON_",
    "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "PYTHON",
)  # fmt: skip
"""A variable whose name begins like one of these changes results."""

DISK = "/run/vtax/disk"
"""Where programs find the machine's own disk (`disk=`); no such folder: it has none."""
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

LOCALE = ("LANG", "LANGUAGE", "LC_", "TMPDIR")
"""Variables that vtax sets alike for all environments: number formats, order of texts, a folder
that all have."""
OWN = ("PATH", "HOME", "VTAX_RESULTS")

SESSION: tuple[str, ...] = (
    # Sockets and numbers of a log-in, a desktop, a terminal's program, a service manager.
    "SSH_", "XDG_", "DBUS_", "DISPLAY", "WAYLAND_", "XAUTHORITY", "GPG_", "GNOME_", "KDE_",
    "TMUX", "TMUX_", "STY", "WINDOWID", "VTE_", "SUDO_", "MAIL", "KRB5CCNAME", "PULSE_",
    "PIPEWIRE_", "INVOCATION_ID", "JOURNAL_STREAM", "NOTIFY_SOCKET", "LISTEN_FDS",
    "LISTEN_FDNAMES", "LISTEN_PID", "SYSTEMD_",
    "MANAGERPID", "MEMORY_PRESSURE_", "CREDENTIALS_DIRECTORY",
    # Sockets of container engines.
    "DOCKER_", "CONTAINER_HOST", "KUBECONFIG",
    # A shell's own book-keeping, which is of another folder.
    "PWD", "OLDPWD", "SHLVL", "_",
)  # fmt: skip
"""Variables of this host's session, which are useless in a guest, and in part give access to keys.
Whole names, or beginnings that end with an underscore."""

_SECRET = re.compile(
    "TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|(^|_)PASS($|_)|COOKIE|(^|_)AUTH($|_)"
    "|(?<!MON)(?<!DON)(?<!TUR)KEY(?!BOARD|MAP|WORD)",
    re.IGNORECASE,
)
_USER_IN_ADDRESS = re.compile(r"://[^/@\s]*:[^/@\s]*@")


def changes_results(name: str) -> bool:
    """Whether a variable of this name can change a measured result."""
    return name.startswith(PREFIXES)


def _among(name: str, names: tuple[str, ...]) -> bool:
    return any(name.startswith(each) if each.endswith("_") else name == each for each in names)


def is_secret(name: str, value: str) -> bool:
    """Whether it may be a key or a password: by its name, or as an address with a password in
    it."""
    return bool(_SECRET.search(name) or _USER_IN_ADDRESS.search(value))


@dataclass(frozen=True, slots=True)
class UserVariables:
    """What becomes of the user's variables."""

    environment: dict[str, str]
    """The variables of the command, without a home: each repetition gets a fresh one."""
    kept: dict[str, str]
    """The variables among them that change results."""
    scrubbed: dict[str, str]
    """Variables that change results and were taken away, or set to another value."""
    withheld: tuple[str, ...]
    """Names of variables that may be secrets."""

    def said(self) -> tuple[str, ...]:
        """What the command does not get, in sentences."""
        found = []
        if self.scrubbed:
            names = ", ".join(self.scrubbed)
            found.append(f"not given, as they change results: {names} (--keep-env keeps them)")
        if self.withheld:
            names = ", ".join(map(readable, self.withheld))
            found.append(f"not given, as they may be secrets: {names} (--env NAME gives one)")
        return tuple(found)


def user_variables(
    environ: Mapping[str, str],
    *,
    keep_env: bool = False,
    clean: bool = False,
    named: Sequence[str] = (),
) -> UserVariables:
    """The user's own variables for a command, the same in every environment.

    Secrets and variables of the session stay out, and so do those that change results, unless
    `keep_env`. `clean` leaves out all variables. The `named` variables go in whatever they are; the
    values of secrets are not recorded. Raises MisuseError when a named variable is not set or
    belongs to vtax, or when one that goes in is not UTF-8.
    """
    _require_named(environ, named)
    base = base_environment(environ)
    kept: dict[str, str] = {}
    scrubbed: dict[str, str] = {}
    withheld: list[str] = []
    own: dict[str, str] = {}
    for name in sorted(named if clean else environ):
        value = environ[name]
        asked = name in named
        if name in OWN or (_among(name, SESSION) and not asked):
            continue
        if is_secret(name, value) and not asked:
            withheld.append(name)
        elif not is_secret(name, value) and (changes_results(name) or _among(name, LOCALE)):
            if value != base.get(name):
                (kept if keep_env or asked else scrubbed)[name] = value
        else:
            own[name] = value
    if keep_env and not clean:
        base["HOME"] = environ.get("HOME") or os.sep
    if any(_among(name, LOCALE[:3]) for name in kept):
        del base["LANG"], base["LC_ALL"]
    environment = own | base | kept
    require_utf8(environment)
    shown = {readable(name): readable(value) for name, value in scrubbed.items()}
    return UserVariables(environment, kept, shown, tuple(withheld))


def _require_named(environ: Mapping[str, str], named: Sequence[str]) -> None:
    for name in named:
        if name in OWN:
            raise MisuseError(f"--env {name}: vtax sets it itself", "leave it out")
        if name not in environ:
            word = readable(name)
            remedy = "give a name alone, after: export NAME=VALUE"
            raise MisuseError(f"--env {word}: there is no such variable", remedy)


def require_utf8(variables: Mapping[str, str]) -> None:
    """Raise MisuseError when a variable cannot be sent to a machine or recorded."""
    for name, value in variables.items():
        if readable(name + value) != name + value:
            raise MisuseError(
                f"environment variable {readable(name)} is not UTF-8", "unset or change it"
            )


def readable(text: str) -> str:
    """The system's text, with each byte that is not UTF-8 as its number."""
    return os.fsencode(text).decode(errors="backslashreplace")


def base_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of vtax's own workloads, the same in every machine.

    The user's PATH, a UTF-8 locale with a decimal point, and no home, so that a machine makes a
    fresh one. A file like ~/.openmpi/mca-params.conf changes results without leaving a trace.
    """
    return {
        "PATH": environ.get("PATH") or DEFAULT_PATH,
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "TMPDIR": "/tmp",
    }
