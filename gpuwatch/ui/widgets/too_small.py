"""The message on a terminal that is too small for the dashboard."""

from __future__ import annotations

from textual import events

from gpuwatch.ui.drawing.cells import width_of
from gpuwatch.ui.drawing.layout import MIN_HEIGHT, MIN_WIDTH
from gpuwatch.ui.widgets.paint import BLANK, Line, Painted


class TooSmall(Painted):
    """One line with the required size."""

    def on_resize(self, event: events.Resize) -> None:
        """Centres the message."""
        width, height = self.size
        size = self.app.size
        text = f"Terminal too small: {size.width}×{size.height}, needs {MIN_WIDTH}×{MIN_HEIGHT}"
        if width_of(text) > width:
            text = f"needs {MIN_WIDTH}×{MIN_HEIGHT}"
        above = [BLANK] * max((height - 1) // 2, 0)
        self.paint([*above, Line(((text[:width].center(width), "warning"),))])
