"""NVIDIA GPUs as a source. The only file that imports ``pynvml``, NVIDIA's own bindings (``nvidia-ml-py``).

Every answer is a value or a :class:`~gpuwatch.core.model.reading.Missing` with its reason; no NVML error leaves this
class as an exception except :class:`~gpuwatch.machine.sources.device_source.SourceUnavailable`.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from gpuwatch.core.model.metrics import METRICS, Lane, MetricSpec
from gpuwatch.core.model.reading import Missing
from gpuwatch.core.model.snapshot import ASLEEP, Driver, MigInstance, Problem, Topology
from gpuwatch.machine.sources import driver_call_tracking, procfs
from gpuwatch.machine.sources.device_source import (
    GpuProcess,
    MissingReadings,
    Readings,
    SeenDevice,
    SourceUnavailable,
    Utilization,
)
from gpuwatch.machine.sources.nvidia import mig, nvml_binding, nvml_errors
from gpuwatch.machine.sources.nvidia.decode_answers import text_from_nvml
from gpuwatch.machine.sources.nvidia.gpm import GPU_TOO_OLD, GpmReader
from gpuwatch.machine.sources.nvidia.metric_reader import MetricReader, forget_unsupported
from gpuwatch.machine.sources.nvidia.nvml_devices import DeviceList, NvmlDevice
from gpuwatch.machine.sources.nvidia.nvml_errors import answer_or_none
from gpuwatch.machine.sources.nvidia.processes import Accounting, ProcessLists
from gpuwatch.machine.sources.nvidia.topology import TopologyDevice, read_topology
from gpuwatch.machine.sources.nvidia.xids import XidReceiver

try:
    import pynvml
except Exception as error:  # noqa: BLE001  # a module of that name may raise anything; it is reported by open()
    pynvml = None
    _UNUSABLE = nvml_binding.why_unusable(None, error)
else:
    _UNUSABLE = nvml_binding.why_unusable(pynvml, None)

_LIB = nvml_binding.GuardedLibrary(pynvml)
_GPM_METRICS = tuple(spec for spec in METRICS if spec.lane is Lane.GPM)
_WITHOUT_GPM = tuple(spec for spec in METRICS if spec.lane is not Lane.GPM)
"""Metrics that have a reading or a reason whether GPM is switched on or not."""
_FAST_ALONE = {Lane.FAST}
_RETRY_SECONDS = 60.0
"""Seconds after which unsupported metrics are tried again."""
_DCGM = "nv-hostengine"
_DCGM_CHECK_SECONDS = 60.0
"""Seconds between two checks whether DCGM runs."""
_DCGM_RUNS = Problem(
    source="gpm",
    reason="gpm.shared",
    detail="DCGM's host engine (nv-hostengine) is running; its profiling uses the same counters as GPM",
    hint="run gpuwatch without --gpm, or pause DCGM's profiling: dcgmi profile --pause",
)


class NvmlSource:
    """A session with NVML; implements :class:`~gpuwatch.machine.sources.device_source.DeviceSource`."""

    name = "nvml"

    def __init__(self, seen: Sequence[SeenDevice] = ()) -> None:
        self.simulated = False
        self.driver: Driver | None = None
        self._is_open = False
        self._retried_at = time.monotonic()
        self._device_list = DeviceList(_LIB, seen)
        self._reader = MetricReader(_LIB, METRICS if _UNUSABLE is None else ())
        self._gpm_reader = GpmReader(_LIB, _GPM_METRICS)
        self._process_lists = ProcessLists(_LIB)
        self._xids = XidReceiver(_LIB, {device.uuid: device.xids for device in seen})
        self._accounting = Accounting(_LIB)
        self._topology: tuple[list[TopologyDevice], Topology] | None = None
        self._gpm_on = False
        self._dcgm_checked_at = float("-inf")
        self._dcgm_runs = False

    @property
    def devices(self) -> Sequence[NvmlDevice]:
        return self._device_list.devices

    @property
    def unsettled(self) -> bool:
        """Whether the driver ended the session, or a device woke up that nothing was known of."""
        return self._reader.session_ended or self._device_list.woke

    @property
    def problems(self) -> Sequence[Problem]:
        """DCGM takes the same counters as GPM; no GPU is listed."""
        found = [_DCGM_RUNS] if self._gpm_on and self._dcgm_is_running() else []
        found += [
            Problem(source="nvml", reason="driver.bad-state", detail=why, hint="see dmesg for Xid or NVRM lines")
            for why in driver_call_tracking.all_left_out()
        ]
        if not self._device_list.devices:
            detail = "the NVIDIA driver answers but lists no GPU"
            hint = "see lspci and dmesg; in a container, check which GPUs it has access to"
            if self.simulated:
                hint = "all GPUs were removed; to add one: gpuwatch sim fault add 0"
            found.append(Problem(source="nvml", reason="driver.bad-state", detail=detail, hint=hint))
        return found

    def open(self) -> None:
        """Initializes NVML (``nvmlInit``) and lists the devices."""
        if self._is_open:
            return
        if _UNUSABLE is not None:
            raise SourceUnavailable(_UNUSABLE)
        try:
            _LIB.nvmlInit()
        except _LIB.NVMLError as error:
            self.simulated = _is_simulated()
            raise self._unavailable(error) from error
        self.simulated = _is_simulated()
        self._is_open = True
        self.driver = _driver()
        self._list_devices()

    def close(self) -> None:
        """Ends the session; one that will not end is left to the process's exit. The devices are forgotten."""
        self._end_session()
        self._device_list.devices = []

    def refresh(self) -> None:
        """Renews the list of devices when it changed, and the session when the driver ended it."""
        if time.monotonic() - self._retried_at >= _RETRY_SECONDS:
            self._retried_at = time.monotonic()
            for device in self.devices:
                forget_unsupported(device)
        try:
            changed = self._device_list.changed()
        except _LIB.NVMLError as error:
            if error.value in nvml_errors.SESSION_ENDED:
                self._reader.session_ended = False
                self._end_session()
                self.open()  # what is known of the devices stays
            return
        self._reader.session_ended = self._device_list.woke = False
        if changed:
            self._list_devices()

    def sample(self, device: NvmlDevice, lanes: Collection[Lane]) -> tuple[Readings, MissingReadings]:
        """Reads the metrics of ``lanes``, the MIG instances, and the Xids reported since the last sample."""
        wanted_lanes = set(lanes)
        if self._gpm_on and Lane.GPM not in wanted_lanes:
            self._gpm_reader.forget()  # its buffers are freed when it is switched off
        self._gpm_on = Lane.GPM in wanted_lanes
        slow_before = device.counters_at
        found = self._sample(device, wanted_lanes)
        device.mig_instances = self._mig_instances(device) if device.instances else ()
        if Lane.SLOW in wanted_lanes and slow_before:  # not before the first frame
            self._xids.register(device)
            self._accounting.update(device)
        if self.devices and device is self.devices[-1]:  # one set of events serves all devices
            self._xids.receive(self.devices)
        return found

    def processes(self, device: NvmlDevice) -> tuple[Sequence[GpuProcess], Sequence[Missing]] | None:
        if device.lost or device.state == ASLEEP or device.handle is None:
            return None
        before = device.listed_processes
        found = self._process_lists.processes(device)
        if device.listed_processes is not before:
            exited = {entry.pid for entry in before} - {entry.pid for entry in device.listed_processes}
            self._accounting.note_exited(device, exited)
        return found

    def utilization(self, device: NvmlDevice) -> tuple[Mapping[int, Utilization], Missing | None]:
        return self._process_lists.utilization(device)

    def topology(self) -> Topology:
        """Connections and CPU affinities; asked once for a list of devices that all answer."""
        members = [
            TopologyDevice(device.uuid, device.pci_bus_id, device.handle if device.state == "ok" else None)
            for device in self.devices
        ]
        if self._topology is not None and self._topology[0] == members and not self._topology[1].incomplete:
            return self._topology[1]
        found = read_topology(_LIB, members)
        if self._topology is None or self._topology[1] != found:
            self._topology = (members, found)
        return self._topology[1]

    def _end_session(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        for device in self.devices:
            device.handle = None  # NVML's handles end with their session
        self._gpm_reader.forget()
        self._xids.forget()
        answer_or_none(_LIB, _LIB.nvmlShutdown)

    def _list_devices(self) -> None:
        """Lists the devices. A session that cannot is ended, so that the next :meth:`open` begins anew."""
        try:
            self._device_list.renew()
        except _LIB.NVMLError as error:
            self._end_session()
            raise self._unavailable(error, listing=True) from error

    def _unavailable(self, error: Any, *, listing: bool = False) -> SourceUnavailable:
        return SourceUnavailable(nvml_errors.open_problem(_LIB, error.value, listing=listing, simulated=self.simulated))

    def _sample(self, device: NvmlDevice, wanted_lanes: set[Lane]) -> tuple[Readings, MissingReadings]:
        wanted = METRICS if Lane.GPM in wanted_lanes else _WITHOUT_GPM
        last, device.last_fast = device.last_fast, None
        if Lane.SLOW in wanted_lanes:
            self._device_list.note_power_management(device)
        if (device.may_sleep or device.state == ASLEEP) and self._device_list.asleep(device):
            return _asleep_readings(device, wanted)
        if device.handle is None or (device.lost and not self._answers_again(device)):
            return {}, _lost_readings(device, wanted)  # without a handle nothing can be asked until it is listed again
        if Lane.SLOW in wanted_lanes:
            self._read_mig_mode(device)
        fast = self._reader.read_fast(device)
        if fast is None:
            return {}, _lost_readings(device, wanted)
        if last is not None and wanted_lanes == _FAST_ALONE and fast == last[:2]:
            device.last_fast = last
            return last[2], last[3]
        readings, missing = dict(fast[0]), dict(fast[1])
        for lane in (Lane.SLOW, Lane.ONCE, Lane.ON_DEMAND):
            if lane in wanted_lanes:
                self._reader.read_lane(device, lane)
            if lane in device.kept_readings:
                readings.update(device.kept_readings[lane][0])
                missing.update(device.kept_readings[lane][1])
        if Lane.GPM in wanted_lanes:
            self._read_activity(device, readings, missing)
        else:
            device.last_fast = (*fast, readings, missing)
        return readings, missing

    def _answers_again(self, device: NvmlDevice) -> bool:
        """Whether a device that was lost is back."""
        try:
            _LIB.nvmlDeviceGetUtilizationRates(device.handle)
        except _LIB.NVMLError as error:
            if error.value in nvml_errors.LOST_STATES:
                return False
            if error.value not in nvml_errors.PERMANENT:
                device.state_detail = f"nvmlDeviceGetUtilizationRates: {nvml_errors.error_text(_LIB, error.value)}"
                return False
        device.state, device.state_detail = "ok", ""
        return True

    def _read_mig_mode(self, device: NvmlDevice) -> None:
        """Updates whether MIG is on, and the instances. Switching MIG changes what is supported: it is asked again."""
        if "mig" in device.permanent:
            return
        try:
            on = bool(_LIB.nvmlDeviceGetMigMode(device.handle)[0])
        except _LIB.NVMLError as error:
            device.note_missing(_LIB, error.value, "nvmlDeviceGetMigMode", "mig")
            return
        if on != device.mig_on:
            if device.mig_on is not None:
                device.permanent.clear()
            device.mig_on = on
        if on or device.instances:
            self._list_instances(device)

    def _list_instances(self, device: NvmlDevice) -> None:
        before = {instance.facts.uuid for instance in device.instances if instance.facts.uuid is not None}
        try:
            device.instances = mig.list_instances(_LIB, device.handle)
        except _LIB.NVMLError:
            device.instances = []  # the metric mig.instances has the reason
        removed = before - {instance.facts.uuid for instance in device.instances}
        if removed:
            self._gpm_reader.forget(removed)

    def _mig_instances(self, device: NvmlDevice) -> tuple[MigInstance, ...]:
        """The instances with their memory now, and their activity if GPM is on. A changed layout is found again."""
        if device.state != "ok":
            return ()
        found = self._read_instances(device)
        if found is None:
            self._list_instances(device)
            found = self._read_instances(device) or ()  # the layout is changing right now: the next sample has it
        return tuple(self._with_activity(device, instance) for instance in found) if self._gpm_on else found

    @staticmethod
    def _read_instances(device: NvmlDevice) -> tuple[MigInstance, ...] | None:
        try:
            return tuple(mig.with_current_memory(_LIB, instance) for instance in device.instances)
        except _LIB.NVMLError:
            return None

    def _dcgm_is_running(self) -> bool:
        """Whether DCGM runs: then the values of both may be wrong."""
        now = time.monotonic()
        if now - self._dcgm_checked_at >= _DCGM_CHECK_SECONDS:
            self._dcgm_checked_at, self._dcgm_runs = now, procfs.is_running(_DCGM)
        return self._dcgm_runs

    def _read_activity(self, device: NvmlDevice, readings: Readings, missing: MissingReadings) -> None:
        why_missing = device.permanent.get("gpm")
        if why_missing is not None:
            missing.update((spec.id, why_missing) for spec in _GPM_METRICS)
            return
        answered, failed, unsupported = self._gpm_reader.read(device.uuid, device.handle, bool(device.mig_on))
        if unsupported is not None:
            device.permanent["gpm"] = unsupported
        readings.update(answered)
        missing.update(failed)

    def _with_activity(self, device: NvmlDevice, instance: MigInstance) -> MigInstance:
        if device.permanent.get("gpm") is GPU_TOO_OLD:
            missing = instance.missing | {spec.id: GPU_TOO_OLD for spec in _GPM_METRICS}
            return msgspec.structs.replace(instance, missing=missing)
        if instance.uuid is None or instance.gpu_instance is None:
            return instance
        answered, failed, _ = self._gpm_reader.read(
            instance.uuid, device.handle, True, gpu_instance=instance.gpu_instance
        )
        readings, missing = instance.readings | answered, instance.missing | failed
        return msgspec.structs.replace(instance, readings=readings, missing=missing)


def _is_simulated() -> bool:
    """Whether gpuwatch's simulated library was loaded, which can also be one that does not start."""
    return hasattr(_LIB.nvmlLib, "gpuwatch_sim_version")


def _asleep_readings(device: NvmlDevice, wanted: Sequence[MetricSpec]) -> tuple[Readings, MissingReadings]:
    """Readings of a suspended device: the constant ones that are known."""
    known = dict(device.kept_readings[Lane.ONCE][0]) if Lane.ONCE in device.kept_readings else {}
    sleeps = Missing("no_sample", detail="the GPU is suspended; reading it would wake it")
    return known, {spec.id: sleeps for spec in wanted if spec.id not in known}


def _lost_readings(device: NvmlDevice, wanted: Sequence[MetricSpec]) -> MissingReadings:
    lost = Missing("failed" if device.state == "failed" else "device_lost", detail=device.state_detail)
    return {spec.id: lost for spec in wanted}


def _driver() -> Driver:
    version = answer_or_none(_LIB, _LIB.nvmlSystemGetDriverVersion)
    cuda = answer_or_none(_LIB, _LIB.nvmlSystemGetCudaDriverVersion_v2)
    nvml = answer_or_none(_LIB, _LIB.nvmlSystemGetNVMLVersion)
    return Driver(
        version=None if version is None else text_from_nvml(version),
        cuda_version=None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
        nvml_version=None if nvml is None else text_from_nvml(nvml),
    )
