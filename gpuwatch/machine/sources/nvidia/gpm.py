"""GPM (GPU performance monitoring): how busy the parts of a GPU were between two samples (Hopper and later).

It uses the counters that profilers and DCGM use, so nothing here runs unless the user opted in.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from gpuwatch.core.model.metrics import MetricSpec
from gpuwatch.core.model.reading import Missing, Value
from gpuwatch.machine.sources.device_source import NO_EARLIER_SAMPLE
from gpuwatch.machine.sources.nvidia import nvml_errors
from gpuwatch.machine.sources.nvidia.decode_answers import number_or_name

GPU_TOO_OLD = Missing("not_supported", detail="nvmlGpmQueryDeviceSupport: GPM needs a Hopper GPU or a later one")
_UNDER_MIG = Missing("not_supported", detail="nvmlGpmSampleGet: not supported for the whole GPU while MIG is on")


class _Samples(msgspec.Struct):
    """NVML's two sample buffers of a device, and whether the older one holds a sample."""

    handle: Any
    older: Any
    newer: Any
    filled: bool = False


class GpmReader:
    """Reads the activity of devices, each relative to its own previous sample."""

    def __init__(self, lib: Any, specs: Sequence[MetricSpec]) -> None:
        self._lib = lib
        self._specs = tuple(specs)
        self._samples: dict[str, _Samples] = {}
        self._request: Any = None

    def read(
        self, uuid: str, handle: Any, mig_on: bool, *, gpu_instance: int | None = None
    ) -> tuple[dict[str, Value], dict[str, Missing], Missing | None]:
        """Readings, reasons, and a permanent reason if GPM is not supported at all.

        ``handle`` is that of the whole device; with ``gpu_instance`` the activity is that of this MIG instance, and
        ``uuid`` its UUID.
        """
        lib = self._lib
        call = "nvmlGpmSampleGet" if gpu_instance is None else "nvmlGpmMigSampleGet"
        try:
            if not lib.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
                return {}, self._all_missing(GPU_TOO_OLD), GPU_TOO_OLD
            samples = self._samples_of(uuid, handle)
        except lib.NVMLError as error:
            return self._failure(error, "nvmlGpmQueryDeviceSupport")
        try:
            if gpu_instance is None:
                lib.nvmlGpmSampleGet(handle, samples.newer)
            else:
                lib.nvmlGpmMigSampleGet(handle, gpu_instance, samples.newer)
        except lib.NVMLError as error:
            if mig_on and gpu_instance is None and error.value == lib.NVML_ERROR_NOT_SUPPORTED:
                return {}, self._all_missing(_UNDER_MIG), _UNDER_MIG
            return self._failure(error, call)
        was_filled, samples.filled = samples.filled, True
        samples.older, samples.newer = samples.newer, samples.older  # the new sample becomes the older one
        if not was_filled:
            return {}, self._all_missing(NO_EARLIER_SAMPLE), None
        try:
            answers = self._measure(samples.newer, samples.older)
        except lib.NVMLError as error:
            return self._failure(error, "nvmlGpmMetricsGet")
        readings: dict[str, Value] = {}
        missing: dict[str, Missing] = {}
        for spec, answer in zip(self._specs, answers, strict=False):
            query = f"nvmlGpmMetricsGet {spec.args[0]}"
            if answer.nvmlReturn:
                missing[spec.id] = nvml_errors.missing_reading(lib, answer.nvmlReturn, query)
                continue
            value = number_or_name(spec, answer.value)
            if isinstance(value, Missing):  # NaN and negative numbers mean that nothing was counted
                plausible = math.isfinite(answer.value) and answer.value >= 0
                no_value = Missing("no_sample", detail=f"{query}: no value")
                missing[spec.id] = value if plausible else no_value
            else:
                readings[spec.id] = value
        return readings, missing, None

    def forget(self, uuids: Collection[str] | None = None) -> None:
        """Frees the buffers of these devices or MIG instances; all by default."""
        for uuid in list(self._samples) if uuids is None else uuids:
            samples = self._samples.pop(uuid, None)
            for buffer in () if samples is None else (samples.older, samples.newer):
                try:
                    self._lib.nvmlGpmSampleFree(buffer)
                except self._lib.NVMLError:
                    break  # the session has ended, which freed the buffers

    def _samples_of(self, uuid: str, handle: Any) -> _Samples:
        samples = self._samples.get(uuid)
        if samples is None:
            samples = _Samples(handle, self._lib.nvmlGpmSampleAlloc(), self._lib.nvmlGpmSampleAlloc())
            self._samples[uuid] = samples
        elif samples.handle is not handle:  # listed again: the previous sample is of another session
            samples.handle, samples.filled = handle, False
        return samples

    def _measure(self, older: Any, newer: Any) -> Any:
        lib = self._lib
        if self._request is None:
            # One for all calls: it has 19 KB, with room for every metric of these bindings.
            self._request = lib.c_nvmlGpmMetricsGet_t()
            self._request.version = lib.NVML_GPM_METRICS_GET_VERSION
            self._request.numMetrics = len(self._specs)
            for answer, spec in zip(self._request.metrics, self._specs, strict=False):
                answer.metricId = getattr(lib, str(spec.args[0]))
        request = self._request
        request.sample1, request.sample2 = older, newer
        lib.nvmlGpmMetricsGet(request)
        return request.metrics

    def _all_missing(self, why_missing: Missing) -> dict[str, Missing]:
        return {spec.id: why_missing for spec in self._specs}

    def _failure(self, error: Any, call: str) -> tuple[dict[str, Value], dict[str, Missing], Missing | None]:
        missing = nvml_errors.missing_reading(self._lib, error.value, call)
        return {}, self._all_missing(missing), missing if missing.reason == "not_supported" else None
