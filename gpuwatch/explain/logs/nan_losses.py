"""Lines with a loss that is NaN or infinite."""

from __future__ import annotations

import re
from collections.abc import Sequence

_NAN = re.compile(
    r"(?P<name>[A-Za-z][\w/.@-]{0,60})['\"]?(?: {0,20}[=:|] {0,20}| (?:(?:is|was|became) )?)\(?['\"]?-?(?:nan|inf)\b",
    re.IGNORECASE,
)
_NAN_COLUMNS = re.compile(r"\s*\d{1,6}/\d{1,6}\s+[\d.]+G(?:\s+nan){2,}\s")
"""Ultralytics' row of a step: epoch, memory, then each loss."""
_OF_A_LOSS = re.compile(
    r"loss|entropy|(?:^|[/_.])(?:ce|nll|elbo|kl|mse|rmse|mae|objective|ppl)$|smoothl1|cost|perplexity|grad.?norm",
    re.IGNORECASE,
)
_NO_LOSS = re.compile(r"best|min|max|prev|old|limit|bound|clip|rew|len|return|time|eta", re.IGNORECASE)


def nan_loss_line(lines: Sequence[str]) -> str:
    """The last line with a loss that is NaN or infinite, if no later one shows it finite; empty without one."""
    for at in range(len(lines) - 1, -1, -1):
        if name := _nan_loss_name(lines[at]):
            finite = re.compile(rf"{re.escape(name)}\W{{1,20}}-?\d")
            return "" if any(map(finite.search, lines[at + 1 :])) else lines[at]
    return ""


def _nan_loss_name(line: str) -> str:
    """The name of the loss that a line says to be NaN or infinite; empty without one."""
    if _NAN_COLUMNS.match(line) is not None:
        return "loss"
    for found in _NAN.finditer(line):
        name = found["name"]
        if _OF_A_LOSS.search(name) is not None and _NO_LOSS.search(name) is None:
            return name
    return ""
