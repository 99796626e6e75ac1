"""Processes that a program forked from one whose GPUs TensorFlow had started."""

from __future__ import annotations

from collections.abc import Iterator

from gpuwatch.core.model.findings import Finding
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.rule_registry import note_of, rule

_FORKS = "forks_after_start"
"""Name of the watcher's result with their number (_gpuwatch_forks.py)."""


@rule("program.forked")
def forked_after_start(evidence: Evidence) -> Iterator[Finding]:
    """By multiprocessing; what such a process does is not known, so that this is a note."""
    count = evidence.run.results.get(_FORKS) if evidence.run is not None else None
    if isinstance(count, int) and count > 0:
        processes = "1 process was" if count == 1 else f"{count} processes were"
        yield note_of(
            "program.forked",
            title=f"{processes} forked after TensorFlow had started its GPUs",
            evidence=[f"multiprocessing forked {count} times while TensorFlow had logical GPUs"],
            action="Use no TensorFlow in them. Start them before its first op, or with"
            " multiprocessing.get_context('spawn').",
        )
