"""Errors that are shown to the user: one line on stderr, a hint, and an exit code. Any other exception is a bug."""

from __future__ import annotations

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_FINDING = 3
EXIT_DIFFERENT = 3
"""``gpuwatch diff`` found differences."""
EXIT_PROBE_BROKEN = 4


class GpuwatchError(Exception):
    """Something that gpuwatch could not do: what went wrong, and what the user can do about it."""

    exit_code = EXIT_FAILED

    def __init__(self, message: str, *, hint: str = "", exit_code: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if exit_code is not None:
            self.exit_code = exit_code


class UsageError(GpuwatchError):
    """The command was wrong (unknown name, invalid option): exit code 2."""

    exit_code = EXIT_USAGE


PROCESS_LIMIT_HINT = "at the limit of processes and threads? see ulimit -u, and pids.max of the container or job"
"""For a process or thread that the system does not start (EAGAIN); Python has no errno for a thread."""


def is_thread_refused(error: BaseException) -> bool:
    """Whether the system refused to start a thread."""
    return isinstance(error, RuntimeError) and "can't start new thread" in str(error)
