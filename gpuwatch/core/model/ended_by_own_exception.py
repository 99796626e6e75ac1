"""Whether an exception of a watched program's own ended it, not memory that had run out before."""

from __future__ import annotations

import re

from gpuwatch.core.model.run import Outcome, Run

_GPU_WORDS = re.compile(
    r"memory|exhausted|alloc|\boom\b|cuda|cudnn|cublas|cusolver|nccl|gpu|device|worker|kill", re.IGNORECASE
)


def ended_by_own_exception(run: Run, outcome: Outcome) -> bool:
    """Whether an exception of the program's own ended it after it had caught an out-of-memory error.

    Only where that is sure: one process, an exception that no other one led to, with nothing of a GPU in its words.
    """
    errors = [error for error in run.errors if not error.expected]
    if not outcome.exit_code or not errors or len(run.processes) > 1 or run.killed_children:
        return False
    last = errors[-1]
    return last.alone and _GPU_WORDS.search(f"{last.type} {last.message}") is None
