"""The events of a running probe, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpuwatch.core.formatting.durations import measured_seconds
from gpuwatch.core.formatting.safe_text import printable
from gpuwatch.core.formatting.units import UNKNOWN, size
from gpuwatch.core.model.probe_events import Event

if TYPE_CHECKING:
    from gpuwatch.session.probe_runs import Live


class EventLine(NamedTuple):
    """One event as text."""

    at: float
    """Seconds since the start of the probe."""
    text: str
    ink: str = "text"


def event_line(at: float, event: Event) -> EventLine | None:
    """An event as text; None if it is not worth showing."""
    text, ink = _words(event)
    return EventLine(at, printable(text)[:400], ink) if text else None


def event_lines(live: Live) -> list[EventLine]:
    """All events of the running probe, oldest first."""
    return [line for at, event in live.events if (line := event_line(at, event)) is not None]


def current_activity(live: Live) -> str:
    """What the probe is doing now."""
    lines = (event_line(at, event) for at, event in reversed(live.events))
    return next((line.text for line in lines if line is not None), live.doing)


def _words(event: Event) -> tuple[str, str]:
    data = event.data
    match event.kind:
        case "start":
            return f"started, pid {data.get('pid')}; importing the framework", "dim"
        case "framework":
            return f"{data.get('name')} {data.get('version') or ''} imported; starting the devices", "text"
        case "phase":
            took = data.get("seconds")
            return f"{str(data.get('name')).replace('_', ' ')} took {measured_seconds(_number(took))}", "dim"
        case "setting":
            effective = data.get("effective")
            in_effect = f", in effect: {effective}" if effective is not None else ""
            return f"asked for {data.get('name')} {data.get('asked')}{in_effect}", "text"
        case "devices":
            names = [str(name).rpartition("device:")[2] or str(name) for name in _listed(data.get("logical"))]
            return f"devices: {', '.join(names) or 'none'}", "text"
        case "placement":
            actual = str(data.get("actual", "")).rpartition("device:")[2]
            return f"{data.get('op')} ran on {actual}", "accent" if "GPU" in actual else "text"
        case "memory":
            return f"allocator: {size(_number(data.get('current')))}, peak {size(_number(data.get('peak')))}", "memory"
        case "progress":
            return f"measuring: {data.get('steps')} steps in {measured_seconds(_number(data.get('seconds')))}", "text"
        case "throughput":
            steps = _number(data.get("steps_per_second"))
            return f"{UNKNOWN if steps is None else format(steps, '.1f')} steps/s", "ok"
        case "worker":
            return f"{data.get('name')}: {data.get('verdict', '')} {data.get('detail', '')}".strip(), "text"
        case "result":
            return f"{str(data.get('name')).replace('_', ' ')}: {data.get('value')}", "strong"
        case "skip":
            return f"skipped: {data.get('reason')}", "warning"
        case "error":
            expected = bool(data.get("expected"))
            first = (str(data.get("message", "")).splitlines() or [""])[0]
            return f"{'expected ' if expected else ''}{data.get('type')}: {first}", "warning" if expected else "error"
        case "end":
            return "done", "dim"
    return "", "text"


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def _listed(value: object) -> list[object]:
    return list(value) if isinstance(value, (list, tuple)) else []
