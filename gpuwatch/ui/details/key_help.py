"""The help sheet, made from the table of actions."""

from __future__ import annotations

from collections.abc import Callable

from gpuwatch.ui.drawing.wrapping import Lines
from gpuwatch.ui.settings.actions import ACTIONS, of_tab
from gpuwatch.ui.settings.tabs import TABS, panes_of

_HEADS = {
    "overview": "On this tab",
    "process": "On this tab",
    "gpus": "GPUs",
    "users": "Totals by user",
    "timeline": "While paused",
}
"""Titles of panes, if not their names."""
_FILTER = (
    ("python train", "both words, anywhere"),
    ('"python train"', "this exact text, even if it looks like a field"),
    ("user:al", "contains this text: user, type, container, framework, cmd"),
    ("gpu:1", "equals this: gpu, pid, mig; is listed in: visible, sees"),
    ("mem>2GiB", "mem, sm, mbw, enc, dec, cpu, host, threads, pid, and time>1h30m; also < = >= <="),
    ("-xorg", "does not match; works with all of the above"),
)
_SYMBOLS = (
    ("–", "could not be read; i shows why"),
    ("▲ ✖ ●", "warning, error, ok"),
    ("0→1", "the program's GPU 0 is physical GPU 1"),
    ("120s ┄┄", "time span of a graph, and the middle of its fixed axis"),
    ("HELD", "GPU memory by process, largest first, and what is free"),
    ("F4 … F10", "as in htop: F4 filter, F5 tree, F6 sort, F9 signal, F10 quit"),
    ("M P T I", "sort in htop; here s chooses a column, S reverses the order, P pauses"),
    ("unexplained", "memory in use that no visible process owns"),
)


def help_lines(tab: str, name: Callable[[str], str] = str) -> Lines:
    """The tabs, every action of this tab by pane, and the meaning of the symbols.

    ``name`` spells a key as the terminal can show it.
    """
    lines: Lines = [[("Tabs", "title")]]
    lines += [[(f"  {number} {tab.title:<10}", "key"), (tab.help, "text")] for number, tab in enumerate(TABS, 1)]
    lines.append([])
    size = max(8, *(len(name(action.shown)) + 1 for action in of_tab(tab)))
    for pane in (*panes_of(tab), "everywhere"):
        lines.append([(_HEADS.get(pane, pane.capitalize()), "title")])
        # The keys of the tabs are listed above.
        here = [one for one in ACTIONS[pane] if one.help and not one.id.startswith("show_tab")]
        lines += [[(f"  {name(action.shown):<{size}}", "key"), (action.help, "text")] for action in here]
        lines.append([])
    if tab == "overview":
        lines.append([("Filter syntax", "title")])
        lines += [[(f"  {word:<16}", "strong"), (meaning, "text")] for word, meaning in _FILTER]
        lines.append([])
    lines.append([("Symbols", "title")])
    lines += [[(f"  {sign:<13}", "strong"), (meaning, "text")] for sign, meaning in _SYMBOLS]
    return lines
