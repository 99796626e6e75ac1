"""Runs side by side: columns, cells, and the best and worst run of a column."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from gpuwatch.core.formatting.units import UNKNOWN, percent, size
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.run_comparison import Comparison
from gpuwatch.experiment.trials.step_times import is_wide, speed_text
from gpuwatch.share.reports import comparable_runs, run_report
from gpuwatch.share.reports.report_elements import clean, framework_text
from gpuwatch.share.reports.run_differences import differences
from gpuwatch.share.reports.run_tables import device_map

Column = tuple[str, str, Callable[[Run], str]]
"""Id, heading, and the cell of a run; unknown is a dash."""


def _verdict(run: Run) -> str:
    shown: str = run.verdict
    if run.primary not in (None, "healthy"):
        shown += f" · {clean(run.primary).rpartition('.')[2]}"
    return shown + (" (expected error)" if any(error.expected for error in run.errors) else "")


COLUMNS: tuple[Column, ...] = (
    ("config", "CONFIG", lambda run: clean(run.config)),
    ("asked", "ASKED", run_report.asked),
    ("granted", "GRANTED", run_report.granted),
    ("seen_by_nvml", "SEEN BY NVML", lambda run: size(run.memory.nvml_peak_bytes)),
    ("device_map", "DEVICE MAP", device_map),
    ("on_gpu_percent", "ON GPU %", lambda run: percent(run_report.on_gpu(run))),
    ("fell_back", "FELL BACK", run_report.fell_back),
    ("steps_per_second", "STEPS/S", lambda run: speed_text(run.throughput)),
    ("verdict", "VERDICT", _verdict),
)

WHEN_DIFFERENT: tuple[Column, ...] = (
    ("framework", "FRAMEWORK", lambda run: framework_text(run.framework)),
    ("node", "NODE", lambda run: clean(run.node)),
    ("host", "HOST", lambda run: clean(run.host)),
    ("gpus", "GPUS", comparable_runs.gpus),
    ("driver", "DRIVER", lambda run: clean(run.driver_version)),
    ("workload", "WORKLOAD", comparable_runs.workload),
    (
        "measured_on",
        "MEASURED ON",
        lambda run: comparable_runs.device_kind(run) if run.throughput is not None else UNKNOWN,
    ),
)
"""Columns that appear after the configuration if the runs differ in them."""

_MAX_NAMED = 6
HEADS = {name: head for name, head, _ in (*COLUMNS, *WHEN_DIFFERENT)} | {"started": "STARTED"}
RIGHT = frozenset({"granted", "seen_by_nvml", "on_gpu_percent", "steps_per_second"})


def compare(runs: Sequence[Run]) -> Comparison:
    """The runs as a comparison, with the best and worst among comparable runs."""
    group = comparable_runs.comparable(runs)
    best: dict[str, int] = {}
    worst: dict[str, int] = {}
    speeds = {index: t.steps_per_second for index in group if (t := runs[index].throughput) is not None}
    timed = sorted(group, key=lambda index: -speeds.get(index, 0.0))
    # A run without a GPU holds no GPU memory and would always win.
    held = [index for index in group if runs[index].memory.nvml_peak_bytes and runs[index].device_map]
    held.sort(key=lambda index: runs[index].memory.nvml_peak_bytes or 0)
    amounts = [runs[index].memory.nvml_peak_bytes for index in held]
    for place, marked in ((0, best), (-1, worst)):
        if len(timed) > 1:
            run, *others = (runs[index] for index in (timed if place == 0 else timed[::-1]))
            if not any(comparable_runs.why_speeds_equal(run, other) for other in others):
                marked["steps_per_second"] = timed[place]
        if len(held) > 1 and amounts.count(amounts[place]) == 1:
            marked["seen_by_nvml"] = held[place]
    return Comparison(
        runs=tuple(runs),
        columns=_columns(runs),
        best_run=best,
        worst_run=worst,
        comparable=group,
        notes=tuple(_notes(runs, group)),
        # Between nodes, the odd one out is what is asked for: not how each differs from each.
        differences=() if any(run.node is not None for run in runs) else differences(runs),
    )


def _columns(runs: Sequence[Run]) -> tuple[str, ...]:
    different = []
    for name, _, value in WHEN_DIFFERENT:
        known = {value(run) for run in runs} - {UNKNOWN}
        if name == "host" and all(run.node == run.host for run in runs):
            continue
        if len(known) > (name != "node"):  # on a cluster, also where one node answered
            different.append(name)
    names = [name for name, _, _ in COLUMNS]
    if len({(run.config, run.node) for run in runs}) < len(runs):
        different.insert(0, "started")
    return (*names[:1], *different, *names[1:])


def labels(runs: Sequence[Run]) -> tuple[str, ...]:
    """A name for each run: its configuration and node, numbered if it was run there more than once."""
    totals = Counter((run.config, run.node) for run in runs)
    seen: Counter[tuple[str, str | None]] = Counter()
    names = []
    for run in runs:
        key = (run.config, run.node)
        seen[key] += 1
        number = f" #{seen[key]}" if totals[key] > 1 else ""
        where = f" on {clean(run.node)}" if run.node is not None else ""
        names.append(f"{clean(run.config)}{where}{number}")
    return tuple(names)


def named_once(runs: Sequence[Run], names: Sequence[str], indices: Iterable[int]) -> list[str]:
    """The names of some of ``runs``; a configuration that each node of a cluster ran is named once, with the nodes.

    ``growth`` (on all nodes, beside others), ``growth on all 8 nodes`` (alone), ``growth on 5 of 8 nodes``,
    ``growth on n1, n4``.
    """
    chosen = list(indices)
    only_one = len({run.config for run in runs}) == 1
    found: list[str] = []
    for config in dict.fromkeys(runs[index].config for index in chosen):
        mine = [index for index in chosen if runs[index].config == config]
        nodes = [run.node for run in runs if run.config == config]
        if len(nodes) < 2 or None in nodes or len(set(nodes)) < len(nodes):
            found += [names[index] for index in mine]
        elif len(mine) == len(nodes):
            found.append(f"{clean(config)} on all {len(nodes)} nodes" if only_one else clean(config))
        elif len(mine) > _MAX_NAMED:
            found.append(f"{clean(config)} on {len(mine)} of {len(nodes)} nodes")
        else:
            found.append(f"{clean(config)} on {', '.join(clean(runs[index].node) for index in mine)}")
    return found


def times(runs: Sequence[Run]) -> tuple[str, ...]:
    """When each run started, UTC; without the date if that is the same for all."""
    moments = [run.started_at.astimezone(datetime.UTC) for run in runs]
    one_day = len({moment.date() for moment in moments}) == 1
    return tuple(moment.strftime("%H:%M:%S" if one_day else "%Y-%m-%d %H:%M") for moment in moments)


def _notes(runs: Sequence[Run], group: tuple[int, ...]) -> list[str]:
    notes = []
    apart = [run for index, run in enumerate(runs) if run.throughput is not None and index not in group]
    if apart and group and not any(runs[index].simulated for index in group):
        first = runs[group[0]]
        names = _listed(clean(run.config) for run in apart)
        what = f"{comparable_runs.workload(first)} on {comparable_runs.device_kind(first)}"
        if len(group) == 1:
            notes.append(f"The speed of {clean(first.config)} ({what}) is not comparable with that of {names}.")
        else:
            notes.append(f"Speeds are compared among the {len(group)} runs of {what}, not with {names}.")
    scattered = [clean(run.config) for run in runs if is_wide(run.throughput)]
    if scattered:
        notes.append(
            f"Step times of {_listed(scattered)} vary by more than 10 %: these speeds are unreliable;"
            " measure longer, on an idle machine."
        )
    return notes


def _listed(names: Iterable[str]) -> str:
    """``a, b and 3 more``: the rows themselves are marked."""
    known = list(dict.fromkeys(names))
    rest = len(known) - _MAX_NAMED
    return ", ".join(known[:_MAX_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def cells(run: Run, columns: Sequence[Column] = COLUMNS) -> dict[str, str]:
    """Text of each cell of a run, by column."""
    return {name: value(run) for name, _, value in columns}
