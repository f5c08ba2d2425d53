"""Numbers and units in any form that programs print: exact, or refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import tested_machines
from vtax.core.errors import MisuseError, VtaxError
from vtax.workloads import parse
from vtax.workloads.base import Metric
from vtax.workloads.command import parse_pattern
from vtax.workloads.one_unit import OneUnit

README = "rate:MB/s=([0-9.]+) MB/s"


def read(pattern: str, text: str) -> Metric:
    return parse_pattern(pattern).read(text, "")


STYLES: dict[str, Callable[[Fraction, int], str]] = {
    # The value is digits / 10**places.
    "plain": lambda value, places: f"{float(value):.{places}f}",
    "exponent": lambda value, places: f"{float(value):.17e}",
    "capital exponent": lambda value, places: f"{float(value):.17E}",
    "thousands": lambda value, places: f"{float(value):,.{places}f}",
    "underscores": lambda value, places: f"{float(value):_.{places}f}",
    "signed": lambda value, places: f"{float(value):+.{places}f}",
    "swiss": lambda value, places: f"{float(value):,.{places}f}".replace(",", "'"),
    "narrow space": lambda value, places: f"{float(value):,.{places}f}".replace(",", "\u202f"),
    "spaces": lambda value, places: f"{float(value):,.{places}f}".replace(",", " "),
    "german": lambda value, places: f"{float(value):,.{places}f}".translate(
        str.maketrans(",.", ".,")
    ),
    "decimal comma": lambda value, places: f"{float(value):.{places}f}".replace(".", ","),
    "fortran": lambda value, places: f"{float(value):.17e}".replace("e", "D"),
    "power": lambda value, places: "{} x 10^{}".format(*f"{float(value):.17e}".split("e")),
    "k": lambda value, places: f"{float(value / 1000):.{places + 3}f}k",
    "million": lambda value, places: f"{float(value / 10**6):.{places + 6}f} million",
    "hex": lambda value, places: hex(int(value)),
    "uncertain": lambda value, places: f"{float(value):.{places}f} +- 0.5",
    "list": lambda value, places: f"{float(value):.{places}f}/77.5/3",
}
RATES = {
    "B/s": Fraction(1, 10**6),
    "kB/s": Fraction(1, 1000),
    "MB/s": Fraction(1),
    "GB/s": Fraction(1000),
    "MiB/s": Fraction(2**20, 10**6),
    "Mbit/s": Fraction(1, 8),
    "Gbps": Fraction(125),
    "MB per second": Fraction(1),
    "MB/sec": Fraction(1),
    "MB/min": Fraction(1, 60),
    "ms": None,
    "furlongs/s": None,
    "MB/fortnight": None,
}
DURATIONS = ("2m 3.5s", "2m3.5s", "5 min 3 s", "5 minutes, 3 seconds", "3d 2h", "1 hour and 2 min")
GROUPS = ("([0-9.]+)", "([0-9]+)", "([0-9.,]+)", r"(\S+)", ".*?([0-9])")


@settings(max_examples=1500)
@given(
    st.integers(1, 10**9),
    st.integers(0, 6),
    st.sampled_from(sorted(STYLES)),
    st.sampled_from(sorted(RATES)),
    st.sampled_from(("", " ")),
    st.sampled_from(GROUPS),
)
def test_a_number_is_exact_or_refused(
    digits: int, places: int, style: str, unit: str, gap: str, group: str
) -> None:
    # 1,234 is read with a comma between thousands: vtax runs programs in the C locale.
    assume(not (style == "decimal comma" and places == 3))
    assume(not (style == "german" and places in (0, 3)))
    value = Fraction(digits, 10**places)
    shown = STYLES[style](value, places)
    factor = RATES[unit]
    try:
        found = read(f"rate:MB/s=rate: {group}", f"rate: {shown}{gap}{unit}\n")
    except VtaxError as error:
        assert str(error).startswith("metric 'rate'") and "\n" not in str(error)
        return
    assert factor is not None
    wanted = Fraction(int(value)) if style == "hex" else value
    assert math.isclose(found.value, float(wanted * factor), rel_tol=1e-12)


@pytest.mark.parametrize(
    "style", sorted(set(STYLES) - {"german", "decimal comma", "hex", "spaces"})
)
def test_the_usual_styles_are_read(style: str) -> None:
    shown = STYLES[style](Fraction(1234567, 100), 2)
    assert math.isclose(read(r"r:steps/s=r \+?([0-9.]+)", f"r {shown} steps/s").value, 12345.67)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("rate: 1.234e+04 MB/s", 12340),
        ("rate: 1,234 MB/s", 1234),
        ("rate: 5. MB/s", 5),
    ],
)
def test_the_pattern_of_readme(text: str, value: float) -> None:
    assert read(README, text) == Metric("rate", "MB/s", "higher", value)


@pytest.mark.parametrize(
    ("pattern", "text", "value", "unit"),
    [
        ("mean:us=dev: ([0-9.]+)", "dev: 1.67 ms", 1670, "us"),
        ("mean:us=dev: ([0-9.]+)", "dev: 944us", 944, "us"),
        ("mean:us=dev: ([0-9.]+)", "dev: 944", 944, "us"),
        ("x:higher=took ([0-9]+)", "took 5 apples", 5, ""),
        ("x:higher=([0-9]+) of", "12 of 40", 12, ""),
        ("x:higher=([0-9]+)", "5 iterations", 5, ""),
        ("x:lower=([0-9.]+)ns/op", "31.5ns/op", 31.5, "ns/op"),
        ("x:lower=avg ([0-9.]+)", "time (ms) avg 5\n", 5, ""),
        ("x:lower=time .*: ([0-9.]+)", "time (ms): 5\n", 5, "ms"),
        ("rtt:ms=/([0-9.]+)/", "min/avg/max = 0.1/0.25/0.3 ms", 0.25, "ms"),
        ("t:ms=mean: ([0-9.]+)", "mean: 1.5 ms \u00b1 0.2 ms", 1.5, "ms"),
        ("x:higher=x=(.*)", "x=-3", -3, ""),
        ("x:higher=x=.([0-9.]+)", "x=-.5", -0.5, ""),
        ("x:higher=^50,([0-9.]+)", "50,1.25", 1.25, ""),
        ("x:us=Latency +([0-9.]+)", "Latency   635.91us    0.89ms  12.92ms", 635.91, "us"),
        ("x:ms=([0-9]+)", "5ms 9ms", 9, "ms"),
        ("x:ms=avg ([0-9.]+)", "avg 5 stddev 3", 5, "ms"),
        ("x:GB/s=copied, .* ([0-9.]+)", "1 GB copied, 0.5 s, 2.1 GB/s", 2.1, "GB/s"),
        ("x:higher:first=v ([0-9]+)", "v 1\nv 2\nv 9", 1, ""),
        ("x:higher:last=v ([0-9]+)", "v 1\nv 2\nv 9", 9, ""),
        ("x:higher:all=v ([0-9]+)", "v 1\nv 2\nv 9", 2, ""),
    ],
)
def test_read(pattern: str, text: str, value: float, unit: str) -> None:
    found = read(pattern, text)
    assert (found.value, found.unit) == (value, unit)


@pytest.mark.parametrize("prefix", [("milli", 1000), ("micro", 1), ("nano", Fraction(1, 1000))])
@pytest.mark.parametrize("stem", ["sec", "secs", "second", "seconds", "SECONDS"])
def test_times_written_out(prefix: tuple[str, Fraction], stem: str) -> None:
    assert read("v:us=v ([0-9]+)", f"v 5 {prefix[0]}{stem}").value == float(5 * prefix[1])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("v \x1b[1m5\x1b[0m GB/s", 5000),
        ("v \x1b]8;;x\x075\x1b]8;;\x07 \x1b[32mGB/s", 5000),
        ("v 12\b\b13 MB/s", 13),
        ("v 1 MB/s\rv 2 MB/s", 2),
        ("v 5 megabytes per second", 5),
        ("v 8 megabits per second", 1),
    ],
)
def test_as_a_terminal_shows_it(text: str, value: float) -> None:
    assert read("v:MB/s=v ([0-9]+)", text).value == value


@pytest.mark.parametrize(
    ("text", "us"), [("us: 5", 5), ("ms = 5", 5000), ("time_ms=5", 5000), ("rtt_min: 5", 5)]
)
def test_a_unit_before_the_number(text: str, us: float) -> None:
    assert read("v:us=[:=] *([0-9]+)", text).value == us


@pytest.mark.parametrize(
    ("pattern", "text", "said"),
    [
        ("v:ms=v ([0-9.]+)", "v 5 MB/s", "'MB/s', not 'ms'"),
        ("v:ms=v ([0-9.]+)", "v 5parsecs", "'parsecs'"),
        ("v:ms=v ([0-9.]+)", "v 3.5 min 4.0 max", "minutes or the least"),
        ("v:MB=v ([0-9.]+)", "v 1.5G", "1000 or of 1024"),
        ("v:higher=v ([0-9.]+)", "v 1.2.3", "is not a number"),
        ("v:higher=v ([0-9]+)", "v 1:23.4", "is not a number"),
        ("v:higher=v ([0-9]+)", "v 2024-01-02", "range"),
        ("v:higher=v ([0-9.]+)", "v 1e308", "1e-100"),
        ("v:higher=v (.*)", "v 1e-320", "1e-100"),
        ("v:higher=v 50,([0-9]+)", "v 50,123", "or several"),
        ("v:higher=([0-9]+) ms", "v 1 234 ms", "with spaces"),
        ("v:higher=v (.*)", "v 12 of 40", "is not a number"),
        *(("v:s=v ([0-9.]+)", f"v {text}", "several parts") for text in DURATIONS),
        *(("v:ms=v ([0-9.]+)", f"v {text}", "") for text in ("1h2m3s", "0o17", "0b11")),
        *(("v:lower=v ([0-9]+)", f"v 12{digit}", "piece") for digit in "\u0663\u00b2\u00bd"),
        ("v:ms=v ([0-9]+)", "v 5 jiffies", "'jiffies', not 'ms'"),
        ("v:MB/s=v ([0-9]+)", "v 5 MB/s/core", "'MB/s/core', not 'MB/s'"),
        *(("v:MB=v ([0-9]+)", f"v 5 MB{rest}", "product") for rest in ("*s^-1", " s-1", "\u00b7s")),
        ("v:s=: ([0-9]+)", "MB/s: 944", "'MB/s', not 's'"),
    ],
)
def test_refused(pattern: str, text: str, said: str) -> None:
    with pytest.raises(VtaxError, match="metric 'v'") as caught:
        read(pattern, text)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("name", "printed", "better", "source"),
    [
        ("errors_per_s", "rate 500", "lower", "assumed"),
        ("rate", "rate 5.2s/it", "lower", "unit"),
        ("ops_per_s", "rate 500 ops per second", "higher", "unit"),
        ("MB_s", "rate 500 ops per second", "higher", "unit"),
        ("ops_per_s", "rate 500", "higher", "assumed"),
        ("requests_per_sec", "rate 500", "higher", "assumed"),
        ("cost:lower", "rate 500", "lower", "given"),
        ("x:ns/op", "rate 500", "lower", "unit"),
        ("x:widgets/s", "rate 500", "higher", "unit"),
        ("run_s", "rate 500", "lower", "assumed"),
        ("latency", "rate 500", "lower", "assumed"),
    ],
)
def test_directions(name: str, printed: str, better: str, source: str) -> None:
    found = read(f"{name}=rate ([0-9]+)", printed)
    assert (found.better, found.better_from) == (better, source)


@pytest.mark.parametrize(
    "name",
    [
        *("cost", "foo", "miss_rate", "loss_rate", "failed_ops", "throughput_ms"),
        *("frames_dropped_per_s", "drops:packets/s"),
        *("x:errors/s", "x:dropped_frames/s", "x:lostPackets/s"),
    ],
)
def test_a_direction_that_cannot_be_known_is_asked_for(name: str) -> None:
    workload = parse(["x"], [f"{name}=v ([0-9]+)"])

    class Folder:
        def read_text(self, name: str, limit_bytes: int = 0) -> str:
            return "v 5" if name == "stdout" else ""

        def read_bytes(self, name: str, limit_bytes: int = 0) -> bytes:
            return self.read_text(name).encode()

    with pytest.raises(VtaxError, match=r"higher or lower, is not known.*:lower="):
        workload.metrics(tested_machines.OUTCOME, Folder())


def test_one_unit_in_all_repetitions() -> None:
    units = OneUnit()
    one = read("mean=dev: ([0-9.]+)", "dev: 944 us")
    two = read("mean=dev: ([0-9.]+)", "dev: 1.67 ms")
    assert [units.same([each])[0].value for each in (one, two)] == [944, 1670]
    assert units.same([two])[0].unit == "us"
    for text in ("dev: 5 MB/s", "dev: 5"):
        with pytest.raises(VtaxError, match="here, the unit 'us' before"):
            units.same([read("mean:lower=dev: ([0-9.]+)", text)])


def test_an_unknown_word_behind_the_number_is_the_same_in_all_repetitions() -> None:
    units = OneUnit()
    for text in ("dev: 5 jiffies", "dev: 1 jiffie", "dev: 7", "dev: 6 in all"):
        units.same([read("mean:lower=dev: ([0-9.]+)", text)])
    with pytest.raises(VtaxError, match="'ticks' stands behind the number here, 'jiffies' before"):
        units.same([read("mean:lower=dev: ([0-9.]+)", "dev: 5 ticks")])
    hosts = OneUnit()
    for text in ("dev: 5 alpha", "dev: 5 beta"):
        hosts.same([read(r"mean:lower=dev: ([0-9.]+) \w+", text)])


@given(st.from_regex("[g-z]{4,9}q", fullmatch=True), st.from_regex("[g-z]{4,9}q", fullmatch=True))
def test_two_unknown_words_are_the_same_or_refused(one: str, other: str) -> None:
    units = OneUnit()
    units.same([read("mean:lower=dev: ([0-9.]+)", f"dev: 5 {one}")])
    again = read("mean:lower=dev: ([0-9.]+)", f"dev: 5 {other}")
    if one == other:
        units.same([again])
    else:
        with pytest.raises(VtaxError, match=f"'{other}' stands behind the number here, '{one}'"):
            units.same([again])


@pytest.mark.parametrize("text", ["a:lower:higher=(.)", "a:ms:us=(.)", "a:first:last=(.)"])
def test_contradictions_are_misuse(text: str) -> None:
    with pytest.raises(MisuseError, match="is neither"):
        parse_pattern(text)
