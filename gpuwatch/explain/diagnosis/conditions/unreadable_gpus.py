"""GPUs whose memory or utilization cannot be read: nothing is judged of what nobody knows."""

from __future__ import annotations

from collections.abc import Iterator

from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.snapshot import Device
from gpuwatch.explain.diagnosis.conditions.condition_registry import Condition, condition
from gpuwatch.explain.diagnosis.conditions.hysteresis import Occurrence, Sign
from gpuwatch.explain.diagnosis.conditions.sample_context import SampleContext
from gpuwatch.explain.diagnosis.rules.phrasing import seen_as

_KEYS = {"memory.used_bytes": "memory", "utilization.gpu_percent": "utilization"}
_FAULTS = ("failed", "implausible", "permission_denied")


@condition
class UnreadGpu(Condition):
    """The driver fails where every GPU has an answer."""

    name = "unread"
    causes = ("driver.bad-state",)
    appears = 3.0
    leaves = 3.0
    one_sample = True
    dead_devices = True  # of a lost one nothing can be read, which is told already

    def signs(self, context: SampleContext) -> Iterator[Sign]:
        """One for each GPU that is listed as working."""
        for device in context.devices.values():
            if unread := unread_keys(device):
                yield Sign(cause="driver.bad-state", device=device, about=" and ".join(map(_KEYS.__getitem__, unread)))

    def finding(self, occurrence: Occurrence, context: SampleContext) -> Finding | None:
        device, what = occurrence.device, occurrence.sign.about
        why = (device.missing[key].detail for key in unread_keys(device))
        return self.report(
            occurrence,
            "warning",
            title=f"{seen_as(device)}: {what} cannot be read",
            evidence=(*dict.fromkeys(why), occurrence.lasted(context.at)),
            action="Compare nvidia-smi. If it fails too: look for Xid or NVRM lines in dmesg.",
        )


def unread_keys(device: Device) -> list[str]:
    """The metrics that the driver fails to answer of a GPU that is listed as working."""
    if device.state != "ok":
        return []
    return [key for key in _KEYS if key in device.missing and device.missing[key].reason in _FAULTS]
