"""The pane that replaces a tab on a terminal that is too small for it."""

from __future__ import annotations

from gpuwatch.ui.panes.small_terminal import tiny_lines
from gpuwatch.ui.widgets.one_line_panes import Strip


class TooSmall(Strip):
    """On a terminal that is too small for the dashboard: GPUs, what is wrong, and the required size."""

    def _draw(self, width: int, height: int) -> None:
        if self._view is not None:
            self.paint(tiny_lines(self._view, width, height), stale=self._view.stale)
