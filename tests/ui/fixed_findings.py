"""ConditionEngine whose findings a test gives; their events are those of the samples."""

from __future__ import annotations

from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.explain.diagnosis.condition_engine import ConditionEngine


class FixedFindings(ConditionEngine):
    """Finds the same in every sample."""

    def __init__(self, *found: Finding) -> None:
        super().__init__()
        self.found = found
        self.judged: list[Snapshot] = []

    def _list_findings(self, snapshot: Snapshot, at: float, *, gap: bool) -> None:
        self.judged.append(snapshot)
        self._current = self.found
