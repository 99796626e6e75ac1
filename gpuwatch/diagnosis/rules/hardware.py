"""What the device itself says in one look: faults, throttling, a mode that keeps programs out."""

from __future__ import annotations

from collections.abc import Iterator

from gpuwatch.diagnosis.evidence import Evidence
from gpuwatch.diagnosis.registry import finding, rule
from gpuwatch.model.findings import Finding, Severity
from gpuwatch.model.snapshot import Device

_UNDER_LOAD = 50.0
"""An idle clock runs slowly by design; only a busy device is judged (percent)."""
_RECENT = 3600.0
"""Seconds for which an error that the driver reported is held against a GPU that works on."""
_FAULTS = {"lost": "has fallen off the bus", "reset-required": "needs a reset", "failed": "does not answer"}


def _devices(evidence: Evidence) -> tuple[Device, ...]:
    return evidence.snapshot.devices if evidence.snapshot is not None else ()


def _busy(device: Device) -> bool:
    return (device.number("utilization.gpu_percent") or 0.0) >= _UNDER_LOAD


@rule("hardware.fault")
def fault(evidence: Evidence) -> Iterator[Finding]:
    """A device that is lost, has reported an error of its own, or counts errors that ECC could not correct."""
    at = evidence.snapshot.taken_at.timestamp() if evidence.snapshot is not None else 0.0
    for device in _devices(evidence):
        reported = [xid for xid in device.xids if xid.hardware and at - xid.at < _RECENT]
        lines = tuple(dict.fromkeys(f"NVML told {xid.text} within the last hour" for xid in reported))
        if reported and device.state not in _FAULTS:
            yield finding(
                "hardware.fault",
                "error",
                "fact",
                title=f"GPU {device.index} reported {reported[-1].text}",
                evidence=(*lines, _which(device)),
                action="End the work on this GPU and reset it (nvidia-smi -r), or reboot; if it comes again, have the "
                "card, its power and its seat looked at.",
                device_uuid=device.uuid,
            )
        if device.state in _FAULTS:
            yield finding(
                "hardware.fault",
                "error",
                "fact",
                title=f"GPU {device.index} {_FAULTS[device.state]}",
                evidence=(device.state_detail, *lines, _which(device)),
                action="Look for Xid lines in dmesg; drain the node, then reset the GPU (nvidia-smi -r) or reboot.",
                device_uuid=device.uuid,
            )
        yield from _worn(device)
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


def _which(device: Device) -> str:
    if not device.pci_bus_id:  # it did not answer when it was listed
        return f"NVML tells nothing of it but its place: it is number {device.index} of the list"
    return f"{device.name} {device.uuid} at {device.pci_bus_id}"


def _worn(device: Device) -> Iterator[Finding]:
    """Memory that waits for a reset, or cannot be repaired, and what the driver asks for to recover."""
    asked = device.readings.get("health.recovery_action")
    waits = [
        f"{metric}: yes"
        for metric in ("remapped_rows.pending", "retired_pages.pending")
        if device.readings.get(metric) == "yes"
    ]
    if device.readings.get("remapped_rows.failure") == "yes":
        yield finding(
            "hardware.fault",
            "error",
            "fact",
            title=f"GPU {device.index} has memory that could not be remapped",
            evidence=("remapped_rows.failure: yes", *waits),
            action="Have the card replaced: its spare memory rows are used up (NVIDIA's criterion for a return).",
            device_uuid=device.uuid,
        )
    elif waits:
        yield finding(
            "hardware.fault",
            "warning",
            "fact",
            title=f"GPU {device.index} has bad memory that is taken out of use at its next reset",
            evidence=waits,
            action="End the work on this GPU and reset it (nvidia-smi -r), or reboot.",
            device_uuid=device.uuid,
        )
    if isinstance(asked, str) and asked != "none":
        yield finding(
            "hardware.fault",
            "error",
            "fact",
            title=f"GPU {device.index}: the driver asks for {asked.replace('-', ' ')}",
            evidence=(f"health.recovery_action: {asked}",),
            action=f"End the work on this GPU, then do what the driver asks for: {asked.replace('-', ' ')}.",
            device_uuid=device.uuid,
        )


@rule("throttle.thermal", "throttle.power", single_look=True)
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
                evidence=[f"NVML: compute mode {mode} on {device.uuid}"],
                action="nvidia-smi -c 0 sets the default mode, in which several programs may share the GPU.",
                device_uuid=device.uuid,
            )
