"""Documents from somebody else, as the command line reads them: shown harmless, or refused in one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from gpuwatch.core.model.json_codec import to_json
from tests.conftest import gpuwatch
from tests.reports.documents import hostile_run
from tests.reports.fuzz import HIDDEN
from tests.reports.test_any_document import evil_diff, nested


def test_a_document_that_is_nested_without_end_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    path.write_bytes(nested(100_000))
    for command in (("report", str(path)), ("compare", str(path), str(path))):
        result = gpuwatch(*command)
        assert (result.code, result.out) == (2, "")
        assert "more than 64 deep" in result.err
        assert result.err.count("\n") == 1, result.err


_MEASURE = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def test_a_document_of_500_mb_is_refused_before_it_takes_memory(tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    with path.open("wb") as file:
        file.write(b'{"schema":"gpuwatch.run/1","log_tail":["')
        file.truncate(500_000_000)
    # Measured by a small process: the peak of a child begins with the size of the process that forked it.
    measured = subprocess.run(
        [sys.executable, "-c", _MEASURE, sys.executable, "-m", "gpuwatch", "report", str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    code, peak = map(int, measured.stdout.split())
    assert code == 2
    assert "it is larger than 64 MiB" in measured.stderr
    assert peak < 300 << 10, "KiB: what Python and gpuwatch itself take, not the document"


def test_documents_cannot_steer_the_terminal(tmp_path: Path) -> None:
    path, run = tmp_path / "diff.json", tmp_path / "\x1b[31mrun\u202e.json"
    path.write_text(to_json(evil_diff()))
    run.write_text(to_json(hostile_run()))
    for arguments in (
        ["report", str(path)],
        ["report", str(path), "--format", "csv"],
        ["report", str(run)],
        ["compare", str(run), str(path)],
    ):
        result = gpuwatch(*arguments)
        assert result.out + result.err
        assert not HIDDEN.search(result.out + result.err), arguments


def test_numbers_of_thousands_of_digits_are_bad_input() -> None:
    number = "9" * 5000
    for arguments in (["--filter", f"gpu:{number}"], ["snapshot", "--sim", f"1x{number}GiB"]):
        result = gpuwatch(*arguments)
        assert result.code == 2, result.err
        assert result.err.count("\n") == 1, result.err
