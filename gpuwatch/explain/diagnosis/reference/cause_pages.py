"""The cause pages, in Markdown: ``gpuwatch/docs/causes/<id>.md``, one for each cause id."""

from __future__ import annotations

import re
from difflib import get_close_matches
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from gpuwatch.core.errors import GpuwatchError
from gpuwatch.core.model.causes import CAUSES

FOLDER = "docs/causes"
_MAX_SUGGESTIONS = 3
_MIN_WORD_CHARS = 3
"""Shorter words appear on every page."""

GROUPS = (
    ("Memory", "memory."),
    ("Placement, settings and code", ("placement.", "config.", "api.", "distribution.")),
    ("GPU visibility", "visibility."),
    ("Driver, libraries and build", ("driver.", "cuda.", "build.")),
    ("Shared machines", ("mode.", "mig.", "container.")),
    ("Hardware and performance", ("hardware.", "throttle.", "pcie.", "idle.", "input.", "function.", "program.")),
    ("No cause", ("simulation.", "healthy", "unknown")),
)
"""Headings of the list of causes, with the prefixes of their ids."""


def causes_by_heading() -> list[tuple[str, list[str]]]:
    """Every cause id by heading, in the order of :data:`CAUSES`."""
    return [(title, [cause for cause in CAUSES if cause.startswith(begins)]) for title, begins in GROUPS]


def page(cause: str) -> str:
    """The page of a cause in Markdown; KeyError for an unknown id, GpuwatchError if its file is not there."""
    if cause not in CAUSES:
        raise KeyError(cause)
    try:
        return _file(cause).read_text(encoding="utf-8")
    except OSError as error:
        raise GpuwatchError(
            f"the page about {cause} cannot be read: {error}", hint="install gpuwatch again: the pages are part of it"
        ) from error


def page_path(cause: str) -> Path | None:
    """The file of a page; None if there is none, as in a zip archive."""
    path = Path(str(_file(cause)))
    return path if path.is_file() else None


def _file(cause: str) -> Traversable:
    return files("gpuwatch") / FOLDER / f"{cause}.md"


_OUT_OF_MEMORY = ("memory.model-too-large", "memory.other-process", "memory.limit-too-small")
_NO_GPU = ("build.cpu-only", "driver.missing", "visibility.hidden")
_CAUSES_OF_SEARCH_WORD = {
    "oom": _OUT_OF_MEMORY,
    "out-of-memory": _OUT_OF_MEMORY,
    "resource-exhausted": _OUT_OF_MEMORY,
    "resourceexhaustederror": _OUT_OF_MEMORY,
    "no-gpu": _NO_GPU,
    "gpu-not-found": _NO_GPU,
    "cpu-only": _NO_GPU,
    "fallback": ("placement.no-kernel", "placement.device-missing", "build.cpu-only"),
    "slow": ("input.bound", "throttle.thermal", "throttle.power"),
}
"""Common search words, and the causes that they usually mean."""


def suggested_causes(word: str) -> list[str]:
    """Cause ids that ``word`` may mean, the likeliest first."""
    asked = word.strip().lower().replace("_", "-").replace(" ", "-")
    if asked in _CAUSES_OF_SEARCH_WORD:
        return list(_CAUSES_OF_SEARCH_WORD[asked])
    found = get_close_matches(asked, CAUSES, n=3, cutoff=0.7)
    names = {cause.partition(".")[2] or cause: cause for cause in CAUSES}
    found += map(names.__getitem__, get_close_matches(asked.partition(".")[2] or asked, names, n=2, cutoff=0.75))
    found += [cause for cause in CAUSES if asked and asked in cause]
    return list(dict.fromkeys(found))[:_MAX_SUGGESTIONS] or _causes_mentioning(word)


def _causes_mentioning(word: str) -> list[str]:
    """The causes whose pages contain the word most often: ``oom``, ``xid``, ``nvlink``."""
    if len(word.strip()) < _MIN_WORD_CHARS:
        return []
    pattern = re.compile(rf"\b{re.escape(word.strip())}\b", re.IGNORECASE)
    counts = {cause: len(pattern.findall(page(cause))) for cause in CAUSES}
    return [cause for cause in sorted(counts, key=lambda cause: -counts[cause]) if counts[cause]][:_MAX_SUGGESTIONS]
