"""Tables of runs in several kinds of reports: device maps, placements, fallbacks, failures, processes, results."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from gpuwatch.core.formatting.units import UNKNOWN, percent, size
from gpuwatch.core.model.causes import CAUSES
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
    Worker,
)
from gpuwatch.experiment.probing.step_times import speed_text, why_not_comparable
from gpuwatch.explain.logs.device_names import device_name
from gpuwatch.share.reports.report_elements import Table, heads_and_rows
from gpuwatch.share.reports.report_text import clean
from gpuwatch.share.reports.run_memory_tables import expectation_note, expected_text

_MAX_ROWS = 40
"""Longer tables end in "… and n more": a log can have hundreds of ops."""
_RESULTS_OF_FINDINGS = (
    "cpu_hops", "large_constants", "eager_loop", "eager_functions", "forks_after_start", "graph_growth", "keras_calls",
    "replicas",
)  # fmt: skip
"""Results of a watched program that only its findings need."""
_ALONE_TEXT = "the time per step that it takes alone"


def short_device(name: str) -> str:
    """``GPU:0`` of ``/job:localhost/replica:0/task:0/device:GPU:0``."""
    return device_name(clean(name))


def device_map(subject: Run | RunProcess) -> str:
    """``GPU:0→1`` for every framework device: the physical index follows the arrow."""
    if not subject.device_map:
        return "none" if subject.devices.logical else UNKNOWN
    return ", ".join(map(mapping_text, subject.device_map))


def mapping_text(mapping: DeviceMapping) -> str:
    """``GPU:0→1``, or with the PCI bus id if the index is unknown."""
    physical = mapping.physical_index if mapping.physical_index is not None else mapping.pci_bus_id or "?"
    return f"{short_device(mapping.framework_device)}→{clean(physical)}"


def first_rows(rows: Sequence[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    """The first rows, and how many more there are."""
    if len(rows) <= _MAX_ROWS:
        return tuple(rows)
    return (*rows[:_MAX_ROWS], (f"… and {len(rows) - _MAX_ROWS} more", *[""] * (len(rows[0]) - 1)))


def heads_and_first_rows(cells: Iterable[Mapping[str, str]]) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """:func:`heads_and_rows`, of the first rows and how many more there are."""
    heads, rows = heads_and_rows(cells)
    return heads, first_rows(rows)


def device_map_table(mappings: Sequence[DeviceMapping], run: Run | None = None) -> Table:
    """Framework devices and their physical GPUs; with a run, the expected grants, and every process that has some."""
    mapped = [process for process in run.processes if process.device_map] if run is not None else []
    several_processes = len(mapped) > 1
    mappings_by_pid = [(0, mapping) for mapping in mappings]
    if several_processes:
        mappings_by_pid = [(process.pid, mapping) for process in mapped for mapping in process.device_map]
    cells = (
        ({"Process": str(pid)} if several_processes else {})
        | {
            "Framework": short_device(mapping.framework_device),
            "CUDA": clean(mapping.cuda_ordinal),
            "Physical": clean(mapping.physical_index),
            "Name": clean(mapping.name),
            "UUID": clean(mapping.uuid),
            "PCI bus id": clean(mapping.pci_bus_id),
            "Cap.": clean(mapping.compute_capability),
            "Granted": size(mapping.granted_bytes),
        }
        | ({"Expected": expected_text(run, mapping.framework_device)} if run is not None and run.predicted else {})
        for pid, mapping in mappings_by_pid
    )
    return Table(
        "Device map",
        *heads_and_rows(cells),
        right=("CUDA", "Physical", "Granted", "Expected"),
        note=expectation_note(run) if run is not None else "",
        optional=("Cap.", "PCI bus id"),
    )


def coverage_text(coverage: PlacementCoverage) -> str:
    """Number of graph nodes of unknown device or unknown request, as text."""
    is_small = 0 < coverage.unclear < coverage.nodes / 200
    share = "under 1 %" if is_small else percent(100 * coverage.unclear / coverage.nodes if coverage.nodes else None)
    return f"{coverage.unclear} of {coverage.nodes} graph nodes ({share}): device or request is not known"


def copy_table(copies: Sequence[DeviceCopy]) -> Table:
    """Inputs that TensorFlow copied between devices by itself."""
    rows = [
        (clean(copy.op), str(copy.input), short_device(copy.source), short_device(copy.destination), str(copy.count))
        for copy in copies
    ]
    note = "Inputs of eager ops in another device's memory, as far as they are known. Each copy takes time."
    heads = ("Op", "Input", "From", "To", "Count")
    return Table("Automatic copies", heads, first_rows(rows), ("Count",), note=note if rows else "")


def placement_table(placements: Sequence[Placement], coverage: PlacementCoverage | None = None) -> Table:
    """Where each op ran, and how often."""
    reasons = {"refused": "refused", "absent": "refused"}
    rows = [
        (
            clean(placement.op),
            clean(placement.dtype),
            short_device(placement.requested) if placement.requested else "auto",
            short_device(placement.actual) if placement.actual else reasons.get(placement.why, "unknown"),
            str(placement.count),
        )
        for placement in placements
    ]
    note = f"{coverage_text(coverage)}." if coverage is not None and coverage.unclear and rows else ""
    return Table("Placements", ("Op", "Type", "Requested", "Ran on", "Count"), first_rows(rows), ("Count",), note=note)


def fallback_table(fallbacks: Sequence[Fallback]) -> Table:
    """Ops that did not run where asked."""
    cells = (
        {
            "Op": clean(fallback.op),
            "Type": clean(fallback.dtype),
            "Requested": clean(fallback.requested),
            "Ran on": clean(fallback.actual),
            "Reason": clean(fallback.reason),
            "Detail": clean(fallback.detail or CAUSES.get(fallback.reason)),
            "Count": str(fallback.count),
        }
        for fallback in fallbacks
    )
    return Table("Fallbacks", *heads_and_first_rows(cells), ("Count",), below="Detail")


def with_shared_detail_as_note(table: Table) -> Table:
    """A sentence that all rows share as the note of the table, not as a column."""
    if table.below not in table.heads or len(table.rows) < 2:
        return table
    index = table.heads.index(table.below)
    sentences = {row[index] for row in table.rows if row[index]}
    if len(sentences) != 1:
        return table
    note = f"{sentences.pop().rstrip('.')}. {table.note}".rstrip()
    return dataclasses.replace(table.without(table.below), note=note)


def oom_table(ooms: Sequence[Oom]) -> Table:
    """Out-of-memory failures with their numbers; only probes have expected ones."""
    cells = (
        {
            "Device": clean(oom.device),
            "Allocator": clean(oom.allocator),
            "Requested": size(oom.requested_bytes),
            "Limit": size(oom.limit_bytes),
            "In use": size(oom.in_use_bytes),
            "Free": f"{'~' if oom.rounded else ''}{size(oom.free_bytes)}",
            "Largest block": size(oom.largest_free_bytes),
            "Cause": clean(oom.verdict),
            "Expected": clean(oom.expected),
        }
        for oom in ooms
    )
    return Table(
        "Out of memory",
        *heads_and_first_rows(cells),
        right=("Requested", "Limit", "In use", "Free", "Largest block"),
        below="Cause",
        optional=("Allocator",),
        note="Free is limit minus in use (PyTorch: free on the device). A request larger than the largest block "
        "fails no matter how much is free.",
    )


def error_table(errors: Sequence[RunError]) -> Table:
    """Exceptions of the framework."""
    rows = [(clean(error.type), clean(error.message)[:600], clean(error.expected)) for error in errors]
    return Table("Errors", ("Type", "Message", "Expected"), first_rows(rows), below="Message")


def workers_table(run: Run) -> Table:
    """The processes of a run: what each got, how it ended, and how fast it was alone and beside the others."""
    cells = (
        {
            "Setting": clean(worker.setting),
            "Process": clean(worker.name) + (f" ({worker.pid})" if worker.pid is not None else ""),
            "Verdict": worker.verdict,
            "Granted": size(worker.granted_bytes),
            "Seen by NVML": size(worker.nvml_bytes),
            "Alone": speed_text(worker.alone),
            "Together": speed_text(worker.throughput),
            "Slower by": slowdown_text(worker, simulated=run.simulated),
            # How much slower it was has its own column.
            "What happened": clean(worker.detail) if worker.detail and _ALONE_TEXT not in worker.detail else "",
        }
        for worker in run.workers
    )
    return Table(
        "Processes",
        *heads_and_rows(cells),
        right=("Granted", "Seen by NVML", "Alone", "Together", "Slower by"),
        note=_speeds_note(run),
        keep=("Process", "Verdict"),
        below="What happened",
    )


def _speeds_note(run: Run) -> str:
    measured = [(worker.alone, worker.throughput) for worker in run.workers if worker.throughput is not None]
    both = ((alone, together) for alone, together in measured if alone is not None)
    reasons = (why_not_comparable(alone, together, simulated=run.simulated) for alone, together in both)
    unknown = "; ".join(dict.fromkeys(filter(None, reasons)))
    note = f" A dash in Slower by: {unknown}." if unknown else ""
    return f"Alone and together in steps/s.{note}" if measured else ""


def slowdown_text(worker: Worker, *, simulated: bool) -> str:
    """``× 1.92``: how much longer a step takes beside the others than alone; a dash if it may be noise."""
    alone, together = worker.alone, worker.throughput
    if alone is None or together is None or alone.median_step_seconds <= 0:
        return UNKNOWN
    if why_not_comparable(alone, together, simulated=simulated):
        return UNKNOWN
    return f"× {together.median_step_seconds / alone.median_step_seconds:.2f}"


def results_table(run: Run) -> Table:
    """The results of the configuration; not what a finding tells in words."""
    rows = []
    for name, value in run.results.items():
        if name not in _RESULTS_OF_FINDINGS:
            # Words as in a heading, with the unit in the value; devices, ``cuda:0``, stay.
            title = clean(name.removesuffix("_bytes")).replace("_", " ")
            amount = size(value) if name.endswith("_bytes") and isinstance(value, (int, float)) else clean(value)
            rows.append((title if ":" in title else title[:1].upper() + title[1:], amount))
    return Table("Results", ("What", "Value"), tuple(rows))
