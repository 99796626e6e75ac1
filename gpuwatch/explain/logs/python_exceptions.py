"""Python's exceptions in a log: which one is the last, where it happened, and whether a traceback led to it."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from gpuwatch.core.model.run import RunError
from gpuwatch.explain.logs.device_names import explain_device_type
from gpuwatch.explain.logs.line_times import LineClock
from gpuwatch.explain.logs.log_facts import ErrorPlace, LogFacts
from gpuwatch.explain.logs.log_line_text import bare_message, undecorated
from gpuwatch.explain.logs.tracebacks import TRACEBACK, FrameFinder

MAX_ERRORS = 20

# Python omits the colon if there is no message.
_ERROR_LINE = re.compile(
    r"^((?:\w+\.)*\w*(?:Error|Exception|(?<=\w)Interrupt)): ?(.*)$"
    r"|^((?:\w+\.)+\w*Error|[A-Z]\w+(?:Error|Exception|Interrupt))$"
)
# After the frames of a traceback an exception may have any name (StopIteration, requests' ConnectTimeout).
_NAMED_ERROR = re.compile(r"^((?:\w+\.)*[A-Z]\w{2,}|(?:\w+\.)+(?:error|timeout|gaierror|herror))(?:: (.*))?$")
# A line of a message after its first, or of a traceback; also in the output of one rank of a job. Not tqdm's bar, which
# begins with spaces, too.
_CONTINUATION = re.compile(
    r"(?!\s*\d{1,3}%\|)(?:\[?rank:? ?\d+\]?: ?+|\[\d+,[\w:,. -]*\]<std\w+>: ?+)?(?:\s|[\u2502\u2570]|$)"
)
_BOX_CHARS = frozenset("\u2502\u2570")
# Python's own words for an exception that does not end the program: in a destructor, a thread, an asyncio task.
_HANDLED_ELSEWHERE = re.compile(
    r"(?P<ignored>Exception ignored (?:in|on|while|when)|Exception in callback \w*(?:Transport|RequestHandler)\.)"
    r"|(?P<logging>--- Logging error ---)|(?P<thread>Exception in thread )"
    r"|(?P<task>Task exception was never|Exception in callback )"
)
_IGNORED_KINDS = ("ignored", "logging")
_SCRIPT_ERROR_NAMES = ("Error", "Exception")
"""Names of no class, as scripts print them after the traceback of what they ran: "Error: training failed"."""
_CARRIED_INTERRUPT = re.compile(r"KeyboardInterrupt(?:\(\))?(?::|\s*$)")
"""The message of an exception that native code made of an interrupt: "RuntimeError: KeyboardInterrupt:"."""
_PYDANTIC_HEADING = re.compile(r"\d+ validation errors? for \S")
_PYDANTIC_REASON = re.compile(r"(?:Value error|Assertion failed), |Input should |Field required|Extra inputs|\[type=")
_PYDANTIC_SUFFIX = re.compile(r" \[type=.*$")
_PYDANTIC_LINES = 3
"""pydantic's message: the field and the reason stand in the lines below its heading."""
_RETRIES_EXHAUSTED = re.compile(
    r"(?i)\bretry\b.{0,40}\b(?:exceed|maximum|max)|\bretries (?:exceeded|exhausted|failed)(?! with url)"
    r"|\b(?:maximum|max|all)\b.{0,30}\bretries\b(?! exceeded with url)"
)
"""An exception that only says how often another one came."""
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_SYNTAX_ERRORS = frozenset({"SyntaxError", "IndentationError", "TabError"})
_MIXED_SYNTAX_ERROR = re.compile(r"(?<!\w)((?:Syntax|Indentation|Tab)Error)")
"""Of a file that could not be compiled, after its line, where ranks print into each other: ": SyntaxErrorinvalid"."""
_PYTEST_SUMMARY = re.compile(r"(?:FAILED )?[\w./-]*test[\w./-]*\.py(?:::\S+)?(?: - |$)")
"""pytest's line of a file or a test that failed, without its level: it names once more what was raised before."""
_MEASURE = re.compile(r"[-+]?(?:\d[\d.,]*(?:e[-+]?\d+)?|nan|inf) ?%?$", re.IGNORECASE)
"""What follows the name of a quantity, such as "RootMeanSquareError: 4.1": an exception only after a traceback."""
_NUMBER = re.compile(r"\d+")
_MAX_PREFIX_CHARS = 200
_IPYTHON_HEAD = re.compile(
    r"(?:(?P<interrupt>KeyboardInterrupt)|(?:\w+\.)*(?P<error>\w*(?:Error|Exception))) {2,}"
    r"Traceback \(most recent call last\)"
)
_MAX_LINES_AFTER_FRAME = 4
"""Lines from the last frame of a traceback to its exception, at most: source, marks, "[Previous line repeated"."""
_MAX_TRACEBACK_LINES = 100
"""Lines of a traceback, at most: from its announcement ("Exception ignored in"), or to what is raised because of it."""


_HEADING = re.compile(
    r"Graph execution error|Detected at node|<stack traces unavailable>|File \"|Node: '|\[\[|\d+ root error"
    r"|Traceback \(most|Exception encountered when calling|Original stack trace|at \d+:\d+:$|[-=*#_~]{5,}$"
)
_IN_USER_CODE = "in user code:"
"""AutoGraph's heading: the traceback within the function follows, and the exception last."""
_FIRST_ROOT_ERROR = re.compile(r"\(0\) +(?=[A-Z][\w ]{2,30}: )")
"""The first of several errors of a graph: "(0) Not found: a.jpg; No such file or directory"."""
_MAX_LINES_BELOW_HEADING = 200
_ANNOUNCES = re.compile(r"(?!(?:def|class|if|elif|else|for|while|with|try|except)\b).*(?<!\] name):$")
"""A line of a message that announces the next one; not a line of code, nor TensorFlow's empty name of an op."""
_NODE = re.compile(r"^(?:\(\d+\) )?(?:\{\{function_node [^}]*\}\})? *")


def essential_line(message: str) -> str:
    """The line of a message that says what was wrong; TensorFlow and Keras write headings and stacks before it,
    torchrun a ruled line.

    A line that ends in a colon is followed by what it announces: ``Error downloading a.gz: <urlopen error …>``.
    """
    plain = undecorated if "\x1b" in message else str
    lines = [text for line in message.splitlines() if (text := _NODE.sub("", plain(line).strip()))]
    if _IN_USER_CODE in lines:
        within = lines[lines.index(_IN_USER_CODE) :]
        raised = next((at for at, line in enumerate(within) if is_error(line)), None)
        if raised is not None:
            lines = [within[raised].partition(": ")[2], *within[raised + 1 :]]
    if "^" in lines:  # Triton shows the kernel's source up to the place
        lines = lines[lines.index("^") + 1 :] or lines
    first = next((at for at, line in enumerate(lines) if not is_heading(line)), 0)
    announced = [line for line in lines[first:] if line] or [""]
    end = next((at for at, line in enumerate(announced) if not _ANNOUNCES.match(line)), len(announced) - 1)
    return " ".join(announced[: end + 1])


def is_heading(line: str) -> bool:
    """Whether a line of a message is one that a framework writes before what was wrong."""
    return _HEADING.match(line) is not None


def is_carried_interrupt(message: str) -> bool:
    """Whether a message is that of an exception that native code made of an interrupt."""
    return _CARRIED_INTERRUPT.match(message) is not None


def is_error(line: str) -> bool:
    """Whether a line without prefixes has the form of an exception."""
    return _ERROR_LINE.match(line) is not None


def _key(error: RunError) -> str:
    return f"{error.type}: {error.message}"


class ExceptionFinder:
    """Keeps the exceptions of a log in ``facts``: the last :data:`MAX_ERRORS`, and what is known of the very last."""

    def __init__(self, facts: LogFacts, frames: FrameFinder, clock: LineClock) -> None:
        self._facts = facts
        self._clock = clock
        self._frames = frames
        self.open = False
        """Whether to give the next line to :meth:`take_following_line`: a traceback or a message may go on."""
        self._in_traceback = False
        self._in_message = False
        self._prefix: re.Pattern[str] | None = None
        """What stood before the head of the last traceback, of any logger or launcher, with any digits."""
        self._message_follows = False
        """Whether the message of the last exception begins on a later line."""
        self._lines_below_heading = 0
        """Lines in which the message may come after TensorFlow's heading of it."""
        self._after_node = False
        """Whether the line before named the node below whose name the message stands."""
        self._pydantic_lines_left = 0
        """Lines in which the reason may come after pydantic's heading."""
        self._is_announced = False
        """Whether the last line of the message announces the next one."""
        self._chained = False
        """Whether the next exception was raised while the last one was handled."""
        self._announced = ("", 0)
        """``ignored``, ``logging``, ``thread`` or ``task`` if the next exception does not end the program, as Python
        announced, and the number of the line that announced it."""
        self._logging_error_line = 0
        """The line of the last error of Python's own logging, below which stands the stack of who logged."""

    @property
    def _tables_by_error(self) -> tuple[dict[str, Any], ...]:
        """What the facts have of exceptions by ``Type: message``."""
        return self._facts.error_frames, self._facts.error_places, self._facts.first_in_chain

    @property
    def can_follow_syntax_error_location(self) -> bool:
        """Whether the location of a syntax error may follow the last exception: it is complete, and is none itself."""
        errors = self._facts.errors
        return bool(errors) and not self._in_traceback and errors[-1].type not in _SYNTAX_ERRORS

    def in_logging_stack(self) -> bool:
        """Whether a frame is of no traceback but of the stack that follows an error of logging."""
        since = self._facts.line_count - self._logging_error_line
        return self._logging_error_line > 0 and not self._in_traceback and since <= _MAX_TRACEBACK_LINES

    def begin_traceback(self, line: str) -> None:
        """A traceback begins: its next line that is neither indented nor a frame is its exception."""
        self.open = self._in_traceback = True
        self._frames.begin_traceback()
        prefix = line[: line.find(TRACEBACK)]
        known = not prefix.strip() or len(prefix) > _MAX_PREFIX_CHARS
        self._prefix = None if known else re.compile(_NUMBER.sub(r"\\d+", re.escape(prefix)))

    def take_following_line(self, line: str) -> None:
        """Takes a line, as it is, after the head of a traceback or an exception."""
        prefix = self._prefix.match(line) if self._prefix is not None else None
        rest = line[prefix.end() :] if prefix is not None else line
        if self._message_follows and (text := bare_message(rest)):
            self._message_follows = False
            if not is_error(text):
                self._set_message(text)
                return
        if self._lines_below_heading and self._take_line_below_heading(line):
            return
        if self._is_announced and self._take_announced_line(bare_message(rest)):
            return
        if self._pydantic_lines_left and self._take_pydantic_line(bare_message(rest)):
            return
        if _CONTINUATION.match(rest):
            if self._in_traceback and rest.lstrip()[:1] in _BOX_CHARS:
                self._frames.take_boxed_line(rest)
                self._facts.last_frame_line = self._facts.line_count
            if self._in_message:
                self._facts.last_error_line = self._facts.line_count
            return
        self._in_message = False
        if self._in_traceback and ", line " not in line:
            self._in_traceback = False
            text = bare_message(rest)
            named = _NAMED_ERROR.match(text)
            if named is not None and not is_error(bare_message(line)):
                self._add(named[1], named[2] or "")
        self.open = self._in_traceback or self._in_message or self._lines_below_heading > 0

    def _take_announced_line(self, text: str) -> bool:
        """Takes a line below one of a message that ends in a colon; whether it belongs to the message."""
        before = self._facts.errors[-1].message
        self._is_announced = _ANNOUNCES.match(text) is not None
        if not text or text[0].isspace() or is_error(text) or text.startswith((TRACEBACK, *_CHAINED)):
            self._is_announced = False
            return False
        self._set_message(f"{before} {text}")
        return True

    def _take_pydantic_line(self, text: str) -> bool:
        """Takes a line below pydantic's heading; whether it is the field or the reason."""
        self._pydantic_lines_left -= 1
        if not text or is_error(text):
            return False
        self._in_message = True
        if _PYDANTIC_REASON.search(text) is not None:
            self._pydantic_lines_left = 0
        self._set_message(f"{self._facts.errors[-1].message}: {_PYDANTIC_SUFFIX.sub('', text)}")
        return True

    def _take_line_below_heading(self, line: str) -> bool:
        """Takes a line below TensorFlow's heading of a message; whether it is the message."""
        self._lines_below_heading -= 1
        text = bare_message(line)
        node, self._after_node = self._after_node, text.startswith("Node: '") or text.strip() == "^"
        if (found := _FIRST_ROOT_ERROR.match(text)) is None and (not node or is_heading(text)):
            return False
        self._lines_below_heading, self._in_message = 0, True
        self._set_message(text[found.end() :] if found is not None else text)
        return True

    def _set_message(self, message: str) -> None:
        """Gives the last exception the message of a later line."""
        facts, before = self._facts, self._facts.errors[-1]
        changed = RunError(type=before.type, message=explain_device_type(message[:2000]))
        facts.errors[:] = [*(error for error in facts.errors[:-1] if error != changed), changed]
        facts.last_error_line = facts.line_count
        for by_error in self._tables_by_error:
            if _key(before) in by_error:
                by_error[_key(changed)] = by_error.pop(_key(before))

    def take_exception(self, line: str) -> bool:
        """Takes a line without prefixes; False if it is no exception."""
        match = _ERROR_LINE.match(line)
        if match is None or (_MEASURE.match(match[2] or "") and not self._after_frame()):
            return False
        self._add(match[1] or match[3], match[2] or "", colon=match[1] is not None)
        return True

    def is_ignored(self, line: str) -> bool:
        """Whether a line without prefixes is an exception that Python ignored, as the line before said."""
        place, line_number = self._announced
        return (
            place in _IGNORED_KINDS and self._facts.line_count - line_number <= _MAX_TRACEBACK_LINES and is_error(line)
        )

    def take_related_line(self, line: str) -> bool:
        """Takes a line without prefixes that is no exception; False if it says nothing of one."""
        if (found := _HANDLED_ELSEWHERE.match(line)) is not None:
            self._announced = (str(found.lastgroup), self._facts.line_count)
            return True
        if self._facts.errors and _PYTEST_SUMMARY.match(line) is not None:
            self._facts.last_error_line = self._facts.line_count
            return True
        if line.startswith(_CHAINED):
            self._chained = self._facts.last_error_has_traceback
            return True
        if (
            "Error" in line
            and (changed := _MIXED_SYNTAX_ERROR.search(line)) is not None
            and self._after_frame(2 * _MAX_LINES_AFTER_FRAME)
        ):
            self._add(changed[1], "")
            return True
        if TRACEBACK in line and (head := _IPYTHON_HEAD.match(line)) is not None:
            if head["interrupt"]:
                self._add(head["interrupt"], "")
            else:
                self._facts.open_traceback_line, self._facts.open_traceback_error = (
                    self._facts.line_count,
                    head["error"],
                )
        return False

    def _add(self, name: str, message: str, *, colon: bool = False) -> None:
        facts = self._facts
        (place, line_number), self._announced = self._announced, ("", 0)
        if facts.line_count - line_number > _MAX_TRACEBACK_LINES:
            place = ""
        if place in _IGNORED_KINDS:
            facts.last_frame_line = None
            self._logging_error_line = facts.line_count if place == "logging" else 0
            return
        half = name[: len(name) // 2]
        if name == half * 2:  # printed into each other by two ranks: "SyntaxErrorSyntaxError: : bad inputbad input"
            name, message = half, message.removeprefix(": ")
            rest = message[: len(message) // 2]
            message = rest if message == rest * 2 else message
        if is_carried_interrupt(message):
            name, message = "KeyboardInterrupt", ""
        before = _key(facts.errors[-1]) if self._chained and facts.errors else ""
        self._chained = False
        is_repeated = (
            not message and not self._after_frame() and name in (error.type for error in facts.errors[-1:])
        )  # pytest
        is_script_summary = name in _SCRIPT_ERROR_NAMES and self._had_traceback_above()
        if is_repeated or is_script_summary or (before and _RETRIES_EXHAUSTED.search(message) is not None):
            facts.last_error_line = facts.line_count
            return
        self._message_follows = colon and not message
        self._pydantic_lines_left = _PYDANTIC_LINES * (_PYDANTIC_HEADING.match(message) is not None)
        self._lines_below_heading, self._after_node = _MAX_LINES_BELOW_HEADING * is_heading(message), False
        self._is_announced = _ANNOUNCES.match(message) is not None and not self._lines_below_heading
        error = RunError(type=name.rsplit(".", 1)[-1], message=explain_device_type(message[:2000]))
        if error in facts.errors:
            facts.errors.remove(error)
        facts.errors.append(error)
        for dropped in facts.errors[:-MAX_ERRORS]:
            for by_error in self._tables_by_error:
                by_error.pop(_key(dropped), None)
        del facts.errors[:-MAX_ERRORS]
        key = _key(error)
        facts.first_in_chain.pop(key, None)
        if before and before != key:
            facts.first_in_chain[key] = facts.first_in_chain.get(before, before)
        facts.error_places[key] = ErrorPlace(line=facts.line_count, time=self._clock.time(facts.line_count))
        frame = self._frames.end_traceback(key)
        if frame is not None:
            facts.error_frames[key] = msgspec.structs.replace(
                frame,
                error_package=name.partition(".")[0] if "." in name else "",
                last_package=self._frames.last_package,
            )
        facts.last_error_in = place
        facts.last_error_has_traceback = self._after_frame()
        self._frames.ended_program = self._frames.program if facts.last_error_has_traceback and not place else ""
        facts.last_error_line = facts.line_count
        self.open = self._in_message = True

    def _had_traceback_above(self) -> bool:
        """Whether the last exception stands not far above, with its traceback, and no frame of another one since."""
        facts = self._facts
        last, frame = facts.last_error_line or 0, facts.last_frame_line or 0
        return facts.last_error_has_traceback and frame < last and facts.line_count - last <= _MAX_TRACEBACK_LINES

    def _after_frame(self, max_lines: int = _MAX_LINES_AFTER_FRAME) -> bool:
        """Whether a frame of a traceback has just been, with at most so many lines: its source line and marks."""
        frame = self._facts.last_frame_line
        return frame is not None and self._facts.line_count - frame <= max_lines
