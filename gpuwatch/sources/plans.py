"""Which calls answer the metrics of the table: one plan for each call, one for all fields of a lane.

As in :mod:`gpuwatch.sources.calls` the library comes as an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from gpuwatch.model.metrics import METRICS, Lane, MetricSpec
from gpuwatch.sources.calls import ADAPTERS, field_value, first_found

FIELDS = "nvmlDeviceGetFieldValues"


class Plan(msgspec.Struct):
    """One NVML call and the metrics that are picked from its answer."""

    name: str
    call: Callable[[Any], Any]
    specs: tuple[MetricSpec, ...]


class FieldPlan(msgspec.Struct):
    """The field values of one lane: one call, and each field answers for itself."""

    specs: tuple[MetricSpec, ...]
    fields: tuple[tuple[int, int], ...]
    """Field and scope of each metric."""


def plans(lib: Any, lane: Lane) -> Iterable[Plan]:
    """The calls of a lane, each with what is picked from its answer."""
    groups: dict[tuple[str, tuple[int | str, ...]], list[MetricSpec]] = {}
    for spec in METRICS:
        if spec.call and spec.lane is lane and (lane is Lane.FAST or spec.call != FIELDS):
            groups.setdefault((spec.call, spec.args), []).append(spec)
    for (call, args), specs in groups.items():
        name = call + "".join(f",{arg}" for arg in args)
        yield Plan(name, _caller(lib, specs[0]), tuple(specs))


def field_plan(lib: Any, lane: Lane) -> FieldPlan | None:
    """The fields of a lane together. The fast lane has one, which needs no such care."""
    specs = tuple(spec for spec in METRICS if spec.call == FIELDS and spec.lane is lane)
    if not specs or lane is Lane.FAST:
        return None
    return FieldPlan(specs, tuple(_field(lib, spec) for spec in specs))


def _field(lib: Any, spec: MetricSpec) -> tuple[int, int]:
    number, *scope = (getattr(lib, arg) if isinstance(arg, str) else arg for arg in spec.args)
    return (number, scope[0] if scope else 0)


def _caller(lib: Any, spec: MetricSpec) -> Callable[[Any], Any]:
    """The NVML function of a spec as a function of the handle alone."""
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
