"""What people get wrong around a GPU that works: names, values, files; and imports that fail."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpuwatch.core.model.doctor import Doctor, LoadedLibrary
from gpuwatch.core.model.run import Outcome, RunError
from gpuwatch.explain.diagnosis.memory.memory_holders import free_memory_advice
from gpuwatch.explain.diagnosis.rules.gpu_environment_variables import gpu_variables
from gpuwatch.explain.diagnosis.runs.finished_run import complete
from gpuwatch.explain.logs.log_facts import LogFacts
from gpuwatch.machine.sources.system_and_driver_facts import read_system_facts as look_at_system
from tests.diagnosis.cases import process
from tests.doctor.machines import ANSWER, GIB, LOOK, SYSTEM, checks, examined, gpu, machine, run, snapshot

replace = msgspec.structs.replace


@pytest.mark.parametrize(
    ("others", "advice"),
    [
        ([gpu(1, memory__free_bytes=4 * GIB)], "no other GPU here has more free"),
        ([gpu(1, memory__free_bytes=20 * GIB)], "Use GPU 1"),
        ([gpu(1, memory__free_bytes=60 * GIB, state="lost"), gpu(2, memory__free_bytes=20 * GIB)], "Use GPU 2"),
        ([gpu(1, memory__free_bytes=60 * GIB, mode__compute="prohibited")], "no other GPU here has enough free"),
    ],
)
def test_another_card_is_only_recommended_where_it_has_more_room(others: list[Any], advice: str) -> None:
    busy = gpu(0, memory__free_bytes=10 * GIB)
    row = replace(process(77, 60 * GIB), device_uuid=busy.uuid)
    said = free_memory_advice(snapshot(busy, *others, processes=(row,)), busy)
    assert advice in said
    assert ("Use GPU" in said) == ("Use GPU" in advice)


@pytest.mark.parametrize("name", ["cuda_visible_devices", "Cuda_Visible_Devices", "tf_force_gpu_allow_growth"])
def test_names_of_variables_have_their_case(name: str) -> None:
    environment = gpu_variables({name: "1", "http_proxy": "x", "cuda_home": "/usr/local/cuda"})
    assert name in environment, "it is looked at at all"
    document = examined(machine(environment=environment, run=None))
    (found,) = [one for one in document.findings if one.id == "visibility.misspelt"]
    assert f"{name.upper()} was probably meant" in found.title
    assert checks(machine(environment=environment))["environment.misspelt"].state == "warn"


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        ("all", "CUDA does not accept the word all"),
        ("cuda:0", "Set CUDA_VISIBLE_DEVICES=0:"),
        ("GPU:1,GPU:0", "Set CUDA_VISIBLE_DEVICES=1,0:"),
        ("7", "List only existing GPUs"),
    ],
)
def test_values_that_other_settings_know(value: str, advice: str) -> None:
    facts = machine(environment={"CUDA_VISIBLE_DEVICES": value}, run=None, installation=None)
    document = examined(facts)
    (found,) = [one for one in document.findings if one.id == "visibility.bad-ordinal"]
    assert advice in found.action
    check = checks(facts)["environment.visible-devices"]
    assert check.state == "fail"
    assert advice.removeprefix("List only") in check.action


def test_a_missing_libcuda_comes_before_a_bad_ordinal() -> None:
    error = "libcuda.so.1: cannot open shared object file: No such file or directory"
    driver = replace(ANSWER, libcuda=LoadedLibrary(name="libcuda.so.1", error=error), cuinit_code=None)
    facts = machine(driver=driver, environment={"CUDA_VISIBLE_DEVICES": "7"}, run=None, installation=None)
    document = examined(facts)
    assert document.primary == "driver.missing"
    severities = {found.id: found.severity for found in document.findings}
    assert (severities["driver.missing"], severities["visibility.bad-ordinal"]) == ("error", "warning")
    hangs = machine(driver=replace(ANSWER, late="nvmlInit"), environment=facts.environment, run=None, installation=None)
    severities = {found.id: found.severity for found in examined(hangs).findings}
    assert (severities["driver.bad-state"], severities["visibility.bad-ordinal"]) == ("error", "error"), "CUDA works"


def test_a_file_with_the_framework_s_name_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, path, installed = tmp_path / "here", tmp_path / "path", tmp_path / "installed"
    for folder in (here, path / "torch", installed / "keras"):
        folder.mkdir(parents=True)
    (here / "tensorflow.py").touch()
    (path / "torch/__init__.py").touch()
    (installed / "keras/__init__.py").touch()
    (installed / "keras-3.5.0.dist-info").mkdir()
    monkeypatch.chdir(here)
    found = look_at_system({"PYTHONPATH": f"{path}:{installed}"}).shadowing_files
    assert found == ((f"{here}/tensorflow.py", False), (f"{path}/torch/", True))
    document = examined(machine(system=replace(SYSTEM, shadowing_files=found)))
    told = {one.title.partition(" ")[0]: one.severity for one in document.findings if "shadows" in one.title}
    assert told == {f"{here}/tensorflow.py": "warning", f"{path}/torch/": "error"}
    assert checks(machine(system=replace(SYSTEM, shadowing_files=found)))["framework.in-the-way"].state == "warn"


def failed_import(outcome: Outcome, *errors: RunError) -> Doctor:
    failed = replace(run(gpus=0, framework=None), verdict="error", outcome=outcome, errors=errors)
    done = complete(failed, LogFacts(), None)
    return examined(machine(run=done, log=LogFacts(), installation=replace(LOOK, libraries=(), tests=())))


def test_an_import_without_a_library_is_that_as_in_explain() -> None:
    message = "libcudart.so.11.0: cannot open shared object file"
    document = failed_import(Outcome(exit_code=1), RunError(type="ImportError", message=message))
    assert document.primary == "cuda.libraries-missing"
    assert not [found for found in document.findings if found.title.startswith("It ended in")]
    assert "libcudart.so.11.0" in document.findings[0].title


def test_an_import_that_ended_for_no_known_reason_is_told_where_nothing_else_is_wrong() -> None:
    strange = RunError(type="RuntimeError", message="oh")
    document = failed_import(Outcome(exit_code=1), strange)
    assert [found.title for found in document.findings if found.severity == "error"] == ["It ended in RuntimeError: oh"]
    failed = complete(
        replace(run(gpus=0, framework=None), verdict="error", outcome=Outcome(exit_code=1), errors=(strange,)),
        LogFacts(),
        None,
    )
    document = examined(machine(run=failed, driver=replace(ANSWER, cuinit_code=999)))
    assert {found.id for found in document.findings if found.severity == "error"} == {"driver.bad-state"}


def test_an_import_that_crashes_is_told_by_its_signal() -> None:
    document = failed_import(Outcome(signal=int(signal.SIGILL)))
    assert document.primary == "unknown"
    assert "this CPU does not support" in document.findings[0].title
    check = next(one for one in document.checks if one.id == "framework.import")
    assert check.state == "fail"
    assert "SIGILL" in check.detail
