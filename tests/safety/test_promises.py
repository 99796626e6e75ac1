"""The page of promises names tests that are there, with their figures."""

from __future__ import annotations

import re
from pathlib import Path

from gpuwatch.core.input_size_limits import ALL_LIMITS as LIMITS
from tests.logs import test_fuzz
from tests.reports import test_formats
from tests.safety import churn, faulted_calls, soak, test_faulted_calls, test_soak
from tests.safety.mutated_inputs import READERS
from tests.safety.test_mutated_inputs import COUNT
from tests.secrets import test_corpus

REPOSITORY = Path(__file__).parents[2]
FIGURES = {
    "test_faulted_calls.py": f"more than {test_faulted_calls.FUNCTIONS} functions"
    f" x {len(faulted_calls.BEHAVIOURS)} behaviors x {len(faulted_calls.FRONT_ENDS)} front ends",
    "test_faulted_calls.py, by hand": f"{test_faulted_calls.PAIRS:,} pairs",
    "test_reader_limits.py": f"[{len(LIMITS)} limits](commands.md#limits-of-what-is-read)",
    "test_mutated_inputs.py": f"{len(READERS)} readers x {COUNT} inputs",
    "test_soak.py, by hand": f"{round(soak.NEW * 3600, -5):,} processes in an hour, memory"
    f" and descriptors within {100 * test_soak.SHARE - 100:.0f} %",
    "test_soak.py": f"{len(churn.FRONT_ENDS)} front ends x {test_soak.COUNT} samples",
    "test_fuzz.py": f"{test_fuzz.SEEDS} x {test_fuzz.COUNT} logs",
    "test_corpus.py": f"at least {test_corpus.LEAST} of each",
    "test_formats.py": f"{len(test_formats.FORMULAS)} beginnings",
}
"""By the test that counts; of other tests, how many there are."""


def test_each_promise_has_its_test_and_figure() -> None:
    page = (REPOSITORY / "gpuwatch/docs/safety.md").read_text()
    rows = re.findall(r"^\| (.+) \| `(tests/.+?)`(.*) \| (.+) \|$", page, re.MULTILINE)
    assert len(rows) == page.count("`tests/") > len(FIGURES)
    told = {}
    for promise, test, by_hand, figure in rows:
        assert (REPOSITORY / test).is_file(), promise
        tests = len(re.findall(r"^def test_", (REPOSITORY / test).read_text(), re.MULTILINE))
        name = Path(test).name + by_hand
        assert figure == FIGURES.get(name, f"{tests} tests"), promise
        told[name] = figure
    assert FIGURES.keys() <= told.keys()
