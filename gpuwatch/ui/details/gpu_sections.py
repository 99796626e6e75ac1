"""Text sections of the GPU tab: throttling, limits, MIG instances, topology, events, probe runs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from gpuwatch.core.formatting.durations import ago, rounded_duration
from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.core.formatting.units import UNKNOWN, memory, size
from gpuwatch.core.model.clock_event_reasons import BRAKE, NAMES, THERMAL
from gpuwatch.core.model.reading import Missing
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.snapshot import Connection, Device, Process, Snapshot
from gpuwatch.core.safe_text import printable
from gpuwatch.explain.logs.device_names import device_name
from gpuwatch.machine.history.machine_event import MachineEvent
from gpuwatch.ui.drawing.clock_text import clock_text
from gpuwatch.ui.drawing.glyphs import EVENT_MARKS
from gpuwatch.ui.drawing.line_builder import LineBuilder
from gpuwatch.ui.drawing.styled_lines import Span, SpanLines
from gpuwatch.ui.drawing.text_width import align_left
from gpuwatch.ui.panes.gpu_line import mig_spans, processes_by_instance, processes_text
from gpuwatch.ui.settings.tabs import number_of
from gpuwatch.ui.tables.gpu_fields import THROTTLE_REASONS
from gpuwatch.ui.tables.gpu_loads import threshold_celsius

if TYPE_CHECKING:
    from gpuwatch.explain.diagnosis.conditions.throttling import ClockEventEpisode

TOPOLOGY_LEVELS = {
    "INT": "on one board",
    "PIX": "behind one PCIe bridge",
    "PXB": "across several PCIe bridges",
    "PHB": "across the PCIe host bridge",
    "NODE": "across host bridges of one NUMA node",
    "SYS": "across NUMA nodes, over the CPU interconnect",
}


def throttling_lines(
    device: Device, episodes: Sequence[ClockEventEpisode], now: float, since: str = "gpuwatch started"
) -> SpanLines:
    """Each throttle reason of the last hour: when, how long, how often; ``since``: from when on they are known."""
    reasons = device.get("clocks.event_reasons")
    if isinstance(reasons, Missing):
        why = reasons.detail or reasons.reason
        return [[(f"{UNKNOWN} throttle reasons unknown: ", "dim"), (printable(why), "dim")]]
    by_reason: dict[str, list[ClockEventEpisode]] = {}
    for episode in episodes:  # latest onset first
        if now - episode.last <= 3600:
            by_reason.setdefault(episode.reason, []).append(episode)
    ordered = sorted(by_reason.items(), key=lambda item: item[0] not in BRAKE | THERMAL)
    lines: SpanLines = [_throttling_line(reason, episodes_of_reason, now) for reason, episodes_of_reason in ordered]
    lines = lines or [[("● ", "ok"), (f"not throttled since {since}", "text")]]
    known = [(words, device.number(f"events.{name}_seconds")) for name, words in THROTTLE_REASONS]
    counted = [f"{words} {rounded_duration(seconds)}" for words, seconds in known if seconds and seconds >= 0.5]
    if counted:
        lines.append([("  driver counters since it was loaded: ", "dim"), (", ".join(counted), "text")])
    return lines


def _throttling_line(reason: str, episodes_of_reason: Sequence[ClockEventEpisode], now: float) -> list[Span]:
    last, bad = episodes_of_reason[0], reason in BRAKE | THERMAL
    glyph: Span = ("▲ " if bad else "· ", "warning" if bad and last.ended is None else "dim")
    words = NAMES.get(reason, reason)
    at_least = "at least " if last.at_start else ""
    lasted = rounded_duration(max(last.last - last.began, 0.0))
    line: list[Span] = [glyph, (printable(words), "strong" if last.ended is None else "text")]
    if last.ended is None:
        line.append((f": now, for {at_least}{lasted}", "text"))
    else:
        line.append((f": for {at_least}{lasted}, ended {ago(now - last.last)}", "text"))
    if len(episodes_of_reason) > 1:
        together = rounded_duration(sum(episode.last - episode.began for episode in episodes_of_reason))
        line.append((f"  ({len(episodes_of_reason)} times in the last hour, {together} in total)", "dim"))
    line.append((f"  {reason}", "faint"))
    return line


def limit_lines(device: Device) -> SpanLines:
    """Temperature, power, clock and PCIe link with their limits."""
    number = device.number
    celsius = number("temperature.gpu_celsius")
    named = (("operating_max", "max operating"), ("slowdown", "throttles at"), ("shutdown", "shuts down at"))
    thresholds = ((text, threshold_celsius(device, name)) for name, text in named)
    limits = [f"{text} {at:.0f} °C" for text, at in thresholds if at is not None]
    margin = number("temperature.margin_celsius")
    if margin is not None and (limits or celsius is not None):
        limits.append(f"now {abs(margin):.0f} °C {'below' if margin >= 0 else 'above'} throttling")
    lines = _limit_line("Temperature", celsius, "°C", limits)
    most = number("temperature.memory_max_celsius")
    lines += _limit_line("Memory", number("temperature.memory_celsius"), "°C", _max_texts(most, "°C"))
    draw, limit = number("power.draw_watts"), number("power.limit_watts")
    if draw is not None or limit is not None:
        limits = [f"limit {limit:.0f} W"] if limit is not None else []
        for name, watts in (("default", "power.default_limit_watts"), ("requested", "power.requested_limit_watts")):
            other = number(watts)
            if other is not None and limit is not None and round(other) != round(limit):
                limits.append(f"{name} {other:.0f} W")
        least, most = number("power.min_limit_watts"), number("power.max_limit_watts")
        if least is not None and most is not None:
            limits.append(f"settable from {least:.0f} to {most:.0f} W")
        lines += _limit_line("Power", draw, "W", limits)
    lines += _limit_line("SM clock", number("clocks.sm_mhz"), "MHz", _max_texts(number("clocks.sm_max_mhz"), "MHz"))
    generation, most = number("pcie.generation"), number("pcie.max_generation")
    if generation is not None:
        limits = [f"max {_link_text(most, number('pcie.max_width'))}"] if most is not None else []
        limits += ["an idle GPU lowers it"] if most is not None and generation < most else []
        lines.append(_value_and_limits("PCIe", _link_text(generation, number("pcie.width")), limits))
    return lines or [[(f"{UNKNOWN} this device reports none", "dim")]]


def _link_text(generation: float, width: float | None) -> str:
    return f"gen {generation:.0f}" + (f" ×{width:.0f}" if width is not None else "")


def _max_texts(value: float | None, unit: str) -> list[str]:
    return [f"max {value:.0f} {unit}"] if value is not None else []


def _limit_line(name: str, value: float | None, unit: str, limits: list[str]) -> SpanLines:
    """A line; none if neither the value nor a limit is known."""
    if value is None and not limits:
        return []
    return [_value_and_limits(name, UNKNOWN if value is None else f"{value:.0f} {unit}", limits)]


def _value_and_limits(name: str, value: str, limits: list[str]) -> list[Span]:
    return [(f"{name:<12}", "dim"), (f"{value:<9}", "strong"), (" ", "text"), (" · ".join(limits), "text")]


def mig_lines(device: Device, processes: Iterable[Process], width: int) -> SpanLines:
    """Its MIG instances: profile, memory, and the processes on each."""
    on = processes_by_instance(device, processes)
    lines: SpanLines = []
    for instance in device.mig_instances:
        lines.append(mig_spans(instance, on.pop(instance.id, []), 10 if width >= 66 else 4))
        uuid = printable(instance.uuid) if instance.uuid else f"{UNKNOWN} UUID not reported"
        if instance.gpu_instance is not None and instance.compute_instance is not None:
            uuid += f"  GPU instance {instance.gpu_instance}, compute instance {instance.compute_instance}"
        lines.append([("    ", "text"), (uuid, "faint")])
    for name, rows in on.items():
        if rows and device.mig_instances:
            text = f"instance {printable(name)}" if name else "instance not reported"
            lines.append([("  ", "text"), (f"{text}: ", "dim"), (processes_text(rows), "text")])
    if not lines:
        return []
    lines.append([("  NVML reports no utilization per instance while MIG is enabled", "faint")])
    return lines


def topology_lines(device: Device, snapshot: Snapshot) -> SpanLines:
    """Its links to the other GPUs, and its local CPUs and NUMA nodes."""
    topology = snapshot.topology
    if topology is None:
        return []
    lines: SpanLines = []
    for other in snapshot.devices:
        if other.uuid == device.uuid:
            continue
        found = topology.between(device.uuid, other.uuid)
        if found is None:
            continue
        label: Span = (f"{f'GPU {other.index}':<8}", "strong")
        if found.level is None and not found.nvlinks:
            why = found.missing.detail or found.missing.reason if found.missing is not None else "not reported"
            lines.append([label, (f"{UNKNOWN} ", "dim"), (printable(why), "dim")])
            continue
        lines.append([label, (f"{found.name or UNKNOWN:<6}", "accent"), (_connection_text(found), "text")])
    switched = topology.switch_nvlinks.get(device.uuid)
    if switched:
        text = f"{count_text(switched, 'NVLink')} to an NVSwitch, which connects all GPUs with such links"
        lines.append([(f"{'switch':<8}", "strong"), (text, "text")])
    place = next((place for place in topology.places if place.uuid == device.uuid), None)
    if place is not None:
        for name, value, missing in (
            ("CPUs", place.cpus, place.missing.get("cpus")),
            ("NUMA", place.numa_nodes, place.missing.get("numa_nodes")),
        ):
            if value is not None:
                lines.append([(f"{name:<8}", "strong"), (f"{printable(value)} ", "text"), ("local", "dim")])
            elif missing is not None:
                why = printable(missing.detail or missing.reason)
                lines.append([(f"{name:<8}", "strong"), (f"{UNKNOWN} {why}", "dim")])
    return lines or [[("no other GPU; NUMA affinity not reported", "dim")]]


def _connection_text(found: Connection) -> str:
    level = TOPOLOGY_LEVELS.get(found.level or "", found.level or "")
    if not found.nvlinks:
        return level
    links = count_text(found.nvlinks, "NVLink")
    return f"{links}; PCIe {level}" if level else links


def event_lines(device: Device, events: Sequence[MachineEvent], now: float, max_events: int, since: str) -> SpanLines:
    """Events of the device, newest first; ``since``: from when on they are known."""
    lines: SpanLines = []
    for event in reversed(events):
        if device.uuid not in event.all_device_uuids:
            continue
        glyph, style = EVENT_MARKS[event.severity]
        text = event.text.removeprefix(f"GPU {device.index} ").removeprefix(f"GPU {device.index}: ")
        likely = " (likely)" if event.certainty == "likely" else ""
        if len(lines) >= max_events:
            lines.append([("older events: ", "dim"), (f"{number_of('events')} Events", "key")])
            break
        lines.append([(f"{clock_text(event.at, now)}  ", "dim"), (f"{glyph} ", style), (text + likely, "text")])
    return lines or [[("● ", "ok"), (f"no events since {since}", "text")]]


def probe_run_lines(device: Device, runs: Iterable[Run], now: float, width: int) -> SpanLines:
    """One line per run: ``GPU:0 → physical 0 GPU-…  config growth  granted 21.9 GiB  peak 326 MiB  3 min ago``."""
    lines: SpanLines = []
    for run in runs:
        for mapping in run.device_map:
            if mapping.uuid != device.uuid:
                continue
            builder = LineBuilder(width)
            wide = width >= 100
            builder.add(f"{device_name(printable(mapping.framework_device))}", "accent").add(" → ", "dim")
            builder.add(f"physical {device.index}", "strong")
            builder.add(f" {device.uuid[:12]}…" if width >= 130 else "", "dim")
            builder.add("  config " if wide else "  ", "dim")
            builder.add(align_left(printable(run.config), 18 if width >= 80 else 11), "text")
            builder.add("  granted " if wide else " ", "dim").add(f"{size(mapping.granted_bytes):>8}", "text")
            if width >= 70:
                builder.add("  peak ", "dim").add(f"{memory(run.memory.nvml_peak_bytes):>9}", "memory")
            builder.add(f"  {ago(now - run.started_at.timestamp())}", "dim")
            if run.simulated:
                builder.add("  simulated", "warning")
            lines.append(builder.spans)
    return lines
