"""What NVML answers, brought into our terms; pure functions, no library is touched."""

from __future__ import annotations

from typing import Any

import msgspec

from gpuwatch.model.metrics import MetricSpec, Unit
from gpuwatch.model.reading import Missing, Value
from gpuwatch.model.snapshot import Problem

# NVML marks "not available" with all ones (NVML_VALUE_NOT_AVAILABLE), in the width of the field.
NOT_AVAILABLE = (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)

_NO_TEXT = ("", "N/A", "[N/A]")

# nvmlValueType_t to the member of the union
UNION_MEMBERS = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}


class NvmlUnavailable(Exception):
    """NVML cannot be used now; ``problem`` says why and what helps."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


class GpuProcess(msgspec.Struct, frozen=True):
    """What NVML lists for one process on one device."""

    pid: int
    kind: str
    """``C``, ``G``, ``C+G`` or ``M``."""
    used_bytes: int | None
    mig_instance: str | None = None


class Utilization(msgspec.Struct, frozen=True):
    """Newest sample of nvmlDeviceGetProcessUtilization for one process, in percent."""

    sm: int
    memory: int
    encoder: int
    decoder: int


def decode(value: str | bytes) -> str:
    """NVML's text, which older bindings give as bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def bus_id(raw: str) -> str:
    """NVML's ``00000000:1A:00.0`` as TensorFlow and lspci write it: ``0000:1a:00.0``."""
    raw = raw.lower()
    domain, _, rest = raw.partition(":")
    return f"{domain[-4:]}:{rest}" if rest else raw


def pick(spec: MetricSpec, answer: Any) -> Value | Missing:
    """The value of one metric out of the answer of its call."""
    raw = answer
    if spec.pick.startswith("["):
        raw = answer[int(spec.pick[1:-1])]
    elif spec.pick:
        raw = getattr(answer, spec.pick, None)
        if raw is None:
            return Missing("not_supported", detail=f"{spec.call}: this driver's answer has no {spec.pick}")
    return number_or_name(spec, raw)


def field_value(spec: MetricSpec, value: Any) -> Value | Missing:
    """One of the answers of nvmlDeviceGetFieldValues; its own return code is left in the reason."""
    if value.nvmlReturn:
        return Missing("failed", code=value.nvmlReturn)
    member = UNION_MEMBERS.get(value.valueType)
    if member is None:
        return Missing("not_supported", detail=f"{spec.call}: a value of an unknown type ({value.valueType})")
    return number_or_name(spec, getattr(value.value, member))


def number_or_name(spec: MetricSpec, raw: Any) -> Value | Missing:
    """NVML's number or text in the unit of the metric, unless it stands for "not available"."""
    if isinstance(raw, (str, bytes)):
        text = decode(raw).strip()
        return Missing("not_supported", detail=f"{spec.call}: not available") if text in _NO_TEXT else text
    if raw in NOT_AVAILABLE or (raw < 0 and spec.unit is not Unit.CELSIUS):
        return Missing("not_supported", detail=f"{spec.call}: not available")
    if spec.unit is Unit.CELSIUS and raw >= 1 << 31:
        raw -= 1 << 32  # a negative one in a field of unsigned type
    if spec.names:
        return spec.names.get(raw, f"unknown ({raw})")
    if spec.flags:
        known = [name for bit, name in spec.flags.items() if raw & bit]
        rest = raw & ~sum(spec.flags)
        if rest:
            known.append(f"0x{rest:x}")
        return "+".join(known) or "none"
    if spec.scale != 1.0:
        return float(raw * spec.scale)
    return int(raw) if isinstance(raw, int) else float(raw)
