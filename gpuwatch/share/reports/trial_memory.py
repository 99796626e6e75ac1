"""Who held GPU memory under each setting (``gpuwatch try --memory``), side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuwatch.core.formatting.units import UNKNOWN, size
from gpuwatch.core.model.memory_profile import MemoryProfile
from gpuwatch.core.model.try_experiment import Trial
from gpuwatch.experiment.trials.trial_summary import recorded_profiles
from gpuwatch.explain.traces.largest_holder import holder_name
from gpuwatch.explain.traces.tensorflow_op_names import inside
from gpuwatch.share.reports.chart_types import MEMORY_GROUPS, Bars, Kind, Part, Row
from gpuwatch.share.reports.report_elements import Table, clean, columns, drawable

_MIN_SHARE = 0.0005
"""Share of the largest peak below which a group has no column."""
_MAX_HOLDERS = 15
_MAX_SETTINGS = 6
"""Settings whose holders are shown side by side."""
_MISSING = "not recorded"
_FREE: tuple[Kind, str] = ("free", "")


def recorded_tables(trials: Sequence[Trial]) -> Iterator[Table]:
    """The groups of each setting's peak, and the largest holders; nothing if no run was recorded."""
    tried = {trial.name: trial for trial in trials if trial.recorded and trial.run is not None}
    if not tried:
        return
    profiles = recorded_profiles(trials)
    yield _groups(tried, profiles)
    if len(profiles) > 1:
        yield _holders(dict(list(profiles.items())[:_MAX_SETTINGS]))


def _groups(tried: dict[str, Trial], profiles: dict[str, MemoryProfile]) -> Table:
    top = max((profile.peak_bytes for profile in profiles.values()), default=0)
    held = {name: _parts(profile) for name, profile in profiles.items()}
    groups = [
        group
        for group in (*MEMORY_GROUPS, _MISSING)
        if any(parts.get(group, 0) >= max(_MIN_SHARE * top, 1) for parts in held.values())
    ]
    cells = []
    for name, trial in tried.items():
        profile, amounts = profiles.get(name), held.get(name, {})
        cells.append(
            {
                "SETTING": clean(name),
                "PEAK": size(profile.peak_bytes) if profile is not None else UNKNOWN,
                **{group.upper(): size(amounts[group]) if amounts.get(group) else UNKNOWN for group in groups},
                "LARGEST HOLDER": _why_not(trial) if profile is None else _largest(profile),
            }
        )
    heads, rows = columns(cells)
    bars = []
    for name, amounts in held.items():
        drawn = ((group, amounts[group]) for group in groups if amounts.get(group))
        parts = tuple(Part(MEMORY_GROUPS.get(group, _FREE)[0], group, held, size(held)) for group, held in drawn)
        bars.append(Row(clean(name), parts, size(profiles[name].peak_bytes)))
    chart = Bars("At the peak, by group", tuple(bars), float(top), "from 0 to the largest peak") if top else None
    return Table(
        "Who held the memory",
        heads,
        rows,
        heads[1:-1],
        note="Bytes in use by the framework's allocator at its peak, recorded in one more run of each setting: "
        "recording slows the program down, so its speed is not compared.",
        keep=("SETTING",),
        below="LARGEST HOLDER",
        charts=drawable(chart),
    )


def _parts(profile: MemoryProfile) -> dict[str, int]:
    missing = profile.peak_bytes - profile.live_bytes
    return {**profile.groups, **({_MISSING: missing} if missing > 0 else {})}


def _largest(profile: MemoryProfile) -> str:
    if not profile.holders:
        return UNKNOWN
    most = profile.holders[0]
    return f"{clean(holder_name(most, profile.tool)) or 'an op without a name'}: {size(most.allocated_bytes)}"


def _why_not(trial: Trial) -> str:
    problems = trial.run.problems if trial.run is not None else ()
    reasons = (text.partition(": ")[2] for text in problems if text.startswith("memory"))
    return clean(next(reasons, "no GPU memory was recorded"))


def _holders(profiles: dict[str, MemoryProfile]) -> Table:
    """The largest holders under each setting, those with the same name on one line."""
    amounts: dict[tuple[str, str], dict[str, int]] = {}
    for name, profile in profiles.items():
        for holder in profile.holders:
            by_setting = amounts.setdefault((holder.group, holder.variable or inside(holder.op) or holder.source), {})
            by_setting[name] = by_setting.get(name, 0) + holder.allocated_bytes
    largest = sorted(amounts.items(), key=lambda entry: -max(entry[1].values()))[:_MAX_HOLDERS]
    rows = (
        (clean(name), clean(group), *(size(by_setting.get(setting)) for setting in profiles))
        for (group, name), by_setting in largest
    )
    return Table(
        "Largest holders, side by side",
        ("Op, variable or line", "Group", *map(clean, profiles)),
        tuple(rows),
        tuple(map(clean, profiles)),
        note="Entries with the same name are added up, regardless of shape.",
        folded=True,
        sortable=True,
    )
