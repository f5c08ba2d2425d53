"""Licences: vtax states its own everywhere, and what it is built from is allowed (deny.toml)."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from collections.abc import Mapping
from importlib import metadata
from typing import Any

import pytest
from packaging.requirements import Requirement

from command_line import ROOT

OWN = "MIT OR Apache-2.0"
ALLOWED = frozenset(tomllib.loads((ROOT / "deny.toml").read_text())["licenses"]["allow"])
EXCEPTIONS = {
    each["crate"]: frozenset(each["allow"])
    for each in tomllib.loads((ROOT / "deny.toml").read_text())["licenses"]["exceptions"]
}
PLUGINS = frozenset({"vtax-trace", "vtax-nested", "vtax-slow"})
"""The plugins of QEMU, which have QEMU's licence."""
ALSO_IN_PYTHON = frozenset({"0BSD", "CNRI-Python", "MIT-0", "PSF-2.0"})
OLDER_NAMES = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "apache-2.0": "Apache-2.0",
    "BSD": "BSD-3-Clause",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
}
"""Older names of licences: the text or classifier of packages without an SPDX expression."""


def allowed(expression: str, names: frozenset[str]) -> bool:
    """Whether something may be used under these licences. `A/B` is the old form of `A OR B`."""
    words = re.sub(r"\s*/\s*", " OR ", expression)
    words = re.sub(r"\s+WITH\s+", "-WITH-", words)
    tokens = re.findall(r"[()]|[^\s()]+", words)
    names = frozenset(name.replace(" WITH ", "-WITH-") for name in names)

    def choice(position: int) -> tuple[bool, int]:
        value, position = every(position)
        while tokens[position : position + 1] == ["OR"]:
            other, position = every(position + 1)
            value = value or other
        return value, position

    def every(position: int) -> tuple[bool, int]:
        value, position = one(position)
        while tokens[position : position + 1] == ["AND"]:
            other, position = one(position + 1)
            value = value and other
        return value, position

    def one(position: int) -> tuple[bool, int]:
        if tokens[position] == "(":
            value, position = choice(position + 1)
            return value, position + 1
        return tokens[position] in names, position + 1

    value, end = choice(0)
    assert end == len(tokens), expression
    return value


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("MIT", True),
        ("GPL-3.0-only", False),
        ("GPL-3.0-only OR MIT", True),
        ("Unlicense/MIT", True),
        ("MIT AND GPL-3.0-only", False),
        ("(MIT OR GPL-2.0-only) AND ISC", True),
        ("(MIT OR ISC) AND GPL-2.0-only", False),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("Apache-2.0 WITH another", False),
    ],
)
def test_the_check_itself(expression: str, expected: bool) -> None:
    assert allowed(expression, ALLOWED) is expected


@pytest.fixture(scope="module")
def packages() -> list[Mapping[str, Any]]:
    argv = ["cargo", "metadata", "--locked", "--offline", "--format-version", "1"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True)
    found: list[Mapping[str, Any]] = json.loads(done.stdout)["packages"]
    return found


def test_every_crate_that_is_used_is_allowed(packages: list[Mapping[str, Any]]) -> None:
    others = [package for package in packages if package["source"] is not None]
    assert len(others) > 50
    for package in others:
        names = ALLOWED | EXCEPTIONS.get(package["name"], frozenset())
        assert package["license"] and allowed(package["license"], names), package["name"]
        assert package["source"].startswith("registry+"), package["name"]


def test_only_the_plugin_uses_what_is_an_exception(packages: list[Mapping[str, Any]]) -> None:
    assert set(EXCEPTIONS) == {*PLUGINS, "qemu-plugin-sys"}
    for package in packages:
        used = {needed["name"] for needed in package["dependencies"]} & set(EXCEPTIONS)
        assert not used or package["name"] in PLUGINS, package["name"]


def requirements() -> set[str]:
    """The distributions that vtax needs to run, and those that they need in turn."""
    found: set[str] = set()
    pending = {"vtax"}
    while pending:
        name = pending.pop()
        found.add(name)
        for text in metadata.distribution(name).requires or ():
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                pending |= {needed.name.lower()} - found
    return found - {"vtax"}


def licence(name: str) -> str:
    """The SPDX expression of a distribution, or what its older fields mean."""
    fields = metadata.metadata(name)
    if expression := fields.get("License-Expression"):
        return str(expression)
    classifiers = fields.get_all("Classifier") or []
    stated = [text.rpartition(" :: ")[2] for text in classifiers if text.startswith("License")]
    text = str(fields.get("License") or "")
    for each in (text, *stated):
        if each in OLDER_NAMES or each in ALLOWED:
            return OLDER_NAMES.get(each, each)
    return text.partition("\n")[0] or "none"


def test_every_distribution_that_is_needed_is_allowed() -> None:
    found = requirements()
    assert {"polars", "numpy", "pydantic"} <= found
    refused = {name: licence(name) for name in found}
    names = ALLOWED | ALSO_IN_PYTHON
    assert {name: text for name, text in refused.items() if not allowed(text, names)} == {}


def test_vtax_states_its_own_licence(packages: list[Mapping[str, Any]]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == OWN
    assert all((ROOT / name).read_text() for name in project["license-files"])
    assert metadata.metadata("vtax")["License-Expression"] == OWN
    for package in packages:
        if package["source"] is None:
            own = "GPL-2.0-or-later" if package["name"] in PLUGINS else OWN
            assert package["license"] == own, package["name"]
    programs = [*ROOT.glob("crates/*/**/*.bpf.c"), *ROOT.glob("crates/*/bpf/*.h")]
    assert programs
    for path in programs:
        assert path.read_text().startswith("/* SPDX-License-Identifier: MIT OR GPL-2.0-only */\n")
    declared = [text for path in programs if 'SEC("license")' in (text := path.read_text())]
    assert declared
    assert all('SEC("license") = "Dual MIT/GPL"' in text for text in declared)


def test_one_version_for_all_parts(packages: list[Mapping[str, Any]]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    crates = {package["version"] for package in packages if package["source"] is None}
    changes = re.findall(r"^## \[(\d[^]]*)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert {project["version"], *crates} == {changes[0]}
