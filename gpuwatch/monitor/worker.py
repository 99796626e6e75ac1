"""The collector's process: samples at an interval and writes snapshots to stdout.

The format is described in :mod:`gpuwatch.monitor.wire`. Commands come on stdin, one JSON object per line
(``{"interval": 1.0}``); the process exits at end of file, so that it never outlives the program that started it.
"""

from __future__ import annotations

import ctypes
import gc
import os
import select
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress

import msgspec

from gpuwatch.history.frames import FrameEncoder
from gpuwatch.model.snapshot import Snapshot
from gpuwatch.model.xids import Xid
from gpuwatch.monitor.host_fallback import HostFallback
from gpuwatch.monitor.wire import failure, meanwhile, preview

_PR_SET_PDEATHSIG = 1


class Command(msgspec.Struct):
    """A command of the parent."""

    interval: float | None = None
    now: bool = False
    """Take the next sample at once."""
    gpm: bool | None = None
    """Read GPM metrics, or stop reading them."""


def _die_with_parent() -> None:
    """Have the kernel kill this process with its parent: a call that hangs would not notice that stdin was closed."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def run(interval: float, on_demand: bool, gpm: bool = False, xids: Mapping[str, tuple[Xid, ...]] | None = None) -> None:
    """Samples until stdin ends. ``interval`` in seconds; ``xids``: those of an earlier collector, by UUID."""
    from gpuwatch.monitor.collector import Collector  # if this fails, :func:`serve` reports it

    encoder = FrameEncoder()
    commands = msgspec.json.Decoder(Command)
    collector = Collector(on_demand, gpm=gpm, xids=xids)
    waiting = select.poll()
    waiting.register(0, select.POLLIN)
    due = time.monotonic()
    pending = b""
    settling = 3
    fallback = HostFallback(lambda host: _write(meanwhile(host)), interval)

    def look_ahead(devices: Snapshot) -> None:
        fallback.end()  # two threads must not write at once
        _write(preview(devices))

    # The devices of the first sample are sent before its processes, of which there may be hundreds.
    try:
        snapshot = collector.sample(look_ahead)
    finally:
        fallback.end()
    while True:
        _write(encoder.frame(snapshot))
        due = max(due + interval, time.monotonic())
        while True:
            wait = due - time.monotonic()
            if wait <= 0:
                break
            if not waiting.poll(wait * 1000):
                break
            chunk = os.read(0, 65536)
            if not chunk:
                collector.close()
                return
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                command = commands.decode(line)
                if command.interval is not None:
                    due += command.interval - interval
                    interval = command.interval
                if command.gpm is not None:
                    collector.gpm = command.gpm
                if command.now:
                    due = time.monotonic()
        snapshot = collector.sample()
        if settling:
            settling -= 1
            if not settling:
                gc.freeze()  # these objects stay: the garbage collector need not scan them again


def _write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


def serve(
    interval: float, on_demand: bool, gpm: bool = False, xids: Mapping[str, tuple[Xid, ...]] | None = None
) -> None:
    """Runs the process, whether it was spawned or forked."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is the parent's to handle
    _die_with_parent()
    gc.enable()  # a fork inherits it disabled from the dashboard's start
    try:
        run(interval, on_demand, gpm, xids)
    except BrokenPipeError:
        os._exit(0)
    except Exception as error:  # noqa: BLE001  # an error of gpuwatch itself: the parent shows it as such
        from gpuwatch.history.crashes import describe

        with suppress(OSError):
            _write(failure("; ".join(describe(error))))
        if os.environ.get("GPUWATCH_DEBUG"):
            sys.excepthook(*sys.exc_info())
        os._exit(1)


def main() -> None:
    """Entry point of the process.

    Arguments: interval in seconds, 1 to ask on-demand metrics too, 1 for GPM, the Xids known so far as JSON.
    """
    xids = msgspec.json.decode(sys.argv[4], type=dict[str, tuple[Xid, ...]])
    serve(float(sys.argv[1]), sys.argv[2] == "1", sys.argv[3] == "1", xids)


if __name__ == "__main__":
    main()
