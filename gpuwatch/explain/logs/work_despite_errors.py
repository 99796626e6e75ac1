"""Whether a program worked on despite errors: later steps in its logger's lines, or work whose items all failed.

Only lines of a logger count, of level INFO, with steps that advance, or requests that a server answered. What a program
prints proves nothing: Python writes stdout late when it goes to a file, so a traceback stands before older prints. Nor
do other lines at INFO: a program that fails also logs that it saves, cleans up and exits. One whose items all failed
alike goes on to its end, and even says that it succeeded.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from gpuwatch.explain.logs.device_names import explain_device_type
from gpuwatch.explain.logs.failure_lines import logs_failure
from gpuwatch.explain.logs.log_facts import LogFacts
from gpuwatch.explain.logs.log_line_text import bare_message, rank_prefix, undecorated
from gpuwatch.explain.logs.progress_and_success_patterns import SERVER_ANSWER

_MAX_LINES_AFTER_ERROR = 2000
"""Lines after an error that are read."""
_MAX_LINES_BEFORE_ERROR = 3000
"""Lines at the start of a log in which steps are looked for."""
_MAX_LINE_CHARS = 300
"""Only the first characters of a line are examined."""
_COMPARED_LETTERS = 16
_MAX_STEP_LINES, _FEW_STEP_LINES = 100, 2
"""Lines of steps before the first error that are read; a few are not all the forms that a program prints."""
MIN_MANY_STEPS = 10
"""Steps after which even the ranks of a job, which wait for each other, show that none of them failed."""
_INFO = re.compile(r"^.{0,80}?(?:\b(?:INFO|SUCCESS)\b|\"info\"|level=info|\[I \d{4}-)|^(?:\S{1,40} )?I\d{4} [\d:.]+ ")
_STEP = re.compile(
    r"\b(?:epoch|(?:global_?)?step|iter(?:ation)?|batch|trial)\b[\s\"':=#\[(]{0,4}(?P<number>\d{1,9})\b", re.IGNORECASE
)
_PRINTED_STEP = re.compile(
    r"\b(?:epoch|step|iter(?:ation)?|batch|loss|acc(?:uracy)?)\b.*\d|(?<![/\d])\d+/\d+(?![/\d])|\dit/s", re.IGNORECASE
)
_STEP_WORDS = (
    "step", "trial", "epoch", "iter", "batch", "loss", "acc", "/", "finish", "done", "complete", "slot", "prompt",
    "gui", "app] ",
)  # fmt: skip
"""One of these is in each line that the patterns find."""
_END_OF_ANY_PROGRAM = re.compile(r"wandb: |\d%\||^\s*File \"|\bframe #\d")
"""What stands at the end of a program that failed, too: Weights & Biases' summary, a progress bar's last state."""
_PROGRESS_BAR = re.compile(r"\b(?P<number>\d{1,9})/(?P<most>\d{1,9}) \[")
_MIN_BAR_ADVANCES, _MAX_BAR_STATES = 3, 50
"""States of a progress bar that show work: the bars of other ranks may advance once or twice."""
_PROMPT_STARTED, _PROMPT_EXECUTED = "got prompt", re.compile(r"Prompt executed in (?!0\.0)\d")
"""ComfyUI's begin and end of a prompt; a prompt that failed has the latter, too."""
_SERVER_STARTED = re.compile(r"Application startup complete|To see the GUI go to: ")
_WORK_FINISHED = re.compile(
    r"\b(?:training|evaluation|run|job) (?:is |has )?(?:finished|completed?|done)\b", re.IGNORECASE
)
_SERVER_ANSWER = re.compile(SERVER_ANSWER)
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_SERVER_ERROR_ANSWER = re.compile(r"HTTP/\d(?:\.\d)?\" 5\d\d\b")
"""The answer to a request in which the server itself had an error: it lives."""
_SUCCESS_ANSWER = re.compile(r"\"POST \S{1,300} HTTP/\d(?:\.\d)?\" 20\d\b")
_CLIENT_ERROR_ANSWER = re.compile(r"HTTP/\d(?:\.\d)?\" 4\d\d\b")
"""The answer to a request that the server could not fulfil: the error was the request's."""
_SHUTDOWN_WORDS = re.compile(
    r"\b(?:sav|writ|checkpoint|emergency|resum|restart|shut|exit|clean|stop|abort|kill|fail|error|clos)",
    re.IGNORECASE,
)
"""Lines with these words may name a step after which the program ended."""


def _letters(line: str) -> str:
    """The first letters of a line, which those of one kind have in common."""
    return "".join(filter(str.isalpha, line[:_MAX_LINE_CHARS]))[:_COMPARED_LETTERS]


class WorkAfterError:
    """Takes the lines after an error; ``steps`` counts those that show work."""

    def __init__(self, facts: LogFacts) -> None:
        self._facts = facts
        self.wants_lines = False
        """Whether :meth:`take` wants lines."""
        self.steps = 0
        self.wants_lines_before_error = True
        """Whether :meth:`take_before_error` wants lines."""
        self._had_steps_before = False
        self._step_forms: Counter[str] = Counter()
        """How many lines of steps before the first error have this form."""
        self._program_ended = False
        """Whether the program has ended, so that lines count only after one of these forms: another start of it."""
        self.success_answers = 0
        """Requests that a server answered with success after the error."""
        self._lines_before_left = _MAX_LINES_BEFORE_ERROR
        self._lines_left = 0
        self._rank = ""
        self._prints_late = False
        self._last_step = self._bar_position = -1
        self.bar_advances = 0
        """States of a progress bar since, each beyond the one before."""
        self._work_finished = self._prompt_open = self._bar_completed = False
        self._error_line = 0

    def note_survived_error(self) -> None:
        """Stores in the facts the number of the error's line, if work followed, of whichever start."""
        facts = self._facts
        if self.went_on or facts.steps_printed_after_error > _FEW_STEP_LINES or facts.other_program_worked:
            facts.last_survived_error_line = max(facts.last_survived_error_line, self._error_line)

    def take_before_error(self, line: str) -> None:
        """Takes a line before the first error."""
        self._lines_before_left -= 1
        if _STEP.search(line[:_MAX_LINE_CHARS]) is not None:
            self._step_forms[_letters(line)] += 1
        self.wants_lines_before_error = self._lines_before_left > 0 and self._step_forms.total() < _MAX_STEP_LINES
        self._had_steps_before = self._lines_before_left == 0 or bool(self._step_forms)

    def start(self, line: str, number: int, *, ended: bool) -> None:
        """Starts to count after the error in ``line``, as it is, which may have ``ended`` the program."""
        self.note_survived_error()
        self._error_line = number
        self.wants_lines, self._lines_left, self._rank = True, _MAX_LINES_AFTER_ERROR, rank_prefix(line)
        self._program_ended = ended and self._step_forms.total() > _FEW_STEP_LINES
        self._facts.other_program_worked = False
        self.restart()

    def restart(self) -> None:
        """Another error of the same process: steps before it count no more."""
        self._had_steps_before |= self._facts.steps_printed_after_error > 0
        self.steps, self._facts.steps_printed_after_error, self._last_step, self._work_finished = 0, 0, -1, False
        self._prints_late = self._prompt_open = False
        self._bar_position, self.bar_advances, self._bar_completed = -1, 0, False
        self._facts.server_answered_after_error = False
        self.success_answers = 0

    def take(self, line: str) -> None:
        """Takes a line after the error, of a progress bar its last states."""
        self._lines_left -= 1
        for piece in line.rstrip("\r\n").split("\r")[-_MAX_BAR_STATES:] if "\r" in line else (line,):
            self._take_state(piece)

    def _take_state(self, line: str) -> None:
        facts = self._facts
        self.wants_lines = self._lines_left > 0 and self.steps < MIN_MANY_STEPS
        line = line[:_MAX_LINE_CHARS] if "\x1b" not in line else _ANSI.sub("", line[:_MAX_LINE_CHARS])
        lower = line.lower()
        if not any(word in lower for word in _STEP_WORDS):
            return
        if _SERVER_STARTED.search(line) or (self._prompt_open and _PROMPT_EXECUTED.search(line)):
            self.steps += 2
            return
        if rank_prefix(line) != self._rank:
            return
        if (bar := _PROGRESS_BAR.search(line)) is not None:
            # Bars are on stderr, as tracebacks are: in the order of time.
            self.bar_advances += 0 <= self._bar_position < int(bar["number"])
            self._bar_position = int(bar["number"])
            facts.steps_printed_after_error += self.bar_advances == _MIN_BAR_ADVANCES and not self._program_ended
            self._bar_completed |= self.bar_advances >= _MIN_BAR_ADVANCES and bar["number"] == bar["most"]
        if self._program_ended:
            steps = _STEP.search(line) is not None
            self._program_ended = not steps or _letters(line) not in self._step_forms
            if not self._program_ended:
                facts.other_program_worked = False
            else:
                # The program that ended left its bar as it is.
                left_behind = bar is not None and self.bar_advances < _MIN_BAR_ADVANCES
                facts.other_program_worked |= steps and not left_behind
                return
        self._prompt_open |= _PROMPT_STARTED in line
        step = _STEP.search(line)
        first_steps = step is not None and int(step["number"]) <= 1
        self._prints_late |= first_steps and not (facts.steps_printed_after_error or self._had_steps_before)
        if not self._prints_late and _PRINTED_STEP.search(line) and not _END_OF_ANY_PROGRAM.search(line):
            facts.steps_printed_after_error += 1
        facts.server_answered_after_error |= _SERVER_ERROR_ANSWER.search(line) is not None
        if _SERVER_ANSWER.search(line) is not None:
            self.success_answers += _SUCCESS_ANSWER.search(line) is not None
            self.steps += 1 + (_CLIENT_ERROR_ANSWER.search(line) is not None)
            return
        if _INFO.search(line) is None:
            return
        if _WORK_FINISHED.search(line):
            self._work_finished = True
        elif step is not None and not _SHUTDOWN_WORDS.search(line) and int(step["number"]) > self._last_step:
            self._last_step = int(step["number"])
            self.steps += 1
            if self.steps >= MIN_MANY_STEPS:
                facts.last_error_line_before_many_steps = self._error_line

    @property
    def went_on(self) -> bool:
        """Whether two steps advanced after the error, or one and the end of the work, or a progress bar to its end."""
        return self.steps + (self._work_finished and self.steps > 0) > 1 or self._bar_completed


_MAX_SHAPES = 64
"""Shapes of error lines that are counted."""
_MAX_KEPT_CHARS = 400
_MIN_ITEMS, _MAX_LINES_PER_ITEM = 5, 4
"""Items, at least, and lines of one shape for each of them, at most: it may be tried again."""
_ITEMS = re.compile(
    r"(?<![\d.])(\d{1,9})/\1(?!\d)"
    r"|\b(?:total|processed|evaluated|completed|evaluating|of|all)\b[^\d\n]{0,30}?\b(\d{1,9})\b(?![\d.,]*%|\.\d)"
    r"|(?<![\d.])(\d{1,9}) (?:\w{1,12} )?(?:items|samples|files|images|prompts|requests|queries|cases)\b",
    re.IGNORECASE,
)


class FailedItems:
    """Counts lines of errors that mean nothing else, by their shape: the text without digits."""

    def __init__(self) -> None:
        self._counts: dict[bytes, int] = {}
        self._first_line: dict[bytes, str] = {}

    def take(self, shape: bytes, line: str = "") -> bool:
        """Counts a line of a shape; False if too many shapes are counted."""
        if shape in self._counts or len(self._counts) < _MAX_SHAPES:
            self._counts[shape] = self._counts.get(shape, 0) + 1
            self._first_line.setdefault(shape, line)
        return shape in self._counts

    def store_in(self, facts: LogFacts, last_lines: Sequence[str]) -> None:
        """Puts into ``facts`` the error of every item, and the first line that a logger calls an error."""
        facts.error_of_every_item = explain_device_type(self._error_of_every_item(last_lines)[:_MAX_KEPT_CHARS])
        logged = (line for line in self._first_line.values() if logs_failure(line))
        facts.logged_error = explain_device_type(bare_message(next(logged, ""))[:_MAX_KEPT_CHARS])

    def _error_of_every_item(self, last_lines: Sequence[str]) -> str:
        """The error that came for each of the items that the last lines count; empty without one."""
        found_counts = (found for raw in last_lines for found in _ITEMS.finditer(undecorated(raw[:_MAX_KEPT_CHARS])))
        items = {int(next(filter(None, found.groups()))) for found in found_counts}
        for shape, count in self._counts.items():
            each = (count // number for number in items if number >= _MIN_ITEMS and count % number == 0)
            if any(0 < lines_per_item <= _MAX_LINES_PER_ITEM for lines_per_item in each):
                return bare_message(self._first_line[shape])
        return ""
