"""Links in what the commands print on a terminal: cause ids to their pages, files that were written."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TextIO

from gpuwatch.core.formatting.links import file_url, linked, may_link
from gpuwatch.core.formatting.terminal import file_name


def file_shown(path: Path, stream: TextIO) -> str:
    """The name of a file, on a terminal as a link to it."""
    name = file_name(path)
    return linked(name, file_url(path)) if _links(stream) else name


def with_links(text: str, stream: TextIO) -> str:
    """``text`` with each cause id as a link to its page, if ``stream`` is a terminal."""
    if not _links(stream):
        return text
    from gpuwatch.core.model.findings import CAUSES
    from gpuwatch.explain.diagnosis.reference.cause_pages import page_path

    ids = "|".join(re.escape(cause) for cause in sorted(CAUSES, key=len, reverse=True) if "." in cause)
    pattern = re.compile(rf"(?<![\w.\-/:])(?:{ids})(?![\w\-/:]|\.\w)")

    def link(match: re.Match[str]) -> str:
        page = page_path(match[0])
        return linked(match[0], file_url(page)) if page is not None else match[0]

    return pattern.sub(link, text)


def _links(stream: TextIO) -> bool:
    return may_link(os.environ, terminal=stream.isatty())
