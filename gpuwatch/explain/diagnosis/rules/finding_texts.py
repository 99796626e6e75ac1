"""Texts that several findings share: names of processes, quoted lines, advice on slow input."""

from __future__ import annotations

from gpuwatch.core.masking.mask_secrets import mask_text
from gpuwatch.core.model.snapshot import Process
from gpuwatch.core.safe_text import printable, shorten
from gpuwatch.explain.logs.tracebacks import Frame
from gpuwatch.machine.history.process_labels import process_label

_FASTER_INPUT = {
    "tensorflow": "Feed it faster: map(f, num_parallel_calls=tf.data.AUTOTUNE), cache(), prefetch(tf.data.AUTOTUNE).",
    "torch": "Feed it faster: DataLoader(num_workers=N, pin_memory=True, persistent_workers=True) with N up to"
    " the number of CPU cores; if they are already busy, do less work per example, or prepare the data in advance.",
}


def faster_input(framework: str) -> str:
    """What to do about a GPU that waits for its input, by the framework's name, which may be empty."""
    return _FASTER_INPUT.get(framework, "Prepare the input in more parallel workers, ahead of the step.")


def process_name(process: Process) -> str:
    """``alice's train.py (4711)`` as in events, or ``process 4711, which is not visible here,``."""
    if process.create_time is None and not process.user and not process.name and not process.command:
        return f"process {process.pid}, which is not visible here,"
    return process_label(process)


def at_line(what: str, frame: Frame) -> str:
    """``requested at train.py, line 7: x = tf.zeros(shape)``, secrets masked."""
    code = f": {quoted(frame.code, 120)}" if frame.code else ""
    return f"{what} {printable(frame.file)}, line {frame.line}{code}"


def command(process: Process) -> str:
    """The command line, secrets masked; empty if it cannot be read."""
    return quoted(process.command or "", 120)


def quoted(text: str, most: int) -> str:
    """A line of a log or program, at most ``most`` characters of it, secrets masked."""
    return shorten(mask_text(printable(text)), most)
