"""Bar charts of reports as data: rows of amounts on one axis from 0, which the formats draw."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.core.formatting.units import count_rate, memory, size
from gpuwatch.core.group_by import group_by
from gpuwatch.core.model.run import Run, Throughput
from gpuwatch.core.model.snapshot import Device, Process, Snapshot
from gpuwatch.core.safe_text import shorten
from gpuwatch.experiment.probing.step_times import UNRELIABLE_REASON, is_unreliable, speed_text, step_time_text
from gpuwatch.machine.history.process_labels import program_name
from gpuwatch.share.reports.report_elements import BarChart, BarPart, BarRow
from gpuwatch.share.reports.report_text import clean

_MAX_OWNERS = 6
"""Processes of a GPU with a color of their own; the others share one."""
_MAX_ROWS = 40
_MAX_NAME_CHARS = 28


def memory_by_owner_chart(snapshot: Snapshot) -> BarChart | None:
    """Each GPU's memory by owner. None if no GPU reports its memory."""
    rows = [row for device in snapshot.devices if (row := _owner_row(device, snapshot.processes)) is not None]
    if not rows:
        return None
    return _chart("Memory by owner", rows, max(row.scale or 0 for row in rows), "from 0 to the whole device")


def _owner_row(device: Device, processes: Iterable[Process]) -> BarRow | None:
    total, used = device.number("memory.total_bytes"), device.number("memory.used_bytes")
    if not total or used is None:
        return None
    on_device = (process for process in processes if process.device_uuid == device.uuid)
    amounts = [(process, amount) for process in on_device if (amount := process.number("gpu_memory_bytes"))]
    amounts.sort(key=lambda entry: -entry[1])
    parts = [
        BarPart(
            "owner",
            f"{process.pid} {shorten(clean(program_name(process) or process.note), _MAX_NAME_CHARS)}",
            amount,
            memory(amount),
        )
        for process, amount in amounts[:_MAX_OWNERS]
    ]
    others = amounts[_MAX_OWNERS:]
    if others:
        amount = sum(held_bytes for _, held_bytes in others)
        parts.append(BarPart("others", count_text(len(others), "other process"), amount, memory(amount)))
    if unexplained := device.number("memory.unexplained_bytes"):
        parts.append(BarPart("unexplained", "owned by no listed process", unexplained, size(unexplained)))
    if reserved := device.number("memory.reserved_bytes"):
        parts.append(BarPart("reserved", "reserved by the driver", reserved, size(reserved)))
    return BarRow(f"GPU {device.index}", tuple(parts), f"{size(used)} of {size(total)}", scale=total)


def speed_chart(runs: Sequence[tuple[str, Run]]) -> BarChart | None:
    """Steps per second of named runs with their range from p10 to p90, fastest first."""
    named_throughputs = [(name, run.throughput) for name, run in runs if run.throughput is not None]
    if len(named_throughputs) < 2:
        return None
    named_throughputs.sort(key=lambda entry: -entry[1].steps_per_second)
    rows = []
    for name, throughput in named_throughputs:
        low = 1 / throughput.p90_step_seconds if throughput.p90_step_seconds > 0 else None
        high = 1 / throughput.p10_step_seconds if throughput.p10_step_seconds > 0 else None
        speed, text = throughput.steps_per_second, speed_text(throughput)
        rows.append(_measured_row(name, throughput, speed, text, low, high, count_rate))
    top = max(row.high or row.parts[0].amount for row in rows[:_MAX_ROWS])
    return _chart("Steps per second", rows, top, "from 0", whisker=f"p10 to p90; ▲ {UNRELIABLE_REASON}")


def _step_row(label: str, throughput: Throughput) -> BarRow:
    low, median, high = throughput.p10_step_seconds, throughput.median_step_seconds, throughput.p90_step_seconds
    return _measured_row(label, throughput, median, step_time_text(median), low, high, step_time_text)


def _measured_row(
    label: str,
    throughput: Throughput,
    amount: float,
    text: str,
    low: float | None,
    high: float | None,
    value_text: Callable[[float], str],
) -> BarRow:
    text += " ▲" if is_unreliable(throughput) else ""
    spread = f", p10 to p90: {value_text(low)} to {value_text(high)}" if low is not None and high is not None else ""
    return BarRow(label, (BarPart("value", label, amount, f"{text}{spread}"),), text, low=low, high=high)


def step_time_chart(run: Run) -> BarChart | None:
    """Time of a step, median and p10 to p90, of every measured process."""
    rows = []
    if run.throughput is not None:
        rows.append(_step_row("step", run.throughput))
    for worker in run.workers:
        name = f"{clean(worker.setting)} {clean(worker.name)}" if worker.setting else clean(worker.name)
        for condition, throughput in (("alone", worker.alone), ("together", worker.throughput)):
            if throughput is not None:
                rows.append(_step_row(f"{name}, {condition}", throughput))
    if not rows:
        return None
    top = max(row.high or row.parts[0].amount for row in rows)
    return _chart("Step time", rows, top, "from 0", whisker="p10 to p90")


def held_memory_chart(runs: Sequence[tuple[str, Run]]) -> BarChart | None:
    """Peak memory of each named run by NVML, and what the framework granted to its devices."""
    rows = [(name, run.memory.nvml_peak_bytes, _max_granted(run), run.memory.device_total_bytes) for name, run in runs]
    return _amounts_chart("GPU memory held on the busiest device", rows, ", granted ", "granted by the framework")


def allocator_peak_chart(runs: Sequence[tuple[str, Run]]) -> BarChart | None:
    """The most that the framework's allocator had handed out in each named run, with its limit.

    What NVML reports of a framework that takes all memory at its start is the same for every run.
    """
    rows = [
        (name, run.memory.allocator_peak_bytes, run.memory.allocator_limit_bytes or _max_granted(run), None)
        for name, run in runs
    ]
    return _amounts_chart("Peak in use by the framework's allocator", rows, " of ", "limit of the allocator")


def _amounts_chart(
    title: str, amounts: Iterable[tuple[str, int | None, int | None, int | None]], between: str, mark: str
) -> BarChart | None:
    """Bytes of named runs, each with its mark and the memory of its device; None for fewer than two that are known.

    ``between``: the words between bytes and mark. ``mark``: what the mark means.
    """
    rows = []
    top = 0.0
    for name, held_bytes, ticked, total in amounts:
        if held_bytes is None:
            continue
        top = max(top, float(held_bytes), float(ticked or 0), float(total or 0))
        text = f"{size(held_bytes)}{between}{size(ticked)}" if ticked is not None else size(held_bytes)
        part = BarPart("value", name, held_bytes, size(held_bytes))
        rows.append(BarRow(name, (part,), text, tick=float(ticked) if ticked is not None else None))
    if len(rows) < 2 or not any(row.parts[0].amount for row in rows):
        return None
    return _chart(title, rows, top, f"from 0 to {size(top)}", tick=mark)


def _max_granted(run: Run) -> int | None:
    """The most granted on one GPU, its logical devices together."""
    by_gpu = group_by(run.device_map, lambda entry: entry.uuid or entry.pci_bus_id or entry.framework_device)
    granted = ([entry.granted_bytes for entry in entries] for entries in by_gpu.values())
    known = ([amount for amount in amounts if amount is not None] for amounts in granted)
    return max((sum(amounts) for amounts in known if amounts), default=None)


def _chart(title: str, rows: Sequence[BarRow], top: float, axis: str, *, tick: str = "", whisker: str = "") -> BarChart:
    """The chart of the first rows; its note says how many more there are."""
    note = f"Not shown: {len(rows) - _MAX_ROWS} more." if len(rows) > _MAX_ROWS else ""
    return BarChart(title, tuple(rows[:_MAX_ROWS]), top, axis, tick=tick, whisker=whisker, note=note)
