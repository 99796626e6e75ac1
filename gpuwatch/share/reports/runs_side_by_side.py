"""Runs side by side: columns, cells, the best and worst run of a column, and the differences in sentences."""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from gpuwatch.core.formatting.sentences import first_and_more
from gpuwatch.core.formatting.units import UNKNOWN, percent, size
from gpuwatch.core.model.comparison import Comparison, Difference
from gpuwatch.core.model.findings import SEVERITY_ORDER, Finding
from gpuwatch.core.model.run import Run, Setting
from gpuwatch.experiment.probing.step_times import UNRELIABLE_REASON, is_unreliable, speed_text, why_not_comparable
from gpuwatch.experiment.trials.trial_results import SAME_MEMORY_SHARE
from gpuwatch.explain.logs.log_line_text import source_message
from gpuwatch.share.reports import comparable_runs, run_report
from gpuwatch.share.reports.report_text import clean, framework_text
from gpuwatch.share.reports.run_tables import device_map

_UNKNOWN_FACTS = {UNKNOWN, f"driver {UNKNOWN}"}
_MAX_LOG_CHARS = 110
# Lines about devices and memory; not about loading, which depends on what was loaded before.
_GPU_LINE = re.compile(r"device|memory|cuInit|kernel|driver|cudnn|allocat", re.IGNORECASE)
_LOADING_LINE = re.compile(r"NUMA|DLL info|factory|dynamic library|dlopen|CPU instructions|oneDNN", re.IGNORECASE)
_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+(?:\.\d+)*")
_PATHS = re.compile(r"(?<!\S)/\S+")
Column = tuple[str, str, Callable[[Run], str]]
"""Id, heading, and the cell of a run; unknown is a dash."""


def _verdict(run: Run) -> str:
    text: str = run.verdict
    if run.primary not in (None, "healthy"):
        text += f" · {clean(run.primary).rpartition('.')[2]}"
    return text + (" (expected error)" if any(error.expected for error in run.errors) else "")


COLUMNS: tuple[Column, ...] = (
    ("config", "CONFIG", lambda run: clean(run.config)),
    ("asked", "ASKED", run_report.settings_text),
    ("granted", "GRANTED", run_report.granted_text),
    ("seen_by_nvml", "SEEN BY NVML", lambda run: size(comparable_runs.work_peak(run))),
    ("device_map", "DEVICE MAP", device_map),
    ("on_gpu_percent", "ON GPU %", lambda run: percent(run_report.gpu_percent(run))),
    ("fell_back", "FELL BACK", run_report.fallback_text),
    ("steps_per_second", "STEPS/S", lambda run: speed_text(run.throughput)),
    ("verdict", "VERDICT", _verdict),
)

OPTIONAL_COLUMNS: tuple[Column, ...] = (
    ("framework", "FRAMEWORK", lambda run: framework_text(run.framework)),
    ("node", "NODE", lambda run: clean(run.node)),
    ("host", "HOST", lambda run: clean(run.host)),
    ("gpus", "GPUS", comparable_runs.gpu_models_text),
    ("driver", "DRIVER", lambda run: clean(run.driver_version)),
    ("workload", "WORKLOAD", comparable_runs.workload),
    ("measured_on", "MEASURED ON", lambda run: comparable_runs.device_kind(run) if run.throughput else UNKNOWN),
)
"""Columns that appear after the configuration if the runs differ in them."""

_MAX_NAMED = 6
HEADS = {name: head for name, head, _ in (*COLUMNS, *OPTIONAL_COLUMNS)} | {"started": "STARTED"}
RIGHT_ALIGNED = frozenset({"granted", "seen_by_nvml", "on_gpu_percent", "steps_per_second"})


def compare(runs: Sequence[Run]) -> Comparison:
    """The runs as a comparison, with the best and worst among comparable runs."""
    group = comparable_runs.comparable_indices(runs)
    best: dict[str, int] = {}
    worst: dict[str, int] = {}
    speeds = {index: speed.steps_per_second for index in group if (speed := runs[index].throughput) is not None}
    by_speed = sorted(group, key=lambda index: -speeds.get(index, 0.0))
    # A run without a GPU holds no GPU memory and would always win.
    peaks = {index: comparable_runs.work_peak(runs[index]) or 0 for index in group}
    by_memory = sorted((index for index in group if peaks[index] and runs[index].device_map), key=peaks.__getitem__)
    amounts = [peaks[index] for index in by_memory]
    for position, marks in ((0, best), (-1, worst)):
        if len(by_speed) > 1:
            run, *others = (runs[index] for index in (by_speed if position == 0 else by_speed[::-1]))
            if not any(comparable_runs.why_speeds_alike(run, other) for other in others):
                marks["steps_per_second"] = by_speed[position]
        if len(by_memory) > 1 and amounts.count(amounts[position]) == 1:
            marks["seen_by_nvml"] = by_memory[position]
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
    for name, _, value in OPTIONAL_COLUMNS:
        known = {value(run) for run in runs} - {UNKNOWN}
        if name == "host" and all(run.node == run.host for run in runs):
            continue
        if len(known) > (name != "node"):  # on a cluster, also where one node answered
            different.append(name)
    names = [name for name, _, _ in COLUMNS]
    if len({(run.config, run.node) for run in runs}) < len(runs):
        different.insert(0, "started")
    return (*names[:1], *different, *names[1:])


def run_labels(runs: Sequence[Run]) -> tuple[str, ...]:
    """A name for each run: its configuration and node, numbered if it was run there more than once."""
    totals = Counter((run.config, run.node) for run in runs)
    seen_labels: Counter[tuple[str, str | None]] = Counter()
    names = []
    for run in runs:
        key = (run.config, run.node)
        seen_labels[key] += 1
        number = f" #{seen_labels[key]}" if totals[key] > 1 else ""
        where = f" on {clean(run.node)}" if run.node is not None else ""
        names.append(f"{clean(run.config)}{where}{number}")
    return tuple(names)


def names_by_config(runs: Sequence[Run], names: Sequence[str], indices: Iterable[int]) -> list[str]:
    """The names of some of ``runs``; a configuration that each node of a cluster ran is named once, with the nodes.

    ``growth`` (on all nodes, beside others), ``growth on all 8 nodes`` (alone), ``growth on 5 of 8 nodes``,
    ``growth on n1, n4``.
    """
    chosen = list(indices)
    only_one = len({run.config for run in runs}) == 1
    named: list[str] = []
    for config in dict.fromkeys(runs[index].config for index in chosen):
        indices_of_config = [index for index in chosen if runs[index].config == config]
        nodes = [run.node for run in runs if run.config == config]
        if len(nodes) < 2 or None in nodes or len(set(nodes)) < len(nodes):
            named += [names[index] for index in indices_of_config]
        elif len(indices_of_config) == len(nodes):
            named.append(f"{clean(config)} on all {len(nodes)} nodes" if only_one else clean(config))
        elif len(indices_of_config) > _MAX_NAMED:
            named.append(f"{clean(config)} on {len(indices_of_config)} of {len(nodes)} nodes")
        else:
            named.append(f"{clean(config)} on {', '.join(clean(runs[index].node) for index in indices_of_config)}")
    return named


def start_times(runs: Sequence[Run]) -> tuple[str, ...]:
    """When each run started, UTC; without the date if that is the same for all."""
    moments = [run.started_at.astimezone(datetime.UTC) for run in runs]
    one_day = len({moment.date() for moment in moments}) == 1
    return tuple(moment.strftime("%H:%M:%S" if one_day else "%Y-%m-%d %H:%M") for moment in moments)


def _notes(runs: Sequence[Run], group: tuple[int, ...]) -> list[str]:
    notes = []
    not_compared = [run for index, run in enumerate(runs) if run.throughput is not None and index not in group]
    if not_compared and group and not any(runs[index].simulated for index in group):
        first = runs[group[0]]
        names = _names_text(clean(run.config) for run in not_compared)
        what = f"{comparable_runs.workload(first)} on {comparable_runs.device_kind(first)}"
        if len(group) == 1:
            notes.append(f"The speed of {clean(first.config)} ({what}) is not comparable with that of {names}.")
        else:
            notes.append(f"Speeds are compared among the {len(group)} runs of {what}, not with {names}.")
    unsteady = [clean(run.config) for run in runs if is_unreliable(run.throughput)]
    if unsteady:
        notes.append(
            f"Speeds of {_names_text(unsteady)} are unreliable: {UNRELIABLE_REASON}; measure longer, on an idle"
            " machine."
        )
    return notes


def _names_text(names: Iterable[str]) -> str:
    """``a, b and 3 more``: the rows themselves are marked."""
    return first_and_more(list(dict.fromkeys(names)), _MAX_NAMED)


def run_cells(run: Run, columns: Sequence[Column] = COLUMNS) -> dict[str, str]:
    """Text of each cell of a run, by column."""
    return {name: value(run) for name, _, value in columns}


# Differences of two runs in sentences: other settings, other results, and what explains them


def differences(runs: Sequence[Run]) -> tuple[Difference, ...]:
    """Each run against another.

    Runs of one configuration are compared with each other (two versions, two machines), other runs with
    ``default`` if that was run, else with the run before.
    """
    return tuple(_difference(runs, number, other) for number, other in _pairs(runs))


def _pairs(runs: Sequence[Run]) -> Iterator[tuple[int, int]]:
    first_of_config: dict[str, int] = {}
    repeated = {run.config for run in runs if sum(other.config == run.config for other in runs) > 1}
    default = next((index for index, run in enumerate(runs) if run.config == "default"), None)
    for index, run in enumerate(runs):
        if run.verdict == "skipped":
            continue
        if run.config in repeated:
            if run.config in first_of_config:
                yield index, first_of_config[run.config]
            else:
                first_of_config[run.config] = index
            continue
        before = default if default is not None and "default" not in repeated else index - 1
        if before >= 0 and before != index and runs[before].verdict != "skipped":
            yield index, before


def _difference(runs: Sequence[Run], index: int, before: int) -> Difference:
    run, other = runs[index], runs[before]
    changed = tuple(_changes(run, other))
    effects = tuple(_effects(run, other))
    causes = _explaining_findings(run, other)
    name = clean(run.config)
    if run.config == other.config:
        name += f" ({', '.join(_distinguishing_texts(run, other)) or 'again'})"
        texts = ", ".join(_distinguishing_texts(other, run))
        head = f"{name} against {f'({texts})' if texts else 'the earlier run'}"
    else:
        head = f"{name} against {clean(other.config)}"
    sentences = [f"{head}: {'; '.join(changed) or 'the same settings'}."]
    text = "; ".join(effects)
    sentences.append(f"{text[:1].upper()}{text[1:]}." if effects else "Nothing else differs.")
    sentences += [f"{introduction} {finding.id}: {clean(finding.title)}." for introduction, finding in causes]
    return Difference(
        run=index,
        against=before,
        changed=changed,
        effects=effects,
        causes=tuple(dict.fromkeys(finding.id for _, finding in causes)),
        text=" ".join(sentences),
    )


def _distinguishing_texts(run: Run, other: Run) -> list[str]:
    facts = ((fact(run), fact(other)) for fact in comparable_runs.DISTINGUISHING_FACTS)
    # Only what is known of both can differ.
    return [text for text, another in facts if text != another and _UNKNOWN_FACTS.isdisjoint((text, another))]


def _changes(run: Run, other: Run) -> Iterator[str]:
    if texts := _distinguishing_texts(run, other):
        against = _distinguishing_texts(other, run)
        yield " and ".join(f"{text} instead of {other_text}" for text, other_text in zip(texts, against, strict=True))
    own_requests, other_requests = _requests(run), _requests(other)
    for name, setting in own_requests.items():
        if name not in other_requests:
            yield f"requests {_setting_text(name, setting.asked)}"
        elif setting.asked != other_requests[name].asked:
            yield f"requests {_setting_text(name, setting.asked)} instead of {clean(other_requests[name].asked)}"
    for name, setting in other_requests.items():
        if name not in own_requests:
            yield f"does not request {_setting_text(name, setting.asked)}"
    mine_computes, theirs_computes = comparable_runs.workloads(run, other)
    if mine_computes != theirs_computes:
        does = "runs" if comparable_runs.is_user_program(run) and comparable_runs.is_user_program(other) else "computes"
        yield f"{does} {mine_computes} instead of {theirs_computes}"


def _requests(run: Run) -> dict[str, Setting]:
    """The requested settings, without what a probe only noted."""
    return {name: setting for name, setting in run.settings.items() if run_report.is_requested(setting)}


def _setting_text(name: str, value: object) -> str:
    return run_report.setting_text(clean(name), value)


def _effects(run: Run, other: Run) -> Iterator[str]:
    if run.verdict != other.verdict:
        reason = f" ({clean(run.verdict_reason).rstrip('.')})" if run.verdict_reason else ""
        yield f"verdict {run.verdict} instead of {other.verdict}{reason}"
    if device_map(run) != device_map(other):
        yield f"device map {device_map(run)} instead of {device_map(other)}"
    granted, before = run_report.granted_text(run), run_report.granted_text(other)
    if granted != before:
        hows = dict.fromkeys(clean(entry.how) for entry in run.predicted or ())
        how = f" ({'; '.join(hows)})" if hows and granted != "–" else ""
        yield f"granted {granted} instead of {before}{how}"
    elif run.config == other.config and granted != "–":
        yield f"granted the same, {granted}"
    peak, against = comparable_runs.work_peak(run), comparable_runs.work_peak(other)
    if peak is not None and against is not None and abs(peak - against) > SAME_MEMORY_SHARE * max(peak, against):
        yield f"NVML saw {size(peak)} instead of {size(against)}"
    if run_report.fallback_text(run) != run_report.fallback_text(other) and run.fallbacks:
        yield f"ops fell back {run_report.fallback_text(run)}"
    yield from _speed_effects(run, other)
    if run.config == other.config:
        yield from _log_wording(run, other)


def _speed_effects(run: Run, other: Run) -> Iterator[str]:
    own, against = run.throughput, other.throughput
    if own is None or against is None or against.median_step_seconds <= 0 or own.median_step_seconds <= 0:
        return
    if not comparable_runs.same_work(run, other):
        device_kind, other_device_kind = comparable_runs.device_kind(run), comparable_runs.device_kind(other)
        if comparable_runs.workload(run) != comparable_runs.workload(other):
            hows = [clean(entry.execution) for entry in (own, against)]
            same_amount = comparable_runs.work_amount(run) == comparable_runs.work_amount(other)
            other_work = "a different command" if comparable_runs.is_user_program(run) else "a different amount of work"
            why = f"{hows[0]}, not {hows[1]}" if same_amount and all(hows) else other_work
        else:
            kinds = f"measured on {device_kind}, not on {other_device_kind}"
            why = kinds if device_kind != other_device_kind else "simulated on another computer"
        yield f"speeds not comparable ({why})"
        return
    ratio = against.median_step_seconds / own.median_step_seconds
    speeds_text = f"{speed_text(own)} against {speed_text(against)} steps/s"
    noise = why_not_comparable(own, against, simulated=run.simulated or other.simulated)
    if noise:
        yield f"{noise} ({speeds_text})"
    elif ratio >= 1:
        yield f"it is {ratio:.2f} times as fast ({speeds_text})"
    else:
        yield f"it takes {1 / ratio:.2f} times as long ({speeds_text})"


def _log_wording(run: Run, other: Run) -> Iterator[str]:
    """Messages that only one of the two logs has, ignoring numbers and paths."""
    own_messages, other_messages = _messages(run), _messages(other)
    sides = (
        ("its log has", "the other", own_messages, other_messages),
        ("the other's log has", "its own", other_messages, own_messages),
    )
    for owner, lacking_log, messages, other_side in sides:
        only = [text for shape, text in messages.items() if shape not in other_side]
        if only:
            lines = "a message" if len(only) == 1 else f"{len(only)} messages"
            yield f"{owner} {lines} that {lacking_log} lacks, such as “{only[0][:_MAX_LOG_CHARS]}”"


def _messages(run: Run) -> dict[str, str]:
    messages: dict[str, str] = {}
    for line in run.log_tail:
        message = source_message(line)
        if message is not None and _GPU_LINE.search(message[1]) and not _LOADING_LINE.search(message[1]):
            shape = _NUMBERS.sub("#", _PATHS.sub("/", message[1]))
            messages.setdefault(shape, clean(message[1]))
    return messages


def _explaining_findings(run: Run, other: Run) -> list[tuple[str, Finding]]:
    """The most severe finding that only this run has; else one that only the other has."""
    for introduction, item, another in (("Explained by", run, other), (f"{clean(other.config)} has", other, run)):
        elsewhere = {finding.id for finding in another.findings}
        new_findings = [finding for finding in item.findings if finding.id not in elsewhere and finding.id != "healthy"]
        if new_findings:
            return [(introduction, min(new_findings, key=lambda finding: SEVERITY_ORDER[finding.severity]))]
    return []
