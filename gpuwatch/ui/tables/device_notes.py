"""What is said of a device in a few words: state, clocks, link, holders, reservations; shared by cards and lines."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from gpuwatch.core.formatting.units import gigabytes_per_second, whole_number
from gpuwatch.core.model.causes import CAUSES
from gpuwatch.core.model.clock_event_reasons import BRAKE, NAMES, THERMAL, clock_reasons, clock_reasons_text
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.snapshot import BAD_STATES, Device, Snapshot
from gpuwatch.core.safe_text import printable
from gpuwatch.session.view import View
from gpuwatch.ui.drawing.glyphs import SEVERITY_MARKS

_BRAND = re.compile(r"^(NVIDIA|Tesla|Quadro|GeForce|Graphics Device)\s+", re.IGNORECASE)


def memory_without_processes(device: Device) -> bool:
    """Whether its memory is known but not whether processes hold it: an empty list of processes means nothing."""
    used, unexplained = device.number("memory.used_bytes"), device.number("memory.unexplained_bytes")
    return used is not None and unexplained is None and not device.unified_memory


def short_name(name: str) -> str:
    """``RTX 4090`` for ``NVIDIA GeForce RTX 4090``."""
    while (stripped := _BRAND.sub("", name)) != name and stripped:
        name = stripped
    return name


def throttled_text(device: Device, findings: Sequence[Finding]) -> str:
    """``throttled (thermal)``, of a sample that shows it; empty once a finding judges it, as a note or a warning."""
    reasons = clock_reasons(device) or frozenset()
    bad = reasons & (THERMAL | BRAKE)
    current = (finding for finding in findings if finding.until is None and finding.device_uuid == device.uuid)
    if not bad or device.state in BAD_STATES or any(finding.id.startswith("throttle.") for finding in current):
        return ""
    named = "sw-thermal" if bad & THERMAL else "hw-power-brake" if "hw-power-brake" in bad else "hw-slowdown"
    return f"throttled ({NAMES[named]})"


def clock_note(device: Device, finding: Finding | None, findings: Sequence[Finding]) -> str:
    """Why its clocks are lower; empty if they are not, or if its finding or :func:`throttled_text` says so."""
    if (finding is not None and finding.id.startswith("throttle.")) or throttled_text(device, findings):
        return ""
    return clock_reasons_text(sorted(clock_reasons(device) or ()))


def device_finding_mark(device: Device, finding: Finding | None, findings: Sequence[Finding]) -> tuple[str, str]:
    """Its worst finding, ``▲ throttled (thermal)``, and the style; empty in a bad state, which has its own words."""
    if finding is None or device.state in BAD_STATES:
        now = throttled_text(device, findings)
        return (f"▲ {now}", "warning") if now else ("", "text")
    words = finding.title.removeprefix(f"GPU {device.index}").removeprefix(":")
    sign, style = SEVERITY_MARKS[finding.severity]
    return f"{sign} {printable(words[1:]) if words.startswith(' ') else CAUSES[finding.id]}", style


def pcie_link_text(device: Device, cells: int = 0) -> str:
    """The PCIe link with its throughput in GB/s, ``5×16 ↓1.2 ↑–``, in ``cells`` each; 0: five cells, if it is known."""
    generation, width = device.number("pcie.generation"), device.number("pcie.width")
    if generation is None and width is None:
        return ""
    text = f"{whole_number(generation, 1)}×{whole_number(width, 1)}"
    rx, tx = _pcie_rate(device, "rx"), _pcie_rate(device, "tx")
    if rx is None and tx is None and not cells:
        return text
    return f"{text} ↓{gigabytes_per_second(rx, cells or 5)} ↑{gigabytes_per_second(tx, cells or 5)}"


def _pcie_rate(device: Device, way: str) -> float | None:
    """Bytes per second: averaged since the previous sample (GPM) or, where that is not read, measured in 20 ms."""
    mean = device.number(f"activity.pcie_{way}_bytes_per_second")
    return device.number(f"pcie.{way}_bytes_per_second") if mean is None else mean


def state_note(device: Device) -> tuple[str, str]:
    """Words and style for a device's state; empty for ``ok``."""
    if device.state == "ok":
        return "", "text"
    if device.state in BAD_STATES:
        detail = f": {printable(device.state_detail)}" if device.state_detail else ""
        return f"✖ {device.state}{detail}", "error"
    return f"☾ {device.state}", "dim"


def holder_note(device: Device, view: View) -> str:
    """Who reserved it, and who has it where no processes are reported."""
    notes = reserved_note(device, view.snapshot), printable(view.owners.get(device.uuid, ""))
    return " · ".join(filter(None, notes))


def owners_text(found: Mapping[str, str], devices: Sequence[Device]) -> str:
    """``GPU 1, 4: used by alice; GPU 5: used by job 7``: who has GPUs by :attr:`View.owners`."""
    of: dict[str, list[str]] = {}
    for device in devices:
        if device.uuid in found:
            of.setdefault(found[device.uuid], []).append(str(device.index))
    return printable("; ".join(f"GPU {', '.join(numbers)}: {words}" for words, numbers in of.items()))


def reserved_note(device: Device, snapshot: Snapshot | None) -> str:
    """``reserved by alice (4711)``, with ``gpuwatch pick --reserve``; empty if it is not."""
    if snapshot is None or not snapshot.reservations:
        return ""
    instances = {instance.uuid: f"MIG {instance.id} " for instance in device.mig_instances if instance.uuid}
    parts = {device.uuid: ""} | instances
    names = [
        f"{parts[found.uuid]}by {found.holder}{'' if found.counts else ', over the per-user limit'}"
        for found in snapshot.reservations
        if found.uuid in parts
    ]
    return printable(f"reserved {', '.join(names)}") if names else ""


def attention_mark(device: Device, *, finding: str, throttled: bool = False, reserved: bool = False) -> tuple[str, str]:
    """One glyph for a GPU that needs attention. ``finding``: severity of its worst finding, or empty."""
    if device.state in BAD_STATES or finding == "error":
        return "✖", "error"
    if finding or throttled:
        return "▲", "warning"
    return ("R", "dim") if reserved else (" ", "text")
