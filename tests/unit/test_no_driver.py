"""One advice for a missing driver, whoever gives it."""

from __future__ import annotations

import pynvml
import pytest

from gpuwatch.core.model.doctor import PciCard, System
from gpuwatch.core.model.driver_advice import missing_driver_action
from gpuwatch.core.model.nvml_return import NvmlReturn
from gpuwatch.explain.diagnosis.doctor.check import Facts
from gpuwatch.explain.diagnosis.doctor.doctor_document import build_document
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.rule_engine import diagnose
from gpuwatch.machine.sources.nvidia import nvml_errors
from tests.diagnosis.cases import NOW, machine
from tests.every import every

CARD = (PciCard(bus_id="0000:01:00.0", driver=None),)
NOUVEAU = (PciCard(bus_id="0000:01:00.0", driver="nouveau"),)
SYSTEMS = {
    "bare metal with a card": (System(cards=CARD), "Install NVIDIA's driver and load it"),
    "nouveau": (System(cards=NOUVEAU), "Blacklist nouveau"),
    "no card": (System(cards=()), "seat it"),
    "bus not shown": (System(cards=None), "Install NVIDIA's driver and load it"),
    "module without libraries": (System(cards=CARD, kernel_module="570.1"), "libcuda) of release 570.1"),
    "container, no card": (System(cards=(), container="docker"), "on a machine with an NVIDIA card"),
    "container, driver on the host": (System(cards=CARD, kernel_module="570.1", container="docker"), "--gpus all"),
    "container, no driver on the host": (System(cards=CARD, container="docker"), "on the host, never in the container"),
    "container, nouveau on the host": (System(cards=NOUVEAU, container="docker"), "on the host, never in"),
    "Jetson": (System(cards=(), jetson=True), "JetPack 6"),
    "container on a Jetson": (System(cards=(), jetson=True, container="docker"), "--runtime nvidia"),
    "WSL": (System(cards=(), wsl=True), "in Windows"),
}  # fmt: skip


@every(SYSTEMS)
def test_the_advice_fits_the_system(name: str) -> None:
    system, words = SYSTEMS[name]
    action = missing_driver_action(system)
    assert words in action
    assert ("firmware" in action) == (name == "no card"), "nobody reaches the firmware from a container"


@pytest.mark.parametrize("name", SYSTEMS)
def test_snapshot_report_and_doctor_advise_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    system, _ = SYSTEMS[name]
    monkeypatch.setattr(nvml_errors.system_and_driver_facts, "read_system_facts", lambda environment: system)
    problem = nvml_errors.open_problem(pynvml, NvmlReturn.LIBRARY_NOT_FOUND)
    taken = machine(driver=False, problems=(problem,))
    (found,) = [entry for entry in diagnose(Evidence(snapshot=taken)) if entry.id == "driver.missing"]
    judged = build_document(Facts(system=system, snapshot=taken), NOW, 0.0)
    told = [entry for entry in judged.findings if entry.id == "driver.missing"]
    assert {entry.action for entry in told} == {found.action} == {missing_driver_action(system)}
    assert problem.hint.startswith(found.action or "?")


def test_libraries_that_find_no_module_want_it_loaded() -> None:
    assert "modprobe nvidia" in missing_driver_action(System(cards=CARD), library=True)
    assert "Install" not in missing_driver_action(System(cards=CARD), library=True)


def test_of_a_log_alone_no_machine_is_known() -> None:
    action = missing_driver_action(None)
    assert "in a container" in action
