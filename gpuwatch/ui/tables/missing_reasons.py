"""Why a value is missing: the reasons that last, and their text. Pure."""

from __future__ import annotations

from gpuwatch.core.model.reading import Missing
from gpuwatch.core.safe_text import printable

PERMANENT_REASONS = frozenset({"not_supported", "permission_denied", "unknown"})
"""Reasons for a missing value that waiting does not resolve."""


def missing_text(why: Missing) -> str:
    """Why a value is missing: the reason, and its detail if there is one."""
    return printable(f"{why.reason.replace('_', ' ')}{f': {why.detail}' if why.detail else ''}")
