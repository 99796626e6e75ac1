"""The line of keys that work in the focused pane, from the table of actions. Pure, no Textual."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gpuwatch.session.view import View
from gpuwatch.ui.drawing.line_builder import LineBuilder
from gpuwatch.ui.drawing.styled_lines import Line, Span
from gpuwatch.ui.drawing.text_width import cut_to_width, width_of
from gpuwatch.ui.settings.actions import Action, pane_actions

HELP_AND_QUIT_CELLS = 17
"""Cells that a message leaves for help and quit."""
NO_PROCESS_TITLES = dict.fromkeys(("open_process", "environment", "signal", "tag", "missing", "tree"), "")
"""Titles where no process is listed, so that keys about one do nothing."""
_FIRST_KEYS = {
    "processes": ("/", "s", "K", "p", "#", "I", "r", "u", "↵"),  # that Enter opens a row is known
    **dict.fromkeys(("gpus", "summary"), ("↵", "/", "s", "K", "p", "#", "I", "r", "u")),
    "readings": ("Esc", "← →", "[ ]", "#", "K", "/", "r"),
    "timeline": ("← →", "PgUp", "PgDn", "P", "T"),
    "probes": ("x", "↵", "space", "/", "p", "c", "o"),
}
"""Keys of a pane that a narrow line names, too: what most people come for."""


def gpu_number_range(view: View) -> str:
    """``0-3``: which numbers the key of GPUs takes; empty if there is no GPU."""
    found = [device.index for device in view.devices]
    return f"{min(found)}-{max(found)}" if len(found) > 1 else "".join(map(str, found))


def gpu_number_title(view: View) -> dict[str, str]:
    """The title of that key, by its id."""
    return {"gpu_number": f"GPU {numbers}" if (numbers := gpu_number_range(view)) else ""}


def key_line(
    width: int,
    pane: str,
    tab: str,
    *,
    titles: Mapping[str, str],
    note: tuple[str, bool] = ("", False),
    message: Span = ("", "text"),
    replay: bool = False,
    covered: bool = False,
    name: Callable[[str], str] = str,
) -> tuple[Line, list[tuple[int, int, Action]]]:
    """The line, and the place of each action in it.

    ``titles``: titles that differ from the table of actions, by action id; empty: the action is unavailable.
    ``note``: at the right, and whether it is a warning. ``message``: the result of the last action, with its style; it
    replaces keys. ``replay``: whether a recording is shown, which has keys of its own. ``covered``:
    whether a sheet is open, so that none of these keys works. ``name`` spells keys.
    """
    builder = LineBuilder(width)
    builder.add(" ")
    text, hiding = note  # which names the filter, and so its key
    if message[0]:
        beside = max(HELP_AND_QUIT_CELLS, (width_of(text) + 3) * hiding)  # a filter outlives help and quit
        builder.add(cut_to_width(message[0], builder.width - beside), message[1]).add("  ")
    if covered:
        return builder.fill_to(builder.width).line(), []
    actions = [a for a in pane_actions(pane, tab, replay=replay) if a.footer and not (hiding and a.id == "filter")]
    first = () if replay else _FIRST_KEYS.get(pane, ())  # a replay's own keys come first
    actions.sort(key=lambda action: [*first, action.shown].index(action.shown))
    last = [a for a in actions if a.id in ("help", "quit")]
    named = [a for a in actions if a in last or a.shown in first]
    room = builder.cells_left - sum(len(name(a.shown)) + len(titles.get(a.id, a.title)) + 3 for a in named)
    if room + len(named) < 0:  # the range of GPUs goes before a key
        titles = {id: title for id, title in titles.items() if id != "gpu_number" or not title}
    gap = 2 if message[0] or room >= (width_of(text) + 2 if text else 0) else 1  # closer, before a key is left out
    reserve = sum(len(name(a.shown)) + len(a.title) + 1 + gap for a in last)
    reserve += width_of(text) + 2 if text else 0
    places = []
    for action in actions:
        title = titles.get(action.id, action.title)
        if not title:
            continue
        key = name(action.shown)
        need = len(key) + len(title) + 1 + gap
        if action in last:
            reserve -= need
        if builder.cells_left - reserve < need and (hiding or action not in last):
            continue
        places.append((builder.x, builder.x + need - gap, action))
        builder.add(key, "key").add(f" {title}", "dim")
        builder.fill_to(builder.x + gap, style="dim")
    if builder.cells_left >= width_of(text) + 1:
        builder.fill_to(builder.width - width_of(text) - 1).add(text, "warning" if hiding else "dim")
    return builder.fill_to(builder.width).line(), places
