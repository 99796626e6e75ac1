"""NVML's answers that give the readings of a snapshot: the reverse of decode_answers.py, for simulated GPUs."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pynvml

from gpuwatch.core.errors import UsageError
from gpuwatch.core.model.metrics import METRICS, Lane, MetricSpec
from gpuwatch.core.model.nvml_return import NvmlReturn
from gpuwatch.core.model.reading import Missing, Reading
from gpuwatch.core.model.snapshot import Device, MigInstance, Snapshot
from gpuwatch.machine.sources.nvidia.decode_answers import (
    FABRIC_CONFIGURATION_SHIFT,
    FABRIC_CONFIGURATIONS,
    FABRIC_STATES,
    FABRIC_SUMMARIES,
    FABRIC_TROUBLES,
)
from gpuwatch.machine.sources.nvidia.mig import MEMORY_SLICES
from gpuwatch.sim.gpu_models import MAX_NUMBERS, MODELS, NOT_AVAILABLE, DescribedGpu, SimAnswer, SimCard
from gpuwatch.sim.mig_layout import MAX_INSTANCES, SimInstance

_MEMORY, _FABRIC, _MIG = "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetMigMode"
_ANSWERED_BY_SIMULATION = frozenset({"nvmlDeviceGetMigDeviceHandleByIndex", "nvmlDeviceGetMemoryAffinity"})
"""Calls whose answers follow from the machine itself."""
_POSITIONS = {"gpu": 0, "memory": 1, "total": 0, "reserved": 1, "free": 2, "used": 3, "bar1Total": 0, "bar1Used": 1}
_CHANGED_BY_WORK = frozenset(
    {
        "utilization.gpu_percent",
        "temperature.gpu_celsius",
        "temperature.margin_celsius",
        "power.draw_watts",
        "power.average_watts",
        "power.instant_watts",
        "clocks.sm_mhz",
        "clocks.memory_mhz",
        "clocks.graphics_mhz",
        "clocks.event_reasons",
        "performance.state",
        "fan.speed_percent",
        "energy_joules",
        "pcie.generation",
        "pcie.tx_bytes_per_second",
        "pcie.rx_bytes_per_second",
    }
)
"""What a program's work changes: simulated once one uses the GPU."""
_CODES_BY_REASON: dict[str, int] = {
    "not_supported": NvmlReturn.NOT_SUPPORTED,
    "permission_denied": NvmlReturn.NO_PERMISSION,
    "device_lost": NvmlReturn.GPU_IS_LOST,
    "failed": NvmlReturn.UNKNOWN,
}
_UNKNOWN_NAME = re.compile(r"unknown \((\d{1,9})\)")
_MAX_TEXT_BYTES = 63
_CARD_METRICS = ("identity.cuda_cores", "power.default_limit_watts", "clocks.sm_max_mhz", "clocks.memory_max_mhz")
_CORES_PER_MULTIPROCESSOR, _USUAL_CORES_PER_MULTIPROCESSOR = {7: 64}, 128
"""CUDA cores of each multiprocessor, by major compute capability."""


def simulated_gpus_of(snapshot: Snapshot) -> tuple[DescribedGpu, ...]:
    """The GPUs of a snapshot as simulated ones.

    Raises:
        UsageError: it has no GPU, or one whose memory is not known.
    """
    if not snapshot.devices:
        raise UsageError("it contains no GPU")
    return tuple(
        _described_gpu(device, _driver_answers(snapshot) if not at else ())
        for at, device in enumerate(snapshot.devices)
    )


def _driver_answers(snapshot: Snapshot) -> tuple[SimAnswer, ...]:
    driver, found = snapshot.driver, []
    if driver is not None and driver.version:
        found.append(SimAnswer("nvmlSystemGetDriverVersion", text=driver.version[:_MAX_TEXT_BYTES]))
    cuda = re.fullmatch(r"(\d{1,3})\.(\d{1,2})", (driver and driver.cuda_version) or "")
    if cuda:
        found.append(SimAnswer("nvmlSystemGetCudaDriverVersion", numbers=(int(cuda[1]) * 1000 + int(cuda[2]) * 10,)))
    return tuple(found)


def _described_gpu(device: Device, before: tuple[SimAnswer, ...]) -> DescribedGpu:
    total = device.number("memory.total_bytes")
    if not total:
        raise UsageError(f"it does not say how much memory GPU {device.index} has")
    memory = _memory_answers(device.readings, total)
    calls: dict[tuple[str, int], list[MetricSpec]] = {}
    for spec in METRICS:
        has_own_call = spec.call and spec.lane is not Lane.GPM and not spec.per_link
        if (has_own_call or spec.args) and spec.call not in _ANSWERED_BY_SIMULATION and spec.lane is not Lane.GPM:
            calls.setdefault((spec.call, _argument(spec)), []).append(spec)
    answers = [*before, *memory]
    for (call, argument), specs in calls.items():
        if call == _MEMORY or (call == _MIG and "mig.mode" in device.readings):
            continue
        answers.append(_answer(call, argument, specs, device))
    instances = [instance for instance in device.mig_instances if instance.index < MAX_INSTANCES]
    for instance in instances:
        instance_bytes = instance.readings.get("memory.total_bytes")
        if isinstance(instance_bytes, (int, float)):
            answers += _memory_answers(instance.readings, instance_bytes, instance.index + 1)
        if instance.multiprocessors is not None:
            answers.append(
                SimAnswer("nvmlDeviceGetAttributes_v2", instance.index + 1, numbers=(instance.multiprocessors,))
            )
    card = next((model.card for model in MODELS.values() if model.name == device.name), None) or _card(device)
    free = next(answer.numbers[2] for answer in memory if not answer.code)
    return DescribedGpu(
        name=device.name,
        memory_bytes=int(total),
        taken_bytes=int(total) - free,
        answers=tuple(answers),
        mig=tuple(_instance(instance, total) for instance in instances)
        if device.readings.get("mig.mode") == "enabled"
        else None,
        card=card,
    )


def _card(device: Device) -> SimCard | None:
    """A card that is not one of our models, if its snapshot has enough facts."""
    numbers = [device.number(name) for name in _CARD_METRICS]
    major, _, minor = (device.compute_capability or "").partition(".")
    if not (major.isdigit() and minor.isdigit()) or None in numbers:
        return None
    cores, watts, clock, memory_clock = (round(number or 0) for number in numbers)
    each = _CORES_PER_MULTIPROCESSOR.get(int(major), _USUAL_CORES_PER_MULTIPROCESSOR)
    return SimCard(int(major) * 10 + int(minor), max(cores // each, 1), watts * 1000, clock, memory_clock)


def _memory_answers(readings: dict[str, int | float | str], total: float, argument: int = 0) -> list[SimAnswer]:
    """Answers about memory. A driver that reports no reserve has only version 1 of the call: it counts it as used."""
    reserved_reading, free, used = (readings.get(f"memory.{kind}_bytes") for kind in ("reserved", "free", "used"))
    held, reserved = (int(number) if isinstance(number, (int, float)) else 0 for number in (used, reserved_reading))
    left = int(free) if isinstance(free, (int, float)) else max(int(total) - held - reserved, 0)
    shown = NOT_AVAILABLE if argument and reserved_reading is None else reserved
    found = [SimAnswer(_MEMORY, argument, numbers=(int(total), shown, min(left, int(total)), held))]
    if reserved_reading is None and not argument:
        found.append(SimAnswer(f"{_MEMORY}_v2", code=pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH))
    return found


def _instance(instance: MigInstance, total: float) -> SimInstance:
    """Slices from the file, else from its share of memory (of three or four of seven, the lower)."""
    memory = instance.readings.get("memory.total_bytes")
    share = round(float(memory) / total * MEMORY_SLICES) if isinstance(memory, (int, float)) else 1
    slices = instance.gpu_slices or {8: 7, 7: 7, 4: 3, 3: 3}.get(share, max(min(share, 2), 1))
    return SimInstance(
        instance.index,
        instance.gpu_instance or 0,
        instance.compute_instance or 0,
        slices,
        instance.compute_slices or slices,
    )


def _argument(spec: MetricSpec) -> int:
    first, *rest = ([getattr(pynvml, arg) if isinstance(arg, str) else arg for arg in spec.args]) or [0]
    return int(first) | (int(rest[0]) << 32 if rest else 0)


def _answer(call: str, argument: int, specs: Sequence[MetricSpec], device: Device) -> SimAnswer:
    readings = {spec.id: device.readings.get(spec.id) for spec in specs}
    work = specs[0].id in _CHANGED_BY_WORK
    if call == _FABRIC and readings["fabric.state"] is not None:
        numbers = _fabric_numbers(str(readings["fabric.state"]), readings.get("fabric.health"))
        if numbers is not None:
            return SimAnswer(call, argument, numbers=numbers)
    elif any(value is not None for value in readings.values()):
        first = readings[specs[0].id]
        if len(specs) == 1 and isinstance(first, str) and not specs[0].names and not specs[0].flags:
            return SimAnswer(call, argument, text=first.encode("ascii", "replace").decode()[:_MAX_TEXT_BYTES])
        numbers_by_place = [NOT_AVAILABLE] * MAX_NUMBERS
        for spec in specs:
            place = int(spec.pick[1:-1]) if spec.pick.startswith("[") else _POSITIONS.get(spec.pick, 0)
            numbers_by_place[place] = _number(spec, readings[spec.id])
        return SimAnswer(call, argument, numbers=tuple(numbers_by_place), until_used=work)
    why, code = device.missing.get(specs[0].id), int(NvmlReturn.NO_DATA)
    if why is not None:
        code = why.code or _CODES_BY_REASON.get(why.reason, code)
    return SimAnswer(call, argument, code=code, until_used=work and code == NvmlReturn.NO_DATA)


def _number(spec: MetricSpec, value: Reading | None) -> int:
    """NVML's number of a reading; NOT_AVAILABLE if it has none."""
    if value is None or isinstance(value, Missing):
        return NOT_AVAILABLE
    if not isinstance(value, str):
        return round(value / spec.scale)
    if spec.flags:
        bits = {name: bit for bit, name in spec.flags.items()}
        parts = [] if value == "none" else value.split("+")
        known = [bits.get(part) or (int(part, 16) if part.startswith("0x") else 0) for part in parts]
        return sum(known) if all(known) else NOT_AVAILABLE
    number = next((key for key, name in spec.names.items() if name == value), None)
    if number is None:
        unknown = _UNKNOWN_NAME.fullmatch(value)
        number = int(unknown[1]) if unknown else NOT_AVAILABLE
    return number


def _fabric_numbers(state: str, health: Reading | None) -> tuple[int, ...] | None:
    """State, status, health mask and summary."""
    number = next((key for key, name in FABRIC_STATES.items() if name == state.partition(",")[0]), None)
    if number is None:
        return None
    parts = health.split("+") if isinstance(health, str) else []
    mask = sum(1 << bit for bit, name in FABRIC_TROUBLES.items() if name in parts)
    mask |= sum(key << FABRIC_CONFIGURATION_SHIFT for key, name in FABRIC_CONFIGURATIONS.items() if name in parts)
    summary = next((key for key, name in FABRIC_SUMMARIES.items() if name in parts), 0)
    return number, 0, mask, summary
