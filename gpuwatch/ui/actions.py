"""THE table of actions. Key bindings, footer, help and command palette all come from it.

To add one: an entry here, and a method ``action_<id>`` on the screens of its tabs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from gpuwatch.ui.tabs import TABS

if TYPE_CHECKING:
    from textual.binding import BindingType

Pane = Literal[
    "everywhere",
    "overview",
    "gpus",
    "processes",
    "finding",
    "readings",
    "process",
    "found",
    "happened",
    "probes",
    "timeline",
    "users",
]
"""Where an action works: on every tab, on the overview, or in one pane of a tab."""
PANES_OF_TABS: dict[str, tuple[Pane, ...]] = {
    "overview": ("overview", "processes", "gpus", "finding", "users", "timeline"),
    "gpu": ("readings", "processes", "timeline"),
    "process": ("process", "timeline"),
    "probes": ("probes",),
    "findings": ("found", "timeline"),
    "events": ("happened", "timeline"),
}


@dataclass(frozen=True, slots=True)
class Action:
    """Something that a key does."""

    id: str
    keys: str
    """Textual's names, separated by commas."""
    shown: str
    """The key as a person reads it."""
    title: str
    """Two words at most, for the footer."""
    help: str
    pane: Pane = "everywhere"
    footer: bool = True
    palette: bool = True
    name: str = ""
    """What the palette calls it, ``title`` when empty."""
    run: str = ""
    """Textual's action string, ``id`` when empty."""


ACTIONS: tuple[Action, ...] = (
    Action(
        "filter",
        "slash,f4",
        "/",
        "filter",
        'Show only processes that match: words, user:alice, mem>2GiB, time>1h30m, cmd:"a b", -xorg (not); '
        "every column is a field. Esc clears",
        "overview",
        name="Filter processes",
    ),
    Action(
        "sort",
        "s,f6",
        "s",
        "sort",
        "Choose the column to sort by (or click on its head)",
        "overview",
        name="Sort by…",
    ),
    Action(
        "reverse",
        "S,shift+f6",
        "S",
        "reverse",
        "Sort the other way round (or click on the head again)",
        "overview",
        footer=False,
        name="Reverse the order",
    ),
    Action(
        "missing",
        "i",
        "i",
        "why –",
        "Why cells of this row are empty: call, code and reason",
        "processes",
        name="Why cells are empty",
    ),
    Action("open_process", "enter", "↵", "all of it", "Show everything of this process", "processes", palette=False),
    Action(
        "environment",
        "e",
        "e",
        "env",
        "Show its environment, secrets masked",
        "processes",
        name="Environment of this process",
    ),
    Action("tag", "space", "space", "tag", "Tag this process, for a signal to several", "processes", palette=False),
    Action(
        "users",
        "u",
        "u",
        "users",
        "Totals by user: memory by GPU, processes, CPU and memory of the host; or the processes again",
        "overview",
        footer=False,
        name="Totals by user",
    ),
    Action("open_user", "enter", "↵", "processes", "Show the processes of this user", "users", palette=False),
    Action("users", "u,escape", "u", "all processes", "Back to the processes", "users", palette=False),
    Action(
        "tree",
        "t,f5",
        "t",
        "tree",
        "Each process below the one that started it, or not",
        "processes",
        name="Tree of the processes",
    ),
    Action(
        "signal",
        "k,f9",
        "k",
        "signal",
        "Send INT, TERM or KILL to this process, or to the tagged ones; asks first",
        "processes",
        name="Send a signal",
    ),
    Action(
        "choose_columns",
        "c,f2",
        "c",
        "columns",
        "Choose the columns and their order",
        "processes",
        name="Columns of the processes…",
    ),
    Action(
        "choose_fields",
        "c,f2",
        "c",
        "facts",
        "Choose what is told of each GPU, and in which order",
        "gpus",
        name="Facts of the GPUs…",
    ),
    Action("missing_device", "i", "i", "why –", "Why readings of this GPU are missing", "gpus", palette=False),
    Action("choose_gpu", "enter", "↵", "all of it", "Show everything of this GPU", "gpus", palette=False),
    Action("probe_gpu", "p", "p", "probe it", "Try memory and placement settings on this GPU", "gpus", palette=False),
    Action("open_findings", "enter", "↵", "evidence", "Show the evidence and what to do", "finding", palette=False),
    Action(
        "findings",
        "f",
        "f",
        "findings",
        "What is wrong: evidence, and what to do",
        "overview",
        footer=False,
        name="What is wrong",
    ),
    Action("run_probes", "x", "x", "run", "Run the chosen configurations, or this one", "probes", name="Run probes"),
    Action(
        "open_run",
        "enter",
        "↵",
        "open",
        "Show what this run did; run it if it has not been run",
        "probes",
        name="Open this run",
    ),
    Action(
        "toggle_choice", "space", "space", "choose", "Choose this configuration, or its group", "probes", palette=False
    ),
    Action("toggle_all", "a", "a", "all", "Choose all configurations, or none", "probes", name="Choose all probes"),
    Action(
        "options",
        "p",
        "p",
        "parameters",
        "Workload, seconds, limit, fraction, visible list, virtual GPUs, GPU, interpreter",
        "probes",
        name="Parameters of the probes",
    ),
    Action("code", "e", "e", "as code", "Show the settings as code to paste", "probes", name="Settings as code"),
    Action("report", "o", "o", "report", "Write what is shown as HTML into this folder", "probes", name="HTML report"),
    Action(
        "earlier",
        "c",
        "c",
        "earlier",
        "Show runs of earlier days below those of today",
        "probes",
        name="Compare with earlier runs",
    ),
    Action(
        "cancel",
        "escape",
        "Esc",
        "stop",
        "Stop the running probes; back to the tab before where none runs",
        "probes",
        footer=False,
        palette=False,
    ),
    Action("back", "escape", "Esc", "back", "Back to the tab that this one was opened from", "process", palette=False),
    Action("move('left')", "left,h", "← →", "another", "The process before, or after", "process", palette=False),
    Action("environment", "e", "e", "env", "To its environment", "process", name="Environment of this process"),
    Action("tree", "t", "t", "relatives", "To its parents and children", "process", name="Parents and children"),
    Action(
        "signal",
        "k,f9",
        "k",
        "signal",
        "Send INT, TERM or KILL to this process; asks first",
        "process",
        name="Send a signal",
    ),
    Action("missing", "i", "i", "why –", "Why readings of this process are missing", "process", palette=False),
    Action("back", "escape", "Esc", "back", "Back to the tab that this one was opened from", "readings", palette=False),
    Action("move('left')", "left,h", "← →", "another GPU", "The GPU before, or after", "readings", palette=False),
    Action("missing_device", "i", "i", "why –", "Why readings of this GPU are missing", "readings", palette=False),
    Action("open_finding", "enter", "↵", "evidence", "Show the evidence and what to do", "found", palette=False),
    Action("open_event", "enter", "↵", "open", "Show the whole event", "happened", palette=False),
    Action(
        "look_then",
        "v",
        "v",
        "view then",
        "Pause, and show the machine as it was at this event",
        "happened",
        name="View the machine at this event",
    ),
    Action("copy_action", "c", "c", "copy", "Copy what to do", "found", name="Copy what to do"),
    Action(
        "open_page",
        "p",
        "p",
        "about it",
        "The page about this cause: how it is recognised, mistaken, solved and shown",
        "found",
        name="Page about this cause",
    ),
    Action("past(-1)", "left,h", "← →", "sample", "One kept sample back, or on", "timeline", palette=False),
    Action("past(1)", "right,l", "→", "later", "One kept sample on", "timeline", footer=False, palette=False),
    Action("past_seconds(-60)", "pageup", "PgUp", "-1 min", "One minute back", "timeline", palette=False),
    Action("past_seconds(60)", "pagedown", "PgDn", "+1 min", "One minute on", "timeline", palette=False),
    Action(
        "past_end(False)", "home,g", "Home", "oldest", "To the oldest sample that is kept", "timeline", palette=False
    ),
    Action("past_end(True)", "end,G", "End", "newest", "To the newest sample", "timeline", palette=False),
    Action(
        "no_signal",
        "k,f9",
        "k",
        "signal",
        "No signals while paused (where there are no processes: one row up)",
        "timeline",
        footer=False,
        palette=False,
    ),
    Action("pause", "escape", "Esc", "back to now", "Back to now", "timeline", footer=False, palette=False),
    Action(
        "pause",
        "P",
        "P",
        "pause",
        "Freeze the screen and look back; sampling goes on, and resuming jumps to now",
        name="Pause or resume",
    ),
    Action(
        "past(-1)",
        "left_square_bracket",
        "[",
        "back",
        "Pause, and one kept sample back (an hour is kept)",
        footer=False,
        name="One sample back",
    ),
    Action("past(1)", "right_square_bracket", "]", "on", "One kept sample on", footer=False, name="One sample on"),
    Action(
        "past_seconds(-60)",
        "left_curly_bracket",
        "{",
        "1 min back",
        "Pause, and one minute back",
        footer=False,
        name="One minute back",
    ),
    Action(
        "past_seconds(60)", "right_curly_bracket", "}", "1 min on", "One minute on", footer=False, name="One minute on"
    ),
    Action("faster", "plus,equals_sign", "+", "faster", "Sample more often", footer=False, name="Sample more often"),
    Action("slower", "minus", "-", "slower", "Sample less often", footer=False, name="Sample less often"),
    Action(
        "clear",
        "escape",
        "Esc",
        "clear",
        "Clear the filter, then the tags, then the selection",
        "overview",
        footer=False,
        name="Clear the filter",
    ),
    Action(
        "save_settings",
        "w,f12",
        "w",
        "save",
        "Save theme, columns, order, filter, interval and tab as settings",
        footer=False,
        name="Save settings",
    ),
    Action(
        "back",
        "escape",
        "Esc",
        "back",
        "Back to the tab that this one was opened from, in the end to the overview",
        footer=False,
        palette=False,
    ),
    *(
        Action(
            f"show_tab('{tab.id}')",
            str(number),
            str(number),
            tab.title,
            tab.help,
            footer=False,
            name=f"Tab {number}: {tab.title}",
        )
        for number, tab in enumerate(TABS, 1)
    ),
    Action(
        "next_pane",
        "tab",
        "Tab",
        "next pane",
        "Go to the next pane (Shift+Tab: back)",
        footer=False,
        palette=False,
        run="app.focus_next",
    ),
    Action(
        "previous_pane",
        "shift+tab",
        "⇧Tab",
        "back",
        "Go to the pane before",
        footer=False,
        palette=False,
        run="app.focus_previous",
    ),
    Action("help", "question_mark,f1", "?", "help", "All keys", name="Keys and signs"),
    Action(
        "palette",
        "ctrl+p",
        "^P",
        "palette",
        "Find any action by its name, or choose a theme",
        palette=False,
        run="command_palette",
    ),
    Action("quit", "q,f10", "q", "quit", "Leave gpuwatch", name="Quit"),
    Action(
        "suspend",
        "ctrl+z",
        "^Z",
        "suspend",
        "To the shell; fg comes back. Sampling stands still meanwhile",
        footer=False,
        palette=False,
        run="app.suspend_process",
    ),
    Action(
        "move('up')",
        "up,k",
        "↑ k",
        "up",
        "One row up; k sends a signal where processes are listed",
        footer=False,
        palette=False,
    ),
    Action("move('down')", "down,j", "↓ j", "down", "One row down", footer=False, palette=False),
    Action(
        "move('left')",
        "left,h",
        "← h",
        "left",
        "GPU to the left; in the table: scroll the command back",
        footer=False,
        palette=False,
    ),
    Action(
        "move('right')",
        "right,l",
        "→ l",
        "right",
        "GPU to the right; in the table: scroll the command",
        footer=False,
        palette=False,
    ),
    Action("move('page_up')", "pageup", "PgUp", "page up", "One page up", footer=False, palette=False),
    Action("move('page_down')", "pagedown", "PgDn", "page down", "One page down", footer=False, palette=False),
    Action("move('home')", "home,g", "Home g", "first", "To the first row", footer=False, palette=False),
    Action("move('end')", "end,G", "End G", "last", "To the last row", footer=False, palette=False),
)


def for_pane(pane: str, tab: str) -> tuple[Action, ...]:
    """Actions that can be used while ``pane`` of ``tab`` is focused: its own, the tab's, everybody's."""
    order = (pane, "overview", "everywhere") if tab == "overview" else (pane, "everywhere")
    found: list[Action] = []
    taken: set[str] = set()
    for place in order:
        for action in ACTIONS:
            if action.pane == place and not taken & set(action.keys.split(",")):
                found.append(action)
        # What a pane does with a key hides what the key does elsewhere.
        taken = {key for action in found for key in action.keys.split(",")}
    return tuple(found)


def of_tab(tab: str) -> tuple[Action, ...]:
    """Every action of a tab, by pane, then those of all tabs."""
    panes = (*PANES_OF_TABS[tab], "everywhere")
    return tuple(action for pane in panes for action in ACTIONS if action.pane == pane)


def bindings(pane: Pane) -> list[BindingType]:
    """Textual bindings of one pane's actions, run by the screen; Textual's own keys are left to it."""
    from textual.binding import Binding  # what the table says can be read without Textual

    return [
        Binding(action.keys, f"screen.{action.id}", action.title, id=f"gpuwatch.{action.id}", show=False)
        for action in ACTIONS
        if action.pane == pane and not action.run
    ]
