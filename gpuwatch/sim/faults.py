"""Faults by name: driver, GPU and kernel failures that are injected into a running simulated machine."""

from __future__ import annotations

import ctypes
import itertools
from typing import Final

from gpuwatch.core.errors import GpuwatchError, UsageError
from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.core.formatting.suggest import did_you_mean
from gpuwatch.core.model.nvml_return import NvmlReturn
from gpuwatch.sim.libraries import DRIVER_LIBRARY, NVML_LIBRARY
from gpuwatch.sim.mig_layout import layout_text
from gpuwatch.sim.simulated_machine import SimMachine

HANG, SLOW, LOST_GPU, FAIL, INIT = "hang", "slow", "lost", "fail", "init"
"""Labels of faults: the subcommands that inject them."""

# Longer than anybody waits: a call that hangs returns when its fault is cleared.
_ENDLESS_MS: Final = 0xFFFFFFFF
_MAX_DIGITS: Final = 10
"""Longer numbers are no GPUs; Python refuses to parse very long ones."""
_FIRST_FOREIGN_PID: Final = 4_100_000


def nvml_code(text: str) -> NvmlReturn:
    """NVML's error code: ``GPU_IS_LOST``, ``NVML_ERROR_GPU_IS_LOST`` or ``15``."""
    name = text.strip().upper().replace("-", "_").removeprefix("NVML_").removeprefix("ERROR_")
    for code in NvmlReturn:
        if name in (code.name, str(code.value)):
            return code
    raise UsageError(
        f"{text!r} is not an NVML error code{did_you_mean(text, NvmlReturn.__members__)}",
        hint=", ".join(f"{code.name} {code.value}" for code in NvmlReturn),
    )


def gpu_index(machine: SimMachine, text: str) -> int:
    """The index of a GPU, from its index, its UUID, or the beginning of its UUID."""
    devices = machine.devices()
    if text.isdecimal() and len(text) < _MAX_DIGITS and int(text) < len(devices):
        return int(text)
    found = [device.index for device in devices if len(text) >= 4 and device.uuid.lower().startswith(text.lower())]
    if len(found) == 1:
        return found[0]
    raise UsageError(f"{machine.shape} has no GPU {text!r}", hint=f"0 to {len(devices) - 1}; removed GPUs count too")


def checked_function(machine: SimMachine, text: str) -> str:
    """A function of NVML or the CUDA driver that can fail on request; ``nvml*`` and ``*`` too."""
    if text == "*" or (text.endswith("*") and text.startswith(("nvml", "cu"))):
        return text
    for library, prefix in ((NVML_LIBRARY, "nvml"), (DRIVER_LIBRARY, "cu")):
        if text.startswith(prefix):
            served = ctypes.CDLL(str(machine.library_dir / library))
            if any(hasattr(served, text + suffix) for suffix in ("", "_v2", "_v3")):
                return text
    raise UsageError(
        f"the simulated driver has no function {text!r}",
        hint="for example nvmlDeviceGetTemperature, nvmlDeviceGet*, cuInit, or * for all of NVML",
    )


def hang(machine: SimMachine, seconds: float | None) -> None:
    """Makes every NVML call hang until the fault is cleared."""
    machine.inject("*", delay_ms=_ENDLESS_MS, seconds=seconds, label=HANG)


def slow(machine: SimMachine, delay_seconds: float, seconds: float | None) -> None:
    """Makes every NVML call take this long."""
    machine.inject("*", delay_ms=round(delay_seconds * 1000), seconds=seconds, label=SLOW)


def lose(machine: SimMachine, device: int) -> None:
    """Makes every call about the GPU fail with "GPU is lost", as after it has fallen off the bus."""
    machine.inject("*", code=NvmlReturn.GPU_IS_LOST, device=device, label=LOST_GPU)


def bring_back(machine: SimMachine, device: int) -> int:
    """Clears all faults of this GPU; returns their number."""
    return sum(machine.clear_faults(label, device) for label in {fault.label for fault in machine.faults()})


def fail_init(machine: SimMachine, code: int, seconds: float | None) -> None:
    """Makes nvmlInit fail, and every call of open sessions return "uninitialized"."""
    machine.inject("nvmlInit*", code=code, seconds=seconds, label=INIT)
    machine.inject("*", code=NvmlReturn.UNINITIALIZED, seconds=seconds, label=INIT)


def foreign_process(machine: SimMachine, device: int, memory_bytes: int, sm_percent: float, mig: int | None) -> int:
    """Adds a process of another PID namespace, which the driver lists and /proc does not show; returns its pid."""
    used_pids = machine.pids()
    pid = next(pid for pid in itertools.count(_FIRST_FOREIGN_PID) if pid not in used_pids)
    try:
        machine.attach(pid, device, memory_bytes, sm_percent=sm_percent, foreign=True, mig=mig)
    except GpuwatchError as error:
        raise UsageError(error.message, hint=error.hint) from error
    return pid


def fault_lines(machine: SimMachine) -> list[str]:
    """One line for each fault and changed value of the machine."""
    lines = []
    for fault in machine.faults():
        words = [fault.label or "inject", fault.function]
        if fault.device is not None:
            words.append(f"GPU {fault.device}")
        if fault.code:
            words.append(f"fails with {next((code.name for code in NvmlReturn if code == fault.code), fault.code)}")
        if fault.delay_seconds:
            endless = fault.delay_seconds * 1000 >= _ENDLESS_MS
            words.append("hangs" if endless else f"takes {fault.delay_seconds:g} s")
        if fault.calls_left is not None:
            words.append(count_text(fault.calls_left, "more call"))
        if fault.seconds_left is not None:
            words.append(f"{fault.seconds_left:.1f} s left")
        lines.append("  ".join(words))
    for device in machine.devices():
        where = f"GPU {device.index}"
        if not machine.is_shown(device.index):
            lines.append(f"remove  {where}")
        if machine.is_asleep(device.index):
            lines.append(f"asleep  {where}")
        if (instances := machine.mig(device.index)) is not None:
            lines.append(f"mig  {where}  {layout_text(instances)}")
        lines += [f"set  {where}  {name} {value}" for name, value in machine.overrides(device.index).items()]
    return lines
