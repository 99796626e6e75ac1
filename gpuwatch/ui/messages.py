"""Messages between the feed's thread, the app and its panes."""

from __future__ import annotations

from textual.message import Message


class SnapshotsArrived(Message, bubble=False):
    """Wake-up from the feed's thread: something can be drained.

    It carries nothing, so a burst of them may be merged without losing a sample.
    """

    def can_replace(self, message: Message) -> bool:
        """The pump keeps only one of a run of pending wake-ups."""
        return isinstance(message, SnapshotsArrived)


class LabChanged(Message, bubble=False):
    """Wake-up from the thread of the probes: a run, an event or a sample of memory has come."""

    def can_replace(self, message: Message) -> bool:
        """The pump keeps only one of a run of pending wake-ups."""
        return isinstance(message, LabChanged)
