"""Changes as JUnit XML, in the form that pytest writes and Jenkins reads.

A test case is a metric of an environment. It fails where the metric got worse by more than the
margin, is an error where it is missing now, and skipped where there is nothing to compare.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

from vtax.compare.history.changes import Change, Changes
from vtax.compare.history.page import line
from vtax.core.page.format import one_line
from vtax.core.statistics.results import Verdict

_OUTCOMES = {
    Verdict.SLOWER: "failure",
    Verdict.NOT_MEASURED: "error",
    Verdict.NOT_COMPARED: "skipped",
}
_NOT_XML = re.compile("[\ufffe\uffff]")
"""What XML 1.0 cannot have (section 2.2), not even escaped, besides what `one_line` makes
visible."""


def document(found: Changes, started_utc: str) -> bytes:
    """The XML of all changes; `started_utc` is the ISO time of the run."""
    cases = [_case(each, found) for each in found.changes]
    outcomes = [child.tag for case in cases for child in case]
    counts = {
        "tests": len(cases),
        "failures": outcomes.count("failure"),
        "errors": outcomes.count("error"),
        "skipped": outcomes.count("skipped"),
    }
    counted = {name: str(count) for name, count in counts.items()}
    suite = ElementTree.Element("testsuite", {"name": "vtax", **counted})
    # The schema's times have no zone.
    suite.set("timestamp", started_utc.partition("+")[0])
    properties = ElementTree.SubElement(suite, "properties")
    known = {"against": found.against, "commit": found.commit, "unlike": "; ".join(found.unlike)}
    for name, value in known.items():
        if value:
            ElementTree.SubElement(properties, "property", name=name, value=_text(value))
    suite.extend(cases)
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    content: bytes = ElementTree.tostring(root, "utf-8", xml_declaration=True)
    return content


def _case(each: Change, found: Changes) -> ElementTree.Element:
    case = ElementTree.Element(
        "testcase", classname=_text(each.environment), name=_text(each.metric)
    )
    said = _text(line(each, found))
    if (outcome := _OUTCOMES.get(each.verdict)) is not None:
        kind = each.verdict.value
        ElementTree.SubElement(case, outcome, type=kind, message=said).text = said
    else:
        ElementTree.SubElement(case, "system-out").text = said
    return case


def _text(text: str) -> str:
    return _NOT_XML.sub(lambda found: f"\\u{ord(found[0]):x}", one_line(text))
