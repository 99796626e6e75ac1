"""The tabs, in their order: one entry here makes a key, a name in the top line and a palette entry.

A tab's screen is imported and made when it is first looked at, so the first frame pays for none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuwatch.ui.screens.tab import TabScreen


@dataclass(frozen=True, slots=True)
class Tab:
    """One tab: its id, its name on screen, what help says of it."""

    id: str
    title: str
    help: str


TABS = (
    Tab("overview", "Overview", "Everything at a glance: GPUs, processes, what is wrong"),
    Tab("gpu", "GPU", "All of one GPU: every reading, graphs, processes, what probes were given there"),
    Tab("process", "Process", "One process: its GPUs, settings, history, findings, relatives, environment"),
    Tab("probes", "Probes", "What memory and placement settings really do here: run them and compare"),
    Tab("findings", "Findings", "Everything that was found, with its evidence and what to do"),
    Tab("events", "Events", "What happened, also while nobody looked: processes, throttling, devices, memory"),
)

_NEWS = 3
"""Cells of a number behind a name."""
_FACTS = 32
"""Cells of the driver's version and the like."""


PREPARED = ("gpu", "process", "findings", "events")
"""Tabs that are imported in idle time. Probes needs most, and is looked at by those who came for it."""


def prepare(tab_id: str) -> None:
    """Imports what :func:`make` needs, so that the first look at a tab does not wait for that."""
    import_module(f"gpuwatch.ui.screens.{tab_id}")


def make(tab_id: str) -> TabScreen:
    """The screen of a tab; KeyError for an id that is not in the table."""
    match tab_id:
        case "overview":
            from gpuwatch.ui.screens.overview import OverviewScreen

            return OverviewScreen()
        case "gpu":
            from gpuwatch.ui.screens.gpu import GpuScreen

            return GpuScreen()
        case "process":
            from gpuwatch.ui.screens.process import ProcessScreen

            return ProcessScreen()
        case "probes":
            from gpuwatch.ui.screens.probes import ProbesScreen

            return ProbesScreen()
        case "findings":
            from gpuwatch.ui.screens.findings import FindingsScreen

            return FindingsScreen()
        case "events":
            from gpuwatch.ui.screens.events import EventsScreen

            return EventsScreen()
    raise KeyError(tab_id)


def number_of(tab_id: str) -> int:
    """The key that shows a tab."""
    return next(number for number, tab in enumerate(TABS, 1) if tab.id == tab_id)


def labels(active: str, room: int, news: Mapping[str, int] | None = None) -> list[tuple[str, str, str]]:
    """Tab id, text and ink of each name, as it fits into ``room`` cells: with numbers, without, or folded.

    ``news``: how much is new on a tab, by its id.
    """
    return list(_labels(active, room, tuple((news or {}).items())))


@lru_cache(maxsize=32)
def _labels(active: str, room: int, told: tuple[tuple[str, int], ...]) -> list[tuple[str, str, str]]:
    news = dict(told)
    # What else the line has to say comes before the numbers, and after the names.
    for style, beside in (("numbers", _FACTS), ("names", 0), ("folded", 0)):
        shown = [
            _label(number, tab, tab.id == active, style, news.get(tab.id, 0)) for number, tab in enumerate(TABS, 1)
        ]
        # Room for news is kept before there are any: names that fold when something happens would jump.
        coming = 0 if any(news.values()) else _NEWS
        if sum(len(text) for _, text, _ in shown) + coming + beside <= room or style == "folded":
            return shown
    raise AssertionError("unreachable")


def _label(number: int, tab: Tab, active: bool, style: str, new: int) -> tuple[str, str, str]:
    text = f"{number} {tab.title}" if style == "numbers" else tab.title
    if style == "folded" and not active:
        text = str(number)
    if new and not active:
        text += f"+{new}" if new < 100 else "+99"
    return tab.id, f"[{text}]" if active else f" {text} ", "title" if active else "text" if new else "dim"
