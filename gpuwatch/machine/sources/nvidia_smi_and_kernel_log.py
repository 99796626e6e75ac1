"""The output of nvidia-smi and the kernel's log, unchanged, for those who help the user."""

from __future__ import annotations

import os
import re
import selectors
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from gpuwatch.core import input_size_limits
from gpuwatch.core.safe_text import printable, shorten

_MAX_LINES = 150
_MAX_KERNEL_LINES = 60
_MAX_LINE_CHARS = 300
_ANSWER_SECONDS = 8.0
_ABOUT_GPUS = re.compile(r"NVRM|nvidia|nouveau|\bXid\b|Out of memory: Killed process", re.IGNORECASE)
_NOT_ABOUT_GPUS = re.compile(r"Command line:", re.IGNORECASE)
_KERNEL_LOGS = (
    ("dmesg", ("dmesg", "--time-format", "iso")),
    ("dmesg", ("dmesg",)),  # of BusyBox, and older ones
    ("journalctl", ("journalctl", "-k", "-b", "--no-pager", "-q", "--no-hostname")),
)
"""Commands that print the kernel's log; dmesg needs the same rights as /dev/kmsg (``kernel.dmesg_restrict``)."""

NO_LINES = "(the kernel log has no line about GPUs)"

Answer = tuple[tuple[str, ...], str]
"""The lines, and why there are none or only a part."""


def nvidia_smi() -> Answer:
    """The output of ``nvidia-smi``: its table, or its error message."""
    lines, why = _run_and_read(("nvidia-smi",))
    return tuple(lines[:_MAX_LINES]), why


def nvidia_smi_query() -> list[str]:
    """The lines of ``nvidia-smi -q -x``; empty if it is not there or fails."""
    lines, why = _run_and_read(("nvidia-smi", "-q", "-x"))
    return [] if why else lines


def kernel_log() -> Answer:
    """The kernel log's last lines about GPUs (NVRM, Xid, nvidia, nouveau) and OOM kills."""
    failures: dict[str, str] = {}
    for name, command in _KERNEL_LOGS:
        lines, why = _run_and_read(command)
        if why:
            failures[name] = why
            continue
        found = [line for line in lines if _ABOUT_GPUS.search(line) and not _NOT_ABOUT_GPUS.search(line)]
        if found or (lines and name == "dmesg"):
            return tuple(found[-_MAX_KERNEL_LINES:]) or (NO_LINES,), ""
        failures.setdefault(name, "it printed nothing, which it does for users without permission")
    return (), "; ".join(f"{name}: {why}" for name, why in failures.items())


def _run_and_read(command: Sequence[str]) -> tuple[list[str], str]:
    """The lines that a program prints, and an error if it failed."""
    path = shutil.which(command[0])
    if path is None:
        return [], "it is not installed"
    environment: Mapping[str, str] = {**os.environ, "LC_ALL": "C"}
    try:
        child = subprocess.Popen(
            [path, *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        )
    except OSError as error:
        return [], f"it cannot be started: {error.strerror}"
    try:
        output, errors = _read_until_end(child)
    except subprocess.TimeoutExpired:
        child.kill()
        with suppress(subprocess.TimeoutExpired):  # the driver may hold it
            child.wait(1)
        return [], f"it did not answer within {_ANSWER_SECONDS:g} s"
    lines = [shorten(printable(line), _MAX_LINE_CHARS).rstrip() for line in output]
    if child.returncode:
        complaint = [line for line in (*errors, *lines) if line.strip()][:1]
        shown = f": {shorten(printable(complaint[0].strip()), _MAX_LINE_CHARS)}" if complaint else ""
        return lines, f"it failed with exit code {child.returncode}{shown}"
    return lines, ""


def _read_until_end(child: subprocess.Popen[bytes]) -> tuple[list[str], list[str]]:
    """The last lines of a program's output and of its errors; TimeoutExpired if it does not end in time."""
    limit = input_size_limits.TOOL_OUTPUT
    until = time.monotonic() + _ANSWER_SECONDS
    assert child.stdout is not None
    assert child.stderr is not None
    output, errors = bytearray(), bytearray()
    with child.stdout, child.stderr, selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ, output)
        selector.register(child.stderr, selectors.EVENT_READ, errors)
        while selector.get_map():
            ready = selector.select(max(until - time.monotonic(), 0))
            if time.monotonic() >= until:
                raise subprocess.TimeoutExpired(child.args, _ANSWER_SECONDS)
            for key, _ in ready:
                chunk = os.read(key.fd, 1 << 16)
                if not chunk:
                    selector.unregister(key.fileobj)
                key.data.extend(chunk)
                del key.data[: -limit.bytes]
    child.wait(max(until - time.monotonic(), 1))
    return output.decode("utf-8", "replace").splitlines(), errors.decode("utf-8", "replace").splitlines()
