"""Reads the metrics of one device from NVML, lane by lane.

What the driver does not support is asked once per device list; other failures are retried.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from gpuwatch.core.model.metrics import METRICS, Lane, MetricSpec
from gpuwatch.core.model.reading import Missing
from gpuwatch.machine.sources.device_source import MissingReadings, Readings
from gpuwatch.machine.sources.nvidia import nvml_errors
from gpuwatch.machine.sources.nvidia.decode_answers import field_value, number_or_name, picked_value
from gpuwatch.machine.sources.nvidia.multi_call_metrics import ADAPTERS, call_newest, sum_over_nvlinks
from gpuwatch.machine.sources.nvidia.nvml_devices import NvmlDevice
from gpuwatch.machine.sources.nvidia.nvml_errors import answer_or_none

_ECC_CALL = "nvmlDeviceGetEccMode"
"""The first call to work when a device begins to support more: it is retried in every slow sample."""
_MEMORY_PARTS = ("memory.used_bytes", "memory.free_bytes", "memory.reserved_bytes")
_NO_LINKS = Missing("not_supported", detail="the GPU has no NVLinks")
_FIELD_VALUES = "nvmlDeviceGetFieldValues"


class _Query(NamedTuple):
    """One NVML call and the metrics taken from its answer."""

    name: str
    call: Callable[[Any], Any]
    specs: list[MetricSpec]


def _queries(lib: Any, usable: Iterable[MetricSpec]) -> list[_Query]:
    """The calls for these metrics, but for field values."""
    groups: dict[str, list[MetricSpec]] = {}
    for spec in usable:
        if spec.call != _FIELD_VALUES:
            groups.setdefault(",".join(map(str, (spec.call, *spec.args))), []).append(spec)
    return [_Query(name, _call_of(lib, specs[0]), specs) for name, specs in groups.items()]


def _arguments(lib: Any, spec: MetricSpec) -> list[int]:
    return [getattr(lib, arg) if isinstance(arg, str) else arg for arg in spec.args]


def _call_of(lib: Any, spec: MetricSpec) -> Callable[[Any], Any]:
    """The NVML call of a metric as a function of the handle alone."""
    adapter = ADAPTERS.get(spec.call)
    if adapter is not None:
        return lambda handle: adapter(lib, handle)
    args = _arguments(lib, spec)
    function: Callable[..., Any] = getattr(lib, spec.call)
    if spec.fallback:
        functions = function, getattr(lib, spec.fallback)
        return lambda handle: call_newest(lib, functions, handle, args)
    return (lambda handle: function(handle, *args)) if args else function


def forget_unsupported(device: NvmlDevice) -> None:
    """Forgets what the device did not support, so that it is asked again: a reset or a new mode may have changed that.

    Not GPM, which would take counters from a profiler.
    """
    for name in [name for name in device.permanent if name != "gpm"]:
        del device.permanent[name]


def _drop_parts_above_total(readings: Readings, missing: MissingReadings) -> None:
    """No part of a GPU's memory is larger than the whole."""
    total = readings.get("memory.total_bytes")
    for name in _MEMORY_PARTS:
        part = readings.get(name, 0)
        if isinstance(part, int) and isinstance(total, int) and part > total:
            del readings[name]
            missing[name] = Missing("implausible", detail=f"implausible: {part} bytes of {total}")


class MetricReader:
    """Makes the NVML calls of all lanes but GPM."""

    def __init__(self, lib: Any, metrics: Iterable[MetricSpec] = METRICS) -> None:
        self._lib = lib
        self._missing_from_bindings: dict[Lane, MissingReadings] = {lane: {} for lane in Lane}
        """Metrics whose function the bindings do not have."""
        usable: dict[Lane, list[MetricSpec]] = {lane: [] for lane in Lane}
        for spec in metrics:
            if spec.call and spec.lane is not Lane.GPM:
                if hasattr(lib, spec.call):
                    usable[spec.lane].append(spec)
                else:
                    reason = f"the installed nvidia-ml-py is too old for {spec.call}: update it"
                    self._missing_from_bindings[spec.lane][spec.id] = Missing("not_supported", detail=reason)
        self._queries = {lane: _queries(lib, specs) for lane, specs in usable.items()}
        self._fields = {
            lane: [
                (spec, (*_arguments(lib, spec), 0)[:2]) for spec in specs if spec.call == _FIELD_VALUES and spec.args
            ]
            for lane, specs in usable.items()
        }
        """Metrics of field values, each with its field and scope: one call for a lane."""
        self._per_link = [(spec, [getattr(lib, name) for name in spec.per_link]) for spec in metrics if spec.per_link]
        """Metrics that are counted for each NVLink, with their fields."""
        self.session_ended = False
        """The driver ended the session (``NVML_ERROR_UNINITIALIZED`` and the like); for the owner to reset."""

    def read_fast(self, device: NvmlDevice) -> tuple[Readings, MissingReadings] | None:
        """Metrics of the fast lane; None when the device turned out to be lost."""
        readings: Readings = {}
        missing = self._missing_from_bindings[Lane.FAST].copy()
        for query in self._queries[Lane.FAST]:
            self._read_query(device, query, readings, missing)
            if device.lost:
                return None
        self._read_fields(device, Lane.FAST, readings, missing)
        _drop_parts_above_total(readings, missing)
        return None if device.lost else (readings, missing)

    def read_lane(self, device: NvmlDevice, lane: Lane) -> tuple[Readings, MissingReadings]:
        """Reads the metrics of a slower lane, of :attr:`Lane.ONCE` those without a value yet; the device keeps them."""
        readings: Readings = {}
        missing = self._missing_from_bindings[lane].copy()
        if lane is Lane.ONCE and lane in device.kept_readings:
            readings.update(device.kept_readings[lane][0])
        lib, ecc_failed = self._lib, _ECC_CALL in device.permanent
        if lane is Lane.SLOW and ecc_failed and answer_or_none(lib, lib.nvmlDeviceGetEccMode, device.handle):
            forget_unsupported(device)  # ECC was switched on, and with it perhaps more
        for query in self._queries[lane]:
            if not all(spec.id in readings for spec in query.specs):
                self._read_query(device, query, readings, missing)
        self._read_fields(device, lane, readings, missing)
        if lane is Lane.SLOW:
            self._read_nvlinks(device, readings, missing)
            device.counters_at = time.monotonic()
        device.kept_readings[lane] = readings, missing
        return readings, missing

    def _read_query(self, device: NvmlDevice, query: _Query, readings: Readings, missing: MissingReadings) -> None:
        permanent = device.permanent.get(query.name)
        if permanent is not None:
            missing.update((spec.id, permanent) for spec in query.specs)
            return
        try:
            answer = query.call(device.handle)
        except self._lib.NVMLError as error:
            why_missing = self._note_missing(device, error.value, query.specs[0].call, query.name)
            missing.update((spec.id, why_missing) for spec in query.specs)
            return
        last_answer, values = device.answers.get(query.name, (None, []))
        if type(answer) is not int or last_answer != answer:
            values = [(spec.id, picked_value(spec, answer)) for spec in query.specs]
            device.answers[query.name] = (answer, values)
        for name, value in values:
            if isinstance(value, Missing):
                missing[name] = value
            else:
                readings[name] = value

    def _read_fields(self, device: NvmlDevice, lane: Lane, readings: Readings, missing: MissingReadings) -> None:
        wanted = []
        for spec, field in self._fields[lane]:
            if spec.id in readings:
                continue  # of the lane that is read once
            if (permanent := device.permanent.get(spec.id)) is not None:
                missing[spec.id] = permanent
            else:
                wanted.append((spec, field))
        if not wanted:
            return
        try:
            values = self._lib.nvmlDeviceGetFieldValues(device.handle, [field for _, field in wanted])
        except self._lib.NVMLError as error:
            why_missing = self._note_missing(device, error.value, _FIELD_VALUES, *(spec.id for spec, _ in wanted))
            missing.update((spec.id, why_missing) for spec, _ in wanted)
            return
        for (spec, _), value in zip(wanted, values, strict=True):
            found = field_value(spec, value)
            if not isinstance(found, Missing):
                readings[spec.id] = found
                continue
            if found.code is not None:
                found = nvml_errors.missing_field(self._lib, found.code, _FIELD_VALUES, str(spec.args[0]))
                if found.reason == "not_supported":
                    device.permanent[spec.id] = found
                self._note_loss(device, value.nvmlReturn, found)
            missing[spec.id] = found

    def _read_nvlinks(self, device: NvmlDevice, readings: Readings, missing: MissingReadings) -> None:
        """Counters that exist for each NVLink, summed; where the device also has a total, the larger of the two."""
        links = readings.get("nvlink.links")
        for spec, fields in self._per_link:
            if not isinstance(links, int) or not links:
                if spec.id not in readings:
                    missing.setdefault(spec.id, missing.get("nvlink.links", _NO_LINKS))
                continue
            name = f"{spec.id}, by link"
            why_missing = device.permanent.get(name)
            if why_missing is None:
                try:
                    total = sum_over_nvlinks(self._lib, device.handle, fields, links)
                except self._lib.NVMLError as error:
                    why_missing = self._note_missing(device, error.value, f"{_FIELD_VALUES} {spec.per_link[0]}", name)
                else:
                    found = number_or_name(spec, max(total, int(readings.get(spec.id, 0))))
                    if not isinstance(found, Missing):
                        readings[spec.id] = found
                        missing.pop(spec.id, None)
                        continue
                    why_missing = found
            if spec.id not in readings and (not spec.args or why_missing.reason != "not_supported"):
                missing[spec.id] = why_missing

    def _note_missing(self, device: NvmlDevice, code: int, call: str, *names: str) -> Missing:
        """Why a call gave nothing; notes what that says of the device and the session."""
        why_missing = device.note_missing(self._lib, code, call, *names)
        self.session_ended = self.session_ended or code in nvml_errors.SESSION_ENDED
        self._note_loss(device, code, why_missing)
        return why_missing

    @staticmethod
    def _note_loss(device: NvmlDevice, code: int, why_missing: Missing) -> None:
        if code in nvml_errors.LOST_STATES:
            device.state, device.state_detail = nvml_errors.LOST_STATES[code], why_missing.detail
