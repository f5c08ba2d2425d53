"""The section of a page with what each node of a cluster says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vtax.core.page.format import percent, percent_interval
from vtax.core.page.page import Section, table_section
from vtax.core.statistics.results import Comparison, NodeRatio, NodeSpread

NODES = "nodes"
"""The name of the section."""


def sections(comparison: Comparison) -> Iterator[Section]:
    """The table of nodes; none where no environment has several."""
    if not comparison.nodes:
        return
    lead = comparison.nodes[0].metric
    yield table_section(
        NODES,
        "Nodes",
        f"{lead} in % of the baseline's on each node [95 % interval]. The rows of all nodes say "
        "what to expect on other nodes like these: there each node counts as one observation.",
        ("environment", "node", "rounds", "% of the baseline", "nodes differ by"),
        [row for each in comparison.nodes for row in _rows(each)],
    )


def _rows(each: NodeSpread) -> Iterator[Sequence[str]]:
    for node in each.nodes:
        yield each.environment, node.node, str(node.rounds), _text(node), ""
    rounds = sum(node.rounds for node in each.nodes)
    between = f"{percent(each.between_percent)} %" if each.between_percent else "noise alone"
    yield each.environment, "nodes like these", str(rounds), _text(each), between


def _text(of: NodeRatio | NodeSpread) -> str:
    return f"{percent(of.percent)} [{percent_interval(of.low, of.high)}]"
