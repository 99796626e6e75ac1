"""Which NVML calls the metrics need: one query for each call, and one for all field values of a lane.

If the installed nvidia-ml-py is too old to have a function or field, its query has no call, and its metrics are
missing for that reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from gpuwatch.core.model.metrics import METRICS, Lane, MetricSpec
from gpuwatch.core.model.reading import Missing
from gpuwatch.machine.sources.nvidia.multi_call_metrics import ADAPTERS, field_value, first_found

FIELDS = "nvmlDeviceGetFieldValues"


class Query(msgspec.Struct):
    """One NVML call and the metrics taken from its answer."""

    name: str
    call: Callable[[Any], Any]
    specs: tuple[MetricSpec, ...]
    lack: Missing | None = None
    """Why it cannot be called; None if it can."""


class FieldQuery(msgspec.Struct):
    """The field values of one lane: one call (``nvmlDeviceGetFieldValues``), with a result for each field."""

    specs: tuple[MetricSpec, ...]
    fields: tuple[tuple[int, int], ...]
    """Field and scope of each metric."""
    lacks: dict[str, Missing]
    """Metrics whose field the bindings do not have."""


def queries(lib: Any, lane: Lane) -> Iterable[Query]:
    """The calls of a lane, each with the metrics taken from its answer."""
    groups: dict[tuple[str, tuple[int | str, ...]], list[MetricSpec]] = {}
    for spec in METRICS:
        alone = spec.call != FIELDS or (lane is Lane.FAST and spec.args)
        if spec.call and spec.lane is lane and alone:
            groups.setdefault((spec.call, spec.args), []).append(spec)
    for (call, args), specs in groups.items():
        name = call + "".join(f",{arg}" for arg in args)
        lack = _lack(lib, specs[0])
        yield Query(name, _never_called if lack else _caller(lib, specs[0]), tuple(specs), lack)


def field_query(lib: Any, lane: Lane) -> FieldQuery | None:
    """All fields of a lane in one call; None for the fast lane, whose two fields are ordinary queries."""
    wanted = [spec for spec in METRICS if spec.call == FIELDS and spec.args and spec.lane is lane]
    if not wanted or lane is Lane.FAST:
        return None
    lacks = {spec.id: lack for spec in wanted if (lack := _lack(lib, spec)) is not None}
    specs = tuple(spec for spec in wanted if spec.id not in lacks)
    return FieldQuery(specs, tuple(_field(lib, spec) for spec in specs), lacks)


def link_query(lib: Any) -> list[tuple[MetricSpec, list[int], Missing | None]]:
    """Metrics that are counted for each NVLink, with their fields, or with the reason if the bindings have none."""
    found = []
    for spec in METRICS:
        fields = [getattr(lib, name) for name in spec.per_link if hasattr(lib, name)]
        if spec.per_link:
            found.append((spec, fields, None if fields else unknown_to_binding(spec.per_link[0])))
    return found


def unknown_to_binding(name: str) -> Missing:
    """The reason for a function or field that the installed nvidia-ml-py does not have."""
    return Missing("not_supported", detail=f"the installed nvidia-ml-py is too old for {name}: update it")


def _lack(lib: Any, spec: MetricSpec) -> Missing | None:
    if not any(hasattr(lib, name) for name in (spec.call, spec.fallback) if name):
        return unknown_to_binding(spec.call)
    unknown = next((arg for arg in spec.args if isinstance(arg, str) and not hasattr(lib, arg)), None)
    return None if unknown is None else unknown_to_binding(unknown)


def _never_called(_: Any) -> Any:
    raise AssertionError("a query with a lack is not called")


def _field(lib: Any, spec: MetricSpec) -> tuple[int, int]:
    number, *scope = (getattr(lib, arg) if isinstance(arg, str) else arg for arg in spec.args)
    return (number, scope[0] if scope else 0)


def _caller(lib: Any, spec: MetricSpec) -> Callable[[Any], Any]:
    """The NVML call of a metric as a function of the handle alone."""
    adapter = ADAPTERS.get(spec.call)
    if adapter is not None:
        return lambda handle: adapter(lib, handle)
    args = tuple(getattr(lib, arg) if isinstance(arg, str) else arg for arg in spec.args)
    if spec.call == FIELDS:
        field = _field(lib, spec)
        return lambda handle: field_value(lib, handle, field)
    names = (spec.call, spec.fallback) if spec.fallback else (spec.call,)
    functions = [function for function in (getattr(lib, name, None) for name in names) if function is not None]
    if len(functions) == 1:
        function = functions[0]
        return (lambda handle: function(handle, *args)) if args else function
    return lambda handle: first_found(lib, functions, handle, args)
