"""Why ``/proc`` does not show a process that the driver lists: another PID namespace, or hidepid (proc(5))."""

from __future__ import annotations

import os

ELSEWHERE = "in another PID namespace, or exited"
HIDDEN = "hidden from this user: /proc is mounted with "
"""The option follows: ``hidepid=2``."""
_OFF = ("0", "off")
_AGAIN = 60.0


class MissingProcesses:
    """The reason why ``/proc`` does not show a pid."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._option = ""
        self._read_at = float("-inf")

    def why(self, pid: int, now: float) -> str:
        """The reason at monotonic time ``now``.

        Signal 0 reaches every process of this PID namespace, also one that ``/proc`` hides (kill(2)).
        """
        if now - self._read_at >= _AGAIN:
            self._read_at, self._option = now, hiding_option(self._proc)
        return HIDDEN + self._option if self._option and _exists(pid) else ELSEWHERE


def hiding_option(proc: str = "/proc") -> str:
    """The option with which ``/proc`` hides processes of other users, ``hidepid=2``; empty where it hides none."""
    option = ""
    try:
        with open(f"{proc}/self/mountinfo", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            for line in file:
                mount, _, filesystem = line.partition(" - ")
                fields, of = mount.split(), filesystem.split()
                if len(fields) > 4 and fields[4] == "/proc" and len(of) > 2 and of[0] == "proc":
                    # A later mount covers the earlier ones.
                    found = [entry for entry in of[2].split(",") if entry.startswith("hidepid=")]
                    option = next((entry for entry in found if entry.partition("=")[2] not in _OFF), "")
    except OSError:
        return ""
    return option


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True
