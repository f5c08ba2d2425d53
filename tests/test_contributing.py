"""CONTRIBUTING's table of what to add: its files and names exist, and following it works."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from command_line import ROOT

PACKAGE = ROOT / "python/vtax"
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "CONTRIBUTING.md")
    .read_text()
    .partition("| to add | file | then |\n| --- | --- | --- |\n")[2]
    .partition("\n\n")[0]
    .splitlines()
]
REGISTERED = re.compile(r"`([\w.]+)` of `([^`]+)`")


def files(path: str) -> list[Path]:
    """The files that a path of the table stands for; NAME stands for any that exists."""
    pattern = path.replace("NAME", "*").rstrip("/")
    return [*PACKAGE.glob(pattern), *ROOT.glob(pattern)]


def is_path(word: str) -> bool:
    return "/" in word or word.endswith((".py", ".toml"))


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_what_a_row_names_is_there(row: list[str]) -> None:
    words = re.findall(r"`([^`]+)`", " ".join(row[1:]))
    named = {word: files(word) for word in words if is_path(word)}
    assert all(named.values()), named
    text = "\n".join(each.read_text() for found in named.values() for each in found)
    for word in words:
        if word.startswith("make "):
            target = word.removeprefix("make ")
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
        elif not is_path(word):
            assert re.search(rf"\b{word}\b", text), f"{word} is in none of {list(named)}"
    for name, path in REGISTERED.findall(row[2]):
        (file,) = files(path)
        defined = rf"^\s*(pub )?(const )?{name}\b.* = |^\[.*\"{name}\"\]$"
        assert re.search(defined, file.read_text(), re.MULTILINE), f"{path} defines no {name}"
    new, *_ = named
    if "NAME" in new:
        stems = [each.parent.name if each.stem in ("mod", "__init__") else each.stem
                 for each in named[new]]  # fmt: skip
        registries = "\n".join(files(path)[0].read_text() for _, path in REGISTERED.findall(row[2]))
        assert any(re.search(rf"\b{stem}\b", registries) for stem in stems), stems


def test_the_table_has_every_kind() -> None:
    kinds = [row[0].split("(")[0].split(" of ")[0].strip() for row in ROWS]
    assert kinds == [
        "an environment", "a capability", "a workload", "an instrument",
        "an operation with a price", "a load",
        "an event source", "a machine description", "a policy", "a study", "a verb",
    ]  # fmt: skip


CAPABILITY = '''\


@dataclass(frozen=True, slots=True)
class Shout(Capability):
    """Shouting."""

    name: ClassVar[str] = "shout"
    about: ClassVar[str] = "it can shout"

    loudness: Callable[[], float]


'''
INSTRUMENT = '''\
from contextlib import contextmanager

from vtax.environments.capabilities import Shout
from vtax.workloads.base import Metric


class Shouting:
    """How loud the machine was."""

    name = "shouting"
    needs = Shout

    @contextmanager
    def around(self, repetition):
        yield
        loudness = repetition.machine.offer(Shout).loudness()
        repetition.metrics.append(Metric("loudness", "dB", "lower", loudness))
'''
STUDIES = ROOT / "studies"
STUDY = """\
from vtax_studies.model import Parts, Study, StudyData
from vtax_studies.rule import Judgement, Rule


def look(data):
    return Judgement("blue", True, "seen")


STUDY = Study(
    "sky", "the sky", "The sky", "A paper of the sky", __name__, quick="nothing is quicker"
)
PARTS = Parts(
    measure=lambda options, progress: StudyData(),
    rules=[Rule("sky", "1", "the sky is blue", "blue", look)],
    figures={},
    tables=(),
    setup=lambda data, options: (),
    cautions=lambda data: (),
)
"""
VERB = '''\
def hello() -> None:
    """Say hello."""
    print("hello, world")


def add(app):
    """Make it a verb of `app`."""
    app.command()(hello)
'''


class Copy:
    """The package as a contributor has it; compiled files are shared with the real package."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.package = folder / "vtax"
        compiled = ("_bin", "*.so")
        ignored = shutil.ignore_patterns("__pycache__", *compiled)
        shutil.copytree(PACKAGE, self.package, ignore=ignored)
        for pattern in compiled:
            for each in PACKAGE.glob(pattern):
                (self.package / each.name).symlink_to(each)

    def add(self, path: str, text: str) -> None:
        file = self.package / path
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)

    def insert(self, path: str, after: str, text: str) -> None:
        """Insert the line of a row after an existing line."""
        file = self.package / path
        content = file.read_text()
        assert content.count(after) == 1, f"{path}: {after}"
        file.write_text(content.replace(after, after + text))

    def install_studies(self) -> None:
        """Do what `make setup` does: an installer reads entry points from pyproject.toml."""
        project = tomllib.loads((self.folder / "studies/pyproject.toml").read_text())["project"]
        (self.folder / "vtax_studies").symlink_to(self.folder / "studies/src/vtax_studies")
        info = self.folder / f"vtax_studies-{project['version']}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
        )
        names = project["entry-points"]["vtax.studies"]
        lines = [f"{name} = {place}" for name, place in names.items()]
        (info / "entry_points.txt").write_text("\n".join(["[vtax.studies]", *lines, ""]))

    def python(self, *argv: str) -> str:
        done = subprocess.run(
            [sys.executable, *argv],
            env=os.environ | {"PYTHONPATH": str(self.folder), "COLUMNS": "100"},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def vtax(self, *argv: str) -> str:
        return self.python("-m", "vtax.main", *argv)


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


def test_a_capability_and_an_instrument_of_it(copy: Copy) -> None:
    copy.insert("environments/capabilities.py", "about: ClassVar[str]\n", CAPABILITY)
    copy.insert("environments/capabilities.py", "ALL: tuple[type[Capability], ...] = (", "Shout,")
    native = "environments/native.py"
    copy.insert(
        native, "import annotations\n", "from vtax.environments.capabilities import Shout\n"
    )
    copy.insert(native, "offers: ClassVar[Mapping[type[Capability], str]] = {", 'Shout: "native",')
    copy.insert(native, "counting(machine)", ", Shout(lambda: 42.0)")
    copy.add("core/runner/instruments/shouting.py", INSTRUMENT)
    registry = "core/runner/instruments/__init__.py"
    copy.insert(
        registry,
        "from vtax.core.errors import MisuseError\n",
        "from vtax.core.runner.instruments.shouting import Shouting\n",
    )
    copy.insert(
        registry,
        "INSTRUMENTS: Mapping[str, Callable[[], Instrument]] = {",
        '"shouting": Shouting,',
    )

    words = ("--in", "native", "--reps", "2", "--no-control", "--json", "--quiet")
    done = json.loads(copy.vtax("compare", *words, "--with", "shouting", "--", "true"))
    loud = {each["median"] for each in done["results"] if each["metric"] == "loudness"}
    assert loud == {42.0}
    assert "shouting" in copy.vtax("compare", "--help")
    tables = "from docs_tables import tables; print(*tables().values())"
    made = copy.python("-c", f"import sys; sys.path.append({str(ROOT / 'packaging')!r}); {tables}")
    assert "| `shout` | it can shout | `native` |" in made
    assert "| `shouting` | How loud the machine was | `shout` | `--with shouting` |" in made


def test_a_study(copy: Copy) -> None:
    copy.package = copy.folder / "studies"
    shutil.copytree(STUDIES / "src", copy.package / "src")
    shutil.copy(STUDIES / "pyproject.toml", copy.package)
    copy.add("src/vtax_studies/sky/__init__.py", STUDY)
    group = '[project.entry-points."vtax.studies"]\n'
    copy.insert("pyproject.toml", group, 'sky = "vtax_studies.sky:STUDY"\n')
    copy.install_studies()
    assert "the sky" in copy.vtax("study", "--help")
    content = json.loads(copy.vtax("study", "sky", "--json", "--quiet", "--out", "out"))
    assert [claim["verdict"] for claim in content["claims"]] == ["holds"]
    assert "the sky is blue" in (copy.folder / "out/report.html").read_text()


def test_a_verb(copy: Copy) -> None:
    """A folder and one line."""
    copy.add("hello/verb.py", VERB)
    copy.insert("verbs.py", '    "doctor",\n', '    "hello",\n')
    assert copy.vtax("hello") == "hello, world\n"
    assert "Say hello." in copy.vtax("--help")
