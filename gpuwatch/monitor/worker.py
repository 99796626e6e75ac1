"""The collector's process: samples at an interval and writes snapshots to stdout.

What it writes is described in :mod:`gpuwatch.monitor.wire`. Commands come on stdin, one JSON object a
line (``{"interval": 1.0}``); end of file there ends the process, so that it never outlives the program
that started it. Nothing here is shown to a person.
"""

from __future__ import annotations

import ctypes
import gc
import os
import select
import signal
import sys
import time

import msgspec

from gpuwatch.model.snapshot import Snapshot
from gpuwatch.monitor.meanwhile import Meanwhile
from gpuwatch.monitor.sampler import Sampler
from gpuwatch.monitor.wire import Sender

_PR_SET_PDEATHSIG = 1


class Command(msgspec.Struct):
    """What the parent may ask."""

    interval: float | None = None
    now: bool = False
    """Take the next sample at once."""
    gpm: bool | None = None
    """Ask for the activity of the GPUs' parts, or no longer."""


def _die_with_parent() -> None:
    """A parent that was killed cannot close our stdin while a call of ours hangs; the kernel can."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def run(interval: float, on_demand: bool, gpm: bool = False) -> None:
    """Samples until stdin ends. ``interval`` in seconds."""
    sender = Sender()
    commands = msgspec.json.Decoder(Command)
    sampler = Sampler(on_demand, gpm=gpm)
    waiting = select.poll()
    waiting.register(0, select.POLLIN)
    due = time.monotonic()
    pending = b""
    settling = 3
    meanwhile = Meanwhile(lambda host: _write(sender.meanwhile(host)), interval)

    def look_ahead(devices: Snapshot) -> None:
        meanwhile.end()  # two threads must not write at once
        _write(sender.preview(devices))

    # The devices of the very first sample go ahead of its processes, of which there may be hundreds.
    snapshot = sampler.take(look_ahead)
    meanwhile.end()
    while True:
        _write(sender.frame(snapshot))
        due = max(due + interval, time.monotonic())
        while True:
            wait = due - time.monotonic()
            if wait <= 0:
                break
            if not waiting.poll(wait * 1000):
                break
            chunk = os.read(0, 65536)
            if not chunk:
                sampler.close()
                return
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                command = commands.decode(line)
                if command.interval is not None:
                    due += command.interval - interval
                    interval = command.interval
                if command.gpm is not None:
                    sampler.gpm = command.gpm
                if command.now:
                    due = time.monotonic()
        snapshot = sampler.take()
        if settling:
            settling -= 1
            if not settling:
                gc.freeze()  # what is there now stays: it need not be looked through for garbage again


def _write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


def serve(interval: float, on_demand: bool, gpm: bool = False) -> None:
    """The life of the process, whether it was spawned or forked."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is the parent's to handle
    _die_with_parent()
    gc.enable()  # a fork has it from a parent that was in a hurry
    try:
        run(interval, on_demand, gpm)
    except BrokenPipeError:
        os._exit(0)


def main() -> None:
    """Entry point of the process; arguments: interval in seconds, 1 to ask on-demand metrics too, 1 for GPM."""
    serve(float(sys.argv[1]), sys.argv[2] == "1", sys.argv[3] == "1")


if __name__ == "__main__":
    main()
