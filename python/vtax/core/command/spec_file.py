"""`--spec FILE`: the options of a verb in a YAML file, as the command line has them.

    vtax: 1
    verb: compare
    in: [native, uml:mem=1G]
    reps: 10
    control: false
    command: [hpcc, --preset, small]

A key is an option's name without its dashes; `command` is what stands after `--`. Options on the
command line win over the file's, and a command there over the file's command. Every run folder has
such a file (`spec.yaml`), with the seed that was chosen, so that `--spec` repeats the run.

The file becomes words of the command line before these are parsed: what an option takes is said in
one place, and an error in it is told with the file's line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import typer

from vtax.core.errors import MisuseError
from vtax.core.specs import unknown

VERSION = 1
"""The form of the file; a newer one is refused."""
LARGEST_BYTES = 1 << 20
OPTION = "--spec"
COMMAND = "command"
PARAM = "param"
RANDOM = "random"
OWN_KEYS = ("vtax", "verb", COMMAND)
INVOCATION = frozenset(
    {"spec", "out", "notes", "as_json", "quiet", "help"}
    | {"commit", "against", "fail_over", "junit", "markdown"}
)
"""Parameters that say how vtax is called, not what is measured: no run repeats them."""
USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]
"""The error of a wrong command line; typer has it in other places in other versions."""
_WORDS = "vtax.words"
_PARSED: ContextVar[Any] = ContextVar("parsed", default=None)


@dataclass(frozen=True, slots=True)
class Entry:
    """A key of the file, its values as they are written, and its line, from 1."""

    key: str
    values: tuple[str, ...]
    is_list: bool
    is_switch: bool | None
    """The value, where it is true or false."""
    line: int


@dataclass(frozen=True, slots=True)
class SpecFile:
    """A file that was read."""

    path: Path
    entries: tuple[Entry, ...]

    def error(self, entry: Entry, said: str, remedy: str | None = None) -> MisuseError:
        """The error about a line."""
        return MisuseError(f"{self.path}:{entry.line}: {said}", remedy)


def read(path: Path) -> SpecFile:
    """Read a file. Raises MisuseError, with the line, when it is no such file."""
    import yaml

    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_BYTES + 1)
    except OSError as error:
        raise MisuseError(
            f"{path}: {error.strerror}", "every run folder has one: spec.yaml"
        ) from None
    if len(content) > LARGEST_BYTES:
        raise MisuseError(f"{path} is larger than {LARGEST_BYTES >> 20} MiB: it is no spec")
    try:
        # Nothing is built from the text, and what refers to another place is refused below.
        root = yaml.compose(content.decode(), Loader=yaml.SafeLoader)
    except UnicodeDecodeError as error:
        raise MisuseError(f"{path}: byte {error.start} is not UTF-8") from None
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise MisuseError(f"{path}{line}: {error.problem or 'it is not YAML'}") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise MisuseError(f"{path}: it is not YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(root, yaml.MappingNode):
        raise MisuseError(f"{path}: it is no mapping of options", "write for example reps: 5")
    found = SpecFile(path, tuple(_entries(path, root)))
    _check(found)
    return found


def _entries(path: Path, root: Any) -> Iterator[Entry]:
    import yaml

    seen: dict[str, int] = {}
    for key, value in root.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise MisuseError(f"{path}:{line}: a key has to be a word")
        if key.value in seen:
            raise MisuseError(f"{path}:{line}: {key.value} is in line {seen[key.value]}, too")
        seen[key.value] = line
        if key.value == PARAM and isinstance(value, yaml.MappingNode):
            yield Entry(PARAM, tuple(_parameters(path, value)), True, None, line)
            continue
        is_list = isinstance(value, yaml.SequenceNode)
        nodes = value.value if is_list else [value]
        if not all(isinstance(each, yaml.ScalarNode) for each in nodes):
            raise MisuseError(f"{path}:{line}: {key.value} takes words or a list of words")
        for each in nodes:
            if each.tag == "tag:yaml.org,2002:null":
                raise MisuseError(f"{path}:{line}: {key.value} has no value", "leave the key out")
        switch = None
        if not is_list and value.tag == "tag:yaml.org,2002:bool":
            switch = yaml.SafeLoader.bool_values[value.value.lower()]
        yield Entry(key.value, tuple(each.value for each in nodes), is_list, switch, line)


def _parameters(path: Path, node: Any) -> Iterator[str]:
    """`{threads: [1, 2], seed: {random: 1..9}}` as `--param` has it: `threads=1,2`,
    `seed=random:1..9`."""
    import yaml

    for key, value in node.value:
        line = key.start_mark.line + 1
        drawn = ""
        if isinstance(value, yaml.MappingNode) and [k.value for k, _ in value.value] == [RANDOM]:
            ((_, value),) = value.value
            drawn = f"{RANDOM}:"
        values = value.value if isinstance(value, yaml.SequenceNode) else [value]
        if not all(isinstance(each, yaml.ScalarNode) for each in (key, *values)):
            raise MisuseError(f"{path}:{line}: {PARAM} takes names with lists of words")
        if any("," in each.value for each in values):
            raise MisuseError(
                f"{path}:{line}: a value of {PARAM} has no comma",
                f"a list is [1, 2], one to draw from {{{RANDOM}: [1, 2]}}",
            )
        yield f"{key.value}={drawn}{','.join(each.value for each in values)}"


def _check(found: SpecFile) -> None:
    """Raise MisuseError for a file of a form that this vtax does not know."""
    for entry in found.entries:
        if entry.key == "vtax" and entry.values != (str(VERSION),):
            said = f"it is of form {' '.join(entry.values)[:20]}; this vtax knows form {VERSION}"
            raise found.error(entry, said, "use the vtax that wrote it, or a newer one")


def take(arguments: list[str], context: Any) -> tuple[list[str], SpecFile | None]:
    """The arguments with what a spec file among them says, and the file; as they are without one.

    `context` is the verb's own; its class differs between versions of typer. Raises MisuseError for
    a file that is no spec of the verb.
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options, rest = arguments[:end], arguments[end:]
    if (path := _named(options)) is None:
        return arguments, None
    file = read(path)
    known = {
        name.lstrip("-"): each
        for each in context.command.params
        for name in (*each.opts, *each.secondary_opts)
        if name.startswith("--")
    }
    given = _given(options, context.command.params)
    words, command = [], list[str]()
    for entry in file.entries:
        if entry.key == "verb":
            _check_verb(file, entry, context.command_path)
        elif entry.key == COMMAND:
            command = ["--", *entry.values]
        elif entry.key not in OWN_KEYS:
            words += _words(file, entry, known, given)
    whole = (*words, *options, *(rest or command))
    context.meta[_WORDS] = whole
    # The parser empties its list.
    return list(whole), file


def _named(options: Sequence[str]) -> Path | None:
    """The file of the option; taken out of nothing, for the parser checks the option too."""
    for place, word in enumerate(options):
        name, equals, value = word.partition("=")
        if name == OPTION and equals:
            return Path(value)
        if word == OPTION and place + 1 < len(options):
            return Path(options[place + 1])
    return None


def _given(options: Sequence[str], parameters: Sequence[Any]) -> frozenset[str]:
    """Names of the parameters that stand on the command line."""
    words = {word.partition("=")[0] for word in options}
    return frozenset(each.name for each in parameters if words & {*each.opts, *each.secondary_opts})


def _check_verb(file: SpecFile, entry: Entry, path: str) -> None:
    own = path.removeprefix("vtax ")
    if entry.values != (own,):
        said = f"it is a spec of vtax {' '.join(entry.values)[:40]}, not of vtax {own}"
        raise file.error(entry, said, f"vtax {' '.join(entry.values)[:40]} --spec {file.path}")


def _words(
    file: SpecFile, entry: Entry, known: Mapping[str, Any], given: frozenset[str]
) -> list[str]:
    """The words of the command line for an entry; none where the command line has the option."""
    option = known.get(entry.key)
    if option is None or option.name in {"spec", "help"}:
        names = [name for name in known if name not in {"spec", "help"}]
        error = unknown("key", entry.key, [*OWN_KEYS, *names])
        if entry.is_list and PARAM in known:
            raise file.error(entry, error.message, f"{_axis(entry.key)}; {error.remedy}")
        raise _located(file, entry, error)
    if option.name in given:
        return []
    if option.is_flag:
        if entry.is_switch is None:
            raise file.error(entry, f"{entry.key} is true or false")
        on, off = option.opts[0], [each for each in option.secondary_opts if each[:2] == "--"]
        return [on] if entry.is_switch else off[:1]
    if entry.is_list and not option.multiple:
        other = f"; {_axis(entry.key)}" if PARAM in known else ""
        raise file.error(entry, f"{entry.key} takes one value", f"make a run for each{other}")
    swept = PARAM in given or any(each.key == PARAM for each in file.entries)
    if check := _checks().get(option.metavar or ""):
        for value in entry.values:
            if swept and "{" in value:
                continue  # It is an environment only with the values of parameters.
            try:
                check(value)
            except MisuseError as error:
                raise _located(file, entry, error) from None
    return [f"--{entry.key}={value}" for value in entry.values]


def _axis(key: str) -> str:
    """What to write where the values of a list were to take turns."""
    return f"for an axis write {PARAM}: {{{key}: [...]}}, and {{{key}}} in the command or in 'in'"


def _checks() -> Mapping[str, Callable[[str], object]]:
    """What options of a kind take, by the word that help has for it: so errors have a line."""
    from vtax.core.units import parse_duration, parse_size
    from vtax.environments import build

    return {
        "SPEC": build,
        "SPEC|none": lambda text: text == "none" or build(text),
        "TIME": parse_duration,
        "SIZE": parse_size,
    }


def _located(file: SpecFile, entry: Entry, error: MisuseError) -> MisuseError:
    return file.error(entry, error.message, error.remedy)


def in_file(file: SpecFile, error: Any) -> MisuseError | None:
    """The error of the parser with the line of the file that it is about; None: it is about the
    command line."""
    param = getattr(error, "param", None)
    names = {each.lstrip("-") for each in (*param.opts, *param.secondary_opts)} if param else set()
    for entry in file.entries:
        if entry.key in names:
            return file.error(entry, error.format_message())
    return None


def parsed(context: Any) -> None:
    """Keep what a verb's command line says, for the run folder."""
    _PARSED.set(context)


def command_line() -> tuple[str, ...] | None:
    """The command line with the file's words instead of the file; None where there was no file."""
    context = _PARSED.get()
    words = context.meta.get(_WORDS) if context else None
    return None if words is None else (*context.command_path.split(), *_without(words))


def _without(words: Sequence[str]) -> Iterator[str]:
    """Words without the option and its file."""
    left = iter(words)
    for word in left:
        if word == "--":
            yield word
            break
        if word == OPTION:
            next(left, None)
        elif not word.startswith(f"{OPTION}="):
            yield word
    yield from left


def text(own: Mapping[str, Any]) -> str:
    """The spec file that repeats the verb that was parsed last, with values of options that vtax
    chose; empty where no verb was."""
    import yaml

    if (context := _PARSED.get()) is None:
        return ""
    content = _mapping(context, own)
    # Letters beyond ASCII are escaped: some of them end a line in YAML.
    made: str = yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=100)
    return f"# vtax {content['verb']} {OPTION} FILE does this again.\n{made}"


def _mapping(context: Any, own: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are not at their default, and the command."""
    found: dict[str, Any] = {"vtax": VERSION, "verb": context.command_path.removeprefix("vtax ")}
    command: list[str] = []
    for each in context.command.params:
        value = own.get(each.name, context.params.get(each.name))
        if each.param_type_name == "argument":
            command = [str(word) for word in value or ()]
        elif each.name not in INVOCATION and _is_set(each, value, context):
            name = next(opt for opt in each.opts if opt.startswith("--"))
            found[name.lstrip("-")] = _plain(value)
    return found | ({COMMAND: command} if command else {})


def _is_set(option: Any, value: Any, context: Any) -> bool:
    return value not in (None, [], ()) and value != option.get_default(context)


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Path):
        # The run may be repeated from another folder.
        return str(value.absolute())
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
