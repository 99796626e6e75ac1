"""THE table of actions. Key bindings, footer, help and command palette all come from it.

To add one: an entry here, and a method ``action_<id>`` on the app.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from textual.binding import Binding, BindingType

Pane = Literal["anywhere", "gpus", "processes", "finding"]


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
    pane: Pane = "anywhere"
    footer: bool = True
    palette: bool = True
    name: str = ""
    """What the palette calls it, ``title`` when empty."""
    run: str = ""
    """Textual's action string, ``id`` when empty."""


ACTIONS: tuple[Action, ...] = (
    Action(
        "filter",
        "slash",
        "/",
        "filter",
        "Show only processes that match: words, user:alice, gpu:1, mem>2GiB, -xorg (not). Esc clears",
        name="Filter processes",
    ),
    Action("sort", "s,f6", "s", "sort", "Choose the column to sort by (or click on its head)", name="Sort by…"),
    Action(
        "reverse",
        "S,shift+f6",
        "S",
        "reverse",
        "Sort the other way round (or click on the head again)",
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
    Action("missing_device", "i", "i", "why –", "Why readings of this GPU are missing", "gpus", palette=False),
    Action("choose_gpu", "enter", "↵", "its processes", "Show only the processes of this GPU", "gpus", palette=False),
    Action("open_findings", "enter", "↵", "evidence", "Show the evidence and what to do", "finding", palette=False),
    Action("findings", "f", "f", "findings", "What is wrong: evidence, and what to do", footer=False, name="Findings"),
    Action(
        "pause",
        "space",
        "space",
        "pause",
        "Freeze the screen; sampling goes on, and resuming jumps to now",
        name="Pause or resume",
    ),
    Action("faster", "plus,equals_sign", "+", "faster", "Sample more often", footer=False, name="Sample more often"),
    Action("slower", "minus", "-", "slower", "Sample less often", footer=False, name="Sample less often"),
    Action(
        "clear", "escape", "Esc", "clear", "Clear the filter, then the selection", footer=False, name="Clear the filter"
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
    Action("quit", "q", "q", "quit", "Leave gpuwatch", name="Quit"),
    Action("move('up')", "up,k", "↑ k", "up", "One row up", footer=False, palette=False),
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


def for_pane(pane: str) -> tuple[Action, ...]:
    """Actions that can be used while ``pane`` is focused, its own first."""
    own = tuple(a for a in ACTIONS if a.pane == pane)
    return own + tuple(a for a in ACTIONS if a.pane == "anywhere")


def bindings(pane: str) -> list[BindingType]:
    """Textual bindings of one pane's actions, run by the screen; Textual's own keys are left to it."""
    return [
        Binding(action.keys, f"screen.{action.id}", action.title, id=f"gpuwatch.{action.id}", show=False)
        for action in ACTIONS
        if action.pane == pane and not action.run
    ]
