"""Interrupts and requests to end, in words: Ctrl+C, SIGTERM, a time limit of the program's own."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpuwatch.explain.logs.line_prefixes import undecorated
from gpuwatch.explain.logs.progress_and_success_patterns import FINISHED, SERVES, STARTED, WORKS
from gpuwatch.explain.logs.tracebacks import TRACEBACK

_NEAR_END_LINES, _MAX_LINE_CHARS = 15, 1000
_COUNT = re.compile(r"(?<![\d/.])\d{1,9}/\d{1,9}(?![\d/])")
_ASKED_TO_END = re.compile(
    r"(?:signal=|[Rr]eceived (?:signal )?|[Cc]aught )SIGTERM\b(?!: \d)|[Cc]aught signal 15\b"
    r"|\bSIGTERM received|Handling signal: term"
)
_TOLD_OF_INTERRUPT = re.compile(
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
"""An interrupt (Ctrl+C) or SIGTERM that a program caught, or a time limit of its own, told in words of its own."""
_ORDERLY = re.compile(
    rf"{SERVES}|{STARTED}|Finished server process|Application shutdown|Handling signal: term|signal=SIGTERM|Draining"
    r"|TensorBoard",
    re.IGNORECASE,
)
"""Output of a server, for which SIGTERM is a normal end."""
SIGINT_WORDS = re.compile(r"interrupt|SIGINT|ctrl|\^C|signal 2\b|exiting from training early", re.IGNORECASE)
"""Of a line about who stopped a program: SIGINT, rather than another signal."""
_BY_KEYBOARD = re.compile(r"keyboard ?interrupt|\bSIGINT\b|\bctrl[+-]c\b|\^C", re.IGNORECASE)


def received_sigterm(lines: Sequence[str]) -> bool:
    """Whether the last lines mention SIGTERM, after which a program ends in an orderly way."""
    return any(map(_ASKED_TO_END.search, lines))


def interrupt_line(lines: Sequence[str]) -> str:
    """The line near the end that reports an interrupt, with no steps after it; empty without one."""
    told, tells = "", any(map(_TOLD_OF_INTERRUPT.search, map(undecorated, lines)))
    drawn: set[str] = set()  # a bar that is drawn again, as its program ends, is no more work
    for raw in (line for line in reversed(lines) if tells and line.strip()):
        whole = undecorated(raw.rstrip("\r\n").rpartition("\r")[2][:_MAX_LINE_CHARS])
        if _TOLD_OF_INTERRUPT.search(whole) is not None:
            told = told if "SIGTERM" in whole and any(map(_ORDERLY.search, lines)) else whole
        elif WORKS.search(whole) is not None and FINISHED.search(whole) is None and not whole.startswith("wandb:"):
            count = _COUNT.search(whole)
            drawn.add(count[0] if count is not None else "")
            if len(drawn) > 1 or "" in drawn:
                break
    return told


def failed_after_interrupt(lines: Sequence[str]) -> bool:
    """Whether, near the end, a traceback follows the line that reports an interrupt from the keyboard."""
    last = [line for line in lines if line.strip()][-_NEAR_END_LINES:]
    told = next((at for at, line in enumerate(last) if by_keyboard(undecorated(line[:_MAX_LINE_CHARS]))), len(last))
    return any(TRACEBACK in line for line in last[told + 1 :])


def by_keyboard(line: str) -> bool:
    """Whether a line reports an interrupt from the keyboard."""
    return _TOLD_OF_INTERRUPT.search(line) is not None and mentions_keyboard(line)


def mentions_keyboard(told: str) -> bool:
    """Whether the line that reports an interrupt says that it came from the keyboard."""
    return _BY_KEYBOARD.search(told) is not None
