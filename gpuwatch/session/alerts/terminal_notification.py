"""Desktop notifications through the terminal: OSC 9 and OSC 777, which many terminals show, and others ignore.

Only words of ours are sent: what a program on the machine could choose never reaches the terminal. OSC 9 followed by
``4;`` would be a progress bar, so a text never begins with it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping

from gpuwatch.core.model.causes import CAUSES
from gpuwatch.core.model.findings import Alert

_OSC_777 = ("foot", "rxvt", "konsole")
"""Terminals, by the start of TERM, that support OSC 777 but not OSC 9."""
_TMUX_QUERY = ("tmux", "show-options", "-pAv", "allow-passthrough")
"""What holds in this pane, wherever it was set."""
_TMUX_SECONDS = 2.0


def notification_text(alert: Alert) -> str:
    """Text of a notification: the title of the cause, from our list, and the index of the GPU."""
    title = CAUSES.get(alert.finding.id, "a finding")
    gpu = "" if alert.device_index is None else f"GPU {alert.device_index}: "
    text = f"gpuwatch: {gpu}{title}" + (" (resolved)" if alert.phase == "end" else "")
    return "".join(character for character in text if character.isprintable() and character not in ";\\")


class TerminalNotification:
    """``--notify``. The terminal is written in the thread of the channel, as tmux may have to be asked."""

    name = "--notify"

    def __init__(self, write: Callable[[str], None], environment: Mapping[str, str]) -> None:
        self._write = write
        self._environment = environment

    def deliver(self, alert: Alert) -> None:
        if sequence := escape_sequence(alert, self._environment):
            self._write(sequence)

    def cancel(self) -> None:
        """A notification is too short to be ended."""


def escape_sequence(alert: Alert, environment: Mapping[str, str]) -> str:
    """What to write to the terminal; empty where it would not arrive."""
    term = environment.get("TERM", "")
    in_tmux = bool(environment.get("TMUX")) or term.startswith("tmux")
    if term in ("", "dumb", "linux", "unknown") or (not in_tmux and (environment.get("STY") or term == "screen")):
        return ""
    text = notification_text(alert)
    body = f"777;notify;gpuwatch;{text}" if term.startswith(_OSC_777) else f"9;{text}"
    sequence = f"\x1b]{body}\x1b\\"
    if not in_tmux:
        return sequence
    if not _tmux_lets_through():
        return ""
    # tmux: escapes inside are doubled.
    return "\x1bPtmux;" + sequence.replace("\x1b", "\x1b\x1b") + "\x1b\\"


def _tmux_lets_through() -> bool:
    try:
        result = subprocess.run(_TMUX_QUERY, capture_output=True, text=True, timeout=_TMUX_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return result.returncode == 0 and result.stdout.strip() in ("on", "all")
