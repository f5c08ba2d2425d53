"""The settings of a simulation are described once; everything that takes them follows."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from command_line import SOURCE
from vtax.core.errors import MisuseError
from vtax.paging import Settings, simulate
from vtax.paging.settings import PAGES, Setting, checked, described, signature_of
from vtax.paging.settings_options import added, complete

ROOT = SOURCE.parent


class Extended(Settings, total=False):
    """The settings with one more option, which takes one line in Python."""

    prefetch: Annotated[bool, Setting(False, "Prefetch translations.")]
    depth: Annotated[int | None, Setting(None, "Depth of it.", "N", stored="prefetch_depth")]


def options_of(settings: type) -> Mapping[str, inspect.Parameter]:
    @added(before="out", settings=settings)
    def command(workload: str, out: str | None = None, **given: Any) -> None: ...

    return inspect.signature(command).parameters


def test_a_line_in_the_description_reaches_the_api_the_command_and_the_model() -> None:
    def call(workload: str, **settings: Any) -> None: ...

    parameters = signature_of(call, Extended).parameters
    assert parameters["prefetch"].default is False
    assert parameters["depth"].annotation == int | None
    assert list(options_of(Extended))[-3:] == ["prefetch", "depth", "out"]
    model = checked({"prefetch": True, "depth": 4}, settings=Extended)
    assert (model["prefetch"], model["prefetch_depth"]) == (True, 4)
    with pytest.raises(MisuseError, match=r"^unknown setting 'prefetch'"):
        simulate("random", prefetch=True)  # type: ignore[call-arg]


def test_the_command_reads_what_the_description_says() -> None:
    app = typer.Typer()
    found: dict[str, Any] = {}

    @app.command()
    @added(before="out", settings=Extended)
    def command(out: str | None = None, **given: Any) -> None:
        found.update(complete(given, Extended))

    line = ["--pages", "guest=2M", "--tables", "host=5", "--memory", "2G", "--prefetch"]
    ran = CliRunner().invoke(app, [*line, "--window", "10M"])
    assert ran.exit_code == 0, ran.output
    wanted = {"guest_page": "2M", "host_page": "2M", "guest_levels": 4, "host_levels": 5}
    wanted |= {"memory": "2G", "window": 10_000_000, "prefetch": True}
    assert found == checked(wanted, settings=Extended)
    helped = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).output
    assert all(each.setting.help in helped for each in described(Extended).values()
               if each.setting.pair is None)  # fmt: skip
    assert PAGES.help in helped


def test_every_setting_is_an_option_and_an_argument() -> None:
    arguments = set(inspect.signature(simulate).parameters)
    options = set(options_of(Settings))
    for name, each in described().items():
        assert name in arguments
        assert (each.setting.pair.name if each.setting.pair else name) in options


def test_the_binding_reads_the_same_settings() -> None:
    """The binding is one of the three files that an option touches; the third is the model's
    own."""
    source = (ROOT / "crates/python/src/request.rs").read_text()
    body = source.partition("struct Settings {")[2].partition("\n}")[0]
    fields = re.findall(r"^\s+(?:pub\(crate\) )?(\w+):", body, re.MULTILINE)
    assert sorted(fields) == sorted(each.stored for each in described().values())


def test_nothing_else_lists_the_settings() -> None:
    distinct = [name for name in described() if "_" in name] + ["isolation"]
    words = re.compile(rf"\b({'|'.join(distinct)})\b")
    package = SOURCE / "vtax"
    files = [*package.glob("paging/**/*.py"), package / "_native.pyi"]
    texts = {str(path.relative_to(package)): path.read_text() for path in files}
    named = {name for name, text in texts.items() if words.search(text)}
    assert named == {"paging/settings.py", "paging/sweep/verb.py"}, (
        "the latter has an example of a design"
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"windows": 1}, "unknown setting 'windows'; did you mean 'window'?"),
        ({"isolation": 1}, "isolation: 1 must be a boolean"),
        ({"seed": True}, "seed: True must be a number"),
        ({"seed": None}, "seed: None must be a number"),
        ({"window": 1.5}, "window is 1.5; write a whole number from 0 to"),
        ({"window": float("nan")}, "window is nan; write a whole number"),
        ({"window": "1.5"}, "window: '1.5' is not a whole number"),
        ({"guest_levels": 300}, "guest_levels is 300; write a whole number from 0 to 255"),
        ({"memory": "lots"}, "'lots' is not a size"),
        ({"host_page": 2}, "host_page: 2 must be text"),
        ({"host_ranges": "64M=2M"}, "host_ranges: '64M=2M' is not a range; write for example 0-"),
        ({"host_ranges": "0-2M=2M,"}, "host_ranges: '' is not a range"),
        ({"host_ranges": "0-lots=2M"}, "'lots' is not a size"),
    ],
)
def test_what_no_model_could_hold_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(MisuseError) as caught:
        checked(given)
    assert message in str(caught.value)


def test_numbers_and_texts_mean_the_same() -> None:
    texts = checked({"memory": "2G", "window": "500k", "instructions": "1e9"})
    numbers = checked({"memory": 2 << 30, "window": 5e5, "instructions": 1_000_000_000})
    assert texts == numbers


def test_every_setting_can_be_an_axis(tmp_path: Path) -> None:
    pytest.importorskip("vtax._native")
    from vtax.paging.sweep.design import read_design
    from vtax.paging.sweep.simulate import catalog

    values = {str: '["4K"]', bool: "[true]", int: "[2]", float: "[1e6]"}
    own = {"host_ranges": '["0-64M=4K"]'}
    path = tmp_path / "sweep.toml"
    for name, each in described().items():
        axis = f"[axes]\n{name} = {own.get(name, values[each.kinds[0]])}\n"
        path.write_text('workloads = ["swim"]\nmachines = ["zen4"]\nmodes = ["native"]\n' + axis)
        assert read_design(path, catalog()).size == 1


def test_a_range_may_be_written_with_spaces_and_in_plain_bytes() -> None:
    wanted = [(0, 64 << 20, "2M"), (1 << 30, 3 << 29, "4K")]
    for text in ("0-64M=2M,1G-1.5G=4K", "0 - 67108864 = 2M , 1GiB - 1536M = 4K"):
        assert checked({"host_ranges": text})["host_ranges"] == wanted
