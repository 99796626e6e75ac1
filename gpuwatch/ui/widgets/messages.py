"""Messages to the app from other threads."""

from __future__ import annotations

from textual.message import Message


class ProbeRunsChanged(Message, bubble=False):
    """Sent by the probe thread after a new run, event or memory sample."""

    def can_replace(self, message: Message) -> bool:
        """Merges consecutive pending messages into one."""
        return isinstance(message, ProbeRunsChanged)
