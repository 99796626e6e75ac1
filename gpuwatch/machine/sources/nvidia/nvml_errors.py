"""What NVML's return codes mean for a reading, a device, a session and the user; the codes' texts are the library's."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpuwatch.core.model.driver_advice import (
    JOIN_DEVICE_GROUP,
    REINSTALL_LIBRARIES,
    TRY_SIMULATED_GPUS,
    missing_driver_action,
    missing_driver_evidence,
    says_not_installed,
)
from gpuwatch.core.model.nvml_return import NvmlReturn
from gpuwatch.core.model.reading import Missing, Reason
from gpuwatch.core.model.snapshot import Problem
from gpuwatch.machine.sources import system_and_driver_facts


class OwnCode(int):
    """A failure that NVML has no code for, with its text; elsewhere it counts as "unknown error"."""

    text: str

    def __new__(cls, text: str) -> OwnCode:
        """``text`` follows the name of the call."""
        code = super().__new__(cls, NvmlReturn.UNKNOWN)
        code.text = text
        return code


LOST_STATES: dict[int, str] = {NvmlReturn.GPU_IS_LOST: "lost", NvmlReturn.RESET_REQUIRED: "reset-required"}
"""Codes about the whole device, and the state that they put it into."""
SESSION_ENDED = frozenset({NvmlReturn.UNINITIALIZED, NvmlReturn.DRIVER_NOT_LOADED, NvmlReturn.LIB_RM_VERSION_MISMATCH})
"""In the middle of a session: the driver was unloaded or replaced."""
PERMANENT = frozenset({NvmlReturn.NOT_SUPPORTED, NvmlReturn.FUNCTION_NOT_FOUND, NvmlReturn.DEPRECATED})
"""The driver lacks the function: it is called once."""
_REASONS: dict[int, Reason] = {
    NvmlReturn.NOT_SUPPORTED: "not_supported",
    NvmlReturn.FUNCTION_NOT_FOUND: "not_supported",
    NvmlReturn.DEPRECATED: "not_supported",
    NvmlReturn.NO_PERMISSION: "permission_denied",
    NvmlReturn.GPU_IS_LOST: "device_lost",
    NvmlReturn.RESET_REQUIRED: "device_lost",
    NvmlReturn.NO_DATA: "no_sample",
}

_LIBRARY = "libnvidia-ml.so.1"
_PROBLEMS: dict[int, tuple[str, str, str]] = {
    NvmlReturn.LIBRARY_NOT_FOUND: (
        "driver.missing",
        "no NVIDIA driver was found: libnvidia-ml.so.1 cannot be loaded",
        "",
    ),
    NvmlReturn.DRIVER_NOT_LOADED: ("driver.missing", "NVIDIA's kernel module is not loaded", ""),
    NvmlReturn.LIB_RM_VERSION_MISMATCH: (
        "driver.mismatch",
        "NVIDIA's library and kernel module have different versions",
        "the driver was upgraded while it was in use: reboot, or reload the nvidia modules",
    ),
    NvmlReturn.NO_PERMISSION: (
        "driver.bad-state",
        "this user does not have permission to use the NVIDIA driver",
        "check the permissions of /dev/nvidiactl and /dev/nvidia*",
    ),
    NvmlReturn.FUNCTION_NOT_FOUND: (
        "driver.bad-state",
        f"NVML does not start: {_LIBRARY} has no function nvmlInit, so it is not the driver's",
        REINSTALL_LIBRARIES,
    ),
    NvmlReturn.UNKNOWN: (
        "container.lost-devices",
        "NVML does not start: Unknown Error",
        "the container lost its devices (after systemctl daemon-reload): recreate it",
    ),
}


def answer_or_none(lib: Any, call: Callable[..., Any], *args: Any) -> Any:
    """The answer; None if NVML fails and why does not matter."""
    try:
        return call(*args)
    except lib.NVMLError:
        return None


def error_text(lib: Any, code: int) -> str:
    """The library's own text for a code (``nvmlErrorString``)."""
    if isinstance(code, OwnCode):
        return code.text
    try:
        text = str(lib.NVMLError(code))
    except UnicodeDecodeError:
        return "an error whose text cannot be read"
    return "an error that the library has no text for" if text == "None" else text


def own_error(lib: Any, why: str) -> Any:
    """An ``NVMLError`` of our own."""
    error = lib.NVMLError(NvmlReturn.UNKNOWN)
    error.value = OwnCode(why)
    return error


def missing_reading(lib: Any, code: int, call: str, *, mig_on: bool = False) -> Missing:
    """Why a reading of ``call`` is missing; names MIG where that is the reason."""
    if mig_on and code == NvmlReturn.NOT_SUPPORTED and "Utilization" in call:
        return Missing("not_supported", code=code, detail=f"{call}: not supported while MIG is on")
    number = None if isinstance(code, OwnCode) else code
    return Missing(_REASONS.get(code, "failed"), code=number, detail=f"{call}: {error_text(lib, code)}")


def missing_field(lib: Any, code: int, call: str, field: str) -> Missing:
    """The same for a field value. A field that the driver does not know is an invalid argument, permanently."""
    reason = "not_supported" if code == NvmlReturn.INVALID_ARGUMENT else _REASONS.get(code, "failed")
    return Missing(reason, code=code, detail=f"{call} {field}: {error_text(lib, code)}")


_SEE_DMESG = "see dmesg for NVRM and Xid lines"
_SIMULATED_FAULT = "a fault was injected into the simulated GPUs; to clear it: gpuwatch sim fault clear"


def open_problem(lib: Any, code: int, *, listing: bool = False, simulated: bool = False) -> Problem:
    """Why ``nvmlInit`` failed, or the ``listing`` of the GPUs after it, and what helps."""
    what = "NVML cannot list the GPUs: nvmlDeviceGetCount" if listing else "NVML does not start"
    other_problem = ("driver.bad-state", f"{what}: {error_text(lib, code)} (code {code})", _SEE_DMESG)
    reason, detail, hint = (
        other_problem if listing and code == NvmlReturn.UNKNOWN else _PROBLEMS.get(code, other_problem)
    )
    if code == NvmlReturn.LIBRARY_NOT_FOUND and not simulated and (defect := _library_defect()):
        reason, detail, hint = "driver.bad-state", defect, REINSTALL_LIBRARIES
    if simulated:
        return Problem(source="nvml", reason=reason, detail=detail, hint=_SIMULATED_FAULT)
    system = system_and_driver_facts.read_system_facts(os.environ)
    evidence = ""
    if reason == "driver.missing":
        evidence = missing_driver_evidence(system)
        hint = missing_driver_action(system, library=code == NvmlReturn.DRIVER_NOT_LOADED) + TRY_SIMULATED_GPUS
    elif hint == REINSTALL_LIBRARIES:
        evidence = missing_driver_evidence(system)
    elif code == NvmlReturn.NO_PERMISSION and (
        unusable := [entry for entry in system.device_files if not entry.usable]
    ):
        evidence = ", ".join(f"{entry.path} is {entry.mode}" for entry in unusable)
        hint = JOIN_DEVICE_GROUP
    elif code == NvmlReturn.LIB_RM_VERSION_MISMATCH and system.kernel_module is not None:
        evidence = ", ".join(filter(None, (f"kernel module {system.kernel_module}", _library_version())))
    elif code == NvmlReturn.UNKNOWN and not listing and system.container is None:
        reason, hint = "driver.bad-state", _SEE_DMESG
    return Problem(source="nvml", reason=reason, detail="; ".join(filter(None, (detail, evidence))), hint=hint)


def _library_defect() -> str:
    """Why the driver's library is of no use although it is there; empty if it is not.

    The bindings answer "library not found" for every failure to load it.
    """
    try:
        ctypes.CDLL(_LIBRARY)
    except OSError as error:
        reason = " ".join(str(error).split())
        return (
            ""
            if says_not_installed(reason, _LIBRARY)
            else f"NVML does not start: its library cannot be loaded: {reason}"
        )
    return f"NVML does not start: {_LIBRARY} was loaded, and lacks another library of the driver (code 12)"


def _library_version() -> str:
    """``library 580.95.05``, by the name of the file that this process has loaded; empty if it cannot be read."""
    with suppress(OSError):
        found = re.search(r"/libnvidia-ml\.so\.(\d+\.[\d.]+)$", Path("/proc/self/maps").read_text(), re.MULTILINE)
        return f"library {found[1]}" if found is not None else ""
    return ""
