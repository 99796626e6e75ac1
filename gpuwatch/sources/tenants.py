"""Who is on a device: NVML's lists of processes, and what share of it each has.

As in :mod:`gpuwatch.sources.calls` the library comes as an argument.
"""

from __future__ import annotations

from typing import Any

from gpuwatch.model.reading import Missing
from gpuwatch.sources import reasons
from gpuwatch.sources.answers import GpuProcess, Utilization
from gpuwatch.sources.calls import NO_INSTANCE, ProcessLists
from gpuwatch.sources.device import NvmlDevice, ProcessList

_CALLS = (
    ("C", "nvmlDeviceGetComputeRunningProcesses"),
    ("G", "nvmlDeviceGetGraphicsRunningProcesses"),
    ("M", "nvmlDeviceGetMPSComputeRunningProcesses"),
)
_UTILIZATION = "nvmlDeviceGetProcessUtilization"


class Tenants:
    """The processes of devices, one device at a time."""

    def __init__(self, lib: Any) -> None:
        self._lib = lib
        self._lists = ProcessLists(lib)

    def processes(self, device: NvmlDevice) -> tuple[list[GpuProcess], list[Missing]]:
        """Compute, graphics and MPS processes, a pid once; what could not be listed beside it."""
        lists: list[tuple[str, ProcessList]] = []
        problems: list[Missing] = []
        for kind, base in _CALLS:
            key = f"processes.{kind}"
            if key in device.permanent:
                continue
            rows, code = self._lists.running(device.handle, base)
            if code == reasons.NO_PERMISSION and device.instances:
                rows, code = self._running_on_instances(device, base)
            if code:
                lack = reasons.missing(self._lib, code, base)
                if code in reasons.PERMANENT:
                    device.permanent[key] = lack
                if kind == "C" or code not in reasons.PERMANENT:
                    problems.append(lack)
                continue
            lists.append((kind, rows))
        if len(lists) != len(device.lists) or any(a[1] is not b[1] for a, b in zip(lists, device.lists, strict=True)):
            device.lists, device.listed = lists, self._merged(lists)
        return device.listed, problems

    @staticmethod
    def _merged(lists: list[tuple[str, ProcessList]]) -> list[GpuProcess]:
        """A pid once, however many lists it is in."""
        found: dict[tuple[int, str | None], GpuProcess] = {}
        for kind, rows in lists:
            for pid, used, gi, ci in rows:
                mig = None if gi == NO_INSTANCE else f"{gi}/{ci}" if ci != NO_INSTANCE else str(gi)
                before = found.get((pid, mig))
                if before is None:
                    found[pid, mig] = GpuProcess(pid, kind, used, mig)
                else:
                    # One process in two lists has one amount of memory: NVML repeats it.
                    kinds = "C+G" if {before.kind, kind} == {"C", "G"} else before.kind
                    found[pid, mig] = GpuProcess(pid, kinds, before.used_bytes or used, mig)
        return list(found.values())

    def utilization(self, device: NvmlDevice) -> tuple[dict[int, Utilization], Missing | None]:
        """Newest utilization by pid since the last call; None beside it when the call works."""
        kept = device.permanent.get("processes.utilization")
        if kept is not None:
            return {}, kept
        try:
            samples = self._lib.nvmlDeviceGetProcessUtilization(device.handle, device.last_utilization)
        except self._lib.NVMLError as error:
            if error.value in (reasons.NOT_FOUND, reasons.NO_DATA):
                return {}, Missing(
                    "no_sample", code=error.value, detail=f"{_UTILIZATION}: no sample since the last one"
                )
            lack = reasons.missing(self._lib, error.value, _UTILIZATION, mig_on=bool(device.mig_on))
            if error.value in reasons.PERMANENT:
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

    def _running_on_instances(self, device: NvmlDevice, base: str) -> tuple[ProcessList, int]:
        """The processes of each instance, for users who may not list those of the whole device."""
        rows: ProcessList = []
        for instance in device.instances:
            found, code = self._lists.running(instance.handle, base)
            if code:
                return [], code
            gpu, compute = instance.facts.gpu_instance, instance.facts.compute_instance
            rows += [
                (pid, used, NO_INSTANCE if gpu is None else gpu, NO_INSTANCE if compute is None else compute)
                for pid, used, _, _ in found
            ]
        return rows, 0
