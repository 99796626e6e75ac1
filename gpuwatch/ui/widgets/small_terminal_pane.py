"""The pane that replaces a tab on a terminal that is too small for it."""

from __future__ import annotations

from gpuwatch.ui.panes.small_terminal import small_terminal_lines
from gpuwatch.ui.widgets.one_line_panes import OneLinePane


class TooSmall(OneLinePane):
    """On a terminal that is too small for the dashboard: GPUs, what is wrong, and the required size."""

    def _draw(self, width: int, height: int) -> None:
        if self._view is not None:
            self.paint(small_terminal_lines(self._view, width, height), stale=self._view.stale)
