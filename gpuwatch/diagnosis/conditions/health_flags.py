"""Flags of a device's health: memory that waits for a reset, what the driver asks for, the NVLink fabric."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gpuwatch.diagnosis.conditions.durations import lasted
from gpuwatch.diagnosis.conditions.hysteresis import Occurrence, Sign
from gpuwatch.diagnosis.conditions.registry import Condition, condition
from gpuwatch.diagnosis.conditions.sample_context import SampleContext
from gpuwatch.diagnosis.registry import finding
from gpuwatch.diagnosis.rules.phrasing import seen_as
from gpuwatch.model.findings import Finding, Severity

_START_FABRIC = (
    "Where there are NVSwitches: systemctl status nvidia-fabricmanager; it must run, in the driver's version "
    "(nvidia-imex too where GPUs of several hosts are joined)."
)
_RESET = "End the work on this GPU and reset it (nvidia-smi -r), or reboot."
_MENDING = frozenset({"degraded-bandwidth", "route-recovery", "limited-capacity"})
"""Trouble of the fabric in which traffic goes on, slower."""


class _Flag(NamedTuple):
    """A metric whose value is a word; ``{}`` in the texts is that word."""

    good: frozenset[str]
    severity: Severity
    title: str
    action: str
    cause: str = "hardware.fault"
    detail: str = ""


_NO = frozenset({"no"})
_FLAGS = {
    "remapped_rows.failure": _Flag(
        _NO,
        "error",
        "memory could not be remapped",
        "Have the card replaced: its spare memory rows are used up (NVIDIA's criterion for a return).",
    ),
    "remapped_rows.pending": _Flag(_NO, "warning", "bad memory rows are to be remapped at the next reset", _RESET),
    "retired_pages.pending": _Flag(_NO, "warning", "bad memory pages are to be retired at the next reboot", _RESET),
    "ecc.sram_threshold_exceeded": _Flag(
        _NO,
        "error",
        "more SRAM errors than the threshold of NVIDIA's field diagnostic",
        "End the work on this GPU and run NVIDIA's field diagnostic on the card, or have it replaced.",
    ),
    "health.recovery_action": _Flag(
        frozenset({"none"}),
        "error",
        "driver asks for {}",
        "End the work on this GPU, then do what the driver asks for: {}.",
    ),
    "fabric.state": _Flag(
        frozenset({"completed"}),
        "warning",
        "not registered with the NVLink fabric: {}",
        _START_FABRIC,
        "driver.bad-state",
        "until it is, CUDA may not start: error 802",
    ),
    "fabric.health": _Flag(
        frozenset({"healthy"}),
        "error",
        "NVLink fabric reports {}",
        f"Look at the log of nvidia-fabricmanager and at the NVSwitches and cables; {_START_FABRIC}",
    ),
}


@condition
class HealthFlag(Condition):
    """A flag that is not as it should be; another value of it is another occurrence."""

    name = "health-flag"
    causes = ("hardware.fault", "driver.bad-state")
    appears = 0.0
    leaves = 0.0
    forgets = float("inf")
    one_sample = True

    def signs(self, context: SampleContext) -> Iterator[Sign]:
        """One for a device and flag."""
        for device in context.devices.values():
            failed = device.readings.get("remapped_rows.failure") == "yes"
            for metric, flag in _FLAGS.items():
                value = device.readings.get(metric)
                if failed and metric.endswith(".pending"):
                    continue  # no reset helps
                if isinstance(value, str) and value not in flag.good:
                    yield Sign(cause=flag.cause, device=device, about=f"{metric}: {value}")

    def unknown(self, sign: Sign, context: SampleContext) -> bool:
        """Where it cannot be read now, too."""
        device = context.devices.get(sign.device.uuid) if sign.device is not None else None
        lacks = device is None or sign.about.partition(": ")[0] not in device.readings
        return lacks or super().unknown(sign, context)

    def finding(self, occurrence: Occurrence, context: SampleContext) -> Finding | None:
        """A fact: the driver says so."""
        device, (metric, _, value) = occurrence.sign.device, occurrence.sign.about.partition(": ")
        assert device is not None
        flag, severity = _FLAGS[metric], _FLAGS[metric].severity
        if metric == "fabric.health" and set(value.split("+")) - {"healthy"} <= _MENDING:
            severity = "warning"
        words = ", ".join(sorted(set(value.split("+")) - {"healthy"})).replace("-", " ")
        more = flag.detail
        if metric == "ecc.sram_threshold_exceeded":
            lifetime = device.number("ecc.sram_uncorrected_lifetime")
            more = f"{lifetime:.0f} not corrected in its lifetime" if lifetime is not None else ""
        return finding(
            flag.cause,
            severity,
            "fact",
            title=f"{seen_as(device)} {flag.title.format(words)}",
            evidence=(occurrence.sign.about, more, lasted(occurrence, context.at)),
            action=flag.action.format(words),
            device_uuid=device.uuid,
        )
