"""CSV: one row per run, per device (metric ids as headings), per finding of a log or of the
diagnostic report, or per check of the doctor."""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Iterable, Sequence

from gpuwatch.formatting.text import printable
from gpuwatch.model.codec import Document
from gpuwatch.model.contrast import Contrast
from gpuwatch.model.diagnostic import Diagnostic
from gpuwatch.model.doctor import Doctor
from gpuwatch.model.explanation import Explanation
from gpuwatch.model.findings import Finding
from gpuwatch.model.metrics import METRICS
from gpuwatch.model.run import Comparison, Run
from gpuwatch.model.snapshot import Snapshot
from gpuwatch.reports import run_content

_DEVICE_FIELDS = ("index", "uuid", "name", "pci_bus_id", "simulated", "state")
_MIG_FIELDS = ("mig_instance", "mig_profile")
"""Of the rows that follow their GPU's and stand for its MIG instances; empty in those of whole GPUs."""
_RUN_FIELDS = (
    "config",
    "group",
    "workload",
    "framework",
    "framework_version",
    "host",
    "driver_version",
    "simulated",
    "started_at",
    "asked",
    "device_map",
    "granted_bytes",
    "nvml_peak_bytes",
    "allocator_peak_bytes",
    "on_gpu_percent",
    "fell_back",
    "steps_per_second",
    "p10_step_seconds",
    "median_step_seconds",
    "p90_step_seconds",
    "ooms",
    "errors",
    "primary",
    "verdict",
    "verdict_reason",
)

_NUMBER = re.compile(r"-?\d{1,300}(?:\.\d{1,300})?(?:[eE][+-]?\d{1,3})?")
_FORMULA = frozenset("=+-@＝＋－＠|%")
_CHECK_FIELDS = ("id", "title", "state", "detail", "action")
_FINDING_FIELDS = ("source", "primary", "id", "severity", "certainty", "title", "action", "evidence")


def render(document: Document) -> str:
    """The rows with one line of headings. Unknown is an empty cell."""
    if isinstance(document, Snapshot):
        heads: Sequence[str] = ("taken_at", *_DEVICE_FIELDS, *(spec.id for spec in METRICS), *_MIG_FIELDS)
        return _table(heads, _device_rows(document))
    if isinstance(document, Doctor):
        return _table(_CHECK_FIELDS, ([getattr(c, name) for name in _CHECK_FIELDS] for c in document.checks))
    if isinstance(document, Explanation):
        return _table(_FINDING_FIELDS, _finding_rows(document.source, document.findings, document.primary))
    if isinstance(document, Contrast):
        return _table(("part", "name", *document.sources), ([r.part, r.name, *r.values] for r in document.rows))
    if isinstance(document, Diagnostic):
        main = document.primary
        by_source = (_finding_rows("; ".join(one.sources), (one,), main) for one in document.findings)
        return _table(_FINDING_FIELDS, itertools.chain.from_iterable(by_source))
    runs = document.runs if isinstance(document, Comparison) else (document,)
    return _table(_RUN_FIELDS, ([_run_values(run)[name] for name in _RUN_FIELDS] for run in runs))


def _device_rows(snapshot: Snapshot) -> Iterable[list[object]]:
    for device in snapshot.devices:
        identity: list[object] = [getattr(device, name) for name in _DEVICE_FIELDS]
        taken_at = snapshot.taken_at.isoformat()
        yield [taken_at, *identity, *(device.readings.get(spec.id) for spec in METRICS), None, None]
        for part in device.mig_instances:
            identity[1] = part.uuid
            yield [taken_at, *identity, *(part.readings.get(spec.id) for spec in METRICS), part.id, part.profile]


def _finding_rows(source: str | None, findings: Iterable[Finding], primary: str | None) -> Iterable[list[object]]:
    for found in findings:
        main = found.id == primary
        facts: list[object] = [found.id, found.severity, found.certainty, found.title, found.action]
        yield [source, main, *facts, " / ".join(found.evidence)]


def _run_values(run: Run) -> dict[str, object]:
    granted = [mapping.granted_bytes for mapping in run.device_map if mapping.granted_bytes is not None]
    t = run.throughput
    return {
        "config": run.config,
        "group": run.group,
        "workload": run.workload,
        "framework": run.framework.name if run.framework else None,
        "framework_version": run.framework.version if run.framework else None,
        "host": run.host,
        "driver_version": run.driver_version,
        "simulated": run.simulated,
        "started_at": run.started_at.isoformat(),
        "asked": run_content.asked(run) if run.settings else None,
        "device_map": run_content.device_map(run) if run.device_map else None,
        "granted_bytes": sum(granted) if granted else None,
        "nvml_peak_bytes": run.memory.nvml_peak_bytes,
        "allocator_peak_bytes": run.memory.allocator_peak_bytes,
        "on_gpu_percent": run_content.on_gpu(run),
        "fell_back": run_content.fell_back(run) if run.fallbacks else None,
        "steps_per_second": t.steps_per_second if t else None,
        "p10_step_seconds": t.p10_step_seconds if t else None,
        "median_step_seconds": t.median_step_seconds if t else None,
        "p90_step_seconds": t.p90_step_seconds if t else None,
        "ooms": len(run.ooms),
        "errors": len(run.errors),
        "primary": run.primary,
        "verdict": run.verdict,
        "verdict_reason": run.verdict_reason,
    }


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([_cell(head) for head in heads])
    for row in rows:
        writer.writerow([_cell(value) for value in row])
    return out.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or isinstance(value, (int, float)):
        return value
    text = printable(str(value))
    if _NUMBER.fullmatch(text):
        return text
    # A spreadsheet would run a cell that begins like this as a formula, in East Asian width too.
    return f"'{text}" if text.lstrip()[:1] in _FORMULA else text
