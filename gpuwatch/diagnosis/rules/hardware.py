"""What the device itself says: faults, throttling, a slow link, a mode that keeps programs out."""

from __future__ import annotations

from collections.abc import Iterator

from gpuwatch.diagnosis.evidence import Evidence
from gpuwatch.diagnosis.registry import finding, rule
from gpuwatch.model.findings import Finding, Severity
from gpuwatch.model.snapshot import Device

_UNDER_LOAD = 50.0
"""An idle link and an idle clock run slowly by design; only a busy device is judged (percent)."""
_LINK_SAMPLES = 15
"""So long must the device have been busy before its link is judged: the link's generation is read every few
seconds, and the utilization is an average, so that one sample may hold a busy device and the link of its rest."""
_FAULTS = {"lost": "has fallen off the bus", "reset-required": "needs a reset", "failed": "does not answer"}


def _devices(evidence: Evidence) -> tuple[Device, ...]:
    return evidence.snapshot.devices if evidence.snapshot is not None else ()


def _busy(device: Device) -> bool:
    return (device.number("utilization.gpu_percent") or 0.0) >= _UNDER_LOAD


@rule("hardware.fault")
def fault(evidence: Evidence) -> Iterator[Finding]:
    """A device that is lost, or counts errors that ECC could not correct."""
    for device in _devices(evidence):
        if device.state in _FAULTS:
            yield finding(
                "hardware.fault",
                "error",
                "fact",
                title=f"GPU {device.index} {_FAULTS[device.state]}",
                evidence=(device.state_detail, f"{device.name} {device.uuid} at {device.pci_bus_id}"),
                action="Look for Xid lines in dmesg; drain the node, then reset the GPU (nvidia-smi -r) or reboot.",
                device_uuid=device.uuid,
            )
        errors = device.number("ecc.uncorrected")
        if errors:
            yield finding(
                "hardware.fault",
                "warning",
                "fact",
                title=f"GPU {device.index} has memory errors that ECC could not correct",
                evidence=(f"{errors:.0f} since boot",),
                action="Reset the GPU so that the pages are retired; replace it if the count grows again.",
                device_uuid=device.uuid,
            )


@rule("throttle.thermal", "throttle.power")
def throttling(evidence: Evidence) -> Iterator[Finding]:
    """Clocks held down, as the driver says why."""
    for device in _devices(evidence):
        said = device.get("clocks.event_reasons")
        reasons = set(said.split("+")) if isinstance(said, str) else set()
        hot = reasons & {"sw-thermal", "hw-thermal"}
        clock = device.number("clocks.sm_mhz")
        lines = [f"clock event reasons: {said}"] + ([f"SM clock {clock:.0f} MHz"] if clock is not None else [])
        if hot:
            temperature = device.number("temperature.gpu_celsius")
            yield finding(
                "throttle.thermal",
                "warning",
                "fact",
                title=f"GPU {device.index} slows down because it is hot",
                evidence=[*lines, *([f"{temperature:.0f} °C"] if temperature is not None else [])],
                action="Improve the cooling (fans, dust, airflow between cards), or lower the power limit.",
                device_uuid=device.uuid,
            )
        brake = reasons & {"hw-power-brake", "hw-slowdown"}
        if brake or ("sw-power-cap" in reasons and _busy(device)):
            draw, limit = device.number("power.draw_watts"), device.number("power.limit_watts")
            if draw is not None and limit is not None:
                lines.append(f"{draw:.0f} W of {limit:.0f} W")
            # The software cap is how a busy card reaches its limit every day; the brake is not.
            severity: Severity = "warning" if brake and not hot else "info"
            yield finding(
                "throttle.power",
                severity,
                "fact",
                title=f"GPU {device.index} runs at its power limit",
                evidence=lines,
                action="Raise the power limit (nvidia-smi -pl) if supply and cooling allow it.",
                device_uuid=device.uuid,
            )


@rule("pcie.degraded")
def slow_link(evidence: Evidence) -> Iterator[Finding]:
    """A link below what both ends can do, while the device works and has worked for a while."""
    for device in _devices(evidence):
        if not _busy(device) or not _busy_and_slow_all_along(evidence, device):
            continue
        now = (device.number("pcie.generation"), device.number("pcie.width"))
        most = (device.number("pcie.max_generation"), device.number("pcie.max_width"))
        if None in now or None in most:
            continue
        if any(have < can for have, can in zip(now, most, strict=True) if have is not None and can is not None):
            yield finding(
                "pcie.degraded",
                "warning",
                "fact",
                title=f"GPU {device.index}'s PCIe link runs below what it can",
                evidence=(f"generation {now[0]:.0f} x{now[1]:.0f} of {most[0]:.0f} x{most[1]:.0f} under load",),
                action="Reseat the card, check the riser and the slot's lanes in the firmware's settings.",
                device_uuid=device.uuid,
            )


def _busy_and_slow_all_along(evidence: Evidence, device: Device) -> bool:
    if evidence.history is None:
        return False

    def lately(metric_id: str) -> list[float | None]:
        assert evidence.history is not None
        return list(evidence.history.series(device.uuid, metric_id))[-_LINK_SAMPLES:]

    busy, generation, width = map(lately, ("utilization.gpu_percent", "pcie.generation", "pcie.width"))
    if len(busy) < _LINK_SAMPLES or None in busy:
        return False
    steady = len(set(generation)) == 1 and len(set(width)) == 1
    return steady and all(value is not None and value >= _UNDER_LOAD for value in busy)


@rule("mode.exclusive")
def closed_mode(evidence: Evidence) -> Iterator[Finding]:
    """A compute mode that turns a second program away."""
    for device in _devices(evidence):
        mode = device.get("mode.compute")
        if isinstance(mode, str) and mode.startswith(("exclusive", "prohibited")):
            yield finding(
                "mode.exclusive",
                "warning" if mode == "prohibited" else "info",
                "fact",
                title=f"GPU {device.index} is in compute mode {mode}",
                action="nvidia-smi -c 0 sets the default mode, in which several programs may share the GPU.",
                device_uuid=device.uuid,
            )
