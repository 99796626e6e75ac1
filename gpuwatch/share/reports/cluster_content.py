"""What a comparison over the nodes of a cluster shows: the odd nodes, a row for each node, and their machines."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence

from gpuwatch.core.formatting.durations import seconds
from gpuwatch.core.formatting.units import UNKNOWN, percent, size
from gpuwatch.core.model.comparison import Comparison, Node, OddFact
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.share.reports.content import GLYPHS, SIMULATED_MACHINE, Content, Table, clean
from gpuwatch.share.reports.doctor_content import doctor_content
from gpuwatch.share.reports.snapshot_content import snapshot_content

_STATES = {
    "ok": ("ok", "answered"),
    "finding": ("warning", "answered"),
    "failed": ("error", "failed"),
    "no-answer": ("error", "no answer"),
    "timed-out": ("error", "timed out"),
    "interrupted": ("interrupted", "interrupted"),
}
_NAMES = 3
_EVERY = {1: "The node", 2: "Both nodes"}


def is_cluster(document: Comparison) -> bool:
    """Whether the comparison is one of nodes."""
    return bool(document.nodes or document.odd)


def lost(document: Comparison) -> tuple[Node, ...]:
    """The nodes that brought nothing home."""
    return tuple(node for node in document.nodes if node.state not in ("ok", "finding"))


def cluster_sentence(document: Comparison) -> str:
    """``n7 is odd: 7 GPUs instead of 8; n9: no answer to ssh``; how many nodes answered if all is well."""
    by_node: dict[str, list[OddFact]] = {}
    for fact in document.odd:
        by_node.setdefault(fact.node, []).append(fact)
    parts = [f"{clean(node)} is odd: {_difference(facts)}" for node, facts in list(by_node.items())[:_NAMES]]
    if len(by_node) > _NAMES:
        parts.append(f"{len(by_node) - _NAMES} more are odd")
    silent = lost(document)
    parts += [f"{clean(node.node)}: {clean(node.reason or _STATES[node.state][1])}" for node in silent[:_NAMES]]
    if len(silent) > _NAMES:
        parts.append(f"{len(silent) - _NAMES} more brought nothing home")
    if parts:
        return "; ".join(parts)
    count = len(document.nodes)
    judged = "" if document.odd_notes or count < 2 else ", none is odd"
    return f"{_EVERY.get(count, f'All {count} nodes')} answered{judged}" if count else ""


def _difference(facts: Sequence[OddFact]) -> str:
    fact = facts[0]
    if fact.what == "number of GPUs":
        difference = f"{fact.value} GPUs instead of {fact.usual}"
    elif fact.kind == "speed":
        difference = f"{fact.detail.partition(';')[0]} ({fact.what.removeprefix('speed of ')})"
    else:
        difference = f"{fact.what} {fact.value} instead of {fact.usual}"
    return clean(difference) + (f" and {len(facts) - 1} more" if len(facts) > 1 else "")


def odd_table(document: Comparison) -> Table:
    """The odd nodes."""
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
    return Table("Odd nodes", heads, rows, note=_notes(document), keep=frozenset({0}), sortable=True)


def _notes(document: Comparison) -> str:
    """What could not be judged: below the odd nodes, or else below all."""
    return " ".join(clean(note).rstrip(".") + "." for note in document.odd_notes)


def node_table(document: Comparison) -> Table:
    """A row for each node: what became of it, and its machine as far as it is known."""
    known = any(node.snapshot is not None for node in document.nodes)
    has_runs = any(node.runs for node in document.nodes)
    answers = any(node.answer for node in document.nodes)
    same_names = all(node.host in (None, node.node) for node in document.nodes)
    rows = []
    for node in document.nodes:
        state, word = _STATES[node.state]
        row = [
            clean(node.node),
            f"{GLYPHS[state]}\u00a0{word}",
            *(() if same_names else (clean(node.host),)),
            UNKNOWN if node.took_seconds is None else seconds(node.took_seconds),
        ]
        if has_runs:
            row.append(str(node.runs) if node.state in ("ok", "finding") else UNKNOWN)
        if known:
            row += _machine(node.snapshot)
        row.append(clean("; ".join(filter(None, (node.answer, node.reason)))))
        rows.append(tuple(row))
    heads = ["Node", "Result", *(() if same_names else ("Host",)), "Took"]
    heads += ["Runs"] if has_runs else []
    heads += ["GPUs", "Busy", "Memory used", "Driver"] if known else []
    last = "Found" if answers else "Why"
    right = {index for index, head in enumerate(heads) if head in ("Took", "Runs", "Busy", "Memory used")}
    less = tuple(
        index for name in ("Took", "Host", "Runs", "Driver") for index in range(len(heads)) if heads[index] == name
    )
    empty = all(row[-1] == UNKNOWN for row in rows)
    return Table(
        "Nodes",
        tuple(heads if empty else [*heads, last]),
        tuple(row[:-1] if empty else row for row in rows),
        frozenset(right),
        note="" if document.odd else _notes(document),
        keep=frozenset({0, 1}),
        optional=less,
        lines=3,
        sortable=True,
    )


def _machine(snapshot: Snapshot | None) -> list[str]:
    """GPUs, the busiest one's utilization, memory used of all, and the driver."""
    if snapshot is None:
        return [UNKNOWN] * 4
    names = Counter(clean(device.name) for device in snapshot.devices)
    busy = [value for device in snapshot.devices if (value := device.number("utilization.gpu_percent")) is not None]
    used = [device.number("memory.used_bytes") for device in snapshot.devices]
    total = [device.number("memory.total_bytes") for device in snapshot.devices]
    memory = UNKNOWN
    if used and None not in used and None not in total:
        memory = f"{size(sum(filter(None, used)))} of {size(sum(filter(None, total)))}"
    return [
        ", ".join(f"{count} × {name}" for name, count in names.items()) or UNKNOWN,
        percent(max(busy)) if busy else UNKNOWN,
        memory,
        clean(snapshot.driver.version) if snapshot.driver is not None else UNKNOWN,
    ]


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
