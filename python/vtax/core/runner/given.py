"""What a user's command gets in every environment alike: variables, files, programs in a home."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vtax.core import binaries
from vtax.environments import sharing
from vtax.environments.base import Environment
from vtax.environments.hiding import Shown
from vtax.workloads.variables import UserVariables, user_variables


@dataclass(frozen=True, slots=True)
class Given:
    """What the command gets."""

    environment: Mapping[str, str]
    """All variables of the command, without a home: each repetition gets a fresh one."""
    variables: UserVariables
    """What became of the user's variables."""
    shown: Shown
    """Which of this machine's hidden files guests see."""
    said: tuple[str, ...]
    """What the command does not get, and what guests see for it, in sentences."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """The user's options about what a command gets."""

    share: Sequence[Path] = ()
    keep_env: bool = False
    clean_env: bool = False
    named: Sequence[str] = ()
    """Variables that are given even if they look like secrets."""


NO_WISHES = Wishes()


def given(
    machines: Mapping[str, Environment],
    programs: Sequence[str],
    workdir: Path | None,
    wishes: Wishes,
    also: Sequence[Path] = (),
) -> Given:
    """What a command gets that starts these programs in `workdir`; guests see `also`, too.

    Raises MisuseError for a wish that cannot be met.
    """
    variables = user_variables(
        os.environ, keep_env=wishes.keep_env, clean=wishes.clean_env, named=wishes.named
    )
    environment = dict(variables.environment)
    files = (*sharing.shown(machines, wishes.share), *also)
    installed = sharing.installed(machines, Shown(workdir, files), programs, environment["PATH"])
    environment |= installed.variables or {}
    environment["PATH"] = binaries.on_path(environment)
    return Given(
        environment,
        variables,
        Shown(workdir, files, installed.folders),
        (*installed.said(), *variables.said()),
    )
