"""Messages to the app from other threads."""

from __future__ import annotations

from textual.message import Message


class LabChanged(Message, bubble=False):
    """Wake-up from the thread of the probes: a run, an event or a sample of memory has come."""

    def can_replace(self, message: Message) -> bool:
        """The pump keeps only one of a run of pending wake-ups."""
        return isinstance(message, LabChanged)
