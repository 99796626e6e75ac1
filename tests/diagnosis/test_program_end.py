"""What ended a program that had caught that memory ran out."""

from __future__ import annotations

import msgspec
import pytest

from gpuwatch.core.model.run import Outcome, RunError
from gpuwatch.explain.diagnosis.runs.final_verdict import ended_by_own_exception
from tests.diagnosis.test_watched_program import program


@pytest.mark.parametrize(
    ("kind", "message", "alone", "apart"),
    [
        ("KeyError", "'accuracy'", True, True),
        ("AssertionError", "loss 5.7 is above 1", True, True),
        ("KeyError", "'accuracy'", False, False),  # raised while the failure was handled
        ("ResourceExhaustedError", "OOM when allocating tensor", True, False),
        ("InternalError", "Blas xGEMM launch failed: CUBLAS_STATUS_NOT_INITIALIZED", True, False),
        ("RuntimeError", "DataLoader worker (pid 7) exited unexpectedly", True, False),
    ],
)
def test_an_exception_of_the_programs_own_is_its_end(kind: str, message: str, alone: bool, apart: bool) -> None:
    run = msgspec.structs.replace(program(), errors=(RunError(type=kind, message=message, alone=alone),))
    assert ended_by_own_exception(run, Outcome(exit_code=1)) == apart
    assert not ended_by_own_exception(run, Outcome(exit_code=0))
    assert not ended_by_own_exception(run, Outcome(signal=9))
