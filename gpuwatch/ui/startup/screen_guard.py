"""A shell that restores the terminal if the dashboard is killed."""

from __future__ import annotations

import subprocess
from contextlib import suppress

_MODES = (1000, 1003, 1015, 1006, 1016, 1004, 2004, 2048)
"""Modes of the terminal that Textual switches on: mouse, focus, pasted text, changes of size."""
_RESTORE = r"\033[<u" + "".join(rf"\033[?{mode}l" for mode in _MODES) + r"\033[?7h\033[?1049l\033[?25h"
_SHELL_SCRIPT = f"trap '' INT QUIT TERM TSTP TTOU; read -r left || printf '{_RESTORE}'"
_TIMEOUT_SECONDS = 5.0


class ScreenGuard:
    """A shell that waits at a pipe: its end without a word means that nobody has restored the screen."""

    def __init__(self, terminal: int) -> None:
        """``terminal``: the descriptor to which the screen is drawn."""
        self._shell: subprocess.Popen[bytes] | None = None
        with suppress(OSError):  # without /bin/sh nothing can be done
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", _SHELL_SCRIPT], stdin=subprocess.PIPE, stdout=terminal, stderr=subprocess.DEVNULL
            )

    def dismiss(self) -> None:
        """Ends the shell that would restore the screen: that is done."""
        if self._shell is not None:
            with suppress(OSError, subprocess.TimeoutExpired):
                self._shell.communicate(b"\n", timeout=_TIMEOUT_SECONDS)
