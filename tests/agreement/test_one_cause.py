"""Doctor, run and explain name one primary cause, each from a real run on a machine with a real fault.

Nothing is mocked: ``gpuwatch doctor``, ``gpuwatch run -- python program.py`` and the log that this program wrote.
Rows share imports of TensorFlow (tests/forked_python.py); those without libcuda or libcudart have their own.
The rows run beside each other, because TensorFlow waits ten seconds before it gives up an allocation.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.core.model.causes import CAUSES
from gpuwatch.core.model.json_codec import to_json
from gpuwatch.experiment.probing.probe_runner import LOG_ENVIRONMENT
from gpuwatch.explain.diagnosis.explain_log import explain
from gpuwatch.sim.machine_shape import SimShape
from gpuwatch.sim.simulated_machine import SimMachine
from tests.agreement.table import MATMUL, ROWS, Row
from tests.conftest import Result, gpuwatch, has_cuda_wheel
from tests.forked import gpuwatch_forked

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.timeout(900),  # the first test waits for as many rows as run beside its own
    pytest.mark.skipif(not has_cuda_wheel(), reason="no CUDA build of TensorFlow here"),
]
FROM_THE_START = ("libcuda.so.1", "libcudart.so.12")
"""Libraries that TensorFlow looks for as it is imported."""
WHO = ("doctor", "run", "explain")
Said = dict[str, dict[str, Any]]


def has_own_import(row: Row) -> bool:
    """Whether TensorFlow has to be imported where something is missing, for this row alone."""
    return any(library in FROM_THE_START for library in row.without)


def command_of(row: Row) -> Callable[..., Result]:
    """Every process is started, if only one import would be shared."""
    return gpuwatch if has_own_import(row) and row.variables is not LOG_ENVIRONMENT else gpuwatch_forked


@contextmanager
def without_libraries(environment: dict[str, str], whole: Path, missing: Sequence[str]) -> Iterator[dict[str, str]]:
    """``environment`` with all libraries of the folder ``whole`` but these, as if CUDA were half installed."""
    with tempfile.TemporaryDirectory(prefix="tmp-", dir=whole.parent) as folder:
        for path in whole.iterdir():
            if path.name not in missing:
                Path(folder, path.name).symlink_to(path)
        yield {name: value.replace(str(whole), folder) for name, value in environment.items()}


_LINK = threading.Lock()


@contextmanager
def same_path(environment: dict[str, str]) -> Iterator[dict[str, str]]:
    """``environment`` with its libraries under a path that is always the same: the loader reads it as Python starts.

    What is behind it is looked at when a library is opened, which is as TensorFlow makes its devices.
    """
    folder = Path(environment["LD_LIBRARY_PATH"].partition(":")[0])
    link = folder.with_name(f"test-{os.getpid()}")
    with _LINK:
        link.unlink(missing_ok=True)
        link.symlink_to(folder)
        try:
            yield {name: value.replace(str(folder), str(link)) for name, value in environment.items()}
        finally:
            link.unlink()


def said_of(row: Row, folder: Path) -> Said:
    """What each of the three says of one row."""
    machine = None
    environment = {**os.environ, **row.variables}
    if row.shape:
        machine = SimMachine.open(SimShape.parse(row.shape), name=f"test-{uuid.uuid4().hex[:12]}")
    try:
        if machine is not None:
            row.fault(machine)
            environment = machine.environment(environment)
        with ExitStack() as stack:
            if machine is not None and row.without:
                lacking = without_libraries(environment, machine.library_dir, row.without)
                environment = stack.enter_context(lacking)
                if not has_own_import(row):
                    environment = stack.enter_context(same_path(environment))
            return all_of(row, environment, folder)
    finally:
        if machine is not None:
            machine.clear_faults()
            machine.remove()


def all_of(row: Row, environment: dict[str, str], folder: Path) -> Said:
    script = folder / "program.py"
    script.write_text(row.program)
    output = folder / "run.json"
    watched = command_of(row)(
        "run", "-q", "-o", str(output), "--", sys.executable, str(script), environment=environment
    )
    log = (watched.err + watched.out).splitlines()
    return {
        "doctor": doctor_of(row, environment),
        "run": json.loads(output.read_text()),
        "explain": json.loads(to_json(explain(log))),
        "log": {"text": "\n".join(log)},
        "probe": probe_of(row, environment) if row.check else {},
    }


_LOOKED: dict[tuple[object, ...], Future[dict[str, Any]]] = {}
_LOCK = threading.Lock()


def doctor_of(row: Row, environment: dict[str, str]) -> dict[str, Any]:
    """What the doctor says of the machine; it does not see the program, so machines that are alike are asked once."""
    key = (row.shape, row.fault, tuple(row.variables.items()), row.without)
    with _LOCK:
        first = key not in _LOOKED
        future = _LOOKED.setdefault(key, Future())
    if first:
        try:
            looked = command_of(row)("doctor", "--json", environment=environment)
            assert looked.err == ""
            future.set_result({**json.loads(looked.out), "exit code": looked.code})
        finally:
            if not future.done():
                future.cancel()  # the others that wait for it fail as well
    return future.result()


def probe_of(row: Row, environment: dict[str, str]) -> dict[str, Any]:
    command = ("probe", "--config", "default", "--seconds", "0.05", "--json")
    result = command_of(row)(*command, environment=environment)
    found: dict[str, Any] = json.loads(result.out)
    return found


@pytest.fixture(scope="module")
def said(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[Said]]]:
    """All rows that were chosen, begun at once; those that wait most come first."""
    chosen = {item.callspec.params["row"].name for item in request.session.items if _has_row(item)}  # type: ignore[attr-defined]
    rows = sorted((row for row in ROWS if row.name in chosen), key=lambda row: row.program is MATMUL)
    with ThreadPoolExecutor(max_workers=max(2, min(4, os.cpu_count() or 1))) as pool:
        started = {row.name: pool.submit(said_of, row, tmp_path_factory.mktemp("row")) for row in rows}
        yield started
        for future in started.values():
            future.cancel()


def _has_row(item: pytest.Item) -> bool:
    return item.path == Path(__file__) and "row" in getattr(getattr(item, "callspec", None), "params", {})


def explained(doctor: dict[str, Any]) -> str | None:
    """What explain says of the doctor's own look at TensorFlow: an exception at its end included, it reads as a log."""
    return explain([*doctor["log_tail"], *(test["error"] for test in doctor["tests"] if test["error"])]).primary


@pytest.mark.parametrize(
    "row", [pytest.param(row, id=row.name, marks=pytest.mark.long if row.long else ()) for row in ROWS]
)
def test_one_cause(row: Row, said: dict[str, Future[Said]]) -> None:
    documents = said[row.name].result()
    assert {who: documents[who]["primary"] for who in WHO} == {who: row.expected(who) for who in WHO}
    for who in WHO:
        findings = documents[who]["findings"]
        assert sum(finding["severity"] == "error" for finding in findings) <= 2, findings
        if row.expected(who) == "healthy":
            assert not any(finding["severity"] == "error" for finding in findings)
            continue
        main = next(finding for finding in findings if finding["id"] == row.expected(who))
        assert main["evidence"], who
        assert main["action"], who
        assert who != "run" or row.title in main["title"]
        # What a cause is known for is not called unknown beside it.
        assert "unknown" not in {finding["id"] for finding in findings if finding["severity"] == "error"}
    if row.check:
        doctor = documents["doctor"]
        assert doctor["simulated"]
        assert doctor["exit code"] == 3
        assert {check["id"]: check["state"] for check in doctor["checks"]}[row.check] in ("fail", "warn")
        assert documents["probe"]["primary"] == row.cause
    if row.without:
        doctor = documents["doctor"]
        states = {check["id"]: check["state"] for check in doctor["checks"]}
        assert doctor["exit code"] == 3
        assert states["driver.start"] == ("skip" if "libcuda.so.1" in row.without else "pass")
        if row.cause == "cuda.libraries-missing":
            missing = [library["name"] for library in doctor["libraries"] if library["state"] == "missing"]
            assert missing == list(row.without)
            assert states["framework.libraries"] == "fail"
            assert explained(doctor) == row.cause
            assert documents["run"]["device_map"] == []
            assert "Cannot dlopen some GPU libraries" in documents["log"]["text"]
        elif "libnvidia-ml.so.1" in row.without:
            assert "NVML is missing" in doctor["findings"][0]["title"]
    if row.name == "CUDA: two versions":
        assert explained(doctor) == row.cause


def test_the_rows_are_of_known_causes_and_every_exception_has_its_reason() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    for row in ROWS:
        assert row.cause in CAUSES
        for who, (cause, reason) in row.but.items():
            assert who in WHO
            assert cause != row.cause
            assert len(reason.split()) > 5
