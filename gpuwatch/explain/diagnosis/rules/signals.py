"""Programs and workers that a signal ended: what it means, given what the kernel says about host memory."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

from gpuwatch.core.formatting.units import size
from gpuwatch.core.model.run import Run
from gpuwatch.explain.diagnosis.rules.program_error_messages import (
    DATALOADER_WORKER,
    ENDINGS,
    HOST_MEMORY,
    SIGNALS,
    Meaning,
    row_named,
)
from gpuwatch.explain.logs import reported_ends

_FAULTHANDLER_ACTION = "Run it with python -X faulthandler, which prints the Python line at the crash."
_NOT_BY_OOM_KILLER = "by SIGKILL, not by the kernel's OOM killer: its counter did not change"
_FIND_SENDER_ACTION = (
    "Find out who sent it: the scheduler (sacct -j JOB), a supervisor, systemd-oomd (journalctl -u systemd-oomd)"
)


def ended_by(run: Run) -> signal.Signals | None:
    """The signal that ended a program, unless the user wanted that; a shell returns 128 plus its number."""
    number = run.outcome.signal or (run.outcome.exit_code or 0) - 128
    if run.verdict != "error" or run.ooms:
        return None
    return next((known for known in SIGNALS if known == number), None)


def signal_meaning(run: Run, number: signal.Signals) -> Meaning:
    """What a signal means, given what is known about host memory."""
    meaning = SIGNALS[number]
    if number != signal.SIGKILL:
        return meaning if run.outcome.signal else meaning._replace(certainty="likely")
    if run.host_memory_out:
        return ENDINGS[HOST_MEMORY]
    if run.host_memory is not None and run.host_memory.oom_kills == 0:  # the kernel counts its OOM kills
        action = f"{_FIND_SENDER_ACTION}, a user's kill -9, or the program itself."
        meaning = Meaning(f"It was killed {_NOT_BY_OOM_KILLER}", action)
    return meaning._replace(certainty="likely")


_BY_SIGNAL = re.compile(r"killed by signal: ([A-Z][\w ]{1,40})")


def worker_meaning(text: str, run: Run | None) -> tuple[Meaning, list[str]]:
    """What the death of a DataLoader's worker means, by its signal, and evidence of host memory where it matters.

    SIGKILL is judged by the kernel's count of its OOM kills, where that is known.
    """
    match = _BY_SIGNAL.search(text)
    if match is None:
        return row_named("worker-exited"), []
    if match[1] == "Bus error":
        return ENDINGS["ended.shared-memory"], []
    if match[1].startswith("Terminated"):
        return ENDINGS[reported_ends.TERMINATED], []
    if match[1] != "Killed":
        return Meaning(
            f"A DataLoader worker ended with a signal: {match[1]}", f"{_FAULTHANDLER_ACTION} Or use num_workers=0."
        ), []
    meaning, host = ENDINGS[DATALOADER_WORKER], run.host_memory if run is not None else None
    if host is not None and (host.kernel_line or host.oom_kills):
        title = "A DataLoader worker was killed when the kernel ran out of host memory (RAM)"
        meaning = meaning._replace(title=title)
    elif host is not None and host.oom_kills == 0:
        action = f"{_FIND_SENDER_ACTION}, or the program itself."
        meaning = Meaning(f"A DataLoader worker was killed {_NOT_BY_OOM_KILLER}", action)
    return meaning, [*host_evidence(run)] if run is not None else []


_CRASH_WORDS = {
    signal.SIGSEGV: ("segmentation fault", "sigsegv"),
    signal.SIGBUS: ("bus error", "undefined portion of a memory object"),
    signal.SIGFPE: ("floating point exception", "sigfpe", "erroneous arithmetic"),
    signal.SIGILL: ("illegal instruction",),
    signal.SIGABRT: ("abort", "terminate called", "corrupt"),
}


_SIGNAL_NUMBER = re.compile(
    r"\b(?:(?:with|on|by|caught) signal |return code = -|exit ?code *: -|exit status -|(?:status|code) (?=1[34]\d))"
    r"(\d{1,3})\b"
)


_WINDOWS_MEANINGS = {
    **dict.fromkeys(("0xc0000005", "-1073741819", "3221225477"), row_named("segfault")._replace(
        title="It crashed with an access violation (0xC0000005): native code made an illegal memory access")),
    **dict.fromkeys(("0xc000001d", "-1073741795", "3221225501"), SIGNALS[signal.SIGILL]),
    **dict.fromkeys(("0xc0000409", "-1073740791", "3221226505"), SIGNALS[signal.SIGABRT]._replace(
        title="It crashed with status 0xC0000409: a check in native code failed (a buffer overrun, abort)")),
}  # fmt: skip
_WINDOWS_STATUS = re.compile("|".join(map(re.escape, _WINDOWS_MEANINGS)))


def crash_meaning(lines: list[str]) -> Meaning:
    """The meaning of the signal that a line names."""
    text = lines[0].lower()
    if (status := _WINDOWS_STATUS.search(text)) is not None:
        return _WINDOWS_MEANINGS[status[0]]
    if (found := _SIGNAL_NUMBER.search(text)) is not None:
        meaning = next((meaning for number, meaning in SIGNALS.items() if number == int(found[1]) & 127), None)
        if meaning is not None:
            return meaning
    named = (number for number, words in _CRASH_WORDS.items() if any(word in text for word in words))
    return next(map(SIGNALS.__getitem__, named), ENDINGS[reported_ends.CRASH])


def host_evidence(run: Run) -> Iterator[str]:
    """Evidence: host memory as measured while the program ran."""
    host = run.host_memory
    if host is None:
        return
    if host.kernel_line:
        yield host.kernel_line
    if host.peak_bytes is not None:
        text = f"its largest process had at most {size(host.peak_bytes)} of host memory"
        if host.limit_bytes is not None:
            text += f", its control group's limit is {size(host.limit_bytes)}"
        elif host.total_bytes is not None:
            text += f", the host has {size(host.total_bytes)}"
        yield text
    if host.oom_kills is not None:
        yield f"the kernel's OOM killer ended {host.oom_kills} processes meanwhile"
    else:
        yield "the counter of the kernel's OOM killer cannot be read here"
