"""One recording for all tests of exports."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.exports.recorded import record


@pytest.fixture(scope="session")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exports") / "ten.gpuwatch"
    record(path)
    return path
