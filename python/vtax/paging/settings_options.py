"""The settings of a simulation as options, made from what `vtax.paging.settings` describes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, get_type_hints

import typer

from vtax.paging.arguments import pairs
from vtax.paging.settings import Described, Settings, checked, described


def added(
    before: str, settings: type = Settings
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for each setting, before its option `before`.

    The command gets their texts as ``**settings``; see `complete`.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(command, include_extras=True)
        own = [
            parameter.replace(annotation=hints[parameter.name])
            for parameter in inspect.signature(command).parameters.values()
            if parameter.kind is not parameter.VAR_KEYWORD
        ]
        index = [parameter.name for parameter in own].index(before)
        own[index:index] = _options(described(settings).values())
        command.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
        command.__annotations__ = {each.name: each.annotation for each in own}
        return command

    return decorate


def complete(texts: Mapping[str, Any], settings: type = Settings) -> dict[str, Any]:
    """All settings as `execute` takes them, from the options' texts.

    Raises MisuseError, naming the option, for a text that is no such setting.
    """
    given, labels = {}, {}
    for name, each in described(settings).items():
        labels[name], value = _found(each, texts)
        if value is not None:
            given[name] = each.read(labels[name], value) if isinstance(value, str) else value
    return checked(given, labels.__getitem__, settings)


def _found(each: Described, texts: Mapping[str, Any]) -> tuple[str, Any]:
    """The setting's name in messages, and what was given for it."""
    pair = each.setting.pair
    if pair is None:
        return f"--{each.name.replace('_', '-')}", texts[each.name]
    side = each.name.partition("_")[0]
    return f"--{pair.name} {side}", pairs(f"--{pair.name}", texts[pair.name]).get(side)


def _options(settings: Iterable[Described]) -> Iterator[inspect.Parameter]:
    shown = set()
    for each in settings:
        pair = each.setting.pair
        if pair is None:
            yield _option(each)
        elif pair not in shown:
            shown.add(pair)
            option = typer.Option(help=pair.help, metavar=pair.metavar)
            yield _parameter(pair.name, str | None, option, None)


def _option(each: Described) -> inspect.Parameter:
    setting, default = each.setting, each.setting.default
    if each.kinds == (bool,):
        flag = typer.Option(f"--{each.name.replace('_', '-')}", help=setting.help)
        return _parameter(each.name, bool, flag, default)
    if each.kinds == (int,):
        number = typer.Option(min=0, help=setting.help, metavar=setting.metavar)
        return _parameter(each.name, int, number, default)
    kind = str if default is not None else str | None
    option = typer.Option(help=setting.help, metavar=setting.metavar)
    return _parameter(each.name, kind, option, default)


def _parameter(name: str, kind: Any, option: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        default=default,
        annotation=Annotated[kind, option],
    )
