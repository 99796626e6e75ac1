"""Logs of the kernel, an X server or a whole machine (journal): which of their lines may be about a GPU's failure."""

from __future__ import annotations

import re
from collections.abc import Sequence

_JOURNAL_LINE = re.compile(r"^\S{2,6} [ \d]?\d \d\d:\d\d:\d\d \S{1,80} (?P<program>[\w.@-]{1,80})(?:\[\d{1,10}\])?: ")
_GPU_WORDS = re.compile(
    r"nvidia|nvrm|\bnv-|cuda|\bgpu|\bxid|nouveau|\bdrm\b|amdgpu|dcgm|docker|containerd|kubelet|slurm|python|torch"
    r"|tensorflow",
    re.IGNORECASE,
)
_KERNEL_LINE = re.compile(r"^(?:kern +:\w+ +: )?\[ {0,8}\d{1,9}\.\d{6}\] ")
"""A line of dmesg."""
_XORG_LINE = re.compile(r"^\[ {0,8}\d{1,9}\.\d{3}\] \((?:II|WW|EE|NI|--|\*\*|==|\+\+|!!|\?\?)\) ")
_XORG_FAILED = re.compile(
    r"\(EE\) (?:NVIDIA|no screens found|Caught signal|Server terminated with error)|Fatal server error"
)
"""What ends an X server; its other lines marked (EE) are about parts that it does without."""
MIN_SERVICE_LINES = 20
"""Lines of a kernel or an X server that show it at work, if none is about a failure of a GPU."""
_MIN_JOURNAL_PROGRAMS = 3
"""Programs beside the kernel and systemd whose lines make a journal that of a whole machine."""


def service_lines(lines: Sequence[str]) -> list[str] | None:
    """In the log of a kernel or an X server, the lines that may be about a GPU failure; None for other logs."""
    if lines and all(map(_KERNEL_LINE.match, lines)):
        return [line for line in lines if _GPU_WORDS.search(line)]
    if sum(map(bool, map(_XORG_LINE.match, lines))) * 2 > len(lines):
        return [line for line in lines if _XORG_FAILED.search(line)]
    return None


def gpu_related_lines(lines: Sequence[str]) -> list[str]:
    """The lines; of a kernel, an X server or a whole machine only those about GPUs, their drivers, what uses them."""
    if (of_service := service_lines(lines)) is not None:
        return of_service
    programs = {found["program"] for line in lines if (found := _JOURNAL_LINE.match(line)) is not None}
    if len(programs - {"kernel", "systemd"}) < _MIN_JOURNAL_PROGRAMS:
        return list(lines)
    return [line for line in lines if _GPU_WORDS.search(line)]
