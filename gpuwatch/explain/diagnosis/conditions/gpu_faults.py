"""Faults of a GPU: it does not answer, cannot be read, has a hardware error (Xid) or a health flag with a bad value.

Flags: pending memory repairs, the driver's recovery action, the NVLink fabric.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gpuwatch.core.formatting.durations import rounded_duration
from gpuwatch.core.model.findings import END_WORK, Finding, Severity
from gpuwatch.core.model.snapshot import BAD_STATES, Device
from gpuwatch.core.model.xids import OFF_THE_BUS, Xid
from gpuwatch.core.safe_text import printable
from gpuwatch.explain.diagnosis.conditions.condition import Condition, Occurrence, Sign, condition
from gpuwatch.explain.diagnosis.conditions.sample_context import SampleContext

_STATE_TEXTS = {"lost": "has fallen off the bus", "reset-required": "needs a reset", "failed": "does not answer"}
_MAX_XIDS_SHOWN = 3
"""Xids in the evidence."""
_RECENT_SECONDS = 3600.0
"""Observed seconds for which an Xid is an error; a warning afterwards, if no other followed. While the driver hangs or
sampling is paused, nothing is observed."""
_ALWAYS_READABLE = {"memory.used_bytes": "memory", "utilization.gpu_percent": "utilization"}
_FAILED_READINGS = ("failed", "implausible", "permission_denied")
_START_FABRIC = (
    "With NVSwitches, check systemctl status nvidia-fabricmanager: it must be running, in the driver's version (also "
    "nvidia-imex if GPUs of several hosts are connected)."
)
_RESET = f"{END_WORK} this GPU and reset it (nvidia-smi -r), or reboot."
_TRANSIENT_FABRIC_PROBLEMS = frozenset({"degraded-bandwidth", "route-recovery", "limited-capacity"})
"""Fabric problems with which traffic continues, more slowly."""


@condition
class LostGpu(Condition):
    """A GPU whose readings cannot be trusted, or that the driver no longer lists."""

    name = "gpu-lost"
    causes = ("hardware.fault",)
    looks_for = "GPUs that are lost or faulty"
    reported_from_one_sample = True
    judges_lost_gpus = True

    def signs(self, context: SampleContext) -> Iterator[Sign]:
        """One sign per lost device, with the device as it was last seen."""
        for device in context.devices.values():
            if device.state in BAD_STATES:
                yield Sign(cause="hardware.fault", device=device, variant="lost")
        for uuid in context.history.unlisted_since:
            yield Sign(cause="hardware.fault", device=context.history.devices[uuid], variant="lost")

    def finding(self, occurrence: Occurrence, context: SampleContext) -> Finding | None:
        device = occurrence.device
        listed = device.uuid in context.devices
        detail = f": {printable(device.state_detail)}" if listed and device.state_detail else ""
        return self.make_finding(
            occurrence,
            "error",
            title=f"GPU {device.index} {_STATE_TEXTS[device.state] if listed else 'is no longer listed'}",
            evidence=(f"{device.state}{detail}" if listed else "", *_xid_lines(device, context), _gpu_identity(device)),
            action=Xid(at=0.0, code=OFF_THE_BUS).action
            if device.state == "lost"
            else "Look for Xid lines in dmesg; drain the node, then reset the GPU (nvidia-smi -r) or reboot.",
        )

    def end_text(self, occurrence: Occurrence, finding: Finding, context: SampleContext) -> str:
        """``GPU 0 is back, after 3 min``; nothing if it was removed for good."""
        device = occurrence.device
        if not any(item.uuid == device.uuid or item.identifies(device) for item in context.devices.values()):
            return ""
        return f"GPU {device.index} is back, after {rounded_duration(context.at - occurrence.since)}"


@condition
class HardwareXid(Condition):
    """The driver reported an Xid that points to the card. Remembered for the whole session."""

    name = "xid"
    causes = ("hardware.fault",)
    forget_after_seconds = float("inf")
    reported_from_one_sample = True
    judges_lost_gpus = True

    def signs(self, context: SampleContext) -> Iterator[Sign]:
        """An old one is another condition, with another severity."""
        for uuid, xids in context.history.xids.items():
            device = context.devices.get(uuid) or context.history.devices.get(uuid)
            if xids and device is not None:
                recent = context.history.seconds_since_xid[uuid] < _RECENT_SECONDS
                yield Sign(cause="hardware.fault", device=device, variant="recent Xid" if recent else "old Xid")

    def finding(self, occurrence: Occurrence, context: SampleContext) -> Finding | None:
        device = occurrence.device
        xids, recent = context.history.xids[device.uuid], occurrence.sign.variant == "recent Xid"
        hours = (context.at - xids[-1].at) / 3600
        return self.make_finding(
            occurrence,
            "error" if recent else "warning",
            title=f"GPU {device.index}: driver reported {xids[-1].text}" + ", an hour ago or longer" * (not recent),
            evidence=(
                *_xid_lines(device, context),
                "" if recent else f"none for {hours:.0f} h since",
                _gpu_identity(device),
            ),
            action=xids[-1].action,
        )

    def is_listed(self, occurrence: Occurrence, context: SampleContext) -> bool:
        """For a lost GPU it is part of that finding's evidence."""
        device = occurrence.device
        return device.uuid in context.devices and device.state not in BAD_STATES

    def new_event_texts(self, occurrence: Occurrence, context: SampleContext) -> Iterable[str]:
        device, history = occurrence.device, context.history
        for xid in history.xids[device.uuid]:
            if xid.at > history.last_xid_event_at.get(device.uuid, float("-inf")):
                history.last_xid_event_at[device.uuid] = xid.at
                yield f"GPU {device.index}: driver reported {xid.text}"

    def end_text(self, occurrence: Occurrence, finding: Finding, context: SampleContext) -> str:
        """A reported error does not end."""
        return ""


def _xid_lines(device: Device, context: SampleContext) -> list[str]:
    xids = context.history.xids.get(device.uuid, ())[-_MAX_XIDS_SHOWN:]
    times = (datetime.datetime.fromtimestamp(xid.at) for xid in xids)
    return [f"driver reported {xid.text} at {at:%Y-%m-%d %H:%M:%S}" for xid, at in zip(xids, times, strict=True)]


def _gpu_identity(device: Device) -> str:
    if not device.pci_bus_id:  # it did not answer when it was listed
        return f"NVML only knows its position: number {device.index} of the list"
    return f"{device.name} {device.uuid} at {device.pci_bus_id}"


@condition
class UnreadableGpu(Condition):
    """The driver fails where every GPU has an answer."""

    name = "unread"
    causes = ("driver.bad-state",)
    report_after_seconds = 3.0
    end_after_seconds = 3.0
    reported_from_one_sample = True
    judges_lost_gpus = True  # nothing of a lost one can be read, which LostGpu reports

    def signs(self, context: SampleContext) -> Iterator[Sign]:
        for device in context.devices.values():
            if unreadable := unreadable_metrics(device):
                what = " and ".join(map(_ALWAYS_READABLE.__getitem__, unreadable))
                yield Sign(cause="driver.bad-state", device=device, variant=what)

    def finding(self, occurrence: Occurrence, context: SampleContext) -> Finding | None:
        device, what = occurrence.device, occurrence.sign.variant
        why = (device.missing[key].detail for key in unreadable_metrics(device))
        return self.make_finding(
            occurrence,
            "warning",
            title=f"GPU {device.index}: {what} cannot be read",
            evidence=(*dict.fromkeys(why), occurrence.time_text(context.at)),
            action="Compare with nvidia-smi. If that fails too, look for Xid or NVRM lines in dmesg.",
        )


def unreadable_metrics(device: Device) -> list[str]:
    """The metrics that the driver fails to answer of a GPU that is listed as working."""
    if device.state != "ok":
        return []
    return [key for key in _ALWAYS_READABLE if key in device.missing and device.missing[key].reason in _FAILED_READINGS]


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
        f"{END_WORK} this GPU and run NVIDIA's field diagnostic on the card, or have it replaced.",
    ),
    "health.recovery_action": _Flag(
        "none", "error", "driver requests {}", f"{END_WORK} this GPU, then do what the driver requests: {{}}."
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
