"""The only file that talks to NVML, through NVIDIA's own bindings (``nvidia-ml-py``).

Every answer is a value or a :class:`Missing` with its reason; no NVML error leaves this module as
an exception except :class:`NvmlUnavailable`, which carries the problem for the person. What a
driver lacks is asked once per device list; what failed in passing is asked again.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pynvml

from gpuwatch.model.metrics import METRICS, Lane, MetricSpec
from gpuwatch.model.reading import Missing, Reason, Value
from gpuwatch.model.snapshot import Driver, Problem
from gpuwatch.sources.answers import (
    NOT_AVAILABLE,
    UNION_MEMBERS,
    GpuProcess,
    NvmlUnavailable,
    Utilization,
    bus_id,
    decode,
    pick,
)

_LOST = {pynvml.NVML_ERROR_GPU_IS_LOST: "lost", pynvml.NVML_ERROR_RESET_REQUIRED: "reset-required"}
_PERMANENT = {
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_DEPRECATED,
}
_REASONS: dict[int, Reason] = {
    pynvml.NVML_ERROR_NOT_SUPPORTED: "not_supported",
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: "not_supported",
    pynvml.NVML_ERROR_DEPRECATED: "not_supported",
    pynvml.NVML_ERROR_NO_PERMISSION: "permission_denied",
    pynvml.NVML_ERROR_GPU_IS_LOST: "device_lost",
    pynvml.NVML_ERROR_RESET_REQUIRED: "device_lost",
    pynvml.NVML_ERROR_NO_DATA: "no_sample",
}
_NO_INSTANCE = 0xFFFFFFFF

_SIMULATE = "to look at simulated GPUs: gpuwatch --sim 2x24GiB"
_HINTS = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: (
        "driver.missing",
        "no NVIDIA driver was found: libnvidia-ml.so.1 cannot be loaded",
        "install NVIDIA's driver, or give the container its GPUs (docker run --gpus all); " + _SIMULATE,
    ),
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (
        "driver.missing",
        "NVIDIA's kernel module is not loaded",
        "load it (modprobe nvidia) or see dmesg for why it does not load; " + _SIMULATE,
    ),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "driver.mismatch",
        "NVIDIA's library and kernel module are of different versions",
        "the driver was upgraded while it was in use: reboot, or reload the nvidia modules",
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: (
        "driver.bad-state",
        "this user may not talk to the NVIDIA driver",
        "check the permissions of /dev/nvidiactl and /dev/nvidia*",
    ),
    pynvml.NVML_ERROR_UNKNOWN: (
        "container.lost-devices",
        "NVML does not start: Unknown Error",
        "in a container this means that it lost its devices (after systemctl daemon-reload): recreate it; "
        "elsewhere see dmesg",
    ),
}


class _Plan(msgspec.Struct):
    """One NVML call and the metrics that are picked from its answer."""

    name: str
    call: Callable[[Any], Any]
    specs: tuple[MetricSpec, ...]


class NvmlDevice(msgspec.Struct):
    """A device of the current list, with what was learnt about it."""

    index: int
    handle: Any
    uuid: str
    name: str
    pci_bus_id: str
    compute_capability: str | None
    state: str = "ok"
    state_detail: str = ""
    permanent: dict[str, Missing] = {}
    """Metric id to the reason that will not change."""
    slow: dict[str, Value | Missing] = {}
    last_utilization: int = 0
    """Microseconds since the epoch of the newest process utilization sample seen."""


def _errordecode(code: int) -> str:
    return str(pynvml.NVMLError(code))


def _missing(code: int, call: str) -> Missing:
    return Missing(_REASONS.get(code, "failed"), code=code, detail=f"{call}: {_errordecode(code)}")


class Nvml:
    """A session with NVML: opened lazily, kept open, its device list renewed when it changes."""

    def __init__(self) -> None:
        self.devices: list[NvmlDevice] = []
        self.simulated = False
        self.driver: Driver | None = None
        self._open = False
        self._plans = {lane: tuple(_plans(lane)) for lane in Lane}
        self._process_calls = (
            ("C", "nvmlDeviceGetComputeRunningProcesses"),
            ("G", "nvmlDeviceGetGraphicsRunningProcesses"),
            ("M", "nvmlDeviceGetMPSComputeRunningProcesses"),
        )
        self._process_versions: dict[str, str | None] = {}

    def open(self) -> None:
        """Initialises NVML and lists the devices; :class:`NvmlUnavailable` when that fails."""
        if self._open:
            return
        if not hasattr(pynvml, "nvmlDeviceGetComputeRunningProcesses_v3"):
            raise NvmlUnavailable(
                Problem(
                    source="nvml",
                    reason="driver.bad-state",
                    detail="the module pynvml comes from another package than nvidia-ml-py, or from an old one",
                    hint="pip uninstall pynvml nvidia-ml-py3, then pip install --force-reinstall nvidia-ml-py",
                )
            )
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise NvmlUnavailable(_problem(error.value)) from error
        self._open = True
        self.simulated = hasattr(pynvml.nvmlLib, "gpuwatch_sim_version")
        self.driver = self._read_driver()
        self._list_devices()

    def close(self) -> None:
        """Ends the session; a session that will not end is left to the process's exit."""
        if self._open:
            self._open = False
            self.devices = []
            try:
                pynvml.nvmlShutdown()
            except pynvml.NVMLError:
                return

    def refresh(self) -> bool:
        """Looks whether the list of devices changed, and renews it; True when it did."""
        try:
            count = pynvml.nvmlDeviceGetCount()
            same = count == len(self.devices) and all(
                self._uuid_at(device.index) in (device.uuid, None) for device in self.devices
            )
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_UNINITIALIZED:
                self._open = False
                raise NvmlUnavailable(_problem(error.value)) from error
            return False
        if not same:
            self._list_devices()
        return not same

    def sample(self, device: NvmlDevice, lanes: Iterable[Lane]) -> tuple[dict[str, Value], dict[str, Missing]]:
        """Reads the metrics of ``lanes``; lanes not asked for answer from what was read before."""
        readings: dict[str, Value] = {}
        missing: dict[str, Missing] = {}
        if device.state in ("lost", "reset-required") and not self._answers(device):
            return {}, self._all_lost(device)
        asked = set(lanes)
        for plan in self._plans[Lane.FAST]:
            self._ask(device, plan, readings, missing)
            if device.state in ("lost", "reset-required"):
                return {}, self._all_lost(device)
        for lane in (Lane.SLOW, Lane.ON_DEMAND):
            if lane not in asked:
                continue
            fresh: dict[str, Value] = {}
            failed: dict[str, Missing] = {}
            for plan in self._plans[lane]:
                self._ask(device, plan, fresh, failed)
            device.slow.update(fresh)
            device.slow.update(failed)
        for metric_id, kept in device.slow.items():
            if isinstance(kept, Missing):
                missing[metric_id] = kept
            else:
                readings[metric_id] = kept
        return readings, missing

    def processes(self, device: NvmlDevice) -> tuple[list[GpuProcess], list[Missing]]:
        """Compute, graphics and MPS processes, a pid once; what could not be listed beside it."""
        found: dict[tuple[int, str | None], GpuProcess] = {}
        problems: list[Missing] = []
        for kind, base in self._process_calls:
            key = f"processes.{kind}"
            if key in device.permanent:
                continue
            rows, code = self._running(device, base)
            if code:
                lack = _missing(code, base)
                if code in _PERMANENT:
                    device.permanent[key] = lack
                if kind == "C" or code not in _PERMANENT:
                    problems.append(lack)
                continue
            for pid, used, gi, ci in rows:
                mig = None if gi == _NO_INSTANCE else f"{gi}/{ci}" if ci != _NO_INSTANCE else str(gi)
                before = found.get((pid, mig))
                if before is None:
                    found[pid, mig] = GpuProcess(pid, kind, used, mig)
                else:
                    # One process in two lists has one amount of memory: NVML repeats it.
                    kinds = "C+G" if {before.kind, kind} == {"C", "G"} else before.kind
                    found[pid, mig] = GpuProcess(pid, kinds, before.used_bytes or used, mig)
        return list(found.values()), problems

    def process_utilization(self, device: NvmlDevice) -> tuple[dict[int, Utilization], Missing | None]:
        """Newest utilization by pid since the last call; None beside it when the call works."""
        kept = device.permanent.get("processes.utilization")
        if kept is not None:
            return {}, kept
        call = "nvmlDeviceGetProcessUtilization"
        try:
            samples = pynvml.nvmlDeviceGetProcessUtilization(device.handle, device.last_utilization)
        except pynvml.NVMLError as error:
            if error.value in (pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_NO_DATA):
                return {}, Missing("no_sample", code=error.value, detail=f"{call}: no sample since the last one")
            lack = _missing(error.value, call)
            if error.value in _PERMANENT:
                device.permanent["processes.utilization"] = lack
            return {}, lack
        newest: dict[int, tuple[int, Utilization]] = {}
        latest = device.last_utilization
        for sample in samples:
            stamp = sample.timeStamp
            # The driver's buffer also holds old and torn entries.
            if stamp <= device.last_utilization or max(sample.smUtil, sample.memUtil) > 100:
                continue
            latest = max(latest, stamp)
            if sample.pid not in newest or newest[sample.pid][0] < stamp:
                newest[sample.pid] = (
                    stamp,
                    Utilization(sample.smUtil, sample.memUtil, sample.encUtil, sample.decUtil),
                )
        device.last_utilization = latest
        return {pid: value for pid, (_, value) in newest.items()}, None

    # -- inside ---------------------------------------------------------------------------------

    def _ask(self, device: NvmlDevice, plan: _Plan, readings: dict[str, Value], missing: dict[str, Missing]) -> None:
        permanent = device.permanent.get(plan.name)
        if permanent is not None:
            for spec in plan.specs:
                missing[spec.id] = permanent
            return
        try:
            answer = plan.call(device.handle)
        except pynvml.NVMLError as error:
            code = error.value
            lack = _missing(code, plan.specs[0].call)
            if code in _PERMANENT:
                device.permanent[plan.name] = lack
            elif code in _LOST:
                device.state = _LOST[code]
                device.state_detail = lack.detail
            for spec in plan.specs:
                missing[spec.id] = lack
            return
        for spec in plan.specs:
            value = pick(spec, answer)
            if isinstance(value, Missing):
                missing[spec.id] = value
            else:
                readings[spec.id] = value

    def _answers(self, device: NvmlDevice) -> bool:
        """Whether a device that was lost is back."""
        try:
            pynvml.nvmlDeviceGetUtilizationRates(device.handle)
        except pynvml.NVMLError as error:
            if error.value in _LOST:
                return False
            if error.value not in _PERMANENT:
                device.state_detail = f"nvmlDeviceGetUtilizationRates: {_errordecode(error.value)}"
                return False
        device.state, device.state_detail = "ok", ""
        return True

    def _all_lost(self, device: NvmlDevice) -> dict[str, Missing]:
        lost = Missing("device_lost", detail=device.state_detail)
        return {spec.id: lost for spec in METRICS}

    def _read_driver(self) -> Driver:
        version = _maybe(pynvml.nvmlSystemGetDriverVersion)
        cuda = _maybe(pynvml.nvmlSystemGetCudaDriverVersion_v2)
        nvml = _maybe(pynvml.nvmlSystemGetNVMLVersion)
        return Driver(
            version=None if version is None else decode(version),
            cuda_version=None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
            nvml_version=None if nvml is None else decode(nvml),
        )

    def _uuid_at(self, index: int) -> str | None:
        """UUID of the device at ``index`` now; None when it does not answer (a lost device)."""
        try:
            return decode(pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(index)))
        except pynvml.NVMLError:
            return None

    def _list_devices(self) -> None:
        known = {device.uuid: device for device in self.devices}
        try:
            count = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError as error:
            raise NvmlUnavailable(_problem(error.value)) from error
        self.devices = [self._describe(index, known) for index in range(count)]

    def _describe(self, index: int, known: dict[str, NvmlDevice]) -> NvmlDevice:
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            uuid = decode(pynvml.nvmlDeviceGetUUID(handle))
        except pynvml.NVMLError as error:
            # A lost device has no handle; its row stays, under what was known of this slot.
            before = next((device for device in known.values() if device.index == index), None)
            state = _LOST.get(error.value, "failed")
            detail = f"nvmlDeviceGetHandleByIndex: {_errordecode(error.value)}"
            if before is not None:
                before.state, before.state_detail = state, detail
                return before
            return NvmlDevice(index, None, f"unknown-{index}", "unknown GPU", "", None, state, detail)
        if uuid in known:
            device = known[uuid]
            device.index, device.handle = index, handle
            device.permanent.clear()
            device.state, device.state_detail = "ok", ""
            return device
        name = _maybe(pynvml.nvmlDeviceGetName, handle)
        pci = _maybe(pynvml.nvmlDeviceGetPciInfo, handle)
        capability = _maybe(pynvml.nvmlDeviceGetCudaComputeCapability, handle)
        return NvmlDevice(
            index,
            handle,
            uuid,
            "unknown GPU" if name is None else decode(name),
            "" if pci is None else bus_id(decode(pci.busId)),
            None if capability is None else f"{capability[0]}.{capability[1]}",
        )

    def _running(self, device: NvmlDevice, base: str) -> tuple[list[tuple[int, int | None, int, int]], int]:
        """Rows (pid, bytes, GPU instance, compute instance) and NVML's return code.

        The structs grew with the driver: v3 is tried, then v2, then the first; what a driver has
        is remembered (symbols differ between 450, 510 and 535).
        """
        if base not in self._process_versions:
            self._process_versions[base] = _newest_symbol(base)
        symbol = self._process_versions[base]
        if symbol is None:
            return [], pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
        call = pynvml._nvmlGetFunctionPointer(symbol)
        struct = pynvml.c_nvmlProcessInfo_v2_t if symbol[-3:] in ("_v2", "_v3") else _ProcessInfoV1
        room = 64
        while True:
            count = ctypes.c_uint(room)
            rows = (struct * room)()
            code: int = call(device.handle, ctypes.byref(count), rows)
            if code != pynvml.NVML_ERROR_INSUFFICIENT_SIZE or room > 1 << 16:
                break
            room = max(count.value, room) * 2
        if code != pynvml.NVML_SUCCESS:
            return [], code
        mig = struct is not _ProcessInfoV1
        found = []
        for row in rows[: count.value]:
            used = row.usedGpuMemory
            found.append(
                (
                    row.pid,
                    None if used in NOT_AVAILABLE else used,
                    row.gpuInstanceId if mig else _NO_INSTANCE,
                    row.computeInstanceId if mig else _NO_INSTANCE,
                )
            )
        return found, 0


class _ProcessInfoV1(ctypes.Structure):
    """nvmlProcessInfo_v1_t: before drivers knew MIG."""

    _fields_ = (("pid", ctypes.c_uint), ("usedGpuMemory", ctypes.c_ulonglong))


def _newest_symbol(base: str) -> str | None:
    for suffix in ("_v3", "_v2", ""):
        try:
            pynvml._nvmlGetFunctionPointer(base + suffix)
        except pynvml.NVMLError:
            continue
        return base + suffix
    return None


def _problem(code: int) -> Problem:
    reason, detail, hint = _HINTS.get(
        code, ("driver.bad-state", f"NVML does not start: {_errordecode(code)} (code {code})", "see dmesg for why")
    )
    return Problem(source="nvml", reason=reason, detail=detail, hint=hint)


def _maybe(call: Callable[..., Any], *args: Any) -> Any:
    """The answer, or None when NVML refuses: for identity facts, which have no reason of their own."""
    try:
        return call(*args)
    except pynvml.NVMLError:
        return None


def _plans(lane: Lane) -> Iterable[_Plan]:
    groups: dict[tuple[str, tuple[int | str, ...]], list[MetricSpec]] = {}
    for spec in METRICS:
        if spec.call and spec.lane is lane:
            groups.setdefault((spec.call, spec.args), []).append(spec)
    for (call, args), specs in groups.items():
        name = call + "".join(f",{arg}" for arg in args)
        yield _Plan(name, _caller(specs[0]), tuple(specs))


def _caller(spec: MetricSpec) -> Callable[[Any], Any]:
    """The NVML function of a spec as a function of the handle alone."""
    if spec.call == "nvmlDeviceGetMemoryInfo":
        return _memory_info
    args = tuple(getattr(pynvml, arg) if isinstance(arg, str) else arg for arg in spec.args)
    if spec.call == "nvmlDeviceGetFieldValues":
        return lambda handle: _field_value(handle, args[0])
    names = (spec.call, spec.fallback) if spec.fallback else (spec.call,)
    functions = [function for function in (getattr(pynvml, name, None) for name in names) if function is not None]
    if len(functions) == 1:
        function = functions[0]
        return (lambda handle: function(handle, *args)) if args else function
    return lambda handle: _first_found(functions, handle, args)


def _first_found(functions: list[Any], handle: Any, args: tuple[Any, ...]) -> Any:
    """The newer name of a function, and the older one where the driver lacks it."""
    for function in functions:
        try:
            return function(handle, *args)
        except pynvml.NVMLError as error:
            if error.value != pynvml.NVML_ERROR_FUNCTION_NOT_FOUND or function is functions[-1]:
                raise
    raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)


def _memory_info(handle: Any) -> Any:
    """Memory with the driver's reserve apart (v2); the first version counts it as used."""
    try:
        return pynvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2)
    except pynvml.NVMLError as error:
        if error.value not in (pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH):
            raise
        return pynvml.nvmlDeviceGetMemoryInfo(handle)


def _field_value(handle: Any, field: int) -> Any:
    value = pynvml.nvmlDeviceGetFieldValues(handle, [field])[0]
    if value.nvmlReturn != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(value.nvmlReturn)
    member = UNION_MEMBERS.get(value.valueType)
    if member is None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return getattr(value.value, member)
