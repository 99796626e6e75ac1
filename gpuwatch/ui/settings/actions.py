"""The table of actions: key bindings, footer, help and command palette are all made from it.

To add an action: an entry here, and a method ``action_<id>`` on the screens of its tabs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuwatch.ui.settings.tabs import TABS, Pane, panes_of

if TYPE_CHECKING:
    from textual.binding import BindingType


@dataclass(frozen=True, slots=True)
class Action:
    """An action bound to keys."""

    id: str
    keys: str
    """Textual's key names, separated by commas."""
    shown: str
    """The key as shown to the user."""
    title: str
    """At most two words, for the footer."""
    help: str
    pane: Pane = "everywhere"
    footer: bool = True
    palette: bool = True
    name: str = ""
    """Its name in the palette; ``title`` if empty."""
    run: str = ""
    """Textual's action string; ``id`` if empty."""


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
        "Choose the column to sort by (or click its header)",
        "overview",
        name="Sort by…",
    ),
    Action(
        "reverse",
        "S,shift+f6",
        "S",
        "reverse",
        "Reverse the sort order (or click the header again)",
        "overview",
        footer=False,
        name="Reverse the sort order",
    ),
    Action("open_process", "enter", "↵", "details", "Show all details of this process", "processes", palette=False),
    Action(
        "missing",
        "i",
        "i",
        "missing values",
        "Why values of this row are missing: call, error code and reason",
        "processes",
        name="Missing values",
    ),
    Action(
        "environment",
        "e",
        "e",
        "env",
        "Show its environment, with secrets masked",
        "processes",
        name="Environment of this process",
    ),
    Action(
        "signal",
        "k,f9",
        "k",
        "signal",
        "Send INT, TERM or KILL to this process or the tagged ones; asks first",
        "processes",
        name="Send a signal",
    ),
    Action(
        "users",
        "u",
        "u",
        "users",
        "Totals by user: memory by GPU, processes, host CPU and memory; again: back to processes",
        "overview",
        footer=False,
        name="Totals by user",
    ),
    Action("open_user", "enter", "↵", "processes", "Show the processes of this user", "users", palette=False),
    Action("users", "u,escape", "u", "all processes", "Back to the process list", "users", palette=False),
    Action(
        "tree",
        "t,f5",
        "t",
        "tree",
        "Show processes as a tree, or as a list",
        "processes",
        name="Process tree",
    ),
    Action("tag", "space", "space", "tag", "Tag this process, for a signal to several", "processes", palette=False),
    Action(
        "choose_columns",
        "c,f2",
        "c",
        "columns",
        "Choose columns and their order",
        "processes",
        name="Process columns…",
    ),
    Action(
        "choose_fields",
        "c,f2",
        "c",
        "fields",
        "Choose the fields shown for each GPU, and their order",
        "gpus",
        name="GPU fields…",
    ),
    Action("choose_gpu", "enter", "↵", "details", "Show all details of this GPU", "gpus", palette=False),
    Action("missing_device", "i", "i", "missing values", "Why values of this GPU are missing", "gpus", palette=False),
    Action("probe_gpu", "p", "p", "probe", "Try memory and placement settings on this GPU", "gpus", palette=False),
    Action("open_findings", "enter", "↵", "evidence", "Show the evidence and what to do", "finding", palette=False),
    Action(
        "findings",
        "f",
        "f",
        "findings",
        "All findings with evidence and actions",
        "overview",
        footer=False,
        name="Findings",
    ),
    Action(
        "run_probes",
        "x",
        "x",
        "run",
        "Run the selected configurations, or this one; first shows who uses the GPU",
        "probes",
        name="Run probes",
    ),
    Action(
        "open_run",
        "enter",
        "↵",
        "open",
        "Show the results of this run, or its settings before it has run; fold a group",
        "probes",
        name="Open or fold this row",
    ),
    Action(
        "toggle_choice", "space", "space", "select", "Select this configuration, or its group", "probes", palette=False
    ),
    Action("toggle_all", "a", "a", "all", "Select all configurations, or none", "probes", name="Select all probes"),
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
    Action(
        "report", "o", "o", "report", "Write an HTML report of the table into this folder", "probes", name="HTML report"
    ),
    Action(
        "earlier",
        "c",
        "c",
        "earlier",
        "Show earlier runs below the latest ones",
        "probes",
        name="Compare with earlier runs",
    ),
    Action(
        "cancel",
        "escape",
        "Esc",
        "stop",
        "Stop the running probes; if none is running, go back to the previous tab",
        "probes",
        footer=False,
        palette=False,
    ),
    Action("back", "escape", "Esc", "back", "Back to the previous tab", "process", palette=False),
    Action("move('left')", "left,h", "← →", "switch", "Previous or next process", "process", palette=False),
    Action("environment", "e", "e", "env", "Go to its environment", "process", name="Environment of this process"),
    Action("tree", "t", "t", "tree", "Go to its parents and children", "process", name="Parents and children"),
    Action(
        "signal",
        "k,f9",
        "k",
        "signal",
        "Send INT, TERM or KILL to this process; asks first",
        "process",
        name="Send a signal",
    ),
    Action("missing", "i", "i", "missing values", "Why values of this process are missing", "process", palette=False),
    Action("back", "escape", "Esc", "back", "Back to the previous tab", "readings", palette=False),
    Action("move('left')", "left,h", "← →", "switch GPU", "Previous or next GPU", "readings", palette=False),
    Action(
        "missing_device", "i", "i", "missing values", "Why values of this GPU are missing", "readings", palette=False
    ),
    Action("open_finding", "enter", "↵", "evidence", "Show the evidence and what to do", "findings", palette=False),
    Action("open_event", "enter", "↵", "open", "Show the whole event", "events", palette=False),
    Action(
        "view_event",
        "v",
        "v",
        "view state",
        "Pause and show the machine at the time of this event",
        "events",
        name="View the machine at this event",
    ),
    Action("copy_action", "c", "c", "copy", "Copy the action to the clipboard", "findings", name="Copy the action"),
    Action(
        "open_page",
        "p",
        "p",
        "cause page",
        "The page about this cause: symptoms, similar causes, solution, how to reproduce it",
        "findings",
        name="Page about this cause",
    ),
    Action("past(-1)", "left,h", "← →", "sample", "One sample back, or forward", "timeline", palette=False),
    Action("past(1)", "right,l", "→", "forward", "One sample forward", "timeline", footer=False, palette=False),
    Action("past_seconds(-60)", "pageup", "PgUp", "-1 min", "One minute back", "timeline", palette=False),
    Action("past_seconds(60)", "pagedown", "PgDn", "+1 min", "One minute forward", "timeline", palette=False),
    Action("past_end(False)", "home,g", "Home", "oldest", "To the oldest sample", "timeline", palette=False),
    Action("past_end(True)", "end,G", "End", "newest", "To the newest sample", "timeline", palette=False),
    Action(
        "no_signal",
        "k,f9",
        "k",
        "signal",
        "No signals while paused (without processes: one row up)",
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
        "Freeze the screen to look back; sampling continues, resuming returns to now",
        name="Pause or resume",
    ),
    Action(
        "past(-1)",
        "left_square_bracket",
        "[",
        "back",
        "Pause and go one sample back (an hour is kept)",
        footer=False,
        name="One sample back",
    ),
    Action(
        "past(1)", "right_square_bracket", "]", "forward", "One sample forward", footer=False, name="One sample forward"
    ),
    Action(
        "past_seconds(-60)",
        "left_curly_bracket",
        "{",
        "1 min back",
        "Pause and go one minute back",
        footer=False,
        name="One minute back",
    ),
    Action(
        "past_seconds(60)",
        "right_curly_bracket",
        "}",
        "1 min forward",
        "One minute forward",
        footer=False,
        name="One minute forward",
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
        "Save theme, columns, sort order, filter, interval and tab",
        footer=False,
        name="Save settings",
    ),
    Action(
        "back",
        "escape",
        "Esc",
        "back",
        "Back to the previous tab, finally to the overview",
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
        "Go to the previous pane",
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
        "Find any action by name, or choose a theme",
        palette=False,
        run="command_palette",
    ),
    Action("quit", "q,f10", "q", "quit", "Leave gpuwatch", name="Quit"),
    Action(
        "suspend",
        "ctrl+z",
        "^Z",
        "suspend",
        "Suspend to the shell (fg resumes); sampling stops meanwhile",
        footer=False,
        palette=False,
        run="app.suspend_process",
    ),
    Action(
        "move('up')",
        "up,k",
        "↑ k",
        "up",
        "One row up (k sends a signal in process lists)",
        footer=False,
        palette=False,
    ),
    Action("move('down')", "down,j", "↓ j", "down", "One row down", footer=False, palette=False),
    Action(
        "move('left')",
        "left,h",
        "← h",
        "left",
        "Previous GPU; in the table: scroll the command back",
        footer=False,
        palette=False,
    ),
    Action(
        "move('right')",
        "right,l",
        "→ l",
        "right",
        "Next GPU; in the table: scroll the command",
        footer=False,
        palette=False,
    ),
    Action("move('page_up')", "pageup", "PgUp", "page up", "One page up", footer=False, palette=False),
    Action("move('page_down')", "pagedown", "PgDn", "page down", "One page down", footer=False, palette=False),
    Action("move('home')", "home,g", "Home g", "first", "To the first row", footer=False, palette=False),
    Action("move('end')", "end,G", "End G", "last", "To the last row", footer=False, palette=False),
)


def for_pane(pane: str, tab: str) -> tuple[Action, ...]:
    """Actions available while ``pane`` of ``tab`` is focused: the pane's, the tab's, then global ones."""
    order = (pane, "overview", "everywhere") if tab == "overview" else (pane, "everywhere")
    found: list[Action] = []
    taken: set[str] = set()
    for place in order:
        for action in ACTIONS:
            if action.pane == place and not taken & set(action.keys.split(",")):
                found.append(action)
        # A pane's key hides the same key elsewhere.
        taken = {key for action in found for key in action.keys.split(",")}
    return tuple(found)


def of_tab(tab: str) -> tuple[Action, ...]:
    """Every action of a tab, by pane, then the global ones."""
    panes = (*panes_of(tab), "everywhere")
    return tuple(action for pane in panes for action in ACTIONS if action.pane == pane)


def bindings(pane: Pane) -> list[BindingType]:
    """Textual bindings of one pane's actions, run by the screen; without those that Textual handles."""
    from textual.binding import Binding  # the table itself can be read without Textual

    return [
        Binding(action.keys, f"screen.{action.id}", action.title, id=f"gpuwatch.{action.id}", show=False)
        for action in ACTIONS
        if action.pane == pane and not action.run
    ]
