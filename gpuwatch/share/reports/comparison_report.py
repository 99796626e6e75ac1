"""The content of a comparison: runs or nodes in one table, then what explains the differences."""

from __future__ import annotations

import dataclasses
import datetime
from collections import Counter
from collections.abc import Iterator, Sequence

from gpuwatch.core.formatting.durations import measured_seconds
from gpuwatch.core.formatting.sentences import and_more, count_text
from gpuwatch.core.formatting.units import UNKNOWN, percent, size
from gpuwatch.core.group_by import group_by
from gpuwatch.core.model.comparison import Comparison, Node, OddFact
from gpuwatch.core.model.findings import SEVERITY_ORDER
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.core.safe_text import shorten
from gpuwatch.experiment.probing.step_times import UNRELIABLE_REASON, is_unreliable
from gpuwatch.share.reports import bar_charts
from gpuwatch.share.reports.comparable_runs import gpu_models_text, is_user_program
from gpuwatch.share.reports.comparison_conclusion import conclusion, run_failed
from gpuwatch.share.reports.doctor_report import doctor_content
from gpuwatch.share.reports.report_elements import GLYPHS, Content, Table, charts_with_data, heads_and_rows
from gpuwatch.share.reports.report_text import SIMULATED_MACHINE, clean, framework_text
from gpuwatch.share.reports.run_report import ended_as_expected, gpu_percent, run_content, simulated_note, state_of
from gpuwatch.share.reports.runs_side_by_side import (
    COLUMNS,
    HEADS,
    OPTIONAL_COLUMNS,
    RIGHT_ALIGNED,
    names_by_config,
    run_cells,
    run_labels,
    start_times,
)
from gpuwatch.share.reports.snapshot_report import snapshot_content

_NODE_STATES = {
    "ok": ("ok", "answered"),
    "finding": ("warning", "answered"),
    "failed": ("error", "failed"),
    "no-answer": ("error", "no answer"),
    "timed-out": ("error", "timed out"),
    "interrupted": ("interrupted", "interrupted"),
}
_MAX_NAMES = 3
_NODE_COUNT_TEXTS = {1: "The node", 2: "Both nodes"}
BEST_MARK, _WORST_MARK = "★", "▽"
UNSTEADY_MARK, NOT_COMPARABLE_MARK = "▲", "°"
_LEFT_OUT_FIRST = (
    *("measured_on", "workload", "driver", "gpus", "fell_back", "device_map", "host", "framework", "started"),
    "asked",
)
"""Columns that a narrow terminal leaves out first."""
_SIMULATED_SPEEDS_NOTE = "Simulated GPUs compute on this computer's CPU: their steps/s say nothing about real GPUs."
_TIERS_NOTE = (
    "Driver tier: the framework's CUDA code on a simulated driver; plugin tier: a device plugin without CUDA code."
)
_CPU_OPS_NOTE = (
    "On GPU below 100 % without a fallback: the other ops were placed on the CPU as requested, or have no GPU kernel."
)
_MAX_COMMAND_CHARS = 60
_NEVER_NARROWED = ("config", "node", "started")
"""Columns that are never narrowed."""


def comparison_content(document: Comparison) -> Content:
    """The table, the differences, and every run."""
    differences = ((clean(entry.text),) for entry in document.differences if entry.effects or entry.changed)
    tables = (
        _odd_table(document),
        _node_table(document),
        comparison_table(document, "Comparison"),
        _skipped_table(document),
        _machines_table(document),
        Table("Differences explained", ("Each run against its neighbor",), tuple(differences)),
        _findings_table(document),
    )
    state, verdict = _verdict(document.runs)
    title = conclusion(document)
    subject = [count_text(len(document.nodes), "node")] if document.nodes else []
    if document.runs or not document.nodes:
        subject.append(f"{count_text(len(document.runs), 'run')} compared")
    if document.nodes or document.odd:
        # Which node differs is asked first; without runs, there is nothing else to say.
        about_runs = title if document.runs and not document.odd else ""
        title = "; ".join(filter(None, (_cluster_sentence(document), about_runs)))
        state, verdict = _verdict_of_nodes(document, state, verdict)
    machines = (node.snapshot or node.doctor for node in document.nodes)
    simulated_nodes = any(machine is not None and machine.simulated for machine in machines)
    return Content(
        title=title,
        subtitle=" · ".join(filter(None, (*subject, _subject(document)))),
        state=state,
        verdict=verdict,
        simulated=simulated_note(document.runs) or (SIMULATED_MACHINE if simulated_nodes else ""),
        tables=tuple(table for table in tables if table.rows),
        footer="gpuwatch",
        parts=(
            *(
                dataclasses.replace(run_content(run), title=name)
                for run, name in zip(document.runs, run_labels(document.runs), strict=True)
            ),
            *_machine_parts(document),
        ),
    )


def _verdict_of_nodes(document: Comparison, state: str, verdict: str) -> tuple[str, str]:
    """State and verdict of the nodes; ``state`` and ``verdict``: those of the runs."""
    lost_nodes = len(_lost_nodes(document))
    odd = len({fact.node for fact in document.odd})
    texts = [f"{odd} odd"] if odd else []
    if lost_nodes:
        texts.insert(0, f"{lost_nodes} of {count_text(len(document.nodes), 'node')} returned no result")
    if document.runs and (state != "ok" or not texts):
        texts.append(f"{verdict} of the runs" if state != "ok" else verdict)
    if lost_nodes or state == "error":
        return "error", ", ".join(texts)
    worst = "warning" if odd or any(node.state == "finding" for node in document.nodes) else state
    return worst, ", ".join(texts) or "all answered"


def _verdict(runs: Sequence[Run]) -> tuple[str, str]:
    """State and verdict of all runs: what failed, else what was not run to its end."""
    if failed_count := sum(map(run_failed, runs)):
        return "error", f"{failed_count} of {len(runs)} failed"
    ended_early = Counter(run.verdict for run in runs if run.verdict in ("skipped", "interrupted"))
    if not ended_early:
        return "ok", "all completed"
    state = "warning" if ended_early["interrupted"] else "skipped" if ended_early["skipped"] == len(runs) else "ok"
    return state, ", ".join(f"{count} of {len(runs)} {what}" for what, count in ended_early.items())


def comparison_table(document: Comparison, title: str) -> Table:
    """A row for each run, best and worst marked; comparable speeds, and memory, as charts."""
    columns_shown = tuple(name for name in document.columns if name in HEADS) or ("config",)
    rows = []
    names, started = run_labels(document.runs), start_times(document.runs)
    named = list(zip(names, document.runs, strict=True))
    simulated = any(run.simulated for run in document.runs)
    # Simulated GPUs have the speed of this computer's CPU: sorted bars would look like a ranking.
    speeds = None if simulated else bar_charts.speed_chart([named[index] for index in document.comparable])
    for index, run in enumerate(document.runs):
        shown = {**run_cells(run, (*COLUMNS, *OPTIONAL_COLUMNS)), "config": names[index], "started": started[index]}
        if run.node is not None and "node" in document.columns:
            shown["config"] = names[index].replace(f" on {clean(run.node)}", "", 1)
        rows.append(tuple(_marked_cell(document, index, run, name, shown[name]) for name in columns_shown))
    notes = (
        _legend(document, rows),
        *map(clean, document.notes),
        _SIMULATED_SPEEDS_NOTE if simulated else "",
        _TIERS_NOTE if any(" tier" in cell for row in rows for cell in row) else "",
        _CPU_OPS_NOTE if any(map(_ran_on_both, document.runs)) else "",
    )
    return Table(
        title,
        tuple(HEADS[name] for name in columns_shown),
        tuple(rows),
        tuple(HEADS[name] for name in RIGHT_ALIGNED),
        note=" ".join(filter(None, notes)),
        keep=tuple(HEADS[name] for name in _NEVER_NARROWED),
        optional=tuple(HEADS[name] for name in _LEFT_OUT_FIRST),
        lines=3,
        sortable=True,
        charts=charts_with_data(speeds, bar_charts.held_memory_chart(named)),
    )


def _skipped_table(document: Comparison) -> Table:
    """Why runs were skipped: their rows are empty."""
    named = zip(run_labels(document.runs), document.runs, strict=True)
    rows = tuple((name, clean(run.verdict_reason)) for name, run in named if run.verdict == "skipped")
    return Table("Skipped", ("Config", "Why"), rows, lines=4)


def _ran_on_both(run: Run) -> bool:
    """Whether some ops ran on the CPU and none fell back."""
    share = gpu_percent(run)
    return share is not None and 0 < share < 100 and not run.fallbacks


def _marked_cell(document: Comparison, index: int, run: Run, name: str, text: str) -> str:
    if name == "verdict":
        expected = " (expected)" if ended_as_expected(run) and "expected" not in text else ""
        return f"{GLYPHS[state_of(run)]}\u00a0{text}{expected}"
    if name == "steps_per_second":
        text = "\u00a0".join((text, *speed_marks(document, index)))
    if document.best_run.get(name) == index:
        return f"{BEST_MARK} {text}"
    if document.worst_run.get(name) == index:
        return f"{_WORST_MARK} {text}"
    return text


def speed_marks(document: Comparison, index: int) -> tuple[str, ...]:
    """Signs beside the speed of a run: its step times vary, or it is not comparable with the others."""
    run = document.runs[index]
    if run.throughput is None:
        return ()
    is_apart = bool(document.comparable) and index not in document.comparable
    return (*((UNSTEADY_MARK,) if is_unreliable(run.throughput) else ()), *((NOT_COMPARABLE_MARK,) if is_apart else ()))


def _legend(document: Comparison, rows: list[tuple[str, ...]]) -> str:
    text = " ".join(cell for row in rows for cell in row[1:])
    unsteady = any(is_unreliable(run.throughput) for run in document.runs)
    meanings = (
        f"{BEST_MARK} best in its column" if document.best_run else "",
        f"{_WORST_MARK} worst" if document.worst_run else "",
        f"{UNSTEADY_MARK} {UNRELIABLE_REASON}" if unsteady else "",
        f"{NOT_COMPARABLE_MARK} not comparable with the others" if NOT_COMPARABLE_MARK in text else "",
        "± half the range from p10 to p90" if " ±" in text else "",
    )
    legend = ", ".join(filter(None, meanings))
    return f"{legend}." if legend else ""


def _subject(document: Comparison) -> str:
    frameworks = dict.fromkeys(framework_text(run.framework) for run in document.runs if run.framework)
    workloads = dict.fromkeys(
        shorten(clean(run.title), _MAX_COMMAND_CHARS) if is_user_program(run) else clean(run.workload)
        for run in document.runs
    )
    # Nodes have a table.
    machines = dict.fromkeys(clean(run.host) for run in document.runs if run.host and run.node is None)
    gpu_models = dict.fromkeys(gpu_models_text(run) for run in document.runs if run.gpus)
    drivers = dict.fromkeys(f"driver {clean(run.driver_version)}" for run in document.runs if run.driver_version)
    dates = sorted({run.started_at.astimezone(datetime.UTC).strftime("%Y-%m-%d") for run in document.runs})
    days = [dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"] if dates else []
    return " · ".join([*machines, *gpu_models, *drivers, *frameworks, *workloads, *days])


def _machines_table(document: Comparison) -> Table:
    hosts = dict.fromkeys(
        (clean(run.host), clean(run.driver_version), clean(run.gpus))
        for run in document.runs
        if (run.host or run.gpus) and run.node is None
    )
    # One machine needs no table: it is in the subtitle.
    rows = tuple(hosts) if len(hosts) > 1 else ()
    return Table("Machines", ("Host", "Driver", "GPUs"), rows)


def _findings_table(document: Comparison) -> Table:
    runs, names = document.runs, run_labels(document.runs)
    numbered_findings = (
        (index, finding) for index, run in enumerate(runs) for finding in run.findings if finding.id != "healthy"
    )
    runs_by_finding = group_by(
        numbered_findings,
        lambda numbered: (SEVERITY_ORDER[numbered[1].severity], numbered[1].id, numbered[1].title, numbered[1].action),
    )
    severities = list(SEVERITY_ORDER)
    rows = []
    for (level, cause, title, action), same_findings in sorted(runs_by_finding.items(), key=lambda item: item[0][0]):
        named = names_by_config(runs, names, dict.fromkeys(index for index, _ in same_findings))
        rows.append((clean(named), f"{GLYPHS[severities[level]]}\u00a0{clean(cause)}", clean(title), clean(action)))
    return Table("Findings of the runs", ("Config", "Cause", "What", "What to do"), tuple(rows), below="What to do")


# Nodes of a cluster


def _lost_nodes(document: Comparison) -> tuple[Node, ...]:
    """The nodes that brought nothing home."""
    return tuple(node for node in document.nodes if node.state not in ("ok", "finding"))


def _cluster_sentence(document: Comparison) -> str:
    """``n7 is odd: 7 GPUs instead of 8; n9: no answer to ssh``; how many nodes answered if all is well."""
    by_node = group_by(document.odd, lambda fact: fact.node)
    parts = [f"{clean(node)} is odd: {_difference_text(facts)}" for node, facts in list(by_node.items())[:_MAX_NAMES]]
    if len(by_node) > _MAX_NAMES:
        rest = len(by_node) - _MAX_NAMES
        parts.append(f"{rest} more {'is' if rest == 1 else 'are'} odd")
    lost = _lost_nodes(document)
    parts += [f"{clean(node.node)}: {clean(node.reason or _NODE_STATES[node.state][1])}" for node in lost[:_MAX_NAMES]]
    if len(lost) > _MAX_NAMES:
        parts.append(f"{len(lost) - _MAX_NAMES} more returned no result")
    if parts:
        return "; ".join(parts)
    count = len(document.nodes)
    none_odd = "" if document.odd_notes or count < 2 else ", none is odd"
    return f"{_NODE_COUNT_TEXTS.get(count, f'All {count} nodes')} answered{none_odd}" if count else ""


def _difference_text(facts: Sequence[OddFact]) -> str:
    fact = facts[0]
    if fact.what == "number of GPUs":
        difference = f"{fact.value} GPUs instead of {fact.usual}"
    elif fact.kind == "speed":
        difference = f"{fact.detail.partition(';')[0]} ({fact.what.removeprefix('speed of ')})"
    else:
        difference = f"{fact.what} {fact.value} instead of {fact.usual}"
    return clean(difference) + and_more(len(facts) - 1)


def _odd_table(document: Comparison) -> Table:
    """Table of the odd nodes, with what differs."""
    rows = []
    for fact in document.odd:
        compared = count_text(fact.siblings, "sibling") + (f" · {clean(fact.detail)}" if fact.detail else "")
        rows.append((*map(clean, (fact.node, fact.what, fact.value, fact.usual)), compared))
    heads = ("Node", "What", "There", "Most others", "Compared with")
    return Table("Odd nodes", heads, tuple(rows), note=_not_judged(document), keep=("Node",), sortable=True)


def _not_judged(document: Comparison) -> str:
    """What could not be judged: below the odd nodes, or else below all."""
    return " ".join(clean(note).rstrip(".") + "." for note in document.odd_notes)


def _node_table(document: Comparison) -> Table:
    """A row for each node: what became of it, and its machine as far as it is known."""
    nodes = document.nodes
    has_snapshots = any(node.snapshot is not None for node in nodes)
    has_runs = any(node.runs for node in nodes)
    same_names = all(node.host in (None, node.node) for node in nodes)
    answer_head = "Found" if any(node.answer for node in nodes) else "Why"
    no_answers = not any(node.answer or node.reason for node in nodes)
    cells = (
        {
            "Node": clean(node.node),
            "Result": f"{GLYPHS[_NODE_STATES[node.state][0]]}\u00a0{_NODE_STATES[node.state][1]}",
            "Host": clean(node.host),
            "Took": UNKNOWN if node.took_seconds is None else measured_seconds(node.took_seconds),
            "Runs": str(node.runs) if node.state in ("ok", "finding") else UNKNOWN,
            **(_machine_cells(node.snapshot) if has_snapshots else {}),
            answer_head: clean("; ".join(filter(None, (node.answer, node.reason)))),
        }
        for node in nodes
    )
    return Table(
        "Nodes",
        *heads_and_rows(cells),
        right=("Took", "Runs", "Busy", "Memory used"),
        note="" if document.odd else _not_judged(document),
        keep=("Node", "Result"),
        optional=("Took", "Host", "Runs", "Driver"),
        lines=3,
        sortable=True,
    ).without(*["Host"] * same_names, *["Runs"] * (not has_runs), *[answer_head] * no_answers)


def _machine_cells(snapshot: Snapshot | None) -> dict[str, str]:
    """GPUs, the busiest one's utilization, memory used of all, and the driver."""
    if snapshot is None:
        return dict.fromkeys(("GPUs", "Busy", "Memory used", "Driver"), UNKNOWN)
    names = Counter(clean(device.name) for device in snapshot.devices)
    busy = [value for device in snapshot.devices if (value := device.number("utilization.gpu_percent")) is not None]
    used = [device.number("memory.used_bytes") for device in snapshot.devices]
    total = [device.number("memory.total_bytes") for device in snapshot.devices]
    memory = UNKNOWN
    if used and None not in used and None not in total:
        memory = f"{size(sum(filter(None, used)))} of {size(sum(filter(None, total)))}"
    return {
        "GPUs": ", ".join(f"{count} × {name}" for name, count in names.items()) or UNKNOWN,
        "Busy": percent(max(busy)) if busy else UNKNOWN,
        "Memory used": memory,
        "Driver": clean(snapshot.driver.version) if snapshot.driver is not None else UNKNOWN,
    }


def _machine_parts(document: Comparison) -> Iterator[Content]:
    """The machine of each node, whole, as formats show it on demand."""
    for node in document.nodes:
        name = clean(node.node)
        if node.snapshot is not None:
            yield dataclasses.replace(snapshot_content(node.snapshot), title=f"{name}: machine")
        if node.doctor is not None:
            yield dataclasses.replace(doctor_content(node.doctor), title=f"{name}: doctor")
