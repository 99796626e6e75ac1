"""The memory of a run by owner, and the expected grants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gpuwatch.core.formatting.units import UNKNOWN, size
from gpuwatch.core.model.memory_profile import MemoryProfile
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.run_memory import NO_PEAK_PREFIX, DeviceMemory
from gpuwatch.explain.logs.device_names import device_name
from gpuwatch.share.reports.report_elements import BarChart, BarPart, BarRow, PartKind, Table, charts_with_data
from gpuwatch.share.reports.report_text import clean, clean_or_empty

_PART_MARK = "↳ "
_NOTE = (
    "↳ marks a part of the line above with one mark less. Each size is from its own source; none is a sum over sources."
)
_BY_OWNER_TITLE = "Memory by owner"
_MAX_PROFILES = 8
_UNKNOWN = "not known from this file"
_UNKNOWN_HERE = "not known"
_TOOLS = {"torch": "PyTorch", "jax": "JAX", "tensorflow": "TensorFlow"}
_POOL_UNKNOWN = {"jax": f"{_UNKNOWN}: XLA takes 75 % of the GPU at startup unless configured otherwise"}
_HEADS = ("Owner", "What", "Size", "Source")
_CONTEXT = ("CUDA context and libraries", "code, cuBLAS, cuDNN, NCCL")

_OwnerRow = tuple[int, str, str, int | None, str]


def memory_table(run: Run) -> Table:
    """Device, processes, allocators: each number with its owner and source."""
    memory = run.memory
    if used_no_gpu(run):
        return Table("Memory", _HEADS, ())
    if memory.devices:
        rows = [row for entry in memory.devices for row in _device_rows(run, entry)]
    else:
        rows = [
            (0, "Device", "total", memory.device_total_bytes, "NVML"),
            (1, "All owners", "before the start", memory.nvml_before_bytes, "NVML"),
            (1, "All owners", "at the peak", memory.nvml_device_peak_bytes, "NVML"),
            (2, "This process", "peak", memory.nvml_peak_bytes, "NVML"),
            (3, "Allocator", "limit", memory.allocator_limit_bytes, "framework"),
            (3, "Allocator", "peak in use", memory.allocator_peak_bytes, "framework"),
        ]
    sized = tuple(_row_cells(*row) for row in rows if row[3] is not None or row[4].startswith(_UNKNOWN_HERE))
    title, note = _BY_OWNER_TITLE if run.memory_profiles else "Memory", _NOTE if memory.devices else ""
    table = Table(title, _HEADS, sized, ("Size",), note=note, charts=charts_with_data(memory_bar_chart(run)))
    return replace(table, only_in_files=not run.memory_profiles)


def profiles_table(profiles: Sequence[MemoryProfile]) -> Table:
    """The same of files that have an allocator's part alone: what they do not tell is said. Host memory has no owners
    that a driver would know."""
    of_gpus = [found for found in profiles if found.device != "host" and "cpu" not in found.device.lower()]
    rows = [row for profile in of_gpus[:_MAX_PROFILES] for row in _profile_rows(profile)]
    note = f"{_NOTE} gpuwatch run --memory, on the machine, shows what the file does not contain."
    return Table(_BY_OWNER_TITLE, _HEADS, tuple(_row_cells(*row) for row in rows), ("Size",), note=note)


def _row_cells(depth: int, owner: str, description: str, amount: int | None, source: str) -> tuple[str, str, str, str]:
    return f"{_PART_MARK * depth}{owner}", description, size(amount) if amount is not None else "not known", source


def _profile_rows(profile: MemoryProfile) -> Iterator[_OwnerRow]:
    tool = _TOOLS[profile.tool]
    yield 0, clean(profile.device), "used, as nvidia-smi shows it", None, _UNKNOWN
    if profile.device_free_bytes is not None:
        yield 1, "Free", "when a request was refused", profile.device_free_bytes, tool
    yield 1, "Other processes", "at the peak", None, _UNKNOWN
    yield 1, "Unexplained", "owned by no listed process", None, _UNKNOWN
    yield 1, "This process", "at the peak", None, _UNKNOWN
    yield 2, *_CONTEXT, None, _UNKNOWN
    yield from _pool_rows(profile, 2)


def _pool_rows(profile: MemoryProfile, depth: int) -> Iterator[_OwnerRow]:
    tool, owner = _TOOLS[profile.tool], f"Allocator {clean(profile.allocator)}"
    when = "at the peak" if profile.has_history else "alive"
    pool, limit = profile.pool_bytes, profile.limit_bytes
    why = _POOL_UNKNOWN.get(profile.tool, _UNKNOWN)
    source = tool if pool is not None else f"{why}, at most {size(limit)}" if limit is not None else why
    yield depth, owner, "taken from the driver", pool, source
    yield depth + 1, "Tensors", f"allocated, {when}", profile.peak_bytes, tool
    if pool is not None and pool >= profile.peak_bytes:
        yield depth + 1, "Free in the allocator", "kept for later requests", pool - profile.peak_bytes, tool


def used_no_gpu(run: Run) -> bool:
    """Whether the GPUs were sampled while it ran, and neither NVML nor the program named one that it used."""
    memory = run.memory
    named = run.device_map or any(worker.nvml_bytes or worker.granted_bytes for worker in run.workers)
    sampled = memory.nvml_device_peak_bytes is not None
    return sampled and not named and memory.nvml_peak_bytes is None and not memory.devices and not memory.allocators


def only_children_used_gpus(run: Run) -> bool:
    """Whether only child processes used the GPUs: no number belongs to one main process."""
    return bool(run.workers) and all(entry.process_bytes is None for entry in run.memory.devices)


def _device_rows(run: Run, entry: DeviceMemory) -> Iterator[_OwnerRow]:
    yield 0, f"GPU {entry.index}", "total", entry.total_bytes, "NVML"
    yield 1, "Driver", "reserved, not counted as used", entry.driver_reserved_bytes, "NVML"
    yield 1, "Free", "at the peak", free_bytes(entry), "NVML"
    yield 1, "All owners", "used before the start", entry.before_bytes, "NVML"
    yield 1, "All owners", "used at the peak", entry.used_bytes, "NVML"
    yield 2, "Other processes", "at the peak", entry.others_bytes or None, "NVML"
    yield 2, "Unexplained", "owned by no listed process", entry.unexplained_bytes or None, "NVML"
    if only_children_used_gpus(run):
        # What each held at most; the limits of their allocators are in a table above.
        for worker in run.workers:
            held = next((holder.peak_bytes for holder in entry.holders if holder.pid == worker.pid), None)
            setting = f", {clean(worker.setting)}" if worker.setting else ""
            yield 2, f"Process {clean(worker.name)} ({worker.pid}){setting}", "at most", held, "NVML"
        return
    yield 2, "This process", "at the peak", entry.process_bytes, "NVML"
    yield 3, "CUDA context", "as simulated", entry.context_bytes, "simulation"
    profiles = [profile for profile in run.memory_profiles if _is_on(run, profile, entry)]
    if profiles and entry.context_bytes is None:
        yield _context_row(run, entry, profiles)
    for profile in profiles:
        yield from _pool_rows(profile, 3)
    for name, limit, peak in _allocators(run, entry) if not profiles else ():
        yield 3, f"Allocator of {name}", "limit", limit, "framework"
        yield 4, f"Allocator of {name}", "peak in use", peak, "framework"


def why_no_peak(run: Run) -> str:
    """Why NVML's peak of a run is unknown; empty if it is known, or the run does not say."""
    reasons = (text.removeprefix(NO_PEAK_PREFIX) for text in run.problems if text.startswith(NO_PEAK_PREFIX))
    return clean_or_empty(next(reasons, ""))


def _context_row(run: Run, entry: DeviceMemory, profiles: Sequence[MemoryProfile]) -> _OwnerRow:
    """What the process holds beside the pools of its allocators."""
    pools = [profile.pool_bytes for profile in profiles]
    pools_bytes, held = sum(filter(None, pools)), entry.process_bytes
    amount, source = None, f"{_UNKNOWN_HERE}: the allocator's peak was at a different time"
    if held is None:
        reason = why_no_peak(run) or "NVML does not report what the process holds"
        source = f"{_UNKNOWN_HERE}: {reason}"
    elif None in pools:
        source = f"{_UNKNOWN_HERE}: the framework does not report what its allocator took"
    elif pools_bytes <= held:
        amount, source = held - pools_bytes, "NVML less the allocator"
    return 3, *_CONTEXT, amount, source


def _is_on(run: Run, profile: MemoryProfile, entry: DeviceMemory) -> bool:
    names = (clean(mapping.framework_device) for mapping in run.device_map if mapping.uuid == entry.uuid)
    return device_name(profile.device) in map(device_name, names)


def free_bytes(entry: DeviceMemory) -> int | None:
    """Memory neither used nor reserved in the sample with most use; None if NVML did not report all three."""
    if entry.total_bytes is None or entry.used_bytes is None or entry.driver_reserved_bytes is None:
        return None
    free = entry.total_bytes - entry.used_bytes - entry.driver_reserved_bytes
    return free if free >= 0 else None


def memory_bar_chart(run: Run) -> BarChart | None:
    """The same as bars on one axis, one for each line that has parts; None if no device was sampled.

    A bar adds only numbers of one source and one sample. What NVML counts for a process and what its allocator
    counts are bars of their own: the allocator may hold more or less than the process had at the device's peak.
    """
    rows = [row for entry in run.memory.devices for row in _bar_rows(run, entry)]
    top = max((entry.total_bytes or 0 for entry in run.memory.devices), default=0)
    if not rows or not top:
        return None
    mark = "limit of the allocator" if any(row.tick is not None for row in rows) else ""
    return BarChart("Memory by owner at the peak", tuple(rows), float(top), f"from 0 to {size(top)}", tick=mark)


def _bar_rows(run: Run, entry: DeviceMemory) -> Iterator[BarRow]:
    if entry.total_bytes is None or entry.used_bytes is None:
        return
    children_only = only_children_used_gpus(run)
    sized: list[tuple[PartKind, str, int | None]] = [
        ("reserved", "reserved by the driver", entry.driver_reserved_bytes),
        ("others", "other processes", entry.others_bytes),
        ("unexplained", "owned by no listed process", entry.unexplained_bytes),
        ("process", "this process", None if children_only else entry.process_bytes),
    ]
    amounts = [(kind, name, amount) for kind, name, amount in sized if amount]
    unowned_bytes = entry.used_bytes - sum(amount for kind, _, amount in amounts if kind != "reserved")
    if unowned_bytes > 0:
        unowned: tuple[PartKind, str] = (
            ("process", "processes of this run") if children_only else ("owner", "used, owner unknown")
        )
        amounts.append((*unowned, unowned_bytes))
    free = free_bytes(entry)
    if free:
        amounts.append(("free", "free", free))
    if unowned_bytes >= 0:  # else a process freed memory between two calls of NVML, and the parts exceed the whole
        parts = tuple(BarPart(kind, name, amount, size(amount)) for kind, name, amount in amounts)
        yield BarRow(f"GPU {entry.index}", parts, f"{size(entry.used_bytes)} of {size(entry.total_bytes)}")
    held, context = entry.process_bytes, entry.context_bytes
    if held and context and context <= held and not children_only:
        parts = (BarPart("context", "CUDA context", context, size(context)),)
        if held > context:
            parts = (*parts, BarPart("process", "allocators and the rest", held - context, size(held - context)))
        yield BarRow("↳ this process", parts, size(held))
    for name, limit, peak in _allocators(run, entry) if not children_only else ():
        if peak:
            text, tick = (size(peak), None) if limit is None else (f"{size(peak)} of {size(limit)}", float(limit))
            part = BarPart("value", f"in use by the framework, allocator of {name}", peak, size(peak))
            yield BarRow(f"↳ ↳ allocator of {name}", (part,), text, tick=tick)


def _allocators(run: Run, entry: DeviceMemory) -> Iterator[tuple[str, int | None, int | None]]:
    """Name, limit and peak use of the allocators of the logical devices on one GPU."""
    peaks = {device_name(name): amount for name, amount in run.memory.allocators.items()}
    for mapping in run.device_map:
        if mapping.uuid == entry.uuid:
            name = device_name(clean(mapping.framework_device))
            yield name, mapping.granted_bytes, peaks.get(name)


def expected_text(run: Run, framework_device: str) -> str:
    """What this device was expected to be granted; a dash if nothing was predicted."""
    for entry in run.predicted or ():
        if device_name(entry.framework_device) == device_name(framework_device):
            tolerance = f" ± {size(entry.tolerance_bytes)}" if entry.tolerance_bytes else ""
            return size(entry.granted_bytes) + (tolerance if entry.granted_bytes is not None else "")
    return UNKNOWN


def expectation_note(run: Run) -> str:
    """How the expected amounts were computed."""
    computations = dict.fromkeys(clean(entry.how) for entry in run.predicted or () if entry.how)
    return f"Expected: {'; '.join(computations)}." if computations else ""
