"""Rows of the probe table: configurations by group, each with its latest run and earlier ones. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from gpuwatch.core.model.run import Run
from gpuwatch.experiment.probing.probe_scripts import ProbeScript
from gpuwatch.ui.tables.filter_language import WordFilter


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group heading."""

    name: str
    count: int
    chosen: int
    ran: int
    folded: bool = False
    """Whether its configurations are hidden."""


@dataclass(frozen=True, slots=True)
class ConfigRow:
    """A configuration, and its latest run if there is one."""

    script: ProbeScript
    run: Run | None
    chosen: bool
    state: str = ""
    """``running``, ``waiting`` or empty."""


@dataclass(frozen=True, slots=True)
class EarlierRunRow:
    """An older run of the configuration above."""

    run: Run


ProbeRow = GroupRow | ConfigRow | EarlierRunRow
_PROGRAMS = "run"
"""Group of runs of users' programs: one that was tried with growth is no run of the probe of that name."""


def probe_rows(
    scripts: Mapping[str, ProbeScript],
    runs: Mapping[str, Run],
    earlier: Sequence[Run],
    *,
    chosen: set[str],
    running: str,
    waiting: frozenset[str],
    with_earlier: bool,
    folded: Set[str] = frozenset(),
    wanted: WordFilter | None = None,
) -> list[ProbeRow]:
    """Groups, their configurations and, if ``with_earlier``, the earlier runs of each.

    ``folded``: groups that show only their heading; a filter (``wanted``, by name, title and group) opens them.
    """
    if wanted is not None:
        scripts = {name: script for name, script in scripts.items() if wanted(name, script.title, script.group)}
        folded = frozenset()
    earlier_by_config: dict[str, list[Run]] = {}
    for run in earlier:
        if run.group != _PROGRAMS:
            earlier_by_config.setdefault(run.config, []).append(run)
    rows: list[ProbeRow] = []
    for group in dict.fromkeys(script.group for script in scripts.values()):
        members = [script for script in scripts.values() if script.group == group]
        names = {script.name for script in members}
        rows.append(GroupRow(group, len(members), len(names & chosen), len(names & runs.keys()), group in folded))
        if group in folded:
            continue
        for script in members:
            state = "running" if script.name == running else "waiting" if script.name in waiting else ""
            rows.append(ConfigRow(script, runs.get(script.name), script.name in chosen, state))
            if with_earlier:
                rows += [EarlierRunRow(run) for run in earlier_by_config.get(script.name, [])[:5]]
    if with_earlier:
        # Runs of configurations that were removed from the catalog are still results.
        removed = [run for run in earlier if run.config not in scripts or run.group == _PROGRAMS]
        if removed and wanted is None:
            rows += [GroupRow("no longer in the catalog", len(removed), 0, len(removed)), *map(EarlierRunRow, removed)]
    return rows
