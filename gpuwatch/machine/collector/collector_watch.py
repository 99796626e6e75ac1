"""What a collector's process is doing, seen from outside: a call into the driver, or waiting for a CPU.

And which calls its successor leaves out, because they crashed or hung.
"""

from __future__ import annotations

import time

from gpuwatch.machine.sources import procfs
from gpuwatch.machine.sources.driver_calls import Call, CallPage, LeftOut

HANGS_AFTER = 4.0
"""Seconds after which one call hangs. Slow drivers take one or two."""
_SESSION = ("nvmlInit", "nvmlShutdown", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex")
"""Without these there is no GPU. They may take many seconds where the driver has to be loaded."""
_MOST_AT_ONCE = 3
"""Calls that may hang or crash one after another; with more it is the driver as a whole."""
_FIRST_PAUSE = 60.0
_LONGEST_PAUSE = 3600.0


class CollectorWatch:
    """One process."""

    def __init__(self, pid: int, page: CallPage | None) -> None:
        self._pid = pid
        self.page = page
        self.heard()

    def heard(self) -> None:
        """It has just delivered something."""
        self._heard, self._waited = time.monotonic(), procfs.waited_for_cpu(self._pid)

    @property
    def call(self) -> Call | None:
        """The call into the driver that is under way, or was at its end."""
        page = self.page
        try:
            return None if page is None else page.call
        except ValueError:  # closed by another thread just now
            return None

    @property
    def waited(self) -> float:
        """Seconds since it was last heard of in which it waited for a CPU: the driver is not to blame for them."""
        return max(procfs.waited_for_cpu(self._pid) - self._waited, 0.0)

    @property
    def hung(self) -> Call | None:
        """The call that hangs; None for those that may take long."""
        call = self.call
        if call is None or call.name.startswith(_SESSION):
            return None
        lasts = time.monotonic() - call.since
        if lasts < HANGS_AFTER or lasts - self.waited < HANGS_AFTER or procfs.stopped(self._pid):
            return None
        return call

    def blame(self) -> str:
        """What is wrong with the living process; completes "the collector …". Empty: it waits for the driver."""
        if self.waited > (time.monotonic() - self._heard) / 2:
            return "waits for a CPU: the machine is busy"
        return "is not waiting for the driver" if self.page is not None and self.call is None else ""

    def waits_for(self) -> str:
        """``nvmlDeviceGetUUID has not returned since 10:02:31``; empty if that is not known."""
        call = self.call
        if call is None:
            return ""
        began = time.localtime(time.time() - (time.monotonic() - call.since))
        return f"{call.name} has not returned since {time.strftime('%H:%M:%S', began)}"

    def close(self) -> None:
        """The process has ended."""
        page, self.page = self.page, None
        if page is not None:
            page.close()


class Suspects:
    """Calls that took a collector down. Each is tried again, after longer and longer pauses."""

    def __init__(self) -> None:
        self.left_out: dict[str, LeftOut] = {}
        """By the call's name, for the next collector."""
        self._times: dict[str, int] = {}
        self._latest: list[str] = []
        """Since the last sample."""

    def add(self, name: str, what: str) -> bool:
        """Leaves a call out, and says whether that can help; otherwise the driver as a whole does not work."""
        if name.startswith(_SESSION) or len(self._latest) >= _MOST_AT_ONCE:
            self.forget_latest()
            return False
        self._latest.append(name)
        self._times[name] = self._times.get(name, 0) + 1
        pause = min(_FIRST_PAUSE * 2 ** min(self._times[name] - 1, 10), _LONGEST_PAUSE)
        again = time.strftime("%H:%M:%S", time.localtime(time.time() + pause))
        why = f"it {what} at {time.strftime('%H:%M:%S')}, and is left out until {again}"
        self.left_out[name] = LeftOut(why, time.monotonic() + pause)
        return True

    def forget_latest(self) -> None:
        """The driver as a whole did not work: no call of the last time is to blame."""
        for name in self._latest:
            self.left_out.pop(name, None)
        self._latest.clear()

    def answered(self) -> None:
        """A sample came: what is left out now was to blame."""
        self._latest.clear()
