"""Why ``/proc`` does not show a process that the driver lists: another PID namespace, or hidepid (proc(5))."""

from __future__ import annotations

import os

ELSEWHERE = "in another PID namespace, or exited"
"""Why nothing can be read about a pid that ``/proc`` does not have."""
HIDDEN = "hidden from this user: /proc is mounted with "
"""The option follows: ``hidepid=2``."""
_NOTHING_HIDDEN = ("0", "off")


def hiding_option(proc: str = "/proc") -> str:
    """The option with which ``/proc`` hides processes of other users, ``hidepid=2``; empty where it hides none."""
    option = ""
    try:
        with open(f"{proc}/self/mountinfo", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            for line in file:
                mount, _, filesystem = line.partition(" - ")
                fields, filesystem_fields = mount.split(), filesystem.split()
                if (
                    len(fields) > 4
                    and fields[4] == "/proc"
                    and len(filesystem_fields) > 2
                    and filesystem_fields[0] == "proc"
                ):
                    # A later mount covers the earlier ones.
                    options = [entry for entry in filesystem_fields[2].split(",") if entry.startswith("hidepid=")]
                    option = next((entry for entry in options if entry.partition("=")[2] not in _NOTHING_HIDDEN), "")
    except OSError:
        return ""
    return option


def process_exists(pid: int) -> bool:
    """Whether the process exists. Signal 0 reaches all in this PID namespace, even those that ``/proc`` hides."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True
