"""How processes that gpuwatch starts for itself are told from programs of users."""

from __future__ import annotations

PROBE_SERVER = "_gpuwatch_fork_server.py"
"""The file whose processes run probes."""
HELPER = "# helper of gpuwatch"
"""The first line of programs that gpuwatch runs for itself."""


def is_own(command: str | None) -> bool:
    """Whether a command line is that of a helper or a probe of gpuwatch: nobody's program."""
    return command is not None and (HELPER in command or PROBE_SERVER in command)
