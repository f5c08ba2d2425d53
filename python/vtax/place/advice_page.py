"""The answer of `vtax place advise`, as a page, as JSON, and as libvirt takes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

from vtax.core.page.format import one_line, plural, signed, significant
from vtax.core.page.page import Cell, Page, Section, Tone, notes, table, warnings
from vtax.place.cputune import cputune
from vtax.place.host_advice import Advised, HostAdvice
from vtax.place.interrupt_advice import AdvisedInterrupt, planned
from vtax.place.plan import cpu_list
from vtax.place.record import Predictor, ThreadAdvice
from vtax.place.sensitivity import Sensitivity

HEADINGS = ("advice", "role", "guest", "thread", "tid", "CPU %", "expected loss %")
INTERRUPT_HEADINGS = ("interrupt", "name", "guest", "CPUs now", "CPUs planned", "reason")
NOBODY = "no thread of this machine works for a guest"
_TONES = {"slow": Tone.GOOD, "fast": Tone.DOUBTFUL, "unknown": Tone.QUIET}


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


def page(answer: Answer, *, explain: bool) -> Page:
    """Tables of threads and interrupts, what the plan does, and what needs attention."""
    advice = answer.advice
    doubts = warnings(answer.notes)
    if not advice.threads:
        return Page("place advise", (Section(notes=doubts),), NOBODY)
    sections = [Section(table=table(HEADINGS, map(_row, advice.threads)), apart=True)]
    if answer.interrupts:
        found = table(INTERRUPT_HEADINGS, map(_interrupt_row, answer.interrupts))
        sections.append(Section(table=found, apart=True))
    if explain:
        sentences = [each.sentence for each in advice.threads]
        sentences += [each.sentence for each in answer.interrupts]
        sections.append(Section(notes=notes(f"{each}." for each in sentences), apart=True))
    said = (*notes([_power(answer), *_moves(answer)]), *doubts)
    return Page("place advise", (*sections, Section(notes=said, apart=True)), _heading(answer))


def _heading(answer: Answer) -> str:
    cores = answer.advice.cores
    kinds = [
        f"{each.name} ({cpu_list(each.cpus) or 'supposed'}) {each.speed_percent:.3g} %"
        for each in cores.classes
    ]
    threads = plural(len(answer.advice.threads), "thread")
    return f"{threads} that work for guests; cores: {', '.join(kinds)}, {cores.source}"


def _row(each: Advised) -> Sequence[str | Cell]:
    thread, found = each.thread, each.advice
    cpu = None if thread.cpu is None else 100.0 * thread.cpu
    return (
        Cell(found.advice, _TONES[found.advice]),
        thread.role,
        thread.guest or "-",
        thread.name,
        str(thread.tid),
        _short(cpu),
        _loss(found),
    )


def _interrupt_row(each: AdvisedInterrupt) -> Sequence[str | Cell]:
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


def _power(answer: Answer) -> str:
    if answer.no_watts is not None:
        return f"power of this host: not measured: {answer.no_watts}"
    drawn = ", ".join(f"{name} {watts:.3g} W" for name, watts in answer.measured_watts.items())
    return f"this host draws, measured: {drawn}"


def _moves(answer: Answer) -> list[str]:
    advice = answer.advice
    if advice.cores.supposed:
        return []
    moved = sum(each.thread.id in advice.plan.moved for each in advice.threads)
    kept = len(advice.planned) - moved
    text = f"plan: {plural(moved, 'thread')} to other cores"
    text += f", {kept} kept to the fast ones they may use" if kept else ""
    interrupts = len(planned(answer.interrupts))
    text += f", {plural(interrupts, 'interrupt')} to fast ones" if interrupts else ""
    file = answer.plan_file
    if file is None:
        return [text]
    return [text, f"written: {file}; try it: vtax place apply --plan {file}"]


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
