"""CSV: a row per run, per device (a column per metric), per finding of a log or report, or per check of the doctor.

Of a memory trace: a row per holder of memory, or per test. Of usage: a row per user, job or program. Of a stretch of a
recording: a row per GPU and step.
"""

from __future__ import annotations

import csv
import datetime
import io
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter

from gpuwatch.core.model.comparison import Comparison, Node
from gpuwatch.core.model.diagnostic_report import Diagnostic
from gpuwatch.core.model.doctor import Doctor
from gpuwatch.core.model.explanation import Explanation
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.gpu_time_usage import Usage
from gpuwatch.core.model.json_codec import Document
from gpuwatch.core.model.machine_diff import Diff
from gpuwatch.core.model.memory_profile import MemoryProfile
from gpuwatch.core.model.metrics import METRICS
from gpuwatch.core.model.recorded_period import GRAPHED, Period
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.core.model.try_results import Experiment, Trial
from gpuwatch.core.safe_text import safe_cell
from gpuwatch.explain.traces.largest_holder import describe_largest_holder
from gpuwatch.share.reports import run_report
from gpuwatch.share.reports.run_tables import device_map

_DEVICE_FIELDS = ("index", "uuid", "name", "pci_bus_id", "simulated", "state")
_MIG_FIELDS = ("mig_instance", "mig_profile")
"""Filled in the rows of MIG instances, which follow that of their GPU."""
_DEVICE_HEADS = ("taken_at", *_DEVICE_FIELDS, *(spec.id for spec in METRICS), *_MIG_FIELDS)
_RUN_FIELDS: dict[str, Callable[[Run], object]] = {
    "config": lambda run: run.config,
    "group": lambda run: run.group,
    "workload": lambda run: run.workload,
    "framework": lambda run: run.framework.name if run.framework else None,
    "framework_version": lambda run: run.framework.version if run.framework else None,
    "host": lambda run: run.host,
    "node": lambda run: run.node,
    "driver_version": lambda run: run.driver_version,
    "simulated": lambda run: run.simulated,
    "started_at": lambda run: run.started_at.isoformat(),
    "asked": lambda run: run_report.settings_text(run) if run.settings else None,
    "device_map": lambda run: device_map(run) if run.device_map else None,
    "granted_bytes": lambda run: _granted_bytes(run),
    "nvml_peak_bytes": lambda run: run.memory.nvml_peak_bytes,
    "allocator_peak_bytes": lambda run: run.memory.allocator_peak_bytes,
    "recorded_peak_bytes": lambda run: run.memory_profiles[0].peak_bytes if run.memory_profiles else None,
    "held_most": lambda run: describe_largest_holder(run.memory_profiles[0]) if run.memory_profiles else None,
    "on_gpu_percent": run_report.gpu_percent,
    "fell_back": lambda run: run_report.fallback_text(run) if run.fallbacks else None,
    "steps_per_second": lambda run: run.throughput and run.throughput.steps_per_second,
    "p10_step_seconds": lambda run: run.throughput and run.throughput.p10_step_seconds,
    "median_step_seconds": lambda run: run.throughput and run.throughput.median_step_seconds,
    "p90_step_seconds": lambda run: run.throughput and run.throughput.p90_step_seconds,
    "ooms": lambda run: len(run.ooms),
    "errors": lambda run: len(run.errors),
    "primary": lambda run: run.primary,
    "verdict": lambda run: run.verdict,
    "verdict_reason": lambda run: run.verdict_reason,
}
"""Column and its value of a run; None for unknown."""
_TRIAL_FIELDS: dict[str, Callable[[Trial], object]] = {
    "setting": lambda trial: trial.name,
    "round": lambda trial: trial.round or None,
    "applied": lambda trial: trial.applied,
    "overridden": lambda trial: trial.overridden or None,
    "not_tried": lambda trial: trial.not_tried or None,
    "changes_results": lambda trial: trial.changes_results,
    "steps": lambda trial: trial.steps,
    "counted": lambda trial: trial.counted or None,
    "step_median_seconds": lambda trial: trial.step_time and trial.step_time.median_seconds,
    "step_low_seconds": lambda trial: trial.step_time and trial.step_time.low_seconds,
    "step_high_seconds": lambda trial: trial.step_time and trial.step_time.high_seconds,
    "ended_by": lambda trial: trial.ended_by,
    "covered": lambda trial: trial.covered or None,
}
"""Columns before those of the run."""
_CHECK_FIELDS = ("id", "title", "state", "detail", "action")
_PROFILE_FIELDS = ("tool", "device", "allocator", "pid", "peak_bytes")
_HOLDER_FIELDS = (
    *("group", "op", "layer", "source", "variable", "region", "dtype", "shape", "count"),
    *("allocated_bytes", "requested_bytes"),
)
_TEST_FIELDS = ("category", "name", "gpus", "status")
_USAGE_FIELDS = (
    *("user", "container", "command", "framework", "pid", "processes", "gpu_hours_held", "gpu_hours_used"),
    *("process_hours", "process_hours_shared", "gpu_hours_unknown", "sm_percent_mean", "sm_percent_max"),
    *("memory_peak_bytes", "energy_joules", "energy_gpu_hours"),
)
_STATISTICS = ("least", "mean", "most")
_FINDING_FIELDS = ("source", "primary", "id", "severity", "certainty", "title", "action", "evidence")


def render(document: Document) -> str:
    """A line of headings, then the rows. Unknown is an empty cell."""
    if isinstance(document, Snapshot):
        return _table(_DEVICE_HEADS, _device_rows(document))
    if isinstance(document, Doctor):
        return _table(_CHECK_FIELDS, map(attrgetter(*_CHECK_FIELDS), document.checks))
    if isinstance(document, Explanation) and document.memory_profiles:
        return _table((*_PROFILE_FIELDS, *_HOLDER_FIELDS), _holder_rows(document.memory_profiles))
    if isinstance(document, Explanation) and document.gpu_tests:
        facts = attrgetter(*_TEST_FIELDS)
        tests = ([*facts(test), " / ".join(test.messages)] for test in document.gpu_tests)
        return _table((*_TEST_FIELDS, "messages"), tests)
    if isinstance(document, Explanation):
        rows = (_finding_row(document.source, finding, document.primary) for finding in document.findings)
        return _table(_FINDING_FIELDS, rows)
    if isinstance(document, Diff):
        return _table(("kind", "part", "name", *(side.name for side in document.sides)), _diff_rows(document))
    if isinstance(document, Diagnostic):
        rows = (_finding_row("; ".join(finding.sources), finding, document.primary) for finding in document.findings)
        return _table(_FINDING_FIELDS, rows)
    if isinstance(document, Period):
        values = (f"{metric}_{statistic}" for metric in GRAPHED for statistic in _STATISTICS)
        return _table(("at", "index", "uuid", *values), _period_rows(document))
    if isinstance(document, Usage):
        ends = [document.begin.isoformat(), document.end.isoformat(), document.hours_recorded]
        rows = ([*ends, *attrgetter(*_USAGE_FIELDS)(group)] for group in document.groups)
        return _table(("begin", "end", "hours_recorded", *_USAGE_FIELDS), rows)
    if isinstance(document, Experiment):
        return _table([*_TRIAL_FIELDS, *_RUN_FIELDS], map(_trial_row, document.trials))
    if isinstance(document, Comparison) and not document.runs and any(node.snapshot for node in document.nodes):
        return _table(("node", "node_state", "node_reason", *_DEVICE_HEADS), _rows_of_nodes(document.nodes))
    runs = document.runs if isinstance(document, Comparison) else (document,)
    return _table(list(_RUN_FIELDS), ([value_of(run) for value_of in _RUN_FIELDS.values()] for run in runs))


def _period_rows(period: Period) -> Iterable[list[object]]:
    for device in period.devices:
        count = max((len(series.mean) for series in device.series.values()), default=0)
        for step in range(count):
            at = period.begin + datetime.timedelta(seconds=step * period.step_seconds)
            row: list[object] = [at.isoformat(), device.index, device.uuid]
            for metric in GRAPHED:
                series = device.series.get(metric)
                row += [None if series is None else getattr(series, name)[step] for name in _STATISTICS]
            yield row


def _trial_row(trial: Trial) -> list[object]:
    run_values = (None if trial.run is None else value_of(trial.run) for value_of in _RUN_FIELDS.values())
    return [*(value_of(trial) for value_of in _TRIAL_FIELDS.values()), *run_values]


def _device_rows(snapshot: Snapshot) -> Iterable[list[object]]:
    for device in snapshot.devices:
        identity: list[object] = [getattr(device, name) for name in _DEVICE_FIELDS]
        taken_at = snapshot.taken_at.isoformat()
        yield [taken_at, *identity, *(device.readings.get(spec.id) for spec in METRICS), None, None]
        for instance in device.mig_instances:
            identity[1] = instance.uuid
            readings = (instance.readings.get(spec.id) for spec in METRICS)
            yield [taken_at, *identity, *readings, instance.id, instance.profile]


def _rows_of_nodes(nodes: Iterable[Node]) -> Iterable[list[object]]:
    """The GPUs of each node; a node without any has a row of its own."""
    for node in nodes:
        node_cells: list[object] = [node.node, node.state, node.reason or None]
        rows = list(_device_rows(node.snapshot)) if node.snapshot is not None else []
        yield from ([*node_cells, *row] for row in rows or [[None] * len(_DEVICE_HEADS)])


def _holder_rows(profiles: Iterable[MemoryProfile]) -> Iterable[list[object]]:
    for profile in profiles:
        for holder in profile.holders:
            yield [*attrgetter(*_PROFILE_FIELDS)(profile), *attrgetter(*_HOLDER_FIELDS)(holder)]


def _finding_row(source: str | None, finding: Finding, primary: str | None) -> list[object]:
    facts = (finding.id, finding.severity, finding.certainty, finding.title, finding.action)
    return [source, finding.id == primary, *facts, " / ".join(finding.evidence)]


def _diff_rows(diff: Diff) -> Iterable[list[object]]:
    for finding in diff.findings:
        yield ["finding", finding.change, finding.id, *finding.where]
    for fact in diff.facts:
        yield ["fact", fact.part, fact.name, *fact.values]
    for number in diff.numbers:
        yield ["number", number.part, number.metric, *(spread.median for spread in number.values)]


def _granted_bytes(run: Run) -> int | None:
    amounts = [mapping.granted_bytes for mapping in run.device_map if mapping.granted_bytes is not None]
    return sum(amounts) if amounts else None


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([safe_cell(head) for head in heads])
    for row in rows:
        writer.writerow([safe_cell(cell) for cell in row])
    return out.getvalue()
