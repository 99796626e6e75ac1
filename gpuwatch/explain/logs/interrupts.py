"""Lines that report an interrupt or a request to end: Ctrl+C, SIGTERM, a time limit of the program's own."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpuwatch.explain.logs.log_line_text import last_bar_state, undecorated, undecorated_start
from gpuwatch.explain.logs.progress_and_success_patterns import ENDED_WELL, PROGRESS, SERVER_ANSWER, SERVER_STARTED
from gpuwatch.explain.logs.tracebacks import TRACEBACK

_NEAR_END_LINES = 15
_STEP_COUNT = re.compile(r"(?<![\d/.])\d{1,9}/\d{1,9}(?![\d/])")
_SIGTERM_RECEIVED = re.compile(
    r"(?:signal=|[Rr]eceived (?:signal )?|[Cc]aught )SIGTERM\b(?!: \d)|[Cc]aught signal 15\b"
    r"|\bSIGTERM received|Handling signal: term"
)
_INTERRUPT_REPORTED = re.compile(
    r"\bdetected keyboardinterrupt\b|\bkeyboard ?interrupt(?:ion)? (?:was )?(?:received|detected|caught)"
    r"|\b(?:received|caught|got|due to|by) (?:an? )?(?:keyboard ?interrupt|SIGINT|ctrl[+-]c)\b"
    r"|\b(?:SIGINT|ctrl[+-]c) (?:was )?(?:pressed|received|detected|caught)\b"
    r"|\b(?:interrupted|cancell?ed|aborted|stopped|terminated|killed) (?:by (?:the )?user|manually)\b"
    r"|^(?:user )?interrupt(?:ed|ion)?(?: received| detected| caught)?(?:[!.,;]|$)"
    r"|\buser (?:request(?:ed)?|interrupt)\b"
    r"|\b(?:received|got|caught) (?:signal )?(?:15|2|SIGTERM|SIGINT|SIGHUP|SIGUSR[12])(?:[!.;]|$|,(?! [IT]))"
    r"|\b(?:training|process|run|evaluation|inference|execution|script|program|pipeline|job)"
    r" (?:was |has been )?interrupted\b"
    r"|\b(?:time limit|max(?:imum)? (?:run|wall|training)?[ -]?time)\b.{0,40}\b(?:reached|exceeded|expired)\b"
    r".{0,60}\b(?:stop|signal|exit|end|terminat|finish)|^exiting from training early\b|^\^C"
    r"|^(?:[\W\d]{0,40}[A-Z]{4,9}\W{1,4})?keyboard ?interrupt(?:ion)?(?:[.!,;]|$)"
    r"|\bkeyboard interruption in main thread|\bparent appears to have exited\b"
    r"|\b(?:received|caught) (?:signal )?SIGTERM\b(?!:)|\bSIGTERM received|^(?:\[rank: \d+\] )?Received SIGTERM: \d"
    r"|\b(?:interrupt|term(?:ination)?) signal (?:was )?(?:received|caught)\b",
    re.IGNORECASE,
)
"""An interrupt (Ctrl+C) or SIGTERM that a program caught, or a time limit of its own, as the program reports it."""
_SERVER_OUTPUT = re.compile(
    rf"{SERVER_ANSWER}|{SERVER_STARTED}|Finished server process|Application shutdown|Handling signal: term"
    r"|signal=SIGTERM|Draining|TensorBoard",
    re.IGNORECASE,
)
"""Output of a server, for which SIGTERM is a normal end."""
SIGINT_WORDS = re.compile(r"interrupt|SIGINT|ctrl|\^C|signal 2\b|exiting from training early", re.IGNORECASE)
"""Of a line about who stopped a program: SIGINT, rather than another signal."""
_KEYBOARD_WORDS = re.compile(r"keyboard ?interrupt|\bSIGINT\b|\bctrl[+-]c\b|\^C", re.IGNORECASE)


def received_sigterm(lines: Sequence[str]) -> bool:
    """Whether the last lines mention SIGTERM, after which a program ends in an orderly way."""
    return any(map(_SIGTERM_RECEIVED.search, lines))


def interrupt_line(lines: Sequence[str]) -> str:
    """The line near the end that reports an interrupt, with no steps after it; empty without one."""
    found, reported = "", any(map(_INTERRUPT_REPORTED.search, map(undecorated, lines)))
    step_counts: set[str] = set()  # a bar that is drawn again, as its program ends, is no more work
    for raw in (line for line in reversed(lines) if reported and line.strip()):
        line = undecorated_start(last_bar_state(raw))
        if _INTERRUPT_REPORTED.search(line) is not None:
            found = found if "SIGTERM" in line and any(map(_SERVER_OUTPUT.search, lines)) else line
        elif PROGRESS.search(line) is not None and ENDED_WELL.search(line) is None and not line.startswith("wandb:"):
            step_count = _STEP_COUNT.search(line)
            step_counts.add(step_count[0] if step_count is not None else "")
            if len(step_counts) > 1 or "" in step_counts:
                break
    return found


def failed_after_interrupt(lines: Sequence[str]) -> bool:
    """Whether, near the end, a traceback follows the line that reports an interrupt from the keyboard."""
    last = [line for line in lines if line.strip()][-_NEAR_END_LINES:]
    interrupts = map(reports_keyboard_interrupt, (undecorated_start(line) for line in last))
    first = next((place for place, interrupted in enumerate(interrupts) if interrupted), len(last))
    return any(TRACEBACK in line for line in last[first + 1 :])


def reports_keyboard_interrupt(line: str) -> bool:
    """Whether a line reports an interrupt from the keyboard."""
    return _INTERRUPT_REPORTED.search(line) is not None and mentions_keyboard(line)


def mentions_keyboard(line: str) -> bool:
    """Whether the line that reports an interrupt says that it came from the keyboard."""
    return _KEYBOARD_WORDS.search(line) is not None
