"""`--spec FILE`: what the command line says, in a file, with lines in errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from command_line import one_line, vtax
from vtax.compare import verb
from vtax.core.command import campaigns, spec_file
from vtax.core.errors import MisuseError
from vtax.core.formats.folder import SPEC
from vtax.core.formats.model import ComparisonRecord
from vtax.core.formats.records import read
from vtax.explain.again import options_of
from vtax.verbs import app


def parsed(*words: str) -> dict[str, Any]:
    """The options that `vtax compare` takes from these words; nothing runs."""
    app = typer.Typer()
    app.command(**verb.SETTINGS)(verb.compare)
    context = typer.main.get_command(app).make_context("compare", list(words))  # type: ignore[arg-type]
    found = dict(context.params)
    found.pop("spec")
    return found


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "spec.yaml"
    file.write_text(text)
    return file


@pytest.fixture
def by_file(tmp_path: Path) -> Any:
    """The options that a file gives, with further words."""

    def options(text: str, *words: str) -> dict[str, Any]:
        return parsed("--spec", str(written(tmp_path, text)), *words)

    return options


def test_a_file_says_what_the_command_line_says(by_file: Any) -> None:
    text = """
vtax: 1
verb: compare
in: [native, 'uml:mem=1G']
reps: 7
until: 2%
warm-up: false
audit: true
with: record
metric: 'rate:MB/s=rate: ([0-9.]+)'
command: [hpcc, --preset, small]
"""
    line = ("--in", "native", "--in=uml:mem=1G", "--reps", "7", "--until", "2%", "--no-warm-up",
            "--audit", "--with", "record", "--metric", "rate:MB/s=rate: ([0-9.]+)")  # fmt: skip
    assert by_file(text) == parsed(*line, "--", "hpcc", "--preset", "small")


def test_what_takes_turns_is_a_mapping_or_as_on_the_command_line(by_file: Any) -> None:
    line = parsed("--param", "threads=1,2", "--param", "n=5", "--", "x", "{threads}{n}")
    for text in ("param: {threads: [1, 2], n: 5}", "param: ['threads=1,2', n=5]"):
        assert by_file(f"{text}\ncommand: [x, '{{threads}}{{n}}']\n") == line


def test_the_command_line_wins(by_file: Any) -> None:
    text = "in: [native, uml]\nreps: 7\ncontrol: false\nbudget: 5m\ncommand: [gups]\n"
    found = by_file(text, "--in", "qemu", "--reps=3", "--control", "--", "stream")
    assert found == parsed("--in", "qemu", "--reps", "3", "--budget", "5m", "--", "stream")


def test_a_word_of_the_command_is_no_option_of_vtax(by_file: Any) -> None:
    assert by_file("command: [sh, --spec, -c]\n")["workload"] == ["sh", "--spec", "-c"]
    assert parsed("--", "prog", "--spec", "gone.yaml")["workload"] == [
        "prog",
        "--spec",
        "gone.yaml",
    ]


def test_what_is_drawn_is_a_mapping_or_as_on_the_command_line(by_file: Any) -> None:
    line = parsed("--param", "s=random:1..9", "--param", "f=random:a,b", "--", "x", "{s}{f}")
    for text in (
        "param: {s: {random: 1..9}, f: {random: [a, b]}}",
        "param: {s: 'random:1..9', f: {random: [a, b]}}",
        "param: ['s=random:1..9', 'f=random:a,b']",
    ):
        assert by_file(f"{text}\ncommand: [x, '{{s}}{{f}}']\n") == line


def test_an_environment_may_have_a_parameter(by_file: Any) -> None:
    text = "in: ['uml:mem={mem}']\nbaseline: 'native:mem={mem}'\ncommand: [x]\n"
    swept = by_file(text + "param: {mem: [1G, 2G]}\n")
    assert swept["environments"] == ["uml:mem={mem}"]
    assert by_file(text, "--param", "mem=1G,2G") == swept
    with pytest.raises(MisuseError, match=r"spec.yaml:1: .*'\{mem\}'"):
        by_file(text)


def test_a_list_for_an_option_says_what_to_do(by_file: Any) -> None:
    axis = "for an axis write param: {%s: [...]}, and {%s} in the command or in 'in'"
    for key in ("timeout", "cpus"):
        with pytest.raises(MisuseError) as raised:
            by_file(f"command: [x]\n{key}: [1, 2]")
        assert axis % (key, key) in str(raised.value) and ":2: " in str(raised.value)


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("param: {n: {random: 5, more: 6}}", 1, "param takes names with lists of words"),
        ("param: {n: {random: ['1,2']}}", 1, "a value of param has no comma"),
        ("param: {n: {random: {a: b}}}", 1, "param takes names with lists of words"),
        ("param: {n: {[a]: b}}", 1, "param takes names with lists of words"),
        ("command: [x]\nreps: many", 2, "--reps"),
        ("command: [x]\nrep: 5", 2, "unknown key 'rep'; did you mean 'reps'?"),
        ("\n\nin: [native, 'uml:mem=9']", 3, "mem=9 is too small to boot"),
        ("in: native\nbaseline: 'uml:mem=9'", 2, "mem=9 is too small to boot"),
        ("control: 5", 1, "control is true or false"),
        ("control: [true, false]", 1, "control is true or false"),
        ("budget: 5x", 1, "'5x' is not a duration"),
        ("max-output: much", 1, "is not a size"),
        ("vtax: 2", 1, "it is of form 2; this vtax knows form 1"),
        ("reps: [1, 2]", 1, "reps takes one value"),
        ("reps:", 1, "reps has no value"),
        ("param: {n: [1, {a: b}]}", 1, "param takes names with lists of words"),
        ("reps: 1\nparam:\n  n: ['1,2']", 3, "a value of param has no comma"),
        ("reps: 1\nreps: 2", 2, "reps is in line 1, too"),
        ("a: {b: c}", 1, "a takes words or a list of words"),
        ("a: [[b]]", 1, "a takes words or a list of words"),
        ("? [a]\n: b", 1, "a key has to be a word"),
        ("verb: memory", 1, "it is a spec of vtax memory, not of vtax compare"),
        ("spec: other.yaml", 1, "unknown key 'spec'"),
        ("x: [", 1, "expected the node content"),
        ("command: [x]\nclock: sundial", 2, "'sundial' is not one of"),
    ],
)
def test_an_error_has_its_line(by_file: Any, text: str, line: int, said: str) -> None:
    with pytest.raises(MisuseError) as raised:
        by_file(text)
    assert f"spec.yaml:{line}: " in str(raised.value) and said in str(raised.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"reps: \xff", "byte 6 is not UTF-8"),
        (b"[1, 2]", "it is no mapping of options"),
        (b"", "it is no mapping of options"),
        (b"a: \x00", "it is not YAML"),
        (b"#" * (spec_file.LARGEST_BYTES + 1), "larger than 1 MiB"),
    ],
)
def test_what_is_no_spec_is_one_line(content: bytes, said: str, tmp_path: Path) -> None:
    file = tmp_path / "spec.yaml"
    file.write_bytes(content)
    with pytest.raises(MisuseError, match=said):
        spec_file.read(file)
    with pytest.raises(MisuseError, match="No such file"):
        spec_file.read(tmp_path / "gone.yaml")
    with pytest.raises(MisuseError, match="Is a directory"):
        spec_file.read(tmp_path)


@given(content=st.binary(max_size=400) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_a_spec_or_one_error(content: bytes, tmp_path_factory: Any) -> None:
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    file.write_bytes(content)
    try:
        parsed("--spec", str(file))
    except MisuseError as error:
        assert "\n" not in str(error)
    except spec_file.USAGE_ERROR as error:
        assert "WORKLOAD" in str(error), "only the missing command is the command line's"


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)


@example(workload=["\x85"], reps=None, metrics=["\x85", "\u2028"], warm_up=False, clock="wall")
@given(
    workload=st.lists(WORDS, min_size=1, max_size=4),
    reps=st.none() | st.integers(1, 10_000),
    metrics=st.lists(WORDS, max_size=3),
    warm_up=st.booleans(),
    clock=st.sampled_from(["wall", "cpu", "tsc", "host"]),
)
def test_a_run_writes_what_repeats_it(
    workload: list[str], reps: int | None, metrics: list[str], warm_up: bool, clock: str,
    tmp_path_factory: Any,
) -> None:  # fmt: skip
    line = [f"--clock={clock}", "--warm-up" if warm_up else "--no-warm-up"]
    line += [] if reps is None else [f"--reps={reps}"]
    line += [f"--metric={each}" for each in metrics]
    asked = parsed(*line, "--", *workload)
    file = tmp_path_factory.getbasetemp() / "again.yaml"
    file.write_text(spec_file.text({"seed": 5}))
    again = parsed("--spec", str(file))
    assert again.pop("seed") == 5 and asked.pop("seed") is None
    assert again == asked
    # The record keeps the whole line, so that the run can be explained later.
    words = campaigns.command_line()
    assert words[:1] == ("compare",) and "--spec" not in words[: words.index("--")]
    assert {**parsed(*words[1:]), "seed": None} == {**asked, "seed": None}


def test_only_what_is_not_usual_is_written() -> None:
    parsed("--in", "uml", "--reps", "3", "--out", "x", "--quiet", "--json", "--", "true")
    text = spec_file.text({"seed": 9})
    assert text.startswith("# vtax compare --spec FILE does this again.\n")
    assert yaml.safe_load(text) == {
        "vtax": 1, "verb": "compare", "in": ["uml"], "reps": 3, "seed": 9, "command": ["true"],
    }  # fmt: skip


def test_a_run_is_repeated_from_its_folder(tmp_path: Path) -> None:
    line = ("--reps", "2", "--no-control", "--json", "--quiet")
    first = vtax("compare", *line, "--out", str(tmp_path / "a"), "--", "sh", "-c", "pwd")
    assert first.returncode == 0, first.stderr
    (one,) = (tmp_path / "a").iterdir()
    # From another folder, and in part otherwise.
    again = vtax("compare", "--spec", str(one / SPEC), "--out", str(tmp_path / "b"), "--json",
                 "--quiet", "--reps", "1", cwd=tmp_path)  # fmt: skip
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["environments"]
    (other,) = (tmp_path / "b").iterdir()
    was, now = read(one / "run.json"), read(other / "run.json")
    assert isinstance(was, ComparisonRecord) and isinstance(now, ComparisonRecord)
    assert (now.seed, now.repetitions, now.workdir) == (was.seed, 1, was.workdir)
    assert now.command_line[-4:] == ("--", "sh", "-c", "pwd")
    assert options_of(now).repetitions == 1


def test_an_error_is_one_line_of_the_program(tmp_path: Path) -> None:
    file = written(tmp_path, "command: [x]\nreps: many\n")
    assert "spec.yaml:2: " in one_line(vtax("compare", "--spec", str(file), cwd=tmp_path), 2)


def test_a_command_line_that_is_not_understood_is_one_error(tmp_path: Path) -> None:
    done = vtax("compare", "--reps", "1", "--no-control", "--out", str(tmp_path), "--", "true")
    assert done.returncode == 0, done.stderr
    (one,) = tmp_path.iterdir()
    record = read(one / "run.json")
    assert isinstance(record, ComparisonRecord)
    newer = record.model_copy(update={"command_line": ("vtax", "compare", "--newer", "true")})
    with pytest.raises(MisuseError, match=r"not understood.*newer"):
        options_of(newer)


def with_files(command: Any = None, *above: str) -> list[tuple[str, ...]]:
    """The words of every verb that has `--spec`."""
    command = command or typer.main.get_command(app)
    if hasattr(command, "commands"):
        below = (with_files(each, *above, name) for name, each in command.commands.items())
        return [one for each in below for one in each]
    return [above] if "--spec" in {name for each in command.params for name in each.opts} else []


@pytest.mark.parametrize("verb", with_files(), ids=" ".join)
def test_each_verb_reads_its_file(verb: tuple[str, ...], tmp_path: Path) -> None:
    assert "gone.yaml" in one_line(vtax(*verb, "--spec", "gone.yaml", cwd=tmp_path), 2)
