"""What a comparison over the nodes of a cluster shows: the odd nodes, a row for each node, and their machines."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence

from gpuwatch.core.formatting.durations import measured_seconds
from gpuwatch.core.formatting.units import UNKNOWN, percent, size
from gpuwatch.core.grouping import grouped
from gpuwatch.core.model.run_comparison import Comparison, Node, OddFact
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.share.reports.doctor_report import doctor_content
from gpuwatch.share.reports.report_elements import GLYPHS, SIMULATED_MACHINE, Content, Table, clean, columns
from gpuwatch.share.reports.snapshot_report import snapshot_content

_STATES = {
    "ok": ("ok", "answered"),
    "finding": ("warning", "answered"),
    "failed": ("error", "failed"),
    "no-answer": ("error", "no answer"),
    "timed-out": ("error", "timed out"),
    "interrupted": ("interrupted", "interrupted"),
}
_MAX_NAMES = 3
_EVERY = {1: "The node", 2: "Both nodes"}


def lost_nodes(document: Comparison) -> tuple[Node, ...]:
    """The nodes that brought nothing home."""
    return tuple(node for node in document.nodes if node.state not in ("ok", "finding"))


def cluster_sentence(document: Comparison) -> str:
    """``n7 is odd: 7 GPUs instead of 8; n9: no answer to ssh``; how many nodes answered if all is well."""
    by_node = grouped(document.odd, lambda fact: fact.node)
    parts = [f"{clean(node)} is odd: {_difference_text(facts)}" for node, facts in list(by_node.items())[:_MAX_NAMES]]
    if len(by_node) > _MAX_NAMES:
        parts.append(f"{len(by_node) - _MAX_NAMES} more are odd")
    silent = lost_nodes(document)
    parts += [f"{clean(node.node)}: {clean(node.reason or _STATES[node.state][1])}" for node in silent[:_MAX_NAMES]]
    if len(silent) > _MAX_NAMES:
        parts.append(f"{len(silent) - _MAX_NAMES} more returned no result")
    if parts:
        return "; ".join(parts)
    count = len(document.nodes)
    judged = "" if document.odd_notes or count < 2 else ", none is odd"
    return f"{_EVERY.get(count, f'All {count} nodes')} answered{judged}" if count else ""


def _difference_text(facts: Sequence[OddFact]) -> str:
    fact = facts[0]
    if fact.what == "number of GPUs":
        difference = f"{fact.value} GPUs instead of {fact.usual}"
    elif fact.kind == "speed":
        difference = f"{fact.detail.partition(';')[0]} ({fact.what.removeprefix('speed of ')})"
    else:
        difference = f"{fact.what} {fact.value} instead of {fact.usual}"
    return clean(difference) + (f" and {len(facts) - 1} more" if len(facts) > 1 else "")


def odd_table(document: Comparison) -> Table:
    """Table of the odd nodes, with what differs."""
    rows = tuple(
        (
            clean(fact.node),
            clean(fact.what),
            clean(fact.value),
            clean(fact.usual),
            " ".join(filter(None, (f"{fact.siblings} siblings", f"· {clean(fact.detail)}" if fact.detail else ""))),
        )
        for fact in document.odd
    )
    heads = ("Node", "What", "There", "Most others", "Compared with")
    return Table("Odd nodes", heads, rows, note=_not_judged(document), keep=("Node",), sortable=True)


def _not_judged(document: Comparison) -> str:
    """What could not be judged: below the odd nodes, or else below all."""
    return " ".join(clean(note).rstrip(".") + "." for note in document.odd_notes)


def node_table(document: Comparison) -> Table:
    """A row for each node: what became of it, and its machine as far as it is known."""
    nodes = document.nodes
    known = any(node.snapshot is not None for node in nodes)
    has_runs = any(node.runs for node in nodes)
    same_names = all(node.host in (None, node.node) for node in nodes)
    last = "Found" if any(node.answer for node in nodes) else "Why"
    empty = not any(node.answer or node.reason for node in nodes)
    cells = (
        {
            "Node": clean(node.node),
            "Result": f"{GLYPHS[_STATES[node.state][0]]}\u00a0{_STATES[node.state][1]}",
            "Host": clean(node.host),
            "Took": UNKNOWN if node.took_seconds is None else measured_seconds(node.took_seconds),
            "Runs": str(node.runs) if node.state in ("ok", "finding") else UNKNOWN,
            **(_machine_cells(node.snapshot) if known else {}),
            last: clean("; ".join(filter(None, (node.answer, node.reason)))),
        }
        for node in nodes
    )
    return Table(
        "Nodes",
        *columns(cells),
        right=("Took", "Runs", "Busy", "Memory used"),
        note="" if document.odd else _not_judged(document),
        keep=("Node", "Result"),
        optional=("Took", "Host", "Runs", "Driver"),
        lines=3,
        sortable=True,
    ).without(*["Host"] * same_names, *["Runs"] * (not has_runs), *[last] * empty)


def _machine_cells(snapshot: Snapshot | None) -> dict[str, str]:
    """GPUs, the busiest one's utilization, memory used of all, and the driver."""
    if snapshot is None:
        return dict.fromkeys(("GPUs", "Busy", "Memory used", "Driver"), UNKNOWN)
    names = Counter(clean(device.name) for device in snapshot.devices)
    busy = [value for device in snapshot.devices if (value := device.number("utilization.gpu_percent")) is not None]
    used = [device.number("memory.used_bytes") for device in snapshot.devices]
    total = [device.number("memory.total_bytes") for device in snapshot.devices]
    memory = UNKNOWN
    if used and None not in used and None not in total:
        memory = f"{size(sum(filter(None, used)))} of {size(sum(filter(None, total)))}"
    return {
        "GPUs": ", ".join(f"{count} × {name}" for name, count in names.items()) or UNKNOWN,
        "Busy": percent(max(busy)) if busy else UNKNOWN,
        "Memory used": memory,
        "Driver": clean(snapshot.driver.version) if snapshot.driver is not None else UNKNOWN,
    }


def simulated_machines(document: Comparison) -> str:
    """What readers must know of nodes with simulated GPUs; empty if there are none."""
    machines = (node.snapshot or node.doctor for node in document.nodes)
    return SIMULATED_MACHINE if any(machine is not None and machine.simulated for machine in machines) else ""


def machine_parts(document: Comparison) -> Iterator[Content]:
    """The machine of each node, whole, as formats show it on demand."""
    for node in document.nodes:
        name = clean(node.node)
        if node.snapshot is not None:
            yield dataclasses.replace(snapshot_content(node.snapshot), title=f"{name}: machine")
        if node.doctor is not None:
            yield dataclasses.replace(doctor_content(node.doctor), title=f"{name}: doctor")
