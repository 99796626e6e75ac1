"""Readers of other tools' files: profiles, allocator snapshots, test results; the error that they raise."""


class InvalidTrace(ValueError):
    """The file is none of its kind, is cut off, or exceeds a limit; the message says why."""
