"""Health flags of a device: pending memory repairs, the driver's recovery action, the NVLink fabric."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gpuwatch.core.model.findings import Finding, Severity
from gpuwatch.explain.diagnosis.conditions.condition_registry import Condition, condition
from gpuwatch.explain.diagnosis.conditions.occurrence import Occurrence, Sign
from gpuwatch.explain.diagnosis.conditions.sample_context import SampleContext

_START_FABRIC = (
    "With NVSwitches, check systemctl status nvidia-fabricmanager: it must be running, in the driver's version (also "
    "nvidia-imex if GPUs of several hosts are connected)."
)
_RESET = "End the work on this GPU and reset it (nvidia-smi -r), or reboot."
_TRANSIENT_FABRIC_PROBLEMS = frozenset({"degraded-bandwidth", "route-recovery", "limited-capacity"})
"""Fabric problems with which traffic continues, more slowly."""


class _Flag(NamedTuple):
    """A metric with a word as value, for which ``{}`` stands in the texts."""

    good: str
    """The value that is no problem."""
    severity: Severity
    title: str
    action: str
    cause: str = "hardware.fault"
    detail: str = ""


_FLAGS = {
    "remapped_rows.failure": _Flag(
        "no",
        "error",
        "memory could not be remapped",
        "Have the card replaced: its spare memory rows are used up (NVIDIA's criterion for returning it).",
    ),
    "remapped_rows.pending": _Flag("no", "warning", "bad memory rows will be remapped at the next reset", _RESET),
    "retired_pages.pending": _Flag("no", "warning", "bad memory pages will be retired at the next reboot", _RESET),
    "ecc.sram_threshold_exceeded": _Flag(
        "no",
        "error",
        "SRAM errors exceed the threshold of NVIDIA's field diagnostic",
        "End the work on this GPU and run NVIDIA's field diagnostic on the card, or have it replaced.",
    ),
    "health.recovery_action": _Flag(
        "none", "error", "driver requests {}", "End the work on this GPU, then do what the driver requests: {}."
    ),
    "fabric.state": _Flag(
        "completed",
        "warning",
        "not registered with the NVLink fabric: {}",
        _START_FABRIC,
        "driver.bad-state",
        "until then CUDA may fail to start (error 802)",
    ),
    "fabric.health": _Flag(
        "healthy",
        "error",
        "NVLink fabric reports {}",
        f"Check the log of nvidia-fabricmanager, the NVSwitches and cables. {_START_FABRIC}",
    ),
}


@condition
class HealthFlag(Condition):
    """A flag with a bad value; another value is another occurrence."""

    name = "health-flag"
    causes = ("hardware.fault", "driver.bad-state")
    forget_after_seconds = float("inf")
    reported_from_one_sample = True

    def signs(self, context: SampleContext) -> Iterator[Sign]:
        for device in context.devices.values():
            failed = device.readings.get("remapped_rows.failure") == "yes"
            for metric, flag in _FLAGS.items():
                value = device.readings.get(metric)
                if failed and metric.endswith(".pending"):
                    continue  # a reset does not help
                if isinstance(value, str) and value != flag.good:
                    yield Sign(cause=flag.cause, device=device, variant=f"{metric}: {value}")

    def is_unknown(self, sign: Sign, context: SampleContext) -> bool:
        """Also if it cannot be read now."""
        device = context.devices.get(sign.device.uuid) if sign.device is not None else None
        unread = device is None or sign.variant.partition(": ")[0] not in device.readings
        return unread or super().is_unknown(sign, context)

    def finding(self, occurrence: Occurrence, context: SampleContext) -> Finding | None:
        device, (metric, _, value) = occurrence.device, occurrence.sign.variant.partition(": ")
        flag, severity = _FLAGS[metric], _FLAGS[metric].severity
        values = set(value.split("+")) - {"healthy"}
        if metric == "fabric.health" and values <= _TRANSIENT_FABRIC_PROBLEMS:
            severity = "warning"
        words = ", ".join(sorted(values)).replace("-", " ")
        detail = flag.detail
        if metric == "ecc.sram_threshold_exceeded":
            lifetime = device.number("ecc.sram_uncorrected_lifetime")
            detail = f"{lifetime:.0f} uncorrected in its lifetime" if lifetime is not None else ""
        return self.make_finding(
            occurrence,
            severity,
            title=f"GPU {device.index} {flag.title.format(words)}",
            evidence=(occurrence.sign.variant, detail, occurrence.time_text(context.at)),
            action=flag.action.format(words),
        )
