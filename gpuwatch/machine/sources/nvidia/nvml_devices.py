"""The GPUs that NVML lists, with what is cached about each. A suspended GPU is not queried: that would wake it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import astuple

from gpuwatch.core.model.metrics import Lane
from gpuwatch.core.model.reading import Missing, Value
from gpuwatch.core.model.snapshot import ASLEEP, ASLEEP_PREFIX, UNIDENTIFIED_PREFIX
from gpuwatch.machine.sources.device_source import GpuProcess, MissingReadings, Readings, SeenDevice, SourceDevice
from gpuwatch.machine.sources.nvidia import mig, nvml_errors
from gpuwatch.machine.sources.nvidia.decode_answers import bus_id, text_from_nvml, text_of
from gpuwatch.machine.sources.nvidia.nvml_errors import answer_or_none
from gpuwatch.machine.sources.procfs import file_text
from gpuwatch.machine.sources.system_and_driver_facts import nvidia_slots
from gpuwatch.sim import environment

ProcessList = list[tuple[int, int | None, int, int]]
"""Rows of NVML: pid, bytes, GPU instance, compute instance."""


class NvmlDevice(SourceDevice):
    """A device of the current list."""

    handle: Any = None
    """NVML's handle; None for a device that did not answer when it was listed."""
    permanent: dict[str, Missing] = msgspec.field(default_factory=dict)
    """Metric id to the reason that will not change."""
    kept_readings: dict[Lane, tuple[Readings, MissingReadings]] = msgspec.field(default_factory=dict)
    """The last readings of each lane but the fast one."""
    answers: dict[str, tuple[Any, list[tuple[str, Value | Missing]]]] = msgspec.field(default_factory=dict)
    """Of each call: the last answer, and the readings made of it."""
    last_fast: tuple[Readings, MissingReadings, Readings, MissingReadings] | None = None
    """The last readings of the fast lane, and the same with what is kept of the others."""
    may_sleep: bool = False
    """Whether the kernel may suspend it: then the kernel is asked before NVML, which would wake the device."""
    mig_on: bool | None = None
    """Whether MIG is on; None where the device does not know MIG, or has not been asked."""
    instances: list[mig.ListedInstance] = msgspec.field(default_factory=list)
    """Its MIG instances, as of the last slow sample."""
    process_lists_by_kind: list[tuple[str, ProcessList]] = msgspec.field(default_factory=list)
    """The last lists of processes, by kind."""
    listed_processes: list[GpuProcess] = msgspec.field(default_factory=list)
    """The same, each process once."""
    listed_with_mig: bool = True
    """Whether MIG was on, or unknown, when :attr:`listed_processes` was made."""
    utilization_seen_at: int = 0
    """Microseconds since the epoch of the newest process utilization sample seen."""

    def note_missing(self, lib: Any, code: int, call: str, *names: str) -> Missing:
        """Why ``call`` gave nothing; kept under these names where that will not change."""
        why_missing = nvml_errors.missing_reading(lib, code, call, mig_on=bool(self.mig_on))
        if code in nvml_errors.PERMANENT:
            self.permanent.update(dict.fromkeys(names, why_missing))
        return why_missing

    @property
    def lost(self) -> bool:
        """Whether NVML reported the whole device as lost (``NVML_ERROR_GPU_IS_LOST``, ``_RESET_REQUIRED``)."""
        return self.state in ("lost", "reset-required")


_SUSPENDED = "suspended by the kernel; reading it would wake it"
_MAX_DEVICES = 1024
"""More GPUs no host has."""


class _Answer(NamedTuple):
    """What NVML says of a place in its list."""

    handle: Any
    uuid: str
    """Empty: it did not say."""
    lost: str = ""
    """The state of a device that NVML calls lost."""
    detail: str = ""
    """Why it did not say."""


class DeviceList:
    """The devices of a session, listed again when they change. Cached facts about a device outlive the session."""

    def __init__(self, lib: Any, seen: Iterable[SeenDevice] = ()) -> None:
        """``seen``: the devices of an earlier session, of which some may not answer any more."""
        self._lib = lib
        self._seen = [NvmlDevice(*astuple(device)) for device in seen]
        self._runtime_pm = RuntimePm()
        self.devices: list[NvmlDevice] = []
        self.woke = False
        """A device that was asleep when it was listed has woken up and must be described."""

    def changed(self) -> bool:
        """Whether the list is out of date. ``NVMLError`` if the devices cannot be counted."""
        count = self._lib.count("nvmlDeviceGetCount", _MAX_DEVICES)
        if count != len(self.devices):
            return True
        return any(map(self._differs, self.devices))

    def renew(self) -> None:
        """Lists the devices again. ``NVMLError`` if they cannot be counted."""
        known = {device.uuid: device for device in (*self._seen, *self.devices)}
        self._seen = []
        count = self._lib.count("nvmlDeviceGetCount", _MAX_DEVICES)
        bus_ids = self._runtime_pm.gpus()
        asleep = {
            index: pci
            for index, pci in enumerate(bus_ids)
            if len(bus_ids) == count and self._runtime_pm.managed(pci) and self._runtime_pm.asleep(pci)
        }
        places = bus_ids if len(bus_ids) == count else [""] * count
        answers = [None if index in asleep else self._identify(index) for index in range(count)]
        silent = [index for index, answer in enumerate(answers) if answer is not None and not answer.uuid]
        taken = {answer.uuid for answer in answers if answer is not None and answer.uuid}
        before = _match_silent(silent, places, [device for device in known.values() if device.uuid not in taken])
        self.devices = [
            self._suspended_device(index, asleep[index], known)
            if answer is None
            else self._describe(index, answer, known)
            if answer.uuid
            else self._silent_device(index, answer, places[index], before.get(index))
            for index, answer in enumerate(answers)
        ]
        self.woke = False

    def note_power_management(self, device: NvmlDevice) -> None:
        device.may_sleep = self._runtime_pm.managed(device.pci_bus_id)

    def asleep(self, device: NvmlDevice) -> bool:
        """Whether the kernel has suspended the device; sets its state."""
        if self._runtime_pm.asleep(device.pci_bus_id):
            device.state, device.state_detail = ASLEEP, _SUSPENDED
            return True
        if device.state == ASLEEP:
            if device.handle is None:
                self.woke = True
                return True
            device.state, device.state_detail = "ok", ""
        return False

    def _differs(self, device: NvmlDevice) -> bool:
        """Whether a device has to be described again: it is another one, it woke up, or it answers again."""
        if device.state == ASLEEP:
            return device.handle is None and not self._runtime_pm.asleep(device.pci_bus_id)
        uuid = self._identify(device.index).uuid
        return bool(uuid) and (device.handle is None or uuid != device.uuid)

    def _suspended_device(self, index: int, pci_bus_id: str, known: Mapping[str, NvmlDevice]) -> NvmlDevice:
        """A suspended device: the known one, or a placeholder for its PCI address."""
        before = next((device for device in known.values() if device.pci_bus_id == pci_bus_id), None)
        device = before or NvmlDevice(index, f"{ASLEEP_PREFIX}{pci_bus_id}", "sleeping GPU", pci_bus_id)
        device.index, device.state, device.state_detail = index, ASLEEP, _SUSPENDED
        return device

    def _identify(self, index: int) -> _Answer:
        lib, handle, called = self._lib, None, "nvmlDeviceGetHandleByIndex"
        try:
            handle = lib.nvmlDeviceGetHandleByIndex(index)
            called = "nvmlDeviceGetUUID"
            return _Answer(handle, text_from_nvml(lib.nvmlDeviceGetUUID(handle)))
        except lib.NVMLError as error:
            lost = nvml_errors.LOST_STATES.get(error.value, "")
            return _Answer(None if lost else handle, "", lost, f"{called}: {nvml_errors.error_text(lib, error.value)}")

    def _silent_device(self, index: int, answer: _Answer, place: str, before: NvmlDevice | None) -> NvmlDevice:
        """A device that does not say which it is: as it was before, or a placeholder."""
        if answer.handle is not None:  # the other queries may well answer
            uuid = before.uuid if before is not None else f"{UNIDENTIFIED_PREFIX}{index}"
            known = {} if before is None else {uuid: before}
            return self._describe(index, _Answer(answer.handle, uuid), known)
        device = before or NvmlDevice(index, f"{UNIDENTIFIED_PREFIX}{index}", "unknown GPU", place)
        device.index, device.handle = index, None
        device.state, device.state_detail = answer.lost or "failed", answer.detail
        return device

    def _describe(self, index: int, answer: _Answer, known: Mapping[str, NvmlDevice]) -> NvmlDevice:
        lib, handle, uuid = self._lib, answer.handle, answer.uuid
        if uuid in known:
            device = known[uuid]
            device.index, device.handle = index, handle
            device.permanent.clear()
            device.mig_on, device.instances = None, []
            device.kept_readings.pop(Lane.ONCE, None)
            device.last_fast = None
            device.state, device.state_detail = "ok", ""
            return device
        name = answer_or_none(lib, lib.nvmlDeviceGetName, handle)
        pci = answer_or_none(lib, lib.nvmlDeviceGetPciInfo, handle)
        capability = answer_or_none(lib, lib.nvmlDeviceGetCudaComputeCapability, handle)
        return NvmlDevice(
            index,
            uuid,
            "unknown GPU" if name is None else text_from_nvml(name),
            "" if pci is None else bus_id(text_of(pci, "busId")),
            None if capability is None else f"{capability[0]}.{capability[1]}",
            handle=handle,
        )


def _match_silent(silent: list[int], places: Sequence[str], known: Sequence[NvmlDevice]) -> dict[int, NvmlDevice]:
    """Which known devices those are that do not answer, by index; one that cannot be told is missing.

    ``known``: without those that answered. By the PCI bus id where the kernel lists as many devices as NVML does. Else
    in their order, which is NVML's too, if there are as many of them: all, or all that did not answer before either.
    """
    if not silent:
        return {}
    if places[silent[0]]:
        by_place = {device.pci_bus_id: device for device in known}
        return {index: by_place[places[index]] for index in silent if places[index] in by_place}
    ordered = sorted(known, key=lambda device: device.index)
    for some in (ordered, [device for device in ordered if device.state != "ok"]):
        if len(some) == len(silent):
            return dict(zip(silent, some, strict=True))
    return {}


class RuntimePm:
    """The power state of NVIDIA's PCI devices: the kernel's runtime power management, read from /sys alone.

    An unused GPU of a laptop is suspended. A call to the driver would wake it; reading /sys does not. On servers and
    desktops runtime power management is off for GPUs, and nothing more is read.
    """

    def __init__(self, root: Path | None = None) -> None:
        self._root = environment.sysfs_root() if root is None else root

    def managed(self, pci_bus_id: str) -> bool:
        """Whether the kernel may suspend the device (``power/control`` is ``auto``)."""
        return bool(pci_bus_id) and self._read(pci_bus_id, "control") == "auto"

    def asleep(self, pci_bus_id: str) -> bool:
        """Whether the device is suspended now (``power/runtime_status``)."""
        return self._read(pci_bus_id, "runtime_status") in ("suspended", "suspending")

    def gpus(self) -> list[str]:
        """PCI bus ids of NVIDIA's GPUs in the order of NVML's indices; empty if /sys cannot be read."""
        return [slot.name for slot in nvidia_slots(self._root) or ()]

    def _read(self, pci_bus_id: str, name: str) -> str:
        return (file_text(environment.power_folder(self._root, pci_bus_id) / name) or "").strip()
