"""ASCII mode: converts each line just before it is written."""

from __future__ import annotations

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from gpuwatch.ui.drawing.glyphs import to_ascii


class AsciiFilter(LineFilter):
    """Converts the output of all widgets to ASCII, including frames, palette and inputs."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The same cells in ASCII."""
        return [
            segment if segment.text.isascii() else Segment(to_ascii(segment.text), segment.style, segment.control)
            for segment in segments
        ]
