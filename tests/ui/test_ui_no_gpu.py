"""The page without a GPU: what is the matter as the doctor would say it, and two keys that lead on."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest

from gpuwatch.core.model.doctor import DeviceFile, PciCard, System
from gpuwatch.core.model.driver_advice import missing_driver_action
from gpuwatch.core.model.nvml_return import NvmlReturn
from gpuwatch.machine.sources import system_and_driver_facts
from gpuwatch.machine.sources.nvidia import nvml_errors
from tests.terminal import Terminal

CARD = (PciCard(bus_id="0000:01:00.0", driver=None),)
CLOSED = (DeviceFile(path="/dev/nvidiactl", usable=False, mode="crw-rw---- root video"),)
LIB = SimpleNamespace(NVMLError=pynvml.NVMLError)


def _problem(monkeypatch: pytest.MonkeyPatch, code: int, **facts: object) -> tuple[str, str, str]:
    monkeypatch.setattr(system_and_driver_facts, "read_system_facts", lambda _: System(**facts))  # type: ignore[arg-type]
    found = nvml_errors.open_problem(LIB, code)
    return found.reason, found.detail, found.hint


@pytest.mark.parametrize(
    ("facts", "shown"),
    [
        ({"cards": CARD}, ""),
        ({"cards": ()}, "no NVIDIA card is on the PCI bus"),
        ({"cards": None}, ""),
        ({"cards": CARD, "container": "docker"}, "this container (docker) has no /dev/nvidia*"),
        ({"cards": CARD, "container": "docker", "device_files": CLOSED}, ""),
        ({"cards": (), "wsl": True}, "this is WSL, whose driver belongs to Windows"),
        ({"cards": (PciCard(bus_id="1", driver="nouveau"),)}, "the kernel module nouveau has claimed the card"),
    ],
)
def test_a_missing_driver_says_what_this_machine_shows(
    facts: dict[str, object], shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reason, detail, hint = _problem(monkeypatch, NvmlReturn.LIBRARY_NOT_FOUND, **facts)
    assert reason == "driver.missing"
    assert detail.partition("; ")[2] == shown
    assert hint.startswith(missing_driver_action(System(**facts)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "reason",
    [
        "/opt/x/libnvidia-ml.so.1: file too short",
        "/opt/x/libnvidia-ml.so.1: invalid ELF header",
        "libnvidia-ml.so.1: cannot open shared object file: Permission denied",
        "libfoo.so: cannot open shared object file: No such file or directory",
        "Error loading shared library libfoo.so: No such file or directory (needed by /usr/lib/libnvidia-ml.so.1)",
    ],
)
def test_a_library_that_cannot_be_loaded_is_no_missing_driver(reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(_: str) -> None:
        raise OSError(reason)

    monkeypatch.setattr(nvml_errors.ctypes, "CDLL", load)
    cause, detail, hint = _problem(monkeypatch, NvmlReturn.LIBRARY_NOT_FOUND, cards=CARD)
    assert (cause, detail) == ("driver.bad-state", f"NVML does not start: its library cannot be loaded: {reason}")
    assert hint.startswith("Reinstall")


@pytest.mark.parametrize("form", ["{}: cannot open shared object file: {}", "Error loading shared library {}: {}"])
def test_glibc_and_musl_say_that_there_is_no_library(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> None:
        raise OSError(form.format(name, "No such file or directory"))

    monkeypatch.setattr(nvml_errors.ctypes, "CDLL", load)
    assert _problem(monkeypatch, NvmlReturn.LIBRARY_NOT_FOUND, cards=CARD)[0] == "driver.missing"


def test_a_library_that_was_loaded_is_not_called_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml_errors.ctypes, "CDLL", lambda name: None)
    cause, detail, _ = _problem(monkeypatch, NvmlReturn.LIBRARY_NOT_FOUND)
    assert (cause, "was loaded" in detail) == ("driver.bad-state", True)
    cause, detail, _ = _problem(monkeypatch, NvmlReturn.FUNCTION_NOT_FOUND)
    assert (cause, "no function nvmlInit" in detail) == ("driver.bad-state", True)


def test_a_code_without_a_text_is_not_called_none() -> None:
    library = SimpleNamespace(NVMLError=lambda code: None)
    assert nvml_errors.error_text(library, 77) == "an error that the library has no text for"


def test_a_refusal_names_the_files_that_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    reason, detail, hint = _problem(monkeypatch, NvmlReturn.NO_PERMISSION, device_files=CLOSED)
    assert reason == "driver.bad-state"
    assert detail.endswith("/dev/nvidiactl is crw-rw---- root video")
    assert "usermod" in hint
    assert "usermod" not in _problem(monkeypatch, NvmlReturn.NO_PERMISSION)[2]


def test_a_mismatch_names_the_versions_that_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _problem(monkeypatch, NvmlReturn.LIB_RM_VERSION_MISMATCH, kernel_module="580.65")[1].endswith("580.65")
    assert ";" not in _problem(monkeypatch, NvmlReturn.LIB_RM_VERSION_MISMATCH)[1]


def test_only_a_container_has_lost_its_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _problem(monkeypatch, NvmlReturn.UNKNOWN, container="docker")[0] == "container.lost-devices"
    assert _problem(monkeypatch, NvmlReturn.UNKNOWN)[0] == "driver.bad-state"


@pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="there is a GPU here")
def test_s_goes_on_with_simulated_gpus_and_d_with_the_doctor(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gpuwatch"]
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    terminal = Terminal(command, environment, 80, 24)
    assert terminal.drain(20, until=lambda shown: b" doctor" in shown)
    terminal.keys("s")
    assert terminal.drain(20, until=lambda shown: b"goes on" in shown)
    terminal.keys("\r")
    assert terminal.drain(30, until=lambda shown: b"SIMULATED" in shown)
    terminal.keys("q")
    assert terminal.close() == 0
    # Doctor without a framework, so that nothing is imported.
    terminal = Terminal(command, {**environment, "PATH": "/nowhere"}, 80, 24)
    assert terminal.drain(20, until=lambda shown: b" doctor" in shown)
    terminal.keys("d")
    assert terminal.drain(20, until=lambda shown: b"goes on" in shown)
    terminal.keys("\r")
    assert terminal.drain(30, until=lambda shown: b"$ gpuwatch doctor" in shown)
    terminal.close(30)
