"""Tables that several kinds of documents share: device maps, placements, fallbacks, failures."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from gpuwatch.core.formatting.units import UNKNOWN, percent, size
from gpuwatch.core.model.findings import CAUSES
from gpuwatch.core.model.run import (
    DeviceCopy,
    DeviceMapping,
    Fallback,
    Oom,
    Placement,
    PlacementCoverage,
    Run,
    RunError,
    RunProcess,
)
from gpuwatch.explain.logs.clean import device as _device_name
from gpuwatch.share.reports.content import Table, clean
from gpuwatch.share.reports.ledger import expectation, expected

_ROWS = 40
"""Longer tables end in "… and n more": a log can have hundreds of ops."""


def short_device(name: str) -> str:
    """``GPU:0`` of ``/job:localhost/replica:0/task:0/device:GPU:0``."""
    return _device_name(clean(name))


def device_map(of: Run | RunProcess) -> str:
    """``GPU:0→1`` for every framework device: the physical index follows the arrow."""
    if not of.device_map:
        return "none" if of.devices.logical else UNKNOWN
    return ", ".join(map(mapping_text, of.device_map))


def mapping_text(mapping: DeviceMapping) -> str:
    """``GPU:0→1``, or with the PCI bus id if the index is unknown."""
    physical = mapping.physical_index if mapping.physical_index is not None else mapping.pci_bus_id or "?"
    return f"{short_device(mapping.framework_device)}→{clean(physical)}"


def cut(rows: Sequence[tuple[str, ...]], columns: int) -> tuple[tuple[str, ...], ...]:
    """The first rows, and how many more there are."""
    if len(rows) <= _ROWS:
        return tuple(rows)
    more = (f"… and {len(rows) - _ROWS} more", *[""] * (columns - 1))
    return (*rows[:_ROWS], more)


def device_map_table(mappings: Sequence[DeviceMapping], run: Run | None = None) -> Table:
    """Framework devices and their physical GPUs; with a run, the expected grants, and every process that has some."""
    predicted = run is not None and bool(run.predicted)
    mapped = [process for process in run.processes if process.device_map] if run is not None else []
    several = len(mapped) > 1
    owned = (
        [(process.pid, m) for process in mapped for m in process.device_map] if several else [(0, m) for m in mappings]
    )
    rows = [
        (
            *([str(pid)] if several else []),
            short_device(m.framework_device),
            clean(m.cuda_ordinal),
            clean(m.physical_index),
            clean(m.name),
            clean(m.uuid),
            clean(m.pci_bus_id),
            clean(m.compute_capability),
            size(m.granted_bytes),
            *([expected(run, m.framework_device)] if run is not None and predicted else []),
        )
        for pid, m in owned
    ]
    heads: tuple[str, ...] = ("Framework", "CUDA", "Physical", "Name", "UUID", "PCI bus id", "Cap.", "Granted")
    first = int(several)
    heads = ("Process", *heads) if several else heads
    if predicted:
        heads = (*heads, "Expected")
    return Table(
        "Device map",
        heads,
        tuple(rows),
        frozenset(first + column for column in (1, 2, 7, 8)),
        note=expectation(run) if run is not None else "",
        optional=(first + 6, first + 5),
    )


def coverage_text(coverage: PlacementCoverage) -> str:
    """Of how many nodes it is not known where they ran, or what was requested for them."""
    few = 0 < coverage.unclear < coverage.nodes / 200
    share = "under 1 %" if few else percent(100 * coverage.unclear / coverage.nodes if coverage.nodes else None)
    return f"{coverage.unclear} of {coverage.nodes} graph nodes ({share}): place or request is not known"


def copy_table(copies: Sequence[DeviceCopy]) -> Table:
    """Inputs that TensorFlow copied between devices by itself."""
    rows = [
        (clean(c.op), str(c.input), short_device(c.source), short_device(c.destination), str(c.count)) for c in copies
    ]
    heads = ("Op", "Input", "From", "To", "Count")
    note = "Inputs of eager ops in the memory of another device, as far as they are known. Each copy takes time."
    return Table("Automatic copies", heads, cut(rows, len(heads)), frozenset({4}), note=note if rows else "")


def placement_table(placements: Sequence[Placement], coverage: PlacementCoverage | None = None) -> Table:
    """Where each op ran, and how often."""
    rows = [
        (
            clean(p.op),
            clean(p.dtype),
            short_device(p.requested) if p.requested else "auto",
            short_device(p.actual) if p.actual else "refused" if p.why in ("refused", "absent") else "unknown",
            str(p.count),
        )
        for p in placements
    ]
    heads = ("Op", "Type", "Requested", "Ran on", "Count")
    unclear = coverage is not None and coverage.unclear and rows
    note = f"{coverage_text(coverage)}." if coverage is not None and unclear else ""
    return Table("Placements", heads, cut(rows, len(heads)), frozenset({4}), note=note)


def fallback_table(fallbacks: Sequence[Fallback]) -> Table:
    """Ops that did not run where asked."""
    rows = [
        (
            clean(f.op),
            clean(f.dtype),
            clean(f.requested),
            clean(f.actual),
            clean(f.reason),
            clean(f.detail or CAUSES.get(f.reason)),
            str(f.count),
        )
        for f in fallbacks
    ]
    heads = ("Op", "Type", "Requested", "Ran on", "Reason", "Detail", "Count")
    return Table("Fallbacks", heads, cut(rows, len(heads)), frozenset({6}), below=5)


def said_once(table: Table) -> Table:
    """A sentence that all rows share as the note of the table, not as a column."""
    if table.below is None or len(table.rows) < 2:
        return table
    sentences = {row[table.below] for row in table.rows if row[table.below]}
    if len(sentences) != 1:
        return table
    note = f"{sentences.pop().rstrip('.')}. {table.note}".rstrip()
    return dataclasses.replace(table.without(table.below), note=note)


def oom_table(ooms: Sequence[Oom], *, with_expected: bool = True) -> Table:
    """Out-of-memory failures with their numbers; only probes have expected ones."""
    heads: tuple[str, ...] = ("Device", "Allocator", "Requested", "Limit", "In use", "Free", "Largest block", "Cause")
    heads = (*heads, "Expected") if with_expected else heads
    rows = [_oom_row(oom)[: len(heads)] for oom in ooms]
    return Table(
        "Out of memory",
        heads,
        cut(rows, len(heads)),
        frozenset({2, 3, 4, 5, 6}),
        below=7,
        optional=(1,),
        note="Free is limit minus in use (PyTorch: free on the device). A request larger than the largest block fails"
        " however much is free.",
    )


def _oom_row(oom: Oom) -> tuple[str, ...]:
    return (
        clean(oom.device),
        clean(oom.allocator),
        size(oom.requested_bytes),
        size(oom.limit_bytes),
        size(oom.in_use_bytes),
        f"{'~' if oom.rounded else ''}{size(oom.free_bytes)}",
        size(oom.largest_free_bytes),
        clean(oom.verdict),
        clean(oom.expected),
    )


def error_table(errors: Sequence[RunError], *, with_expected: bool = True) -> Table:
    """Exceptions of the framework."""
    heads = ("Type", "Message", "Expected")[: 3 if with_expected else 2]
    rows = [(clean(error.type), clean(error.message)[:600], clean(error.expected))[: len(heads)] for error in errors]
    return Table("Errors", heads, cut(rows, len(heads)), below=1)
