"""The output of nvidia-smi and the kernel's log, unchanged, for those who help the user."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from gpuwatch.core.formatting.text import printable, shorten

_SECONDS = 8.0
"""Time limit for a program: nvidia-smi hangs if the driver does."""
_LINES = 150
_KERNEL_LINES = 60
_LONGEST = 300
_MOST_BYTES = 8 << 20
_OF_GPUS = re.compile(r"NVRM|nvidia|nouveau|\bXid\b|Out of memory: Killed process", re.IGNORECASE)
_HARMLESS = re.compile(r"Command line:", re.IGNORECASE)
_KERNEL_LOGS = (
    ("dmesg", ("dmesg", "--time-format", "iso")),
    ("dmesg", ("dmesg",)),  # of BusyBox, and older ones
    ("journalctl", ("journalctl", "-k", "-b", "--no-pager", "-q", "--no-hostname")),
)
"""Commands that print the kernel's log; dmesg needs the same rights as /dev/kmsg (``kernel.dmesg_restrict``)."""

NOTHING = "(the kernel log has no line about GPUs)"

Answer = tuple[tuple[str, ...], str]
"""The lines, and why there are none or only a part."""


def nvidia_smi() -> Answer:
    """The output of ``nvidia-smi``: its table, or its error message."""
    lines, why = _output(("nvidia-smi",))
    return tuple(lines[:_LINES]), why


def nvidia_smi_query() -> list[str]:
    """The lines of ``nvidia-smi -q -x``; empty if it is not there or fails."""
    lines, why = _output(("nvidia-smi", "-q", "-x"))
    return [] if why else lines


def kernel_log() -> Answer:
    """The kernel log's last lines about GPUs (NVRM, Xid, nvidia, nouveau) and OOM kills."""
    refusals: dict[str, str] = {}
    for name, command in _KERNEL_LOGS:
        lines, why = _output(command)
        if why:
            refusals[name] = why
            continue
        found = [line for line in lines if _OF_GPUS.search(line) and not _HARMLESS.search(line)]
        if found or (lines and name == "dmesg"):
            return tuple(found[-_KERNEL_LINES:]) or (NOTHING,), ""
        refusals.setdefault(name, "it printed nothing, as it does for users without permission")
    return (), "; ".join(f"{name}: {why}" for name, why in refusals.items())


def _output(command: Sequence[str]) -> tuple[list[str], str]:
    """The lines that a program prints, and an error if it failed."""
    path = shutil.which(command[0])
    if path is None:
        return [], "it is not installed"
    environment: Mapping[str, str] = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            [path, *command[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        return [], f"it did not answer within {_SECONDS:g} s"
    except OSError as error:
        return [], f"it cannot be started: {error.strerror}"
    text = done.stdout[-_MOST_BYTES:].decode("utf-8", "replace")
    lines = [shorten(printable(line), _LONGEST).rstrip() for line in text.splitlines()]
    if done.returncode:
        complaint = done.stderr.decode("utf-8", "replace").strip().splitlines() or [line for line in lines if line][:1]
        shown = f": {shorten(printable(complaint[0]), _LONGEST)}" if complaint else ""
        return lines, f"it failed with exit code {done.returncode}{shown}"
    return lines, ""
