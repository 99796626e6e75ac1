"""A way on which alerts leave: a thread of its own, so that nobody waits for it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from gpuwatch.core.model.findings import Alert

MAX_WAITING_ALERTS = 100
"""Alerts that may wait; more are dropped, and reported as a failure."""
_LAST_DELIVERY_SECONDS = 3.0
"""Seconds that the end of gpuwatch waits for a channel."""


class DeliveryFailed(Exception):
    """An alert could not be delivered; the message says why, without anything secret."""


class Delivery(Protocol):
    """Delivers alerts, one after the other."""

    name: str
    """What it is called in events: ``--on-finding``, ``webhook``."""

    def deliver(self, alert: Alert) -> None:
        """Delivers one; :class:`DeliveryFailed` if that fails."""
        ...

    def cancel(self) -> None:
        """Ends what :meth:`deliver` is doing, and all that it would do; called from another thread."""
        ...


class DeliveryThread:
    """Delivers alerts in a thread that begins with the first one."""

    def __init__(self, delivery: Delivery, report_failure: Callable[[str], None]) -> None:
        """``report_failure``: is told the first of several failures in a row, from the thread."""
        self._delivery = delivery
        self._report_failure = report_failure
        self._queue: queue.Queue[Alert | None] = queue.Queue(MAX_WAITING_ALERTS)
        self._thread: threading.Thread | None = None
        self._is_failing = False
        self._is_closed = False

    def send(self, alert: Alert) -> None:
        """Queues an alert; never waits."""
        if self._is_closed:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"gpuwatch {self._delivery.name}", daemon=True)
            self._thread.start()
        try:
            self._queue.put_nowait(alert)
        except queue.Full:
            self._note_failure(f"{MAX_WAITING_ALERTS} alerts are waiting; more are dropped")

    def close(self) -> None:
        """Ends it; what still waits is dropped."""
        self._is_closed = True
        self._delivery.cancel()
        if self._thread is not None:
            with suppress(queue.Full):  # else the thread sees at the next alert that it is closed
                self._queue.put_nowait(None)
            self._thread.join(_LAST_DELIVERY_SECONDS)

    def _run(self) -> None:
        while (alert := self._queue.get()) is not None:
            if self._is_closed:
                return
            try:
                self._delivery.deliver(alert)
                self._is_failing = False
            except DeliveryFailed as error:
                if not self._is_closed:
                    self._note_failure(str(error))

    def _note_failure(self, reason: str) -> None:
        if not self._is_failing:
            self._is_failing = True
            self._report_failure(f"{self._delivery.name}: {reason}")
