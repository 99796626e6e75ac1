"""ASCII mode: the last step before a line of the screen is written."""

from __future__ import annotations

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from gpuwatch.ui.glyphs import to_ascii


class AsciiFilter(LineFilter):
    """Lets nothing but ASCII through, whichever widget drew it: frames, palette and inputs included."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The same cells, in ASCII."""
        return [
            segment if segment.text.isascii() else Segment(to_ascii(segment.text), segment.style, segment.control)
            for segment in segments
        ]
