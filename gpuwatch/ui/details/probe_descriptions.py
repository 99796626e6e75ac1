"""Texts about probes: the next runs, progress and events of those that run, problems, the conclusion, what one does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuwatch.core.formatting.durations import measured_seconds
from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.core.formatting.units import UNKNOWN, size
from gpuwatch.core.model.comparison import Comparison
from gpuwatch.core.model.probes import Event
from gpuwatch.core.model.run import Run
from gpuwatch.core.safe_text import printable
from gpuwatch.experiment.probing.probe_scripts import ProbeScript
from gpuwatch.share.reports.comparison_conclusion import conclusion, run_failed
from gpuwatch.ui.drawing.styled_lines import Span, SpanLines, wrap_line
from gpuwatch.ui.drawing.text_width import cut_to_width

if TYPE_CHECKING:
    from gpuwatch.session.background_probes import ProbeRuns, RunningBatch
    from gpuwatch.session.view import View


def runs_progress(probe_runs: ProbeRuns) -> list[Span]:
    """How far the current runs are; without any, how many are selected."""
    live = probe_runs.live
    if live is None:
        ready = f"{len(probe_runs.selected)} selected " if probe_runs.selected else ""
        return [(ready, "accent")]
    what = "stopping" if live.stopping else live.config or current_activity(live)
    return [(f"{live.done} of {len(live.configs)} done", "strong"), (f" · {cut_to_width(what, 24)}  ", "accent")]


def next_run_facts(probe_runs: ProbeRuns, view: View) -> list[str]:
    """Framework, GPU, workload and time: what all of the next runs have in common."""
    parameters = probe_runs.parameters
    found = probe_runs.interpreter
    newest = next(iter(probe_runs.all_runs), None)
    if found is not None:
        parts = [f"{found.framework} {found.version or ''}".strip()]
    elif newest is not None and newest.framework is not None:
        parts = [printable(f"{newest.framework.name} {newest.framework.version or ''}".strip())]
    else:
        parts = ["TensorFlow"]
    device = view.device(parameters.gpu)
    count = len(view.devices)
    if device is not None:
        parts.append(f"GPU {device.index} {printable(device.name)}")
    else:
        parts.append(count_text(count, "GPU") if count else "no GPU: probes run on the CPU")
    if view.simulated:
        parts.append("simulated: speeds are the CPU's")
    parts += [parameters.workload or "own workloads", f"{parameters.seconds:g} s each"]
    given = (
        (parameters.memory_limit, "limit {} MB"),
        (parameters.fraction, "fraction {:g}"),
        (parameters.visible, "visible {}"),
        (parameters.virtual, "{} virtual"),
        (printable(parameters.python), "{}"),
    )
    return parts + [text.format(value) for value, text in given if value not in (None, "")]


def conclusion_lines(comparison: Comparison, width: int, most: int) -> SpanLines:
    """What the runs show, in at most so many lines; empty without runs."""
    if not comparison.runs:
        return []
    bad = sum(map(run_failed, comparison.runs))
    all_bad = bad == len(comparison.runs)
    glyph, style = ("●", "ok") if not bad else ("✖", "error") if all_bad else ("▲", "warning")
    words = wrap_line([(f" {glyph} ", style), (printable(conclusion(comparison)), "strong")], width - 1)
    lines = words[:most]
    if len(words) > most:
        *before, (text, its_style) = lines[-1]
        lines[-1] = [*before, (cut_to_width(f"{text} …", width - 4), its_style)]
    return lines


def batch_problem_lines(probe_runs: ProbeRuns) -> SpanLines:
    """Why the last batch could not run and what to do, and what else is to be known of it."""
    lines: SpanLines = []
    if (problem := probe_runs.problem) is not None:
        lines.append([("✖ ", "error"), (printable(problem.message), "text")])
        if problem.hint:
            lines.append([("  → ", "accent"), (printable(problem.hint), "text")])
        retry: list[Span] = [("p", "key"), (" sets the interpreter, ", "text"), ("x", "key"), (" retries", "text")]
        lines.append([("  → ", "accent"), *retry])
    notes = filter(None, (*probe_runs.notes, probe_runs.why_earlier_unread))
    return lines + [[("▲ ", "warning"), (printable(note), "text")] for note in notes]


def configuration_lines(script: ProbeScript | None, run: Run | None) -> list[list[Span]]:
    """Why its last run ended as it did, and what the configuration does; None: it has not run, or is gone."""
    lines: list[list[Span]] = []
    if run is not None and run.verdict_reason:
        lines.append([("", "text"), (printable(run.verdict_reason), "strong")])
    if script is None:
        return lines
    lines.append([("", "text"), (f"{printable(script.title)}. {printable(script.summary)}", "text")])
    facts = [f"workload {script.workload}", f"expected verdict {script.verdict}"]
    if script.gpus:
        facts.append(f"needs {count_text(script.gpus, 'GPU')}")
    facts += [f"{name} {value}" for name, value in {**script.options, **script.environment}.items()]
    lines.append([("", "dim"), (printable(" · ".join(facts)), "dim")])
    return lines


def why_not_comparable(probe_runs: ProbeRuns) -> str:
    """Explains what is missing to compare two runs, and how to get it."""
    runs = [*probe_runs.runs, *(run.config for run in probe_runs.earlier)]
    missing = [name for name in probe_runs.scripts if name in probe_runs.selected - probe_runs.runs.keys()]
    if len(probe_runs.selected) > 1:
        have = f"{cut_to_width(', '.join(missing), 30)} {'have' if len(missing) > 1 else 'has'} not run yet"
        return f"to compare: {have}; x runs the selection, c then compares it"
    if len(runs) > 1:
        return f"to compare: select two of the {len(runs)} runs with space, then c"
    only = f"only {printable(runs[0])} has run" if runs else "nothing has run yet"
    return f"to compare: {only}; select two with space, x runs them, c then compares them"


def event_span(event: Event) -> Span:
    """An event in words, with its style; no words if it is not worth showing."""
    text, style = _text_and_style(event)
    return printable(text)[:400], style


def current_activity(live: RunningBatch) -> str:
    """What the probe is doing now."""
    return next((text for _, event in reversed(live.events) if (text := event_span(event)[0])), live.step)


def _text_and_style(event: Event) -> Span:
    data = event.data
    match event.kind:
        case "start":
            return f"started, pid {data.get('pid')}; importing the framework", "dim"
        case "framework":
            return f"{data.get('name')} {data.get('version') or ''} imported; starting the devices", "text"
        case "phase":
            took = measured_seconds(_as_number(data.get("seconds")))
            return f"{str(data.get('name')).replace('_', ' ')} took {took}", "dim"
        case "setting":
            effective = data.get("effective")
            in_effect = f", in effect: {effective}" if effective is not None else ""
            return f"asked for {data.get('name')} {data.get('asked')}{in_effect}", "text"
        case "devices":
            names = [str(name).rpartition("device:")[2] or str(name) for name in _as_list(data.get("logical"))]
            return f"devices: {', '.join(names) or 'none'}", "text"
        case "placement":
            actual = str(data.get("actual", "")).rpartition("device:")[2]
            return f"{data.get('op')} ran on {actual}", "accent" if "GPU" in actual else "text"
        case "memory":
            current, peak = (size(_as_number(data.get(name))) for name in ("current", "peak"))
            return f"allocator: {current}, peak {peak}", "memory"
        case "progress":
            took = measured_seconds(_as_number(data.get("seconds")))
            return f"measuring: {data.get('steps')} steps in {took}", "text"
        case "throughput":
            steps = _as_number(data.get("steps_per_second"))
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


def _as_number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def _as_list(value: object) -> list[object]:
    return list(value) if isinstance(value, (list, tuple)) else []


GROUP_WORDS = {
    "memory": "How much GPU memory a program takes, and what limits it: default, growth, limits, fractions.",
    "visibility": "Which GPUs a program sees, and which of them it calls GPU:0: environment, API, mistakes in both.",
    "placement": "Where an op runs, and what happens if it cannot run there: soft and hard placement.",
    "devices": "Work on several devices: virtual GPUs, strategies, towers, model parallelism, several workers.",
    "sharing": "Two programs on one GPU: how memory is shared, which one fails and how, how slow each becomes.",
    "limits": "Limits: the largest batch that fits, free memory that cannot be used.",
    "torch": "The same for PyTorch: device map, visible devices, memory fraction, OOM.",
}
