"""Columns of the probe table: their widths, and texts abbreviated to them. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from gpuwatch.share.reports.runs_side_by_side import COLUMNS, RIGHT
from gpuwatch.ui.drawing.text_width import cut_to_width, width_of

_GPU_BEFORE_ARROW = re.compile(r"GPU:(\d+)→")
_UNIT_BEHIND = re.compile(r"(?<=\d) ([KMGT])iB\b")
_NUMBER_CONTINUES = re.compile(r"\.?\d")
_SHORT_NAMES = (
    ("memory_limit ", "limit "),
    ("per_process_gpu_memory_fraction", "fraction"),
    ("memory growth", "growth"),
    ("CUDA_DEVICE_ORDER=PCI_BUS_ID, ", ""),
    ("/physical_device:", ""),
    (" yes, GPU:", " yes, "),
    (" (expected error)", ""),
    ("everything ran on the CPU", "all→CPU"),
    ("not observed", "not seen"),
)
_MAX_NAME_WORDS = 5
"""Words of the longest name of a variable."""
MARKS_CELLS = 4
"""Cells of the cursor and the selection mark."""
_TITLES = {name: head for name, head, _ in COLUMNS}
_WIDTHS = {
    "config": (21, 24),
    "asked": (23, 31),
    "granted": (10, 20),
    "seen_by_nvml": (9, 12),
    "device_map": (7, 24),
    "on_gpu_percent": (6, 8),
    "fell_back": (9, 22),
    "steps_per_second": (10, 12),
    "verdict": (16, 30),
}
"""Usual and wide; the verdict gets the rest."""
_DROP_ORDER = ("fell_back", "on_gpu_percent", "device_map", "asked", "seen_by_nvml", "granted")
"""Columns dropped when there is no room, in this order."""
_DROPPED_FOR_FALLBACKS = "device_map"
"""Dropped instead of ``fell_back`` if a run has a value there and that is enough."""
_SHORT_TITLES = {"on_gpu_percent": "ON GPU", "seen_by_nvml": "NVML", "steps_per_second": "STEPS/S", "device_map": "MAP"}


@dataclass(frozen=True, slots=True)
class PlacedColumn:
    """A column and its position."""

    id: str
    title: str
    start: int
    width: int

    @property
    def at_right(self) -> bool:
        return self.id in RIGHT


@lru_cache(maxsize=32)
def place_columns(
    width: int, *, moved: bool = True, wants: tuple[tuple[str, int], ...] = ()
) -> tuple[PlacedColumn, ...]:
    """Columns that fit into ``width`` cells; ``moved``: whether any run fell back, else that column leaves first.

    ``wants``: cells of the longest text of columns, which get what the verdict does not need.
    """
    size = int(width >= 190)
    widths = {name: both[size] for name, both in _WIDTHS.items()}
    names = list(_TITLES)
    folding = list(_DROP_ORDER)

    def need() -> int:
        gaps = sum(a in RIGHT and b not in RIGHT for a, b in pairwise(names))
        return MARKS_CELLS + sum(widths[name] + 1 for name in names) + gaps - 1

    if moved and need() > width:
        names.remove(_DROPPED_FOR_FALLBACKS)
        if need() > width:
            names.insert(list(_TITLES).index(_DROPPED_FOR_FALLBACKS), _DROPPED_FOR_FALLBACKS)
    while folding and need() > width:
        dropped = folding.pop(0)
        names = [name for name in names if name != dropped]
    spare = width - need() + widths["verdict"] - max(dict(wants).get("verdict", 0), widths["verdict"])
    for name, cells in wants:
        if name in names and name != "verdict" and widths[name] < cells and spare > 0:
            more = min(cells - widths[name], spare)
            widths[name], spare = widths[name] + more, spare - more
    placed: list[PlacedColumn] = []
    x = MARKS_CELLS
    for name in names:
        wide = widths[name] if name != "verdict" else max(width - x, 2)
        title = _TITLES[name] if len(_TITLES[name]) <= wide else _SHORT_TITLES.get(name, _TITLES[name])
        # A gap between a number and the text after it.
        if placed and placed[-1].at_right and name not in RIGHT:
            x += 1
            wide = wide - 1 if name == "verdict" else wide
        placed.append(PlacedColumn(name, title, x, wide))
        x += wide + 1
    return tuple(placed)


def fit_cell(text: str, width: int) -> str:
    """A cell's text, abbreviated if too long: ``0→0 1→1``, ``…VISIBLE_DEVICES=-1``, ``1.5G+138G``.

    If it still does not fit, it is cut before a number, never inside one.
    """
    if width_of(text) <= width:
        return text
    if "→" in text:
        text = _short_map(_GPU_BEFORE_ARROW.sub(r"\1→", text).replace(", ", " "), width)
        return text if width_of(text) <= width else _cut_before_number(text, width)
    for name, short in _SHORT_NAMES:
        text = text.replace(name, short)
    if width_of(text) <= width:
        return text
    if " · " in text:
        return cut_to_width(_cut_cause(text, width), width)
    text = _UNIT_BEHIND.sub(r"\1", text).replace(" + ", "+")
    if ", " in text:
        text = text.replace("=true", "")
    # The value of a variable matters more than the start of its name, which is cut between two words.
    for dropped in range(_MAX_NAME_WORDS):
        parts = [_cut_variable(part, dropped) for part in text.split(", ")]
        if width_of(", ".join(parts)) <= width:
            return ", ".join(parts)
    parts = [_cut_variable(part, _MAX_NAME_WORDS) for part in text.split(", ")]
    return _cut_before_number(", ".join(parts), width)


def _cut_cause(verdict: str, width: int) -> str:
    """``✖ oom · limit…`` for a cause of several words: cut between two of them, or left out."""
    before, _, cause = verdict.partition(" · ")
    words = cause.split("-")
    for count in range(len(words) - 1, 0, -1):
        text = f"{before} · {'-'.join(words[:count])}…"
        if width_of(text) <= width:
            return text
    return before


def _cut_variable(part: str, count: int) -> str:
    """``…ALLOW_GROWTH=true`` for a variable without its first two words; other text stays."""
    name, equals, value = part.partition("=")
    if not count or "_" not in name or not name.isupper():
        return part
    return f"…{'_'.join(name.split('_')[count:])}{equals}{value}"


def _short_map(text: str, width: int) -> str:
    """``0-7→0-7`` for a map of consecutive numbers."""
    pairs = [pair.partition("→") for pair in text.split(" ")]
    if width_of(text) <= width or len(pairs) < 3 or not all(a.isdigit() and b.isdigit() for a, _, b in pairs):
        return text
    numbers = [(int(a), int(b)) for a, _, b in pairs]
    (first, there), (last, end) = numbers[0], numbers[-1]
    steps = [(first + n, there + n) for n in range(len(numbers))]
    return f"{first}-{last}→{there}-{end}" if numbers == steps else text


def _cut_before_number(text: str, width: int) -> str:
    """Cut with an ellipsis; a number that does not fit is dropped entirely."""
    short = cut_to_width(text, width)
    kept = short.removesuffix("…")
    if kept[-1:].isdigit() and _NUMBER_CONTINUES.match(text, len(kept)):
        kept = kept.rstrip("0123456789.-")
    return kept.rstrip(" ,+=→") + "…" if kept else short
