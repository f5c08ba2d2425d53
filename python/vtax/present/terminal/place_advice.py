"""The answer of `vtax place advise` on the terminal, as JSON, and as libvirt takes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

from rich.console import RenderableType
from rich.text import Text

from vtax.analysis.cputune import cputune
from vtax.analysis.host_advice import Advised, HostAdvice
from vtax.analysis.interrupt_advice import AdvisedInterrupt, planned
from vtax.analysis.place_advice import Sensitivity
from vtax.formats.place import Predictor, ThreadAdvice
from vtax.formats.plan import cpu_list
from vtax.present.format import one_line, plural, signed, significant
from vtax.present.terminal.tables import note, table, title

HEADINGS = ("advice", "role", "guest", "thread", "tid", "CPU %", "expected loss %")
INTERRUPT_HEADINGS = ("interrupt", "name", "guest", "CPUs now", "CPUs planned", "reason")
NOBODY = "no thread of this machine works for a guest"
_STYLES = {"slow": "green", "fast": "yellow", "unknown": "dim"}


@dataclass(frozen=True, slots=True)
class Answer:
    """Advice, with its sources."""

    advice: HostAdvice
    predictor: Predictor | Sensitivity | None
    predictor_from: str
    """The run or file of the predictor."""
    measured_watts: Mapping[str, float]
    no_watts: str | None
    """Why no watts were measured."""
    notes: tuple[str, ...]
    plan_file: str | None = None
    interrupts: tuple[AdvisedInterrupt, ...] = ()


def to_json(answer: Answer) -> dict[str, Any]:
    """What `--json` prints."""
    advice, cores = answer.advice, answer.advice.cores
    return {
        "threads": [_one(each) for each in advice.threads],
        "interrupts": [_interrupt(each) for each in answer.interrupts],
        "cores": {
            "source": cores.source,
            "supposed": cores.supposed,
            "classes": [
                {
                    "name": each.name,
                    "speed_percent": each.speed_percent,
                    "cpus": cpu_list(each.cpus) or None,
                }
                for each in cores.classes
            ],
        },
        "predictor": {"from": answer.predictor_from, "name": _name(answer.predictor)},
        "power": {"measured_watts": dict(answer.measured_watts), "absent": answer.no_watts},
        "plan": None if cores.supposed else _plan(answer),
        "notes": list(answer.notes),
    }


def _name(predictor: Predictor | Sensitivity | None) -> str | None:
    """The name of the predictor, or where the sensitivity was measured."""
    if isinstance(predictor, Sensitivity):
        return predictor.source
    return predictor.name if predictor else None


def _one(each: Advised) -> dict[str, Any]:
    thread = each.thread
    return {
        **each.advice.model_dump(mode="json"),
        "explanation": each.sentence,
        "cpu_percent": None if thread.cpu is None else 100.0 * thread.cpu,
        "cpus": cpu_list(thread.cpus) or None,
        "planned_cpus": cpu_list(each.cpus) or None,
    }


def _interrupt(each: AdvisedInterrupt) -> dict[str, Any]:
    interrupt = each.interrupt
    return {
        "number": interrupt.number,
        "name": interrupt.name,
        "guest": interrupt.guest,
        "advice": each.advice,
        "cpus": cpu_list(interrupt.cpus),
        "planned_cpus": cpu_list(each.cpus),
        "reason": each.reason,
    }


def _plan(answer: Answer) -> dict[str, Any]:
    return {
        "file": answer.plan_file,
        "threads": len(answer.advice.planned),
        "interrupts": len(planned(answer.interrupts)),
    }


def parts(answer: Answer, *, explain: bool) -> list[RenderableType]:
    """Tables of threads and interrupts, what the plan does, and what needs attention."""
    advice = answer.advice
    if not advice.threads:
        return [title(NOBODY), *_notes(answer)]
    found: list[RenderableType] = [title(_heading(answer)), Text("")]
    found.append(table(HEADINGS, [_row(each) for each in advice.threads]))
    if answer.interrupts:
        rows = [_interrupt_row(each) for each in answer.interrupts]
        found += [Text(""), table(INTERRUPT_HEADINGS, rows)]
    if explain:
        sentences = [each.sentence for each in advice.threads]
        sentences += [each.sentence for each in answer.interrupts]
        found += [Text(""), *(note(f"{sentence}.") for sentence in sentences)]
    return [*found, Text(""), *_power(answer), *_moves(answer), *_notes(answer)]


def _heading(answer: Answer) -> str:
    cores = answer.advice.cores
    kinds = [
        f"{each.name} ({cpu_list(each.cpus) or 'supposed'}) {each.speed_percent:.3g} %"
        for each in cores.classes
    ]
    threads = plural(len(answer.advice.threads), "thread")
    return f"{threads} that work for guests; cores: {', '.join(kinds)}, {cores.source}"


def _row(each: Advised) -> Sequence[str | Text]:
    thread, found = each.thread, each.advice
    cpu = None if thread.cpu is None else 100.0 * thread.cpu
    return (
        Text(found.advice, style=_STYLES[found.advice]),
        thread.role,
        thread.guest or "-",
        thread.name,
        str(thread.tid),
        _short(cpu),
        _loss(found),
    )


def _interrupt_row(each: AdvisedInterrupt) -> Sequence[str | Text]:
    interrupt = each.interrupt
    return (
        str(interrupt.number),
        interrupt.name,
        interrupt.guest or "-",
        cpu_list(interrupt.cpus),
        cpu_list(each.cpus),
        each.reason,
    )


def _loss(found: ThreadAdvice) -> str:
    if found.expected_loss_percent is None or found.low is None or found.high is None:
        return "not known"
    low, high = signed(found.low), signed(found.high)
    return f"{signed(found.expected_loss_percent)} [{low}, {high}]"


def _short(value: float | None) -> str:
    return "absent" if value is None else significant(value, 2)


def _power(answer: Answer) -> list[RenderableType]:
    if answer.no_watts is not None:
        return [note(f"power of this host: not measured: {answer.no_watts}")]
    drawn = ", ".join(f"{name} {watts:.3g} W" for name, watts in answer.measured_watts.items())
    return [note(f"this host draws, measured: {drawn}")]


def _moves(answer: Answer) -> list[RenderableType]:
    advice = answer.advice
    if advice.cores.supposed:
        return []
    moved = sum(each.thread.id in advice.plan.moved for each in advice.threads)
    kept = len(advice.planned) - moved
    text = f"plan: {plural(moved, 'thread')} to other cores"
    text += f", {kept} kept to the fast ones they may use" if kept else ""
    interrupts = len(planned(answer.interrupts))
    text += f", {plural(interrupts, 'interrupt')} to fast ones" if interrupts else ""
    written = [] if answer.plan_file is None else [
        note(f"written: {answer.plan_file}; try it: vtax place apply --plan {answer.plan_file}")
    ]  # fmt: skip
    return [note(text), *written]


def _notes(answer: Answer) -> list[RenderableType]:
    return [note(f"! {text}", "yellow") for text in answer.notes]


def libvirt(
    advice: HostAdvice, interrupts: Sequence[AdvisedInterrupt] = ()
) -> tuple[str, list[str]]:
    """A `<domain>` with its `<cputune>` for each guest, and what is not in them."""
    documents, left_out = [], []
    for guest, threads in advice.by_guest().items():
        found = cputune(threads)
        tune = ElementTree.fromstring(found.xml)
        if not len(tune):
            continue
        domain = ElementTree.Element("domain")
        ElementTree.SubElement(domain, "name").text = one_line(guest)
        domain.append(tune)
        ElementTree.indent(domain)
        documents.append(ElementTree.tostring(domain, encoding="unicode"))
        left_out += [f"{guest}: {text}" for text in found.left_out]
    if moving := planned(interrupts):
        numbers = plural(len(moving), "interrupt")
        left_out.append(f"{numbers}: libvirt does not place interrupts, a plan does (--plan)")
    return "\n".join(documents), left_out
