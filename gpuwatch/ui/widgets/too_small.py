"""What a terminal shows that is too small for anything else."""

from __future__ import annotations

from textual import events

from gpuwatch.ui.layout import MIN_HEIGHT, MIN_WIDTH
from gpuwatch.ui.widgets.paint import BLANK, Line, Painted


class TooSmall(Painted):
    """One line that says how large it wants to be."""

    def on_resize(self, event: events.Resize) -> None:
        """Centred in what there is."""
        width, height = self.size
        text = f"wants {MIN_WIDTH}×{MIN_HEIGHT}"
        if width >= 40:
            text = f"gpuwatch {text}, has {self.app.size.width}×{self.app.size.height}"
        above = [BLANK] * max((height - 1) // 2, 0)
        self.paint([*above, Line(((text[:width].center(width), "warning"),))])
