"""Recognizes processes that gpuwatch starts for itself (helpers, probes) by their command lines."""

from __future__ import annotations

PROBE_SERVER_FILE = "_gpuwatch_fork_server.py"
"""The file whose processes run probes."""
HELPER_MARK = "# helper of gpuwatch"
"""The first line of programs that gpuwatch runs for itself."""


def is_own_command(command: str | None) -> bool:
    """Whether a command line is that of a helper or a probe of gpuwatch: nobody's program."""
    return command is not None and (HELPER_MARK in command or PROBE_SERVER_FILE in command)
