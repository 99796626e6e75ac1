"""What a report of a document shows, whatever its kind."""

from __future__ import annotations

from gpuwatch.core.model.codec import Document
from gpuwatch.core.model.comparison import Comparison
from gpuwatch.core.model.contrast import Contrast
from gpuwatch.core.model.diagnostic import Diagnostic
from gpuwatch.core.model.diff import Diff
from gpuwatch.core.model.doctor import Doctor
from gpuwatch.core.model.explanation import Explanation
from gpuwatch.core.model.period import Period
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.trials import Experiment
from gpuwatch.core.model.usage import Usage
from gpuwatch.share.reports.comparison_content import comparison_content
from gpuwatch.share.reports.content import Content
from gpuwatch.share.reports.contrast import contrast_content
from gpuwatch.share.reports.diagnostic_content import diagnostic_content
from gpuwatch.share.reports.diff import diff_content
from gpuwatch.share.reports.doctor_content import doctor_content
from gpuwatch.share.reports.explanation_content import explanation_content
from gpuwatch.share.reports.period_content import period_content
from gpuwatch.share.reports.run_content import run_content
from gpuwatch.share.reports.snapshot_content import snapshot_content
from gpuwatch.share.reports.trials_content import trials_content
from gpuwatch.share.reports.usage_content import usage_content


def content_of(document: Document) -> Content:
    """What a report of this document shows."""
    if isinstance(document, Run):
        return run_content(document)
    if isinstance(document, Comparison):
        return comparison_content(document)
    if isinstance(document, Contrast):
        return contrast_content(document)
    if isinstance(document, Diff):
        return diff_content(document)
    if isinstance(document, Diagnostic):
        return diagnostic_content(document)
    if isinstance(document, Doctor):
        return doctor_content(document)
    if isinstance(document, Explanation):
        return explanation_content(document)
    if isinstance(document, Experiment):
        return trials_content(document)
    if isinstance(document, Period):
        return period_content(document)
    if isinstance(document, Usage):
        return usage_content(document)
    return snapshot_content(document)
