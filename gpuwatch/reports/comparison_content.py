"""A comparison as a report tells it: one table, then what explains the differences."""

from __future__ import annotations

from gpuwatch.model.findings import SEVERITY_ORDER
from gpuwatch.model.run import Comparison, Run
from gpuwatch.reports.compare import COLUMNS, RIGHT, cells
from gpuwatch.reports.content import GLYPHS, SIMULATED_NOTE, Content, Table, clean
from gpuwatch.reports.run_content import run_content

BEST = "★"


def comparison_content(document: Comparison) -> Content:
    """The table, the differences, and every run behind it."""
    known = tuple((name, head) for name, head in COLUMNS if name in document.columns)
    rows = []
    for run in document.runs:
        shown = cells(run)
        rows.append(tuple(_cell(document, run, name, shown[name]) for name, _ in known))
    right = frozenset(index for index, (name, _) in enumerate(known) if name in RIGHT)
    note = f"{BEST} best in its column" if document.best else ""
    table = Table(
        "Comparison",
        tuple(head for _, head in known),
        tuple(rows),
        right,
        note=note,
        keep=frozenset({0}),
    )
    bad = sum(run.verdict in ("error", "oom", "timeout") for run in document.runs)
    count = len(document.runs)
    return Content(
        title=f"{count} run{'' if count == 1 else 's'} compared",
        subtitle=_subject(document),
        state="error" if bad else "ok",
        verdict=f"{bad} of {count} did not end well" if bad else "all ended",
        reason="",
        simulated=SIMULATED_NOTE if any(run.simulated for run in document.runs) else "",
        facts=(),
        tables=tuple(part for part in (table, _machines(document), _differences(document)) if part.rows),
        footer="gpuwatch",
        parts=tuple(run_content(run) for run in document.runs),
    )


def _cell(document: Comparison, run: Run, name: str, text: str) -> str:
    if name == "verdict":
        return f"{GLYPHS.get(run.verdict, '•')}\u00a0{text}"
    if document.best.get(name) == run.config:
        return f"{BEST} {text}"
    return text


def _subject(document: Comparison) -> str:
    frameworks = dict.fromkeys(
        f"{clean(run.framework.name)} {clean(run.framework.version)}" for run in document.runs if run.framework
    )
    workloads = dict.fromkeys(clean(run.workload) for run in document.runs)
    return " · ".join([*frameworks, *workloads])


def _machines(document: Comparison) -> Table:
    hosts = dict.fromkeys(
        (clean(run.host), clean(run.driver_version), clean(run.gpus)) for run in document.runs if run.host or run.gpus
    )
    # One machine needs no table: the runs themselves say it.
    rows = tuple(hosts) if len(hosts) > 1 else ()
    return Table("Machines", ("Host", "Driver", "GPUs"), rows)


def _differences(document: Comparison) -> Table:
    configs: dict[tuple[int, str, str, str], list[str]] = {}
    for run in document.runs:
        for found in run.findings:
            if found.id != "healthy":
                key = (SEVERITY_ORDER[found.severity], found.id, found.title, found.action)
                configs.setdefault(key, []).append(run.config)
    names = list(SEVERITY_ORDER)
    rows = [
        (clean(tuple(dict.fromkeys(who))), f"{GLYPHS[names[level]]}\u00a0{clean(cause)}", clean(title), clean(action))
        for (level, cause, title, action), who in sorted(configs.items(), key=lambda item: item[0][0])
    ]
    return Table("What explains the differences", ("Config", "Cause", "What", "What to do"), tuple(rows))
