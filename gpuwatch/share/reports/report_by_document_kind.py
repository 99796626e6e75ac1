"""What a report of a document shows, whatever its kind."""

from __future__ import annotations

from importlib import import_module

from gpuwatch.core.model.comparison import Comparison
from gpuwatch.core.model.diagnostic_report import Diagnostic
from gpuwatch.core.model.doctor import Doctor
from gpuwatch.core.model.explanation import Explanation
from gpuwatch.core.model.gpu_time_usage import Usage
from gpuwatch.core.model.json_codec import Document
from gpuwatch.core.model.machine_diff import Diff
from gpuwatch.core.model.recorded_period import Period
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.core.model.try_results import Experiment
from gpuwatch.share.reports.report_elements import Content

_CONTENT_FUNCTIONS: dict[type, str] = {
    Run: "run_report.run_content",
    Comparison: "comparison_report.comparison_content",
    Diff: "diff_report.diff_content",
    Diagnostic: "diagnostic_report.diagnostic_content",
    Doctor: "doctor_report.doctor_content",
    Explanation: "explanation_report.explanation_content",
    Experiment: "try_report.trials_content",
    Period: "recorded_period_report.period_content",
    Snapshot: "snapshot_report.snapshot_content",
    Usage: "gpu_time_report.usage_content",
}
"""Module and function of each kind of document; only the one that is shown is imported."""


def content_of(document: Document) -> Content:
    """What a report of this document shows."""
    module, _, function = _CONTENT_FUNCTIONS[type(document)].partition(".")
    content: Content = getattr(import_module(f"gpuwatch.share.reports.{module}"), function)(document)
    return content
