"""The sign and the style of each severity, of findings and of events. Pure."""

from __future__ import annotations

from gpuwatch.ui.drawing.styled_lines import Span

SEVERITY_MARKS: dict[str, Span] = {"error": ("✖", "error"), "warning": ("▲", "warning"), "info": ("●", "text")}
"""Of what is true now."""
FINDING_MARKS = SEVERITY_MARKS | {"info": ("•", "dim")}
"""In lists of findings, where ``●`` is the healthy one."""
EVENT_MARKS = SEVERITY_MARKS | {"info": ("·", "dim"), "good": ("●", "ok")}
"""Of what happened."""
