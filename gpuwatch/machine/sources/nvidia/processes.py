"""Processes of a device and how much of it they use: NVML's lists, their utilization, the driver's accounting mode."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any

from gpuwatch.core.model.metrics import BY_ID
from gpuwatch.core.model.nvml_return import NvmlReturn
from gpuwatch.core.model.reading import Missing
from gpuwatch.core.model.snapshot import AccountedProcess
from gpuwatch.machine.sources.device_source import GpuProcess, Utilization
from gpuwatch.machine.sources.nvidia import nvml_errors
from gpuwatch.machine.sources.nvidia.decode_answers import NOT_AVAILABLE
from gpuwatch.machine.sources.nvidia.nvml_devices import NvmlDevice, ProcessList
from gpuwatch.machine.sources.nvidia.nvml_errors import answer_or_none

NO_INSTANCE = 0xFFFFFFFF
""""No GPU instance" in a list of processes."""
_MAX_BYTES = BY_ID["memory.used_bytes"].bounds[1]
"""More is not available (all ones), or no answer of a GPU."""
_INITIAL_PROCESSES = 64
"""Initial size of the buffers, in processes."""
_MAX_KEPT_LISTS = 256
"""Lists that are kept to be compared with the next ones."""
_CALLS = (
    ("C", "nvmlDeviceGetComputeRunningProcesses"),
    ("G", "nvmlDeviceGetGraphicsRunningProcesses"),
    ("M", "nvmlDeviceGetMPSComputeRunningProcesses"),
)
_UTILIZATION = "nvmlDeviceGetProcessUtilization"


class _ProcessInfoV1(ctypes.Structure):
    """``nvmlProcessInfo_v1_t``, of drivers without MIG."""

    _fields_ = (("pid", ctypes.c_uint), ("usedGpuMemory", ctypes.c_ulonglong))


class ProcessLists:
    """Processes and their utilization, one device at a time. Of each call, the newest version that the driver has."""

    def __init__(self, lib: Any) -> None:
        self._lib = lib
        self._symbols: dict[str, str | None] = {}
        self._buffers: dict[str, Any] = {}
        """Buffers for the answers, by function."""
        self._last_answers: dict[tuple[int, str], tuple[bytes, ProcessList]] = {}

    def processes(self, device: NvmlDevice) -> tuple[list[GpuProcess], list[Missing]]:
        """Compute, graphics and MPS processes, each pid once, and why a list could not be read."""
        lists: list[tuple[str, ProcessList]] = []
        problems: list[Missing] = []
        for kind, call_name in _CALLS:
            key = f"processes.{kind}"
            if key in device.permanent:
                continue
            rows, code = self.running(device.handle, call_name)
            if code == NvmlReturn.NO_PERMISSION and device.instances:
                rows, code = self._running_on_instances(device, call_name)
            if code:
                why_missing = device.note_missing(self._lib, code, call_name, key)
                if kind == "C" or code not in nvml_errors.PERMANENT:
                    problems.append(why_missing)
                continue
            lists.append((kind, rows))
        # Some drivers report instance 0/0 for processes of a card without MIG.
        with_mig = device.mig_on is True or (device.mig_on is None and "mig" not in device.permanent)
        if (
            with_mig != device.listed_with_mig
            or len(lists) != len(device.process_lists_by_kind)
            or any(a[1] is not b[1] for a, b in zip(lists, device.process_lists_by_kind, strict=True))
        ):
            device.process_lists_by_kind, device.listed_processes = lists, self._merge_lists(lists, with_mig=with_mig)
            device.listed_with_mig = with_mig
        return device.listed_processes, problems

    def running(self, handle: Any, call_name: str) -> tuple[ProcessList, int]:
        """Rows (pid, bytes, GPU instance, compute instance) and NVML's return code.

        Version 3 is tried, then 2, then 1: drivers differ between 450, 510 and 535. An unchanged answer is
        returned as the same list object.
        """
        lib = self._lib
        if call_name not in self._symbols:
            names = (call_name + suffix for suffix in ("_v3", "_v2", ""))
            there = (name for name in names if answer_or_none(lib, lib._nvmlGetFunctionPointer, name) is not None)
            self._symbols[call_name] = next(there, None)
        symbol = self._symbols[call_name]
        if symbol is None:
            return [], lib.NVML_ERROR_FUNCTION_NOT_FOUND
        call = lib._nvmlGetFunctionPointer(symbol)
        struct = lib.c_nvmlProcessInfo_v2_t if symbol[-3:] in ("_v2", "_v3") else _ProcessInfoV1
        if symbol not in self._buffers:
            self._buffers[symbol] = (struct * _INITIAL_PROCESSES)()
        while True:
            rows = self._buffers[symbol]
            capacity = len(rows)
            count = ctypes.c_uint(capacity)
            code: int = call(handle, ctypes.byref(count), rows)
            if code != lib.NVML_ERROR_INSUFFICIENT_SIZE or capacity > 1 << 16:
                break
            self._buffers[symbol] = (struct * (max(count.value, capacity) * 2))()
        if code != lib.NVML_SUCCESS:
            return [], code
        listed = min(count.value, capacity)
        raw = ctypes.string_at(rows, listed * ctypes.sizeof(struct))
        key = (id(handle), call_name)  # should an id be reused by another handle, the answers differ
        last_answer = self._last_answers.get(key)
        if last_answer is not None and last_answer[0] == raw:
            return last_answer[1], 0
        has_mig = struct is not _ProcessInfoV1
        found: ProcessList = [
            (
                row.pid,
                None if row.usedGpuMemory > _MAX_BYTES else row.usedGpuMemory,
                row.gpuInstanceId if has_mig else NO_INSTANCE,
                row.computeInstanceId if has_mig else NO_INSTANCE,
            )
            for row in rows[:listed]
        ]
        if len(self._last_answers) >= _MAX_KEPT_LISTS:
            self._last_answers.clear()
        self._last_answers[key] = (raw, found)
        return found, 0

    @staticmethod
    def _merge_lists(lists: list[tuple[str, ProcessList]], *, with_mig: bool) -> list[GpuProcess]:
        """Each pid once, however many lists it is in. Instance ids count only ``with_mig``."""
        found: dict[tuple[int, str | None], GpuProcess] = {}
        for kind, rows in lists:
            for pid, used, gpu_instance, compute_instance in rows:
                instance = None
                if with_mig and gpu_instance != NO_INSTANCE:
                    suffix = f"/{compute_instance}" if compute_instance != NO_INSTANCE else ""
                    instance = f"{gpu_instance}{suffix}"
                before = found.get((pid, instance))
                if before is None:
                    found[pid, instance] = GpuProcess(pid, kind, used, instance)
                else:
                    # NVML repeats the memory of a process that is in two lists.
                    kinds = "C+G" if {before.kind, kind} == {"C", "G"} else before.kind
                    found[pid, instance] = GpuProcess(pid, kinds, before.used_bytes or used, instance)
        return list(found.values())

    def utilization(self, device: NvmlDevice) -> tuple[dict[int, Utilization], Missing | None]:
        """The newest utilization by pid since the last call, and the reason if the call failed."""
        why_missing = device.permanent.get("processes.utilization")
        if why_missing is not None:
            return {}, why_missing
        try:
            samples = self._lib.nvmlDeviceGetProcessUtilization(device.handle, device.utilization_seen_at)
        except self._lib.NVMLError as error:
            if error.value in (NvmlReturn.NOT_FOUND, NvmlReturn.NO_DATA):
                detail = f"{_UTILIZATION}: no sample since the last one"
                return {}, Missing("no_sample", code=error.value, detail=detail)
            return {}, device.note_missing(self._lib, error.value, _UTILIZATION, "processes.utilization")
        newest: dict[int, tuple[int, Utilization]] = {}
        latest = device.utilization_seen_at
        for sample in samples:
            stamp = sample.timeStamp
            # The driver's buffer also holds old and torn entries.
            if stamp <= device.utilization_seen_at or max(_percentages(sample)) > 100:
                continue
            latest = max(latest, stamp)
            if sample.pid not in newest or newest[sample.pid][0] < stamp:
                newest[sample.pid] = (stamp, Utilization(*_percentages(sample)))
        device.utilization_seen_at = latest
        return {pid: value for pid, (_, value) in newest.items()}, None

    def _running_on_instances(self, device: NvmlDevice, call_name: str) -> tuple[ProcessList, int]:
        """The processes of each MIG instance, for users who may not list those of the whole device."""
        rows: ProcessList = []
        for instance in device.instances:
            found, code = self.running(instance.handle, call_name)
            if code:
                return [], code
            facts = instance.facts
            ids = (NO_INSTANCE if number is None else number for number in (facts.gpu_instance, facts.compute_instance))
            gpu_instance, compute_instance = ids
            rows += [(pid, used, gpu_instance, compute_instance) for pid, used, _, _ in found]
        return rows, 0


def _percentages(sample: Any) -> tuple[int, int, int, int]:
    return sample.smUtil, sample.memUtil, sample.encUtil, sample.decUtil


_ACCOUNTING_KEY = "accounting"
_MAX_ACCOUNTED = 32
"""Processes of a device that are kept: the latest ones."""
_MAX_ASKED_AT_ONCE = 64
"""Processes that are asked for at once."""


class Accounting:
    """The driver's accounting mode: processes of each device that end from its first :meth:`update` on.

    It has the use of the GPU from start to end, also between two samples. It is read where an administrator has
    switched it on (``nvidia-smi -am 1``), and never switched on here. The driver keeps the latest processes
    (``nvmlDeviceGetAccountingBufferSize``, about 4000) by pid, running ones too; of a pid that was used again it keeps
    the last. With MIG it keeps none.
    """

    def __init__(self, lib: Any) -> None:
        self._lib = lib
        self._ended: dict[str, dict[int, int]] = {}
        """By device: pids whose end is known, with when they began, in microseconds; 0 before we listened."""

    def update(self, device: NvmlDevice) -> None:
        """Reads the driver's list; sets ``device.accounted``. Called in the slow lane."""
        if _ACCOUNTING_KEY in device.permanent or device.handle is None or device.state != "ok":
            return
        lib = self._lib
        try:
            if not lib.nvmlDeviceGetAccountingMode(device.handle):
                self._ended.pop(device.uuid, None)
                return
            pids = set(lib.nvmlDeviceGetAccountingPids(device.handle))
        except lib.NVMLError as error:
            device.note_missing(lib, error.value, "nvmlDeviceGetAccountingMode", _ACCOUNTING_KEY)
            return
        running = {entry.pid for entry in device.listed_processes}
        ended = self._ended.get(device.uuid)
        if ended is None:
            self._ended[device.uuid] = dict.fromkeys(pids - running, 0)
            return
        ended = self._ended[device.uuid] = {pid: began for pid, began in ended.items() if pid in pids}
        self._query(device, ended, pids - ended.keys() - running)

    def note_exited(self, device: NvmlDevice, pids: Iterable[int]) -> None:
        """Asks at once about processes that have just left the list of running ones."""
        ended = self._ended.get(device.uuid)
        if ended is not None and device.state == "ok":
            self._query(device, ended, pids)

    def _query(self, device: NvmlDevice, ended: dict[int, int], pids: Iterable[int]) -> None:
        found = []
        for pid in sorted(pids)[:_MAX_ASKED_AT_ONCE]:
            try:
                stats = self._lib.nvmlDeviceGetAccountingStats(device.handle, pid)
            except self._lib.NVMLError:
                continue  # not in the list any more
            if stats.isRunning or ended.get(pid) == stats.startTime:
                continue
            ended[pid] = stats.startTime
            found.append(
                AccountedProcess(
                    pid=pid,
                    started_at=stats.startTime / 1e6,
                    used_seconds=stats.time / 1e3,
                    gpu_percent=_available(stats.gpuUtilization),
                    memory_percent=_available(stats.memoryUtilization),
                    peak_bytes=_available(stats.maxMemoryUsage),
                )
            )
        if found:
            device.accounted = (
                *device.accounted,
                *sorted(found, key=lambda process: process.started_at + process.used_seconds),
            )[-_MAX_ACCOUNTED:]


def _available(value: int | None) -> int | None:
    return None if value is None or value in NOT_AVAILABLE else int(value)
