"""The page of promises names tests that are there, with their figures."""

from __future__ import annotations

import re
from pathlib import Path

from gpuwatch.core.reader_limits import READERS as LIMITS
from tests.logs import test_fuzz
from tests.reports import test_formats
from tests.safety import faulted_calls, soak, test_faulted_calls
from tests.safety.mutated_inputs import READERS
from tests.safety.test_mutated_inputs import COUNT
from tests.safety.test_soak import SHARE
from tests.secrets import test_corpus

REPOSITORY = Path(__file__).parents[2]
FIGURES = {
    f"{len(faulted_calls.BEHAVIOURS)} behaviours x 4 front ends",
    f"{test_faulted_calls.PAIRS:,} pairs",
    f"[{len(LIMITS)} limits]",
    f"{len(READERS)} readers x {COUNT} inputs",
    f"{round(soak.NEW * 3600, -5):,} processes in an hour, within {100 * SHARE - 100:.0f} %",
    f"{test_fuzz.SEEDS} x {test_fuzz.COUNT} logs",
    f"at least {test_corpus.LEAST} of each",
    f"{len(test_formats.FORMULAS)} beginnings",
}


def test_each_promise_has_its_test_and_figure() -> None:
    page = (REPOSITORY / "gpuwatch/docs/safety.md").read_text()
    rows = re.findall(r"^\| (.+) \| `(tests/.+?)`.* \| ?(.*) ?\|$", page, re.MULTILINE)
    assert len(rows) == page.count("`tests/")
    for promise, test, figure in rows:
        assert (REPOSITORY / test).is_file(), promise
        tests = len(re.findall(r"^def test_", (REPOSITORY / test).read_text(), re.MULTILINE))
        assert figure.strip() == f"{tests} tests" or any(one in figure for one in FIGURES), (promise, figure, tests)
    assert all(one in page for one in FIGURES), [one for one in FIGURES if one not in page]
