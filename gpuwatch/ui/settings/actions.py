"""The table of actions: key bindings, footer, help and command palette are all made from it.

To add an action: an entry here, and a method ``action_<id>`` on the screens of its tabs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpuwatch.ui.settings.tabs import FLEET, TABS, panes_of

if TYPE_CHECKING:
    from textual.binding import BindingType

_KEY_TEXTS = {
    "slash": "/",
    "semicolon": ";",
    "question_mark": "?",
    "plus": "+",
    "minus": "-",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "left_curly_bracket": "{",
    "right_curly_bracket": "}",
    "enter": "↵",
    "escape": "Esc",
    "tab": "Tab",
    "shift+tab": "⇧Tab",
    "ctrl+p": "^P",
    "ctrl+z": "^Z",
    "right": "→",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "home": "Home",
    "end": "End",
    "full_stop": ".",
    "comma": ",",
    "number_sign": "#",
}
"""Keys as shown to the user, if Textual names them otherwise."""


@dataclass(frozen=True, slots=True)
class Action:
    """An action bound to keys."""

    id: str
    keys: str
    """Textual's key names, separated by commas."""
    title: str
    """At most two words, for the footer."""
    help: str
    """Empty: the help leaves it out."""
    label: str = ""
    """The key as shown to the user, if not the first of ``keys``."""
    footer: bool = True
    name: str = ""
    """Its name in the palette; empty: the palette does not have it."""
    run: str = ""
    """Textual's action string; ``id`` if empty."""
    pair: str = ""
    """What the help says of this action and the one before it, which share a line."""

    @property
    def shown(self) -> str:
        first = self.keys.partition(",")[0]
        return self.label or _KEY_TEXTS.get(first, first)


def _no_footer(id: str, keys: str, title: str, help: str, **more: str) -> Action:
    """An action that is not in the footer."""
    return Action(id, keys, title, help, footer=False, **more)


_OLD_SIGNAL_KEY = _no_footer("up_by_k", "k", "up", "")
"""``k`` once sent a signal, as in htop: now it moves up, and the first time the footer names the new key."""

# fmt: off
_SORT_ACTIONS = (
    Action("sort", "s,f6", "sort", "Choose the column to sort by", name="Sort by…"),
    _no_footer("reverse", "S,shift+f6", "reverse", "Reverse the order", pair="Choose the column to sort by; reverse",
        name="Reverse the sort order"),
)
_GO_TO_ACTIONS = (
    Action("go_to_trouble(1)", "n", "next problem", "Next warning or error", name="Next warning or error"),
    _no_footer("go_to_trouble(-1)", "N", "previous", "Previous warning or error", name="Previous warning or error",
        pair="Next or previous problem"),
    _no_footer("go_to_event(1)", "full_stop", "next event", "Next event", name="Next event",
        pair="Next or previous problem, next event"),
    _no_footer("go_to_event(-1)", "comma", "previous event", "Previous event", name="Previous event",
        pair="Next or previous warning or error; event"),
    Action("go_to_time", "T", "time", "Go to a time: 14:05, 20 min ago", name="Go to a time…"),
)
"""To other moments of the past: of a recording, or of the last hour."""
ACTIONS: dict[str, tuple[Action, ...]] = {
    "overview": (
        Action("filter", "slash,f4", "filter", "Filter the list by words; Esc clears", name="Filter processes"),
        *_SORT_ACTIONS,
        _no_footer("sort_by_memory", "M", "by memory", "Sort by GPU memory", name="Sort by GPU memory"),
        Action("users", "u", "users", "Totals by user, by job, or processes", name="Totals by user or job"),
        _no_footer("layout", "L", "layout", "", name="Layout of the GPUs"),
        _no_footer("findings", "f", "findings", "All findings, with evidence", name="Findings"),
        Action("idle", "I", "idle", "To the next process that holds memory idle",
            pair="All findings; next idle holder (▲ or ●)", name="Idle holders"),
        _no_footer("doctor", "d", "doctor", ""),
        Action("probe_gpu", "p", "probe", "Run a probe by name, on a free or this GPU"),
        _no_footer("clear", "escape", "clear", "Clear filter, tags, selection; back to now", name="Clear the filter"),
    ),
    "processes": (
        Action("open_process", "enter", "open", "Show all details", name="Process details"),
        Action("missing", "i", "missing values", "Why values here are missing", name="Missing values"),
        Action("environment", "e", "env", "Show its environment, with secrets masked", name="Environment"),
        Action("signal", "K,f9", "signal", "Signal it, or the tagged ones; asks first", name="Send a signal"),
        _OLD_SIGNAL_KEY,
        Action("tree", "t,f5", "tree", "Show processes as a tree, or as a list", name="Process tree"),
        Action("tag", "space", "tag", "Tag this process, for a signal to several", name="Tag this process"),
        Action("choose_columns", "c,f2", "columns", "Choose columns, or fields of GPUs", name="Process columns…"),
    ),
    "gpus": (
        Action("choose_fields", "c,f2", "fields", "Choose columns, or fields of GPUs", name="GPU fields…"),
        Action("choose_graphs", "C", "graphs", "Choose graphs of GPUs", name="GPU graphs…"),
        Action("layout", "L", "layout", "GPUs as lines, cards or graphs",
            pair="Choose graphs of GPUs; lines, cards or graphs"),
        Action("sort_gpus", "s,f6", "sort GPUs", "Sort GPUs by the next load, or by index", name="Sort GPUs by…"),
        Action("choose_gpu", "enter", "open", "Show all details", name="GPU details"),
        Action("missing_device", "i", "missing values", "Why values here are missing",
            name="Missing values of the GPU"),
        Action("probe_gpu", "p", "probe", "Run a probe by name, on a free or this GPU", name="Probe this GPU"),
    ),
    "summary": (Action("open_summary_item", "enter", "go there", "", name="Go to what is free, idle or wrong"),),
    "users": (
        Action("open_user", "enter", "processes", "In the totals: the processes of this line",
            name="Processes of this user or job"),
        Action("users", "right,u", "by job", "", label="→"),
        Action("leave_users", "escape", "all processes", ""),
    ),
    "filterable": (
        Action("filter", "slash,f4", "filter", "Filter the list by words; Esc clears", name="Filter the list"),
    ),
    "readings": (
        Action("unfold", "enter,space", "unsupported", "Show what is not supported"),
        Action("back", "escape", "back", "Back to the previous tab"),
        Action("move('left')", "left", "next GPU", "Previous or next GPU or process", label="← →"),
        Action("past(-1)", "left_square_bracket", "time", "", label="[ ]"),
        Action("missing_device", "i", "missing values", "Why values here are missing"),
        Action("signal", "K,f9", "signal", "Signal it, or the tagged ones; asks first"),
    ),
    "process": (
        Action("back", "escape", "back", "Back to the previous tab"),
        Action("move('left')", "left", "switch", "Previous or next GPU or process", label="← →"),
        Action("environment", "e", "env", "Show its environment, with secrets masked", name="Environment"),
        Action("tree", "t", "tree", "Show processes as a tree, or as a list", name="Parents and children"),
        Action("signal", "K,f9", "signal", "Signal it, or the tagged ones; asks first", name="Send a signal"),
        _OLD_SIGNAL_KEY,
        Action("missing", "i", "missing values", "Why values here are missing"),
    ),
    "probes": (
        Action("run_probes", "x", "run", "Run the selection or this row; again: stop", name="Run probes"),
        Action("open_run", "enter", "open", "Show this run or its settings; fold a group", name="Open or fold"),
        Action("toggle_choice", "space", "select", "Select this configuration, or its group", name="Select this probe"),
        Action("toggle_all", "a", "all", "Select all configurations, or none", name="Select all probes",
            pair="Select this one or its group; all or none"),
        Action("options", "p", "options", "Workload, time, limit, GPU, interpreter", name="Probe parameters"),
        Action("code", "e", "as code", "Show the settings as code to paste", name="Settings as code"),
        Action("report", "o", "HTML", "Write an HTML report into this folder", name="HTML report"),
        Action("compare", "c", "earlier", "Compare all or selected runs; earlier runs",
            name="Compare selected or earlier runs"),
        _no_footer("cancel", "escape", "stop", ""),
    ),
    "findings": (
        Action("open_finding", "enter", "evidence", "Show the evidence and what to do", name="Evidence"),
        Action("copy_action", "c", "copy", "Copy the action to the clipboard", name="Copy the action"),
        Action("open_page", "p", "cause page", "Its page: symptoms, solution, how to reproduce", name="Cause page"),
    ),
    "events": (
        Action("open_event", "enter", "open", "Show the whole event", name="Show this event"),
        Action("view_event", "v", "view state", "Pause and show the machine at this event", name="View at this event"),
    ),
    "fleet": (
        Action("filter", "slash,f4", "filter", "Show only hosts that match (see Filter)", name="Filter hosts"),
        *_SORT_ACTIONS,
        Action("only_free", "o", "free", "Only hosts with free GPUs, or all", name="Only hosts with free GPUs"),
        Action("only_wrong", "f", "problems", "Only hosts with errors, warnings or no answer, or all",
            name="Only problems"),
        _no_footer("back", "escape", "clear", "Clear the filter"),
    ),
    "hosts": (Action("open_host", "enter", "open", "Show this host; Esc comes back", name="Open this host"),),
    "timeline": (
        # The help names these keys beside the ones that work everywhere.
        Action("past(-1)", "left,h", "sample", "", label="← →"),
        _no_footer("past(1)", "right,l", "forward", ""),
        Action("past_seconds(-60)", "pageup", "-1 min", ""),
        Action("past_seconds(60)", "pagedown", "+1 min", ""),
        Action("past_end(False)", "home,g", "oldest", "", name="Oldest sample"),
        Action("past_end(True)", "end,G", "newest", "", name="Newest sample"),
        *(replace(action, footer=action.id == "go_to_time") for action in _GO_TO_ACTIONS),
        _no_footer("refuse_signal", "K,f9", "signal", ""),
        _no_footer("pause", "escape", "back to now", ""),
    ),
    "everywhere": (
        Action("pause", "P", "pause", "Pause the display, or return to now (Esc)", name="Pause or resume"),
        _no_footer("past(-1)", "left_square_bracket", "back", "One sample back (an hour is kept)",
            name="One sample back"),
        _no_footer("past(1)", "right_square_bracket", "forward", "One sample forward", name="One sample forward",
            pair="One sample back or forward (← →)"),
        _no_footer("past_seconds(-60)", "left_curly_bracket", "1 min back", "One minute back", name="One minute back"),
        _no_footer("past_seconds(60)", "right_curly_bracket", "1 min forward", "One minute forward",
            name="One minute forward", pair="One minute back or forward (PgUp PgDn)"),
        _no_footer("change_interval(-1)", "plus,equals_sign", "faster", "Sample more often", name="Sample more often"),
        _no_footer("change_interval(1)", "minus", "slower", "Sample less often", name="Sample less often",
            pair="Sample more or less often"),
        _no_footer("save_settings", "w,f12", "save", "Save all settings; again: undo",
            name="Save settings"),
        _no_footer("back", "escape", "back", "Back to the previous tab", name="Previous tab"),
        Action("gpu_number", "number_sign", "GPU", "A GPU by its number", name="GPU by number…",
            pair="Back to the previous tab; a GPU by its number"),
        *(
            _no_footer(f"show_tab('{tab.id}')", str(number), tab.title, tab.help, name=f"Tab {number}: {tab.title}")
            for number, tab in enumerate(TABS, 1)
        ),
        _no_footer("next_pane", "tab", "next pane", "Next pane", run="app.focus_next"),
        _no_footer("previous_pane", "shift+tab", "back", "Previous pane", run="app.focus_previous",
            pair="Next or previous pane"),
        _no_footer("copy_command", "y", "copy command", "Copy this as a gpuwatch command", name="Copy as command"),
        Action("diagnostic", "r", "report", "Write a report on this machine, to send to whoever helps",
            name="Report on this machine", pair="Copy as a gpuwatch command; write a report"),
        _no_footer("jump", "semicolon", "jump", "Label all on screen; a label goes there", name="Jump by label"),
        Action("help", "question_mark,f1", "help", "All keys", name="Keys and symbols"),
        Action("palette", "ctrl+p", "palette", "Any action by name, on any tab; themes", run="command_palette",
            pair="All keys; any action by name; themes"),
        Action("quit", "q,f10", "quit", "Leave gpuwatch", name="Quit"),
        _no_footer("suspend", "ctrl+z", "suspend", "Suspend to the shell, until fg",
            pair="Leave; suspend to the shell, until fg", run="app.suspend_process"),
        _no_footer("move('up')", "up,k", "up", "One row up", label="↑ k"),
        _no_footer("move('down')", "down,j", "down", "One row down", label="↓ j", pair="One row up or down"),
        _no_footer("move('left')", "left", "left", "Previous GPU; in a table: scroll back", label="← h"),
        _no_footer("left_or_help", "h", "left", ""),
        _no_footer("move('right')", "right,l", "right", "Next GPU; in a table: scroll the command", label="→ l",
            pair="Previous or next GPU; scroll a table"),
        _no_footer("move('page_up')", "pageup", "page up", ""),
        _no_footer("move('page_down')", "pagedown", "page down", ""),
        _no_footer("move('home')", "home,g", "first", "To the first row", label="Home"),
        _no_footer("move('end')", "end,G", "last", "To the last row", label="End",
            pair="First or last row or sample (g, G)"),
    ),
}
"""Actions by the pane in which they work; ``everywhere``: on every tab, ``overview``: in every pane of that tab."""

REPLAY_ACTIONS = (
    Action("play", "space", "pause", "Play or pause (P)", name="Play or pause"),
    *_GO_TO_ACTIONS,
    Action("change_speed(1)", "plus,equals_sign", "faster", "Play faster", name="Play faster"),
    _no_footer("change_speed(-1)", "minus", "slower", "Play slower", name="Play slower",
        pair="Play faster or slower, 1/4 to 64 times"),
    _no_footer("report_stretch", "r", "report", "Write a report on the last half hour",
        name="Report on the last half hour"),
)
# fmt: on
"""Actions of a replay, on every tab; their keys do nothing else there."""
NOT_IN_REPLAY = frozenset(
    (
        *("pause", "signal", "up_by_k", "tag", "refuse_signal", "probe_gpu", "run_probes", "options", "toggle_choice"),
        *("toggle_all", "diagnostic", "change_interval(-1)", "change_interval(1)"),
    )
)
"""Actions on the machine as it is now, which a replay does not offer, and those that it has under another name."""

NOT_IN_FLEET = frozenset(
    {
        "pause",
        "diagnostic",
        "jump",
        "gpu_number",
        *(action.id for action in ACTIONS["everywhere"] if action.id.startswith(("past", "show_tab"))),
    }
)
"""Actions on one machine, which the list of hosts does not have."""


def absent_actions(tab: str, *, replay: bool) -> frozenset[str]:
    """Ids of the actions that a tab does not have although its panes do."""
    return NOT_IN_REPLAY if replay else NOT_IN_FLEET if tab == FLEET.id else frozenset()


def pane_actions(pane: str, tab: str, *, replay: bool = False) -> tuple[Action, ...]:
    """Actions available while ``pane`` of ``tab`` is focused: those of a replay, the pane's, the tab's, global ones."""
    found: list[Action] = [*REPLAY_ACTIONS] if replay else []
    for place in (pane, tab if tab in ("overview", "fleet") else "filterable", "everywhere"):
        # A pane's key hides the same key elsewhere.
        taken = {key for action in found for key in action.keys.split(",")}
        found += [action for action in ACTIONS.get(place, ()) if not taken & set(action.keys.split(","))]
    return tuple(action for action in found if action.id not in absent_actions(tab, replay=replay))


def tab_actions(tab: str, *, replay: bool = False) -> list[Action]:
    """Every action of a tab: those of a replay, then by pane, then the global ones."""
    panes = (ACTIONS[pane] for pane in (*panes_of(tab), "everywhere"))
    here = [action for pane in panes for action in pane if action.id not in absent_actions(tab, replay=replay)]
    return [*REPLAY_ACTIONS, *here] if replay else here


def bindings(pane: str) -> list[BindingType]:
    """Textual bindings of one pane's actions, run by the screen; without those that Textual handles.

    ``pane`` is ``replay`` for a replay's actions, whose keys come before those of any pane.
    """
    from textual.binding import Binding  # the table itself can be read without Textual

    replay = pane == "replay"
    return [
        Binding(
            action.keys, f"screen.{action.id}", action.title, id=f"gpuwatch.{action.id}", show=False, priority=replay
        )
        for action in (REPLAY_ACTIONS if replay else ACTIONS[pane])
        if not action.run
    ]
