"""The content of a comparison: one table, then what explains the differences."""

from __future__ import annotations

import dataclasses
import datetime
from collections import Counter
from collections.abc import Sequence

from gpuwatch.core.formatting.safe_text import shorten
from gpuwatch.core.grouping import grouped
from gpuwatch.core.model.findings import SEVERITY_ORDER
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.run_comparison import Comparison
from gpuwatch.experiment.trials.step_times import is_wide
from gpuwatch.share.reports import charts, cluster_report
from gpuwatch.share.reports.comparable_runs import gpus, is_program
from gpuwatch.share.reports.comparison_conclusion import conclusion, run_failed
from gpuwatch.share.reports.report_elements import GLYPHS, Content, Table, clean, count_text, drawable, framework_text
from gpuwatch.share.reports.run_report import as_shown, on_gpu, run_content, simulated_note, state_of
from gpuwatch.share.reports.runs_side_by_side import (
    COLUMNS,
    HEADS,
    RIGHT,
    WHEN_DIFFERENT,
    cells,
    labels,
    named_once,
    times,
)

BEST, WORST = "★", "▽"
SCATTERED, APART = "▲", "°"
_OPTIONAL = (
    *("measured_on", "workload", "driver", "gpus", "fell_back", "device_map", "host", "framework", "started"),
    "asked",
)
"""Columns that a narrow terminal leaves out first."""
_CPU = "Simulated GPUs compute on this computer's CPU: their steps/s say nothing about real GPUs."
_TIER = "Driver tier: the framework's CUDA code on a simulated driver; plugin tier: a device plugin without CUDA code."
_ELSEWHERE = (
    "On GPU below 100 % without a fallback: the other ops were placed on the CPU as requested, or have no GPU kernel."
)
_MAX_COMMAND_CHARS = 60
_WHOLE = ("config", "node", "started")
"""Columns that are never narrowed."""


def comparison_content(document: Comparison) -> Content:
    """The table, the differences, and every run."""
    differences = ((clean(entry.text),) for entry in document.differences if entry.effects or entry.changed)
    tables = (
        cluster_report.odd_table(document),
        cluster_report.node_table(document),
        comparison_table(document, "Comparison"),
        _skipped_text(document),
        _machines(document),
        Table("Differences explained", ("Each run against its neighbor",), tuple(differences)),
        _findings(document),
    )
    state, verdict = _verdict(document.runs)
    title = conclusion(document)
    subject = [count_text(len(document.nodes), "node")] if document.nodes else []
    if document.runs or not document.nodes:
        subject.append(f"{count_text(len(document.runs), 'run')} compared")
    if document.nodes or document.odd:
        # Which node differs is asked first; without runs, there is nothing else to say.
        about_runs = title if document.runs and not document.odd else ""
        title = "; ".join(filter(None, (cluster_report.cluster_sentence(document), about_runs)))
        state, verdict = _verdict_of_nodes(document, state, verdict)
    return Content(
        title=title,
        subtitle=" · ".join(filter(None, (*subject, _subject(document)))),
        state=state,
        verdict=verdict,
        simulated=simulated_note(document.runs) or cluster_report.simulated_machines(document),
        tables=tuple(table for table in tables if table.rows),
        footer="gpuwatch",
        parts=(
            *(
                dataclasses.replace(run_content(run), title=name)
                for run, name in zip(document.runs, labels(document.runs), strict=True)
            ),
            *cluster_report.machine_parts(document),
        ),
    )


def _verdict_of_nodes(document: Comparison, state: str, verdict: str) -> tuple[str, str]:
    """State and verdict of the nodes; ``state`` and ``verdict``: those of the runs."""
    silent = len(cluster_report.lost_nodes(document))
    odd = len({fact.node for fact in document.odd})
    words = [f"{odd} odd"] if odd else []
    if silent:
        words.insert(0, f"{silent} of {len(document.nodes)} nodes returned no result")
    if document.runs and (state != "ok" or not words):
        words.append(f"{verdict} of the runs" if state != "ok" else verdict)
    if silent or state == "error":
        return "error", ", ".join(words)
    worst = "warning" if odd or any(node.state == "finding" for node in document.nodes) else state
    return worst, ", ".join(words) or "all answered"


def _verdict(runs: Sequence[Run]) -> tuple[str, str]:
    """State and verdict of all runs: what failed, else what was not run to its end."""
    if bad := sum(map(run_failed, runs)):
        return "error", f"{bad} of {len(runs)} failed"
    rest = Counter(run.verdict for run in runs if run.verdict in ("skipped", "interrupted"))
    if not rest:
        return "ok", "all completed"
    state = "warning" if rest["interrupted"] else "skipped" if rest["skipped"] == len(runs) else "ok"
    return state, ", ".join(f"{count} of {len(runs)} {what}" for what, count in rest.items())


def comparison_table(document: Comparison, title: str) -> Table:
    """A row for each run, best and worst marked; comparable speeds, and memory, as charts."""
    known = tuple((name, HEADS[name]) for name in document.columns if name in HEADS) or (("config", HEADS["config"]),)
    rows = []
    names, started = labels(document.runs), times(document.runs)
    named = list(zip(names, document.runs, strict=True))
    simulated = any(run.simulated for run in document.runs)
    # Simulated GPUs have the speed of this computer's CPU: sorted bars would look like a ranking.
    speeds = None if simulated else charts.speed_chart([named[index] for index in document.comparable])
    for index, run in enumerate(document.runs):
        shown = {**cells(run, (*COLUMNS, *WHEN_DIFFERENT)), "config": names[index], "started": started[index]}
        if run.node is not None and "node" in document.columns:
            shown["config"] = names[index].replace(f" on {clean(run.node)}", "", 1)
        rows.append(tuple(_cell(document, index, run, name, shown[name]) for name, _ in known))
    notes = (
        _legend(document, rows),
        *map(clean, document.notes),
        _CPU if simulated else "",
        _TIER if any(" tier" in cell for row in rows for cell in row) else "",
        _ELSEWHERE if any(map(_ran_on_both, document.runs)) else "",
    )
    return Table(
        title,
        tuple(head for _, head in known),
        tuple(rows),
        tuple(HEADS[name] for name in RIGHT),
        note=" ".join(filter(None, notes)),
        keep=tuple(HEADS[name] for name in _WHOLE),
        optional=tuple(HEADS[name] for name in _OPTIONAL),
        lines=3,
        sortable=True,
        charts=drawable(speeds, charts.memory_of_runs(named)),
    )


def _skipped_text(document: Comparison) -> Table:
    """Why runs were skipped: their rows are empty."""
    named = zip(labels(document.runs), document.runs, strict=True)
    rows = tuple((name, clean(run.verdict_reason)) for name, run in named if run.verdict == "skipped")
    return Table("Skipped", ("Config", "Why"), rows, lines=4)


def _ran_on_both(run: Run) -> bool:
    """Whether some ops ran on the CPU and none fell back."""
    share = on_gpu(run)
    return share is not None and 0 < share < 100 and not run.fallbacks


def _cell(document: Comparison, index: int, run: Run, name: str, text: str) -> str:
    if name == "verdict":
        expected = " (expected)" if as_shown(run) and "expected" not in text else ""
        return f"{GLYPHS[state_of(run)]}\u00a0{text}{expected}"
    if name == "steps_per_second":
        text = "\u00a0".join((text, *speed_marks(document, index)))
    if document.best_run.get(name) == index:
        return f"{BEST} {text}"
    if document.worst_run.get(name) == index:
        return f"{WORST} {text}"
    return text


def speed_marks(document: Comparison, index: int) -> tuple[str, ...]:
    """Signs beside the speed of a run: its step times vary, or it is not comparable with the others."""
    run = document.runs[index]
    if run.throughput is None:
        return ()
    apart = bool(document.comparable) and index not in document.comparable
    return (*((SCATTERED,) if is_wide(run.throughput) else ()), *((APART,) if apart else ()))


def _legend(document: Comparison, rows: list[tuple[str, ...]]) -> str:
    text = " ".join(cell for row in rows for cell in row[1:])
    meanings = (
        f"{BEST} best in its column" if document.best_run else "",
        f"{WORST} worst" if document.worst_run else "",
        f"{SCATTERED} step times vary by more than 10 %" if any(is_wide(r.throughput) for r in document.runs) else "",
        f"{APART} not comparable with the others" if APART in text else "",
        "± half the range from p10 to p90" if " ±" in text else "",
    )
    legend = ", ".join(filter(None, meanings))
    return f"{legend}." if legend else ""


def _subject(document: Comparison) -> str:
    frameworks = dict.fromkeys(framework_text(run.framework) for run in document.runs if run.framework)
    workloads = dict.fromkeys(
        shorten(clean(run.title), _MAX_COMMAND_CHARS) if is_program(run) else clean(run.workload)
        for run in document.runs
    )
    # Nodes have a table.
    machines = dict.fromkeys(clean(run.host) for run in document.runs if run.host and run.node is None)
    cards = dict.fromkeys(gpus(run) for run in document.runs if run.gpus)
    drivers = dict.fromkeys(f"driver {clean(run.driver_version)}" for run in document.runs if run.driver_version)
    days = sorted({run.started_at.astimezone(datetime.UTC).strftime("%Y-%m-%d") for run in document.runs})
    when = [days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"] if days else []
    return " · ".join([*machines, *cards, *drivers, *frameworks, *workloads, *when])


def _machines(document: Comparison) -> Table:
    hosts = dict.fromkeys(
        (clean(run.host), clean(run.driver_version), clean(run.gpus))
        for run in document.runs
        if (run.host or run.gpus) and run.node is None
    )
    # One machine needs no table: it is in the subtitle.
    rows = tuple(hosts) if len(hosts) > 1 else ()
    return Table("Machines", ("Host", "Driver", "GPUs"), rows)


def _findings(document: Comparison) -> Table:
    runs, called = document.runs, labels(document.runs)
    told = ((index, found) for index, run in enumerate(runs) for found in run.findings if found.id != "healthy")
    who = grouped(told, lambda one: (SEVERITY_ORDER[one[1].severity], one[1].id, one[1].title, one[1].action))
    names = list(SEVERITY_ORDER)
    rows = [
        (
            clean(tuple(named_once(runs, called, dict.fromkeys(index for index, _ in theirs)))),
            f"{GLYPHS[names[level]]}\u00a0{clean(cause)}",
            clean(title),
            clean(action),
        )
        for (level, cause, title, action), theirs in sorted(who.items(), key=lambda item: item[0][0])
    ]
    return Table("Findings of the runs", ("Config", "Cause", "What", "What to do"), tuple(rows), below="What to do")
