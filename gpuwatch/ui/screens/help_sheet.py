"""All keys as a sheet, in two columns where the width allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest

from gpuwatch.ui.drawing.styled_lines import Span, SpanLines, spans_width, wrap_line
from gpuwatch.ui.drawing.text_width import align_left, width_of
from gpuwatch.ui.screens.sheet_bases import LinesSheet, SheetPane
from gpuwatch.ui.settings.actions import ACTIONS, REPLAY_ACTIONS, Action, absent_actions
from gpuwatch.ui.settings.tabs import FLEET, TABS, panes_of
from gpuwatch.ui.tables.process_filter import FILTER_WORDS

_PANE_TITLES = {
    **dict.fromkeys(("overview", "summary", "users"), "1 Overview"),
    "gpus": "1 Overview: GPUs",
    "processes": "Process lists",
    **dict.fromkeys(("readings", "process"), "2 GPU, 3 Process"),
    "filterable": "2 GPU … 6 Events",
    "probes": "4 Probes",
    "findings": "5 Findings",
    "events": "6 Events",
    **dict.fromkeys(("fleet", "hosts"), "Hosts"),
    "timeline": "While paused",
    "everywhere": "Everywhere",
}
"""Headings of the panes; panes of the same heading are listed together."""
_FIRST_TITLE = "First"
_COMMON_ACTIONS = frozenset(
    {"open_process", "filter", "sort", "signal", "users", "findings", "pause", "jump", "help", "quit"}
)
"""Actions that a machine's help begins with, wherever they work."""
_COMMON_KEYS = "↵/sKufP;?q"
_FLEET_FILTER = (
    ("n04 h100", "both words, anywhere"),
    ("free", "has a free GPU; used, wrong, silent"),
    ("mem>20GiB free", "a free GPU with more than 20 GiB"),
    ("free>20GiB", "a GPU with more free memory; mem used util temp gpus"),
    ("host~dgx", "contains; model, user, state"),
    ("-user:alice", "does not match; works with all of these"),
)
_FLEET_SYMBOLS = (
    ("○", "a GPU that nobody uses"),
    ("▁▃▅█", "a GPU in use, and how busy it is"),
    ("■ ?", "in use, load unknown; nothing known"),
    ("✖", "lost or failed; or the host does not answer"),
    ("–", "could not be read"),
)
_SYMBOLS = (
    ("–", "could not be read; i shows why"),
    ("● ▴▼ ▲ ✖", "ok, high load or low clock, warning, error"),
    ("SEES 0→1", "its GPU 0 is physical GPU 1"),
    ("IDLE MBW%", "since its last kernel; memory bandwidth"),
    ("120s ┄┄", "time span of a graph, middle of its axis"),
    ("F4 … F10", "filter, tree, sort, signal, quit (htop)"),
    ("CPU", "on no GPU (/ gpu:cpu); Enter says why"),
    ("unexplained", "memory that no visible process owns"),
)
_MARGIN_CELLS = 2
_COLUMN_GAP_CELLS = 2
"""Cells between two columns."""
_VISIBLE_LINES = 38
"""Lines of the help that a terminal of 40 lines shows."""
MIN_TWO_COLUMNS_CELLS = 92
"""Cells from which the help has two columns."""


@dataclass(frozen=True, slots=True)
class HelpGroup:
    """A heading and its entries."""

    title: str
    rows: tuple[tuple[str, str], ...]
    """Key or word, and its meaning."""
    style: str = "key"

    def lines(self, width: int) -> SpanLines:
        size = max(width_of(sign) for sign, _ in self.rows) + 2
        found: SpanLines = [[(self.title, "title")]]
        for sign, meaning in self.rows:
            line = [(" " * _MARGIN_CELLS + align_left(sign, size), self.style), (meaning, "text")]
            found += wrap_line(line, width)
        return found


def help_groups(tab: str, key_name: Callable[[str], str] = str, *, replay: bool = False) -> list[HelpGroup]:
    """All keys: those of this tab first, then those that work everywhere, then those of the other tabs.

    ``replay``: those of a replay before all others, without those that it does not have.

    An entry that several panes share is listed with the first one. ``key_name`` spells a key as the terminal shows it.
    """
    fleet = tab == FLEET.id
    order = [*panes_of(tab), "everywhere", *(pane for other in TABS for pane in other.panes if not fleet)]
    left_out = absent_actions(tab, replay=replay)
    common: list[tuple[str, str]] = []
    found: dict[str, list[tuple[str, str]]] = {} if replay or fleet else {_FIRST_TITLE: common}
    listed: set[tuple[str, str]] = set()
    if replay:
        rows = found.setdefault("Replay of a recording", [])
        for action in REPLAY_ACTIONS:
            _add_entry(action, rows, key_name)
    for pane in dict.fromkeys(order):
        rows = found.setdefault(_PANE_TITLES[pane], [])
        if pane == "everywhere" and not fleet:
            rows.append((f"1-{len(TABS)}", " ".join(tab.title for tab in TABS)))
        into = rows
        for action in ACTIONS[pane]:
            entry = (action.help, action.shown)
            if not action.help or entry in listed or action.id in left_out or action.id.startswith("show_tab"):
                continue
            listed.add(entry)
            if not action.pair or not into:  # a pair follows its first half
                into = common if action.id in _COMMON_ACTIONS and _FIRST_TITLE in found else rows
            _add_entry(action, into, key_name)
    common.sort(key=lambda row: _COMMON_KEYS.find(row[0].split()[0]))
    keys = [HelpGroup(title, tuple(rows)) for title, rows in found.items() if rows]
    words, symbols = (_FLEET_FILTER, _FLEET_SYMBOLS) if fleet else (FILTER_WORDS, _SYMBOLS)
    return [*keys, HelpGroup("Filter", words, "strong"), HelpGroup("Symbols", symbols, "strong")]


def _add_entry(action: Action, rows: list[tuple[str, str]], key_name: Callable[[str], str]) -> None:
    """Adds an action, to the entry before it if they share a line."""
    if action.pair and rows:
        first, second = rows[-1][0], key_name(action.shown)
        both = first if second in first.split() else f"{first} {second}"  # one that names both stays
        rows[-1] = (both, action.pair)
    else:
        rows.append((key_name(action.shown), action.help))


def help_lines(groups: Sequence[HelpGroup], width: int) -> SpanLines:
    """The groups in one column, or in two of about the same height where ``width`` allows."""
    if width < MIN_TWO_COLUMNS_CELLS:
        return [line for group in groups for line in group.lines(width)]
    half = (width - _COLUMN_GAP_CELLS) // 2
    blocks = [group.lines(half) for group in groups]
    first, second = _split_columns(blocks)
    lines: SpanLines = []
    nothing: list[Span] = []
    for before, behind in zip_longest(first, second, fillvalue=nothing):
        room = width - half - spans_width(before)
        lines.append([*before, (" " * room, "text"), *behind] if behind else list(before))
    return lines


def _split_columns(blocks: list[SpanLines]) -> tuple[SpanLines, SpanLines]:
    """Two columns: between two groups if that balances them, else inside a group, whose heading is repeated."""
    heights = [len(block) for block in blocks]
    at = min(range(1, len(blocks) + 1), key=lambda at: max(sum(heights[:at]), sum(heights[at:])))
    first, second = ([line for block in part for line in block] for part in (blocks[:at], blocks[at:]))
    half = (sum(heights) + 1) // 2
    if max(len(first), len(second)) <= max(half, _VISIBLE_LINES):
        return first, second
    lines = [line for block in blocks for line in block]
    passed = 0
    for block in blocks:
        if passed + 2 <= half < passed + len(block) - 1:
            return lines[:half], [block[0], *lines[half:]]
        passed += len(block)
    return first, second


_MAX_WIDTH_COLUMNS = 150
"""Beyond this, a key and its meaning are too far apart."""


class HelpSheet(LinesSheet[None]):
    """Uses the whole height: all keys fit on 120x40."""

    def __init__(self, tab: str, key_name: Callable[[str], str], *, replay: bool = False) -> None:
        """``key_name`` spells a key as the terminal can show it; ``replay``: whether a recording is shown."""
        found = help_groups(tab, key_name, replay=replay)
        pane = SheetPane(help_lines(found, 0), wrap=partial(help_lines, found))
        pane.styles.width = "100%"
        pane.styles.max_width = _MAX_WIDTH_COLUMNS
        pane.styles.max_height = "100%"
        super().__init__("Keys", [], pane=pane)
