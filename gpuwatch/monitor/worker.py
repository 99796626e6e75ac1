"""The collector's process: samples at an interval and writes snapshots to stdout.

Wire format: four bytes of length (big endian), then one Snapshot in MessagePack. Commands come on
stdin, one JSON object a line (``{"interval": 1.0}``); end of file there ends the process, so that it
never outlives the program that started it. Nothing here is shown to a person.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import struct
import sys
import time

import msgspec

from gpuwatch.monitor.sampler import Sampler

_PR_SET_PDEATHSIG = 1


class Command(msgspec.Struct):
    """What the parent may ask."""

    interval: float | None = None
    now: bool = False
    """Take the next sample at once."""


def _die_with_parent() -> None:
    """A parent that was killed cannot close our stdin while a call of ours hangs; the kernel can."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def run(interval: float, on_demand: bool) -> None:
    """Samples until stdin ends. ``interval`` in seconds."""
    encoder = msgspec.msgpack.Encoder()
    commands = msgspec.json.Decoder(Command)
    sampler = Sampler(on_demand)
    due = time.monotonic()
    pending = b""
    while True:
        frame = encoder.encode(sampler.sample())
        _write(struct.pack(">I", len(frame)) + frame)
        due = max(due + interval, time.monotonic())
        while True:
            wait = due - time.monotonic()
            if wait <= 0:
                break
            if not select.select([0], [], [], wait)[0]:
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
                if command.now:
                    due = time.monotonic()


def _write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


def main() -> None:
    """Entry point of the process; arguments: interval in seconds, 1 to ask on-demand metrics too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is the parent's to handle
    _die_with_parent()
    try:
        run(float(sys.argv[1]), sys.argv[2] == "1")
    except BrokenPipeError:
        os._exit(0)


if __name__ == "__main__":
    main()
