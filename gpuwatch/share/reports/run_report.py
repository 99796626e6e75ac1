"""The content of a run: asked → granted → seen by NVML → what happened → speed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from gpuwatch.core.formatting.command_lines import without_launcher
from gpuwatch.core.formatting.durations import measured_seconds
from gpuwatch.core.formatting.sentences import and_more, count_text
from gpuwatch.core.formatting.units import UNKNOWN, byte_rate, count_rate, flops, percent, size
from gpuwatch.core.model.findings import SEVERITY_ORDER
from gpuwatch.core.model.run import Placement, Run, RunError, RunProcess, Setting, Throughput, Verdict
from gpuwatch.core.model.run_memory import DeviceMemory
from gpuwatch.core.safe_text import printable
from gpuwatch.experiment.probing.step_times import UNRELIABLE_NOTE, is_unreliable, speed_text, step_time_text
from gpuwatch.explain.logs.device_names import device_name, is_gpu
from gpuwatch.share.reports import bar_charts, run_tables
from gpuwatch.share.reports.memory_profile_tables import largest_holder_fact, memory_profile_tables
from gpuwatch.share.reports.report_elements import STATE_BY_SEVERITY, Content, Table, charts_with_data, heads_and_rows
from gpuwatch.share.reports.report_text import (
    VALUES_NOTE,
    clean,
    clean_finding,
    clean_or_empty,
    framework_text,
    names_with_counts,
    variable_value,
)
from gpuwatch.share.reports.run_memory_tables import memory_table, only_children_used_gpus, used_no_gpu, why_no_peak
from gpuwatch.sim.simulation_limit_messages import results_are_meaningful

_MAX_HEADLINE_CHARS = 80
_SIMULATED_NOTE = "The GPUs are simulated: mappings and memory are meaningful, speeds depend on this computer's CPU."
_SIMULATED_IGNORED_NOTE = (
    "The GPUs are simulated and ignore a setting of this program: mappings and memory differ from a real GPU's; "
    "speeds depend on this computer's CPU."
)
_TORCH_VALUES_NOTE = (
    "The simulated driver computes PyTorch's copies and its matrix products without a bias, and refuses other kernels."
)
_FEW_SLOW_STEPS_NOTE = (
    "▲ a few steps take most of the time: those that wait for queued GPU work, for input or an evaluation"
)
GPUWATCH_SOURCE = "gpuwatch run"
"""Source of a setting that gpuwatch itself made for one of its options."""
_MAX_DEVICES, _MAX_OPS = 4, 3
"""Devices, and ops of each, that are named in one line."""
_TIERS = {
    "driver": "driver tier: simulated libcuda and NVML under the framework's own CUDA code",
    "plugin": "plugin tier: simulated GPUs as a plugin of the framework, without CUDA code",
}
_STATES = {"ok": "ok", "fallback": "warning", "skipped": "skipped", "interrupted": "warning"}


def run_content(run: Run) -> Content:
    """Everything that is known of a run."""
    environment = ((clean(name), variable_value(value)) for name, value in sorted(run.environment.items()))
    tables = (
        run_tables.device_map_table(run.device_map, run),
        _process_table(run),
        _setting_table(run),
        run_tables.workers_table(run),
        run_tables.results_table(run),
        run_tables.with_shared_detail_as_note(run_tables.fallback_table(run.fallbacks)),
        run_tables.oom_table(run.ooms),
        run_tables.error_table(run.errors),
        *memory_profile_tables(run.memory_profiles),
        replace(run_tables.placement_table(run.placements, run.placement_coverage), only_in_files=True),
        run_tables.copy_table(run.copies),
        memory_table(run),
        _speed_table(run),
        _phase_table(run),
        _machine_table(run),
        Table("Environment", ("Variable", "Value"), tuple(environment), only_in_files=True),
        Table("Not observed", ("What and why",), tuple((clean(text),) for text in run.problems)),
    )
    started = run.started_at.strftime("%Y-%m-%d %H:%M:%S %Z").strip()
    title = clean_or_empty(run.title)
    if run.is_program and title:
        # The title of a watched program is its command line.
        names = (title, GPUWATCH_SOURCE) if len(title) <= _MAX_HEADLINE_CHARS else (GPUWATCH_SOURCE, title)
        headline, subtitle_parts = names[0], (names[1], clean(run.host or ""), started)
    else:
        kind = () if run.is_program else (f"group {clean(run.group)}", clean(run.workload))
        headline, subtitle_parts = clean(run.config), (title, *kind)
    return Content(
        title=headline,
        subtitle=" · ".join(part for part in subtitle_parts if part),
        state=state_of(run),
        verdict=f"{run.verdict}, as expected" if ended_as_expected(run) else run.verdict,
        reason=clean_or_empty(run.verdict_reason),
        simulated=simulated_note((run,)),
        facts=tuple(_facts(run)),
        tables=tuple(table for table in tables if table.rows),
        findings=tuple(clean_finding(finding) for finding in run.findings),
        log_tail=tuple(printable(line) for line in run.log_tail),
        footer=f"gpuwatch · {started}",
    )


def simulated_note(shown: Iterable[Run]) -> str:
    """The note on simulated GPUs above runs: only what holds for all of them."""
    simulated = [run for run in shown if run.simulated]
    if not simulated:
        return ""
    meaningless = [run for run in simulated if not results_are_meaningful(run.simulation_limits)]
    ignored = any(run.simulation_limits for run in simulated if run not in meaningless)
    # On the driver tier a probe computes only its matrix products.
    values_meaningless = meaningless or any(run.simulation == "driver" and run.device_map for run in simulated)
    is_torch = all(run.framework is not None and run.framework.name == "torch" for run in simulated)
    values = f" {_TORCH_VALUES_NOTE if is_torch else VALUES_NOTE}" if values_meaningless else ""
    return (_SIMULATED_IGNORED_NOTE if ignored else _SIMULATED_NOTE) + values


def settings_text(run: Run) -> str:
    """The settings that the probe asked for, in one line."""
    parts = [setting_text(clean(name), entry.asked) for name, entry in run.settings.items() if is_requested(entry)]
    return ", ".join(parts) or UNKNOWN


def is_requested(setting: Setting) -> bool:
    """Whether it was asked for; ``by CUDA_VISIBLE_DEVICES`` notes the effect of that variable."""
    if setting.source == GPUWATCH_SOURCE or setting.asked == "auto":
        return False  # nobody asked: the framework chooses
    return setting.asked is not None and not (isinstance(setting.asked, str) and setting.asked.startswith("by "))


def setting_text(name: str, value: object) -> str:
    """``memory_limit 1024``, ``CUDA_VISIBLE_DEVICES=0``, ``no memory growth``."""
    if isinstance(value, bool):
        return name if value else f"no {name}"
    if value in ([], ""):
        value = '""' if name.isupper() else "none"
    # Variables as in a shell, other settings as in a sentence.
    unit = " MiB" if name == "memory_limit" and isinstance(value, (int, float)) else ""
    return f"{name}={clean(value)}" if name.isupper() else f"{name} {clean(value)}{unit}"


def granted_text(run: Run) -> str:
    """The allocators' limits, as the framework reported them."""
    amounts = (size(mapping.granted_bytes) for mapping in run.device_map if mapping.granted_bytes is not None)
    return names_with_counts(amounts, " + ") or UNKNOWN


def gpu_percent(run: Run) -> float | None:
    """Share of the placed ops that ran on a GPU, in percent; None if no placement is known."""
    total = sum(placement.count for placement in run.placements if placement.actual)
    if not total:
        return None
    return 100 * sum(entry.count for entry in run.placements if is_gpu(entry.actual)) / total


def fallback_text(run: Run) -> str:
    """``GPU:7→CPU:0``, or another form of fallback."""
    fallbacks = [entry for entry in run.fallbacks if entry.reason != "simulation.limit"]
    device_moves = dict.fromkeys(f"{clean(entry.requested)}→{clean(entry.actual)}" for entry in fallbacks)
    if not device_moves and run.verdict == "fallback" and not run.device_map:
        return "everything ran on the CPU"
    return ", ".join(device_moves) or _single_op_move(run) or UNKNOWN


def _single_op_move(run: Run) -> str:
    """The move of a single op that a probe placed on one GPU, apart from the measured work."""
    device = run.settings.get("device")
    if device is None or not isinstance(device.asked, str) or "GPU" not in device.asked.upper() or run.errors:
        return ""

    def short(name: str) -> str:
        return device_name(clean(name)).lstrip("/").upper()

    asked = short(device.asked)
    if not isinstance(device.effective, str):
        named = {short(name) for entry in run.placements for name in (entry.requested, entry.actual) if name}
        return "" if asked in named else "not observed"
    actual = short(device.effective)
    return "" if asked == actual else f"{asked}→{actual}"


def is_expected_fallback(run: Run) -> bool:
    """Whether a probe demonstrates a fallback: its own settings caused it, and nothing failed."""
    return (
        not run.is_program
        and bool(run.fallbacks)
        and not any(finding.severity == "error" for finding in run.findings)
        and all(entry.reason.startswith(("visibility.", "placement.")) for entry in run.fallbacks)
    )


def ended_as_expected(run: Run) -> bool:
    """Whether a run that did not end as a healthy program ended as its configuration demonstrates."""
    if run.verdict == "oom":
        failed = any(finding.severity == "error" for finding in run.findings)
        return bool(run.ooms) and all(oom.expected for oom in run.ooms) and not failed
    return run.verdict == "fallback" and is_expected_fallback(run)


def state_of(run: Run) -> str:
    """The state that chooses color and sign; expected failures are not red, a pass with a warning is not green."""
    if ended_as_expected(run):
        return "info"
    if run.verdict == "ok" and run.findings:
        return STATE_BY_SEVERITY[min((finding.severity for finding in run.findings), key=SEVERITY_ORDER.__getitem__)]
    return _STATES.get(run.verdict, "error")


def _facts(run: Run) -> Iterator[tuple[str, str]]:
    requested = settings_text(run)
    rounds = dict.fromkeys(clean(worker.setting) for worker in run.workers if worker.setting)
    if requested == UNKNOWN and rounds:
        requested = f"one after another: {', '.join(rounds)}"
    if run.settings or not run.is_program:
        # The user's own program asks in its code.
        yield "asked", requested + (_process_note(run) if requested != UNKNOWN else "")
    names = ((f"{run_tables.mapping_text(entry)} {clean(entry.name)}", entry.granted_bytes) for entry in run.device_map)
    granted = ", ".join(f"{name} {size(amount)}" for name, amount in names)
    # An empty map means "no GPU" only if the framework listed its devices.
    no_gpu = "no GPU" if run.devices.logical else UNKNOWN
    yield "granted", granted + _process_note(run) if granted else no_gpu
    yield "seen by NVML", _nvml_text(run)
    yield from largest_holder_fact(run.memory_profiles)
    yield "happened", "; ".join(_outcomes(run)) or UNKNOWN
    if run.phases.total_seconds is not None:
        yield "took", measured_seconds(run.phases.total_seconds)
    yield "speed", _speed_text(run)


def _speed_text(run: Run) -> str:
    throughput = run.throughput
    if throughput is None:
        return UNKNOWN
    median = f"median step {step_time_text(throughput.median_step_seconds)}"
    if (mean := run.mean_of_uneven_steps) is not None and sum(step.seconds > 2 * mean for step in run.step_times) >= 3:
        return f"{count_rate(1 / mean)} steps/s on average, {median} ({_FEW_SLOW_STEPS_NOTE})"
    flops_text = f", {flops(throughput.flops_per_second)}" if throughput.flops_per_second is not None else ""
    unreliable = f" ({UNRELIABLE_NOTE})" if is_unreliable(throughput) else ""
    return f"{speed_text(throughput)} steps/s{flops_text}, {median}{unreliable}"


def _process_note(run: Run) -> str:
    """The process that has this device map, if another one has another."""
    maps = {process.pid: process.device_map for process in run.processes if process.device_map}
    pid_of_map = next((pid for pid, known in maps.items() if known == run.device_map), None)
    return f" (process {pid_of_map}; others below)" if pid_of_map is not None and len({*maps.values()}) > 1 else ""


def _nvml_text(run: Run) -> str:
    memory = run.memory
    if len(memory.devices) > 1:
        return "; ".join(f"GPU {entry.index}: {_nvml_text_of(entry)}" for entry in memory.devices)
    if memory.nvml_peak_bytes is None and memory.nvml_device_peak_bytes is None:
        why = why_no_peak(run)
        return f"{UNKNOWN} ({why})" if why else UNKNOWN
    of_total = f" of {size(memory.device_total_bytes)}" if memory.device_total_bytes is not None else ""
    if used_no_gpu(run):
        where = "the GPU" if len(run.gpus) < 2 else f"any of {len(run.gpus)} GPUs"
        others = f"; others held {size(memory.nvml_device_peak_bytes)}{of_total} on {_fullest_gpu(run)}"
        return f"none of its processes on {where}{others if memory.nvml_device_peak_bytes else ''}"
    before = f", {size(memory.nvml_before_bytes)} in use before" if memory.nvml_before_bytes is not None else ""
    indices = [entry.physical_index for entry in run.device_map if entry.uuid and entry.uuid == memory.device_uuid]
    indices += [entry.index for entry in memory.devices if entry.uuid == memory.device_uuid]
    gpu = next((f"GPU {index}" for index in indices if index is not None), _fullest_gpu(run))
    all_held = f"{gpu} {size(memory.nvml_device_peak_bytes)}{of_total}{before}"
    if memory.nvml_peak_bytes is None:
        return f"{all_held}; NVML did not list the process"
    process = "the largest process" if only_children_used_gpus(run) else "process"
    return f"{process} {size(memory.nvml_peak_bytes)}, {all_held}"


def _fullest_gpu(run: Run) -> str:
    return "the GPU" if len(run.gpus) < 2 else f"the fullest of {len(run.gpus)} GPUs"


def _nvml_text_of(entry: DeviceMemory) -> str:
    """The same for one of several devices, in the sample in which most of it was used."""
    of_total = f" of {size(entry.total_bytes)}" if entry.total_bytes is not None else ""
    before = f", {size(entry.before_bytes)} in use before" if entry.before_bytes is not None else ""
    return f"process {size(entry.process_bytes)}, all {size(entry.used_bytes)}{of_total}{before}"


def _outcomes(run: Run) -> Iterator[str]:
    if run.placements:
        yield from _where_ops_ran(run)
    elif run.is_program and run.framework and run.framework.name == "tensorflow" and "placement" not in run.settings:
        yield "placement was not recorded (run --placement records it)"
    if run.placement_coverage is not None and run.placement_coverage.unclear:
        yield run_tables.coverage_text(run.placement_coverage)
    if run.copies:
        copies = sum(entry.count for entry in run.copies)
        yield f"at least {count_text(copies, 'automatic copy', 'automatic copies')} between devices"
    device_moves = fallback_text(run)
    if run.fallbacks and device_moves != UNKNOWN:
        yield f"fell back {device_moves}"
    for oom in run.ooms[:2]:
        refused = "" if oom.requested_bytes is None else f": {size(oom.requested_bytes)} refused"
        yield f"out of memory{refused}" + (f" on {clean(oom.device)}" if oom.device is not None else "")
    for error in run.errors[:2]:
        yield f"{clean(error.type)}{' (expected)' if error.expected else ''}"
    if run.outcome.timed_out:
        yield "stopped at the deadline"
    elif run.outcome.signal is not None:
        yield run.outcome.text


def _where_ops_ran(run: Run) -> Iterator[str]:
    """``Mul float32 ×2, MatMul float32 ×1 and 3 more on GPU:0`` for each device, first what was kept off the GPU.

    Of the ops of a device those that fell back come first.
    """
    moved = {(clean(fallback.op), fallback.actual) for fallback in run.fallbacks}
    devices: dict[tuple[bool, str], Counter[str]] = {}
    for placement in filter(lambda placement: placement.actual, run.placements):
        kind = " ".join(clean(part) for part in (placement.op, placement.dtype) if part)
        where = (not _kept_off_the_gpu(run, placement), run_tables.short_device(placement.actual))
        devices.setdefault(where, Counter())[kind] += placement.count
    devices_in_order = sorted(devices.items(), key=lambda entry: (entry[0][0], -entry[1].total()))
    for (free, device), ops in devices_in_order[:_MAX_DEVICES]:
        fell_back_kinds = {kind for kind in ops if (kind.partition(" ")[0], device) in moved}
        first = sorted(ops.items(), key=lambda entry: (entry[0] not in fell_back_kinds, -entry[1]))[:_MAX_OPS]
        shown = ", ".join(f"{kind} ×{count}" for kind, count in first)
        more = and_more(len(ops) - _MAX_OPS)
        yield f"{shown}{more} on {device}{'' if free else ' as requested'}"
    if len(devices) > _MAX_DEVICES:
        more_ops = sum(len(ops) for _, ops in devices_in_order[_MAX_DEVICES:])
        yield f"{more_ops} more on {count_text(len(devices) - _MAX_DEVICES, 'more device')}"


def _kept_off_the_gpu(run: Run, placement: Placement) -> bool:
    """Whether a program with a GPU requested the CPU for an op, and it ran there."""
    asked, actual = run_tables.short_device(placement.requested or ""), run_tables.short_device(placement.actual)
    return run.is_program and bool(run.device_map) and asked.startswith("CPU") and actual.startswith("CPU")


def _setting_table(run: Run) -> Table:
    cells = (
        {
            "Setting": clean(name),
            "Asked": clean(setting.asked),
            "By": clean_or_empty(setting.source),
            "Effective": clean(setting.effective),
            "Note": clean_or_empty(setting.note),
        }
        for name, setting in run.settings.items()
    )
    table = Table("Settings", *heads_and_rows(cells), only_in_files=True)
    return table if any(setting.source for setting in run.settings.values()) else table.without("By")


def _speed_table(run: Run) -> Table:
    throughput = run.throughput
    if throughput is None:
        return Table("Throughput", (), ())
    p10, p90 = step_time_text(throughput.p10_step_seconds), step_time_text(throughput.p90_step_seconds)
    rows = (
        ("Steps per second", speed_text(throughput)),
        ("Step, median", step_time_text(throughput.median_step_seconds)),
        ("Step, p10 to p90", f"{p10} – {p90}"),
        _steps_counted(run, throughput),
        ("Examples per second", count_rate(throughput.examples_per_second)),
        ("Arithmetic", flops(throughput.flops_per_second)),
        ("Data", byte_rate(throughput.bytes_per_second)),
        ("Compilation (not in the steps)", measured_seconds(throughput.compile_seconds)),
        ("Measured on", run_tables.short_device(throughput.device) if throughput.device else UNKNOWN),
    )
    # Differs from the mean per epoch that Keras prints, which includes them.
    note = "The median of the steps, without pauses, tracing and epoch ends." if run.is_program else ""
    unreliable = f"; {UNRELIABLE_NOTE}" if is_unreliable(throughput) else ""
    footnote = f"{note} ± is half the range from p10 to p90{unreliable}.".strip()
    # What was counted is a sentence; columns of numbers are not folded.
    right = () if throughput.counted else ("Value",)
    known, chart = tuple(row for row in rows if row[1] != UNKNOWN), charts_with_data(bar_charts.step_time_chart(run))
    table = Table("Throughput", ("What", "Value"), known, right, note=footnote, charts=chart, keep=("What",))
    return replace(table, only_in_files=True)


def _steps_counted(run: Run, throughput: Throughput) -> tuple[str, str]:
    """In a program the first steps are among the counted ones; a probe warms up before it counts."""
    if run.is_program:
        counted = f" {clean(throughput.counted)}" if throughput.counted else ""
        return "Steps counted", f"{throughput.steps}{counted}, the first {throughput.warmup_steps} not timed"
    return "Steps measured", f"{throughput.steps} after {count_text(throughput.warmup_steps, 'warm-up step')}"


def _phase_table(run: Run) -> Table:
    phases = run.phases
    rows = (
        ("Framework import", phases.import_seconds),
        ("Device initialization", phases.device_init_seconds),
        ("First step", phases.first_step_seconds),
        ("Total", phases.total_seconds),
    )
    total = phases.total_seconds
    known = [(name, value) for name, value in rows if value is not None]
    # A template imports the framework once for many runs, before the first starts.
    earlier = [(name, value) for name, value in known if total is not None and value > total]
    shown = tuple((name, measured_seconds(value)) for name, value in known if (name, value) not in earlier)
    note = "; ".join(f"{name}: {measured_seconds(value)}, before this run, not in its total" for name, value in earlier)
    return Table("Time", ("Phase", "Took"), shown, ("Took",), note=f"{note}." if note else "", only_in_files=True)


def _machine_table(run: Run) -> Table:
    framework, share = run.framework, gpu_percent(run)
    python = clean(framework.python_version) if framework else ""
    start = "fresh interpreter" if run.fresh else "forked from a template"
    rows = (
        ("Framework", framework and framework_text(framework)),
        ("GPU build", framework and framework.gpu_build is not None and clean(framework.gpu_build)),
        ("Interpreter", framework and framework.interpreter and f"{clean(framework.interpreter)} ({python})"),
        ("Driver", clean(run.driver_version)),
        *(("GPU", clean(gpu)) for gpu in run.gpus),
        ("Logical devices", run.devices.logical and clean(run.devices.logical)),
        ("Host", run.host and clean(run.host)),
        ("Process", run.pid and f"pid {run.pid}, {start}"),
        ("Missing libraries", run.missing_libraries and clean(run.missing_libraries)),
        ("Simulation", run.simulated and _TIERS.get(run.simulation or "", clean(run.simulation))),
        ("Ops on a GPU", share is not None and percent(share)),
        ("Ended", run.outcome.text),
    )
    known_rows = tuple((name, str(value)) for name, value in rows if value)
    return Table("Machine and process", ("What", "Value"), known_rows, only_in_files=True)


def _process_table(run: Run) -> Table:
    """A row for each process; none if the program has only one, which the run describes."""
    shown = run.processes if len(run.processes) > 1 else ()
    has_unnamed = any(not process.command for process in shown)
    return Table(
        "Processes",
        *heads_and_rows(_process_row(process, run.verdict) for process in shown),
        right=("Allocator peak", "Held, NVML", "OOMs", "Steps/s"),
        note="A process without a command is known only from NVML." if has_unnamed else "",
        optional=("Ended in", "Framework", "Allocator peak"),
        shorter={"Command": without_launcher},
    )


def _process_row(process: RunProcess, verdict: Verdict) -> dict[str, str]:
    peaks = " + ".join(size(peak) for peak in process.allocators.values() if peak)
    code = UNKNOWN if process.exit_code is None else f"exit code {process.exit_code}"
    held = " + ".join(size(amount) for amount in process.held_bytes.values())
    return {
        "Process": str(process.pid),
        "Command": clean_or_empty(process.command),
        "Framework": framework_text(process.framework),
        "Devices": run_tables.device_map(process),
        "Allocator peak": peaks or UNKNOWN,
        "Held, NVML": held or UNKNOWN,
        "OOMs": str(process.ooms),
        "Steps/s": speed_text(process.throughput),
        "Ended in": ", ".join(_error_text(error, verdict) for error in process.errors) or code,
    }


def _error_text(error: RunError, verdict: Verdict) -> str:
    """The exception that ended a process; ``interrupted`` where that only says that a signal came."""
    is_interrupt = error.by_signal or (error.type == "KeyboardInterrupt" and verdict == "interrupted")
    return "interrupted" if is_interrupt else clean(error.type)
