"""Converts NVML's answers to metric values. Pure functions without NVML calls."""

from __future__ import annotations

import math
from typing import Any

from gpuwatch.core.model.metrics import MetricSpec, Unit
from gpuwatch.core.model.reading import Missing, Value

# NVML marks "not available" with all ones (NVML_VALUE_NOT_AVAILABLE), in the width of the field.
NOT_AVAILABLE = (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)

_MAX_NAMES = 255
"""Numbers beyond it are names that no driver has yet."""
_NO_TEXT = ("", "N/A", "[N/A]")

# nvmlValueType_t to the member of the union
UNION_MEMBERS = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}


# nvmlGpuFabricState_t
FABRIC_STATES = {0: "not-supported", 1: "not-started", 2: "in-progress", 3: "completed"}
FABRIC_TROUBLES = {
    0: "degraded-bandwidth",
    2: "route-recovery",
    4: "route-unhealthy",
    6: "access-timeout-recovery",
}
"""NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_*: two bits each, of which 1 is "true" and 2 "false"."""
FABRIC_CONFIGURATION_SHIFT = 8
FABRIC_CONFIGURATIONS = {
    2: "incorrect-system-guid",
    3: "incorrect-chassis-serial",
    4: "no-partition",
    5: "insufficient-nvlinks",
    6: "incompatible-firmware",
    7: "invalid-location",
    8: "gpu-state-invalid",
}
"""NVML_GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION_*; 0 is "not supported" and 1 "none"."""
FABRIC_SUMMARIES = {1: "healthy", 2: "unhealthy", 3: "limited-capacity"}
"""NVML_GPU_FABRIC_HEALTH_SUMMARY_*."""


def text_from_nvml(value: str | bytes) -> str:
    """NVML's text; older bindings return bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def member_of(struct: Any, name: str) -> Any:
    """A member of a struct of the bindings, which decode text as it is read."""
    try:
        return getattr(struct, name, None)
    except UnicodeDecodeError as error:
        return error.object


def text_of(struct: Any, name: str) -> str:
    """A member that is text."""
    return text_from_nvml(member_of(struct, name))


def bus_id(raw: str) -> str:
    """NVML's ``00000000:1A:00.0`` as TensorFlow and lspci write it: ``0000:1a:00.0``."""
    raw = raw.lower()
    domain, _, rest = raw.partition(":")
    return f"{domain[-4:]}:{rest}" if rest else raw


def fabric_health(mask: int, summary: int) -> str:
    """The fabric's problems joined with ``+``, or ``healthy``; empty where the driver reports neither."""
    known = {bit: mask >> bit & 3 for bit in FABRIC_TROUBLES}
    troubles = [FABRIC_TROUBLES[bit] for bit, value in known.items() if value == 1]
    configuration = mask >> FABRIC_CONFIGURATION_SHIFT & 0xF
    if configuration > 1:
        troubles.append(FABRIC_CONFIGURATIONS.get(configuration, f"incorrect-configuration-{configuration}"))
    if troubles:
        return "+".join(troubles)
    if summary:
        return FABRIC_SUMMARIES.get(summary, f"unknown ({summary})")
    return "healthy" if configuration or any(known.values()) else ""


def picked_value(spec: MetricSpec, answer: Any) -> Value | Missing:
    """The value of one metric, taken from the answer of its call."""
    raw = answer
    if spec.pick.startswith("["):
        try:
            raw = answer[int(spec.pick[1:-1])]
        except (TypeError, LookupError) as error:
            return Missing("failed", detail=f"{spec.call}: its answer cannot be read ({error})")
    elif spec.pick:
        raw = member_of(answer, spec.pick)
        if raw is None:
            return Missing("not_supported", detail=f"{spec.call}: this driver's answer has no {spec.pick}")
    return number_or_name(spec, raw)


def field_value(spec: MetricSpec, value: Any) -> Value | Missing:
    """One value of ``nvmlDeviceGetFieldValues``; if it failed, its own return code is in the reason."""
    if value.nvmlReturn:
        return Missing("failed", code=value.nvmlReturn)
    member = UNION_MEMBERS.get(value.valueType)
    if member is None:
        return Missing("not_supported", detail=f"{spec.call}: a value of an unknown type ({value.valueType})")
    return number_or_name(spec, getattr(value.value, member))


def number_or_name(spec: MetricSpec, raw: Any) -> Value | Missing:
    """NVML's number or text in the unit of the metric; a reason if it means "not available"."""
    if isinstance(raw, (str, bytes)):
        text = text_from_nvml(raw).strip()
        return Missing("not_supported", detail=f"{spec.call}: not available") if text in _NO_TEXT else text
    if not isinstance(raw, (int, float)):
        return Missing("failed", detail=f"{spec.call} returned {type(raw).__name__}, not a number")
    if not math.isfinite(raw):
        return implausible_value(spec, raw)
    if raw in NOT_AVAILABLE or (raw < 0 and spec.unit is not Unit.CELSIUS):
        return Missing("not_supported", detail=f"{spec.call}: not available")
    if spec.unit is Unit.CELSIUS and raw >= 1 << 31:
        raw -= 1 << 32  # a negative one in a field of unsigned type
    if spec.names:
        beyond = raw > _MAX_NAMES or spec.names.keys() == {0, 1}
        return spec.names.get(raw) or (implausible_value(spec, raw) if beyond else f"unknown ({raw})")
    if spec.flags:
        known = [name for bit, name in spec.flags.items() if raw & bit]
        rest = raw & ~sum(spec.flags)
        if rest:
            known.append(f"0x{rest:x}")
        return "+".join(known) or "none"
    value = int(raw) if isinstance(raw, int) and spec.scale == 1.0 else float(raw * spec.scale)
    low, high = spec.bounds
    return value if low <= value <= high else implausible_value(spec, value)


def implausible_value(spec: MetricSpec, value: float) -> Missing:
    """The reason for a value that no GPU can have: it is no reading, and nothing is concluded from it."""
    return Missing(
        "implausible", detail=f"implausible: {spec.call or spec.title} answered {value:g} {spec.unit}".rstrip()
    )
