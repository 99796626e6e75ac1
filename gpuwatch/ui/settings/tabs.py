"""The tabs in order: an entry here makes a key, a name in the top line and a palette entry."""

from __future__ import annotations

import itertools
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tab:
    """One tab."""

    id: str
    """Also the module of its screen in :mod:`gpuwatch.ui.screens`, and its class: ``GpuScreen`` for ``gpu``."""
    title: str
    help: str
    panes: tuple[str, ...]
    """Those with actions of their own, in the order of the help."""
    prepared: bool = True
    """Whether its modules are imported while idle, so that it opens without delay."""


# fmt: off
TABS = (
    Tab("overview", "Overview", "Everything at a glance: GPUs, processes, findings",
        ("overview", "processes", "gpus", "summary", "users", "timeline")),
    Tab("gpu", "GPU", "One GPU: readings, graphs, processes, limits, events",
        ("filterable", "readings", "processes", "timeline")),
    Tab("process", "Process", "One process: its GPUs, settings, history, tree", ("filterable", "process", "timeline")),
    Tab("probes", "Probes", "Run memory and placement settings and compare them", ("filterable", "probes"),
        prepared=False),
    Tab("findings", "Findings", "All findings, with evidence and what to do", ("filterable", "findings", "timeline")),
    Tab("events", "Events", "What happened since gpuwatch started", ("filterable", "events", "timeline")),
)
# fmt: on
FLEET = Tab("fleet", "Hosts", "All hosts: free GPUs, users, problems", ("fleet", "hosts"))
"""The list of hosts, over the tabs of one of them."""

_NEW_EVENTS = " new"
"""After a name."""
_HOST_CELLS = 8
"""Cells kept for the host name, which the numbers may take: they are keys."""


def number_of(tab_id: str) -> int:
    """The number key of a tab."""
    return next(number for number, tab in enumerate(TABS, 1) if tab.id == tab_id)


def panes_of(tab_id: str) -> tuple[str, ...]:
    """The panes of a tab that have actions of their own."""
    return next(tab.panes for tab in (*TABS, FLEET) if tab.id == tab_id)


def tab_labels(active: str, room: int, unseen: int = 0) -> list[tuple[str, str, str]]:
    """Tab id, text and style of each name, fitted into ``room`` cells: with numbers, without, or the first ones alone.

    ``unseen``: number of new events.
    """
    ways = [(["numbers"] * len(TABS), _HOST_CELLS), (["names"] * len(TABS), 0)]
    for named in range(len(TABS), -1, -1):
        ways.append((["numbers" if n < named and tab.id != active else "folded" for n, tab in enumerate(TABS)], 0))
    for forms, more_room in ways:
        numbered = zip(itertools.count(1), TABS, forms, strict=False)
        shown = [_label(number, tab, tab.id == active, form, unseen) for number, tab, form in numbered]
        # Room for the word is reserved, so that names do not jump when something happens.
        coming = 0 if unseen else len(_NEW_EVENTS)
        if sum(len(text) for _, text, _ in shown) + coming <= room + more_room:
            break
    return shown


def _label(number: int, tab: Tab, active: bool, form: str, unseen: int) -> tuple[str, str, str]:
    text = f"{number} {tab.title}" if form == "numbers" else tab.title
    if form == "folded" and not active:
        text = str(number)
    new = unseen > 0 and tab.id == "events"
    if new and not active:
        text += _NEW_EVENTS
    return tab.id, f"[{text}]" if active else f" {text} ", "title" if active else "text" if new else "dim"
