"""Reads the metrics of one device from NVML, lane by lane.

What the driver does not support is asked once per device list; other failures are retried.
"""

from __future__ import annotations

import time
from typing import Any

from gpuwatch.core.model.metrics import Lane
from gpuwatch.core.model.reading import Missing
from gpuwatch.machine.sources.device_source import MissingReadings, Readings
from gpuwatch.machine.sources.nvidia import nvml_errors
from gpuwatch.machine.sources.nvidia.decode_nvml_answers import field_value, number_or_name, pick
from gpuwatch.machine.sources.nvidia.device import NvmlDevice
from gpuwatch.machine.sources.nvidia.multi_call_metrics import link_sum, maybe
from gpuwatch.machine.sources.nvidia.nvml_queries import FIELDS, FieldQuery, Query, field_query, link_query, queries

_ECC = "nvmlDeviceGetEccMode"
"""The first call to work when a device begins to support more: it is retried in every slow sample."""
_PARTS = ("memory.used_bytes", "memory.free_bytes", "memory.reserved_bytes")
_NO_LINKS = Missing("not_supported", detail="the GPU has no NVLinks")


def forget_permanent(device: NvmlDevice) -> None:
    """Retry what the device did not support: a reset or a new mode may have changed that.

    Not GPM, which would take counters from a profiler.
    """
    for name in [name for name in device.permanent if name != "gpm"]:
        del device.permanent[name]


def _within_total(readings: Readings, missing: MissingReadings) -> None:
    """No part of a GPU's memory is larger than the whole."""
    total = readings.get("memory.total_bytes")
    for name in _PARTS:
        part = readings.get(name, 0)
        if isinstance(part, int) and isinstance(total, int) and part > total:
            del readings[name]
            missing[name] = Missing("implausible", detail=f"implausible: {part} bytes of {total}")


class MetricReader:
    """Makes the NVML calls of all lanes but GPM."""

    def __init__(self, lib: Any) -> None:
        self._lib = lib
        self._queries: dict[Lane, tuple[Query, ...]] = {
            lane: tuple(queries(lib, lane)) for lane in Lane if lane is not Lane.GPM
        }
        self._fields = {lane: query for lane in Lane if (query := field_query(lib, lane)) is not None}
        self._per_link = link_query(lib)
        self.session_ended = False
        """The driver ended the session (``NVML_ERROR_UNINITIALIZED`` and the like); for the owner to reset."""

    def fast(self, device: NvmlDevice) -> tuple[Readings, MissingReadings] | None:
        """Metrics of the fast lane; None when the device turned out to be lost."""
        readings: Readings = {}
        missing: MissingReadings = {}
        for query in self._queries[Lane.FAST]:
            self._ask(device, query, readings, missing)
            if device.lost:
                return None
        _within_total(readings, missing)
        return readings, missing

    def lane(self, device: NvmlDevice, lane: Lane) -> tuple[Readings, MissingReadings]:
        """Metrics of a slower lane, also stored in ``device.kept``. Of :attr:`Lane.ONCE`, those without a value yet."""
        readings: Readings = {}
        missing: MissingReadings = {}
        if lane is Lane.ONCE and lane in device.kept:
            readings.update(device.kept[lane][0])
        lib = self._lib
        if lane is Lane.SLOW and _ECC in device.permanent and maybe(lib, lib.nvmlDeviceGetEccMode, device.handle):
            forget_permanent(device)  # ECC was switched on, and with it perhaps more
        for query in self._queries[lane]:
            if not all(spec.id in readings for spec in query.specs):
                self._ask(device, query, readings, missing)
        if lane in self._fields:
            self._ask_fields(device, self._fields[lane], readings, missing)
        if lane is Lane.SLOW:
            self._ask_links(device, readings, missing)
            device.counters_at = time.monotonic()
        device.kept[lane] = readings, missing
        return readings, missing

    # -- inside ---------------------------------------------------------------------------------

    def _ask(self, device: NvmlDevice, query: Query, readings: Readings, missing: MissingReadings) -> None:
        permanent = query.lack or device.permanent.get(query.name)
        if permanent is not None:
            for spec in query.specs:
                missing[spec.id] = permanent
            return
        try:
            answer = query.call(device.handle)
        except self._lib.NVMLError as error:
            lack = self._lack(device, error.value, query.specs[0].call, query.name)
            missing.update((spec.id, lack) for spec in query.specs)
            return
        if type(answer) is int:
            kept = device.answers.get(query.name)
            if kept is None or kept[0] != answer:
                picked = tuple([(spec.id, pick(spec, answer)) for spec in query.specs])
                kept = device.answers[query.name] = (answer, picked)
            found = kept[1]
        else:
            found = tuple([(spec.id, pick(spec, answer)) for spec in query.specs])
        for name, value in found:
            if isinstance(value, Missing):
                missing[name] = value
            else:
                readings[name] = value

    def _ask_fields(self, device: NvmlDevice, query: FieldQuery, readings: Readings, missing: MissingReadings) -> None:
        wanted = []
        missing.update(query.lacks)
        for spec, field in zip(query.specs, query.fields, strict=True):
            if spec.id in readings:
                continue  # of the lane that is read once
            permanent = device.permanent.get(spec.id)
            if permanent is None:
                wanted.append((spec, field))
            else:
                missing[spec.id] = permanent
        if not wanted:
            return
        try:
            values = self._lib.nvmlDeviceGetFieldValues(device.handle, [field for _, field in wanted])
        except self._lib.NVMLError as error:
            lack = self._lack(device, error.value, FIELDS, *(spec.id for spec, _ in wanted))
            missing.update((spec.id, lack) for spec, _ in wanted)
            return
        for (spec, _), value in zip(wanted, values, strict=True):
            found = field_value(spec, value)
            if not isinstance(found, Missing):
                readings[spec.id] = found
                continue
            if found.code is not None:
                found = nvml_errors.missing_field(self._lib, found.code, FIELDS, str(spec.args[0]))
                if found.reason == "not_supported":
                    device.permanent[spec.id] = found
                self._note_loss(device, value.nvmlReturn, found)
            missing[spec.id] = found

    def _ask_links(self, device: NvmlDevice, readings: Readings, missing: MissingReadings) -> None:
        """Counters that exist for each NVLink, summed; where the device also has a total, the larger of the two."""
        links = readings.get("nvlink.links")
        for spec, fields, unknown in self._per_link:
            if not isinstance(links, int) or not links:
                if spec.id not in readings:
                    missing.setdefault(spec.id, missing.get("nvlink.links", _NO_LINKS))
                continue
            name = f"{spec.id}, by link"
            lack = unknown or device.permanent.get(name)
            if lack is None:
                try:
                    total = link_sum(self._lib, device.handle, fields, links)
                except self._lib.NVMLError as error:
                    lack = self._lack(device, error.value, f"{FIELDS} {spec.per_link[0]}", name)
                else:
                    found = number_or_name(spec, max(total, int(readings.get(spec.id, 0))))
                    if not isinstance(found, Missing):
                        readings[spec.id] = found
                        missing.pop(spec.id, None)
                        continue
                    lack = found
            if spec.id not in readings and (not spec.args or lack.reason != "not_supported"):
                missing[spec.id] = lack

    def _lack(self, device: NvmlDevice, code: int, call: str, *names: str) -> Missing:
        """Why a call gave nothing; notes what that says of the device and the session."""
        lack = device.lack(self._lib, code, call, *names)
        self.session_ended = self.session_ended or code in nvml_errors.ENDED
        self._note_loss(device, code, lack)
        return lack

    @staticmethod
    def _note_loss(device: NvmlDevice, code: int, lack: Missing) -> None:
        if code in nvml_errors.LOST:
            device.state, device.state_detail = nvml_errors.LOST[code], lack.detail
