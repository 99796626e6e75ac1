"""A probe's settings as code; ``c`` copies it."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from gpuwatch.core.formatting.text import printable
from gpuwatch.ui.screens.lines_modal import LinesModal


class CodeModal(LinesModal[None]):
    """Source code with dim comments."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "copy", "copy", show=False),
        Binding("e", "close", "close", show=False),
    ]

    def __init__(self, title: str, source: str) -> None:
        super().__init__(f"{title} as code", [_coloured(line) for line in source.splitlines()], to_copy=source)
        self.sheet.ending = "c copies  Esc closes"


def _coloured(line: str) -> list[tuple[str, str]]:
    code, mark, comment = line.partition("#")
    indent = len(line) - len(line.lstrip(" "))
    if mark and not code.strip():
        return [(line[:indent], "dim"), (printable(mark + comment), "dim")]
    return [(line[:indent], "text"), (printable(line[indent:]), "accent" if "os.environ" in line else "text")]
