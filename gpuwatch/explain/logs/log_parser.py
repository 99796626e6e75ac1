"""Parses a framework's log in one pass: lines in, :class:`LogFacts` out.

It is fast because most lines are skipped: a line without a C++ source position and without one of a few substrings
after some searches, a message that was seen before, or that differs from a meaningless one only in its digits, after a
lookup. Patterns are searched, not anchored, because people quote, indent and wrap log lines.
"""

from __future__ import annotations

import itertools
import re
from collections import deque
from collections.abc import Iterable

from gpuwatch.core.model.run import Oom
from gpuwatch.core.safe_text import cut_line
from gpuwatch.explain.logs import log_ending
from gpuwatch.explain.logs.failure_lines import is_error_line
from gpuwatch.explain.logs.line_authors import program_lines
from gpuwatch.explain.logs.line_times import LineClock
from gpuwatch.explain.logs.log_facts import KERAS_WORK, WORK, LogFacts
from gpuwatch.explain.logs.log_frameworks import (
    drop_unused_frameworks,
    frameworks_in_warnings,
    only_imported_tensorflow,
)
from gpuwatch.explain.logs.log_line_text import (
    MAX_LINE_CHARS,
    bare_message,
    json_text,
    last_bar_state,
    rank_prefix,
    source_message,
    split_unfinished_line,
    undecorated,
    without_prefixes,
)
from gpuwatch.explain.logs.message_reader import TENSORFLOW_GPU_SOURCES, MessageReader, absl_thread
from gpuwatch.explain.logs.message_topic_texts import is_worth_parsing
from gpuwatch.explain.logs.multiline_messages import OpenMessages
from gpuwatch.explain.logs.nvidia_tool_output import DCGM_PREFIX, driver_version_of_table, topics_of_dcgm_metric
from gpuwatch.explain.logs.oom_collector import OomCollector
from gpuwatch.explain.logs.oom_messages import is_pytorch_oom, refused_bytes
from gpuwatch.explain.logs.op_placement_lines import PlacementCounter
from gpuwatch.explain.logs.program_start_after_error import EndedProgram, ProgramStartLines, is_syntax_error_location
from gpuwatch.explain.logs.python_exceptions import ExceptionFinder, is_error
from gpuwatch.explain.logs.reported_ends import ReportedEnds, is_about_child
from gpuwatch.explain.logs.tracebacks import TRACEBACK, FrameFinder, lines_of_joined_traceback
from gpuwatch.explain.logs.work_despite_errors import MIN_MANY_STEPS, FailedItems, WorkAfterError

_MAX_KEPT_CHARS = 2000
_ENVIRONMENT_OF_PATH = (("/users/", "macos"), ("webui", "webui"), ("/content/", "colab"))
"""The system or service on which a program ran, by a part of its path."""
_MEMO_CHARS = 600
_MEANINGLESS_KIND, _REFUSED_KIND, _TORCH_OOM_KIND, _ERROR_KIND = 1, 2, 3, 4

_CHUNK_IN_USE = ("InUse at ", "Chunk at ")
"""Most lines of an allocator's dump; its sums have the same information."""
# A fatal log line, which ends the program: "F tensorflow/…/x.cc:7]" or "F0504 10:11:12.131415 4711 x.cc:7]".
_FATAL_PREFIX = re.compile(r"(?:^|[\s:`*])F(?:\d{4} [\d:.]{1,30} +\d{1,10})? +[^\s:]{1,300}$")
_MIG_ERROR_COLUMN = re.compile(r"\|\s+\|\s+\|\s+ERR!\s+\|")
"""Where nvidia-smi could not read whether MIG is enabled: no fault of the GPU."""
# TensorFlow 2.21 prints file names without paths.
_TENSORFLOW_SOURCES = frozenset(
    {*TENSORFLOW_GPU_SOURCES, "cudart_stub", "cpu_feature_guard", "execute", "direct_session"}
)
_MAX_MEMO_ENTRIES = 8192


def _message_shape(message: str) -> bytes:
    """A message without its digits: what messages of one kind have in common."""
    return message.encode("utf-8", "replace").translate(None, b"0123456789")


class LogParser:
    """Takes lines; ``facts`` can be read at any time. Memory is bounded."""

    def __init__(self, lines_before: int = 0) -> None:
        self._facts = LogFacts(line_count=lines_before)
        self._placements = PlacementCounter()
        self._ooms = OomCollector()
        self._memo: dict[str | bytes, tuple[str, str] | list[str] | int | None] = {}
        """What to do with a message, by its text; its kind, by its text without digits."""
        self._multiline = OpenMessages(self._facts)
        self._frames = FrameFinder()
        self._reported_ends = ReportedEnds(self._facts)
        self._work = WorkAfterError(self._facts)
        self._program_start_lines = ProgramStartLines()
        self._traceback_head = self._last_dump_line = ""  # the last ones
        self.start_lines: list[str] = []
        """The last lines, if they began another program than those before them."""
        self._last_lines: deque[str] = deque(maxlen=log_ending.LAST_LINES)
        self._exceptions = ExceptionFinder(self._facts, self._frames, LineClock(self._last_lines))
        self._messages = MessageReader(self._facts, self._ooms, self._multiline, self._last_lines)
        self._ended_program = EndedProgram(self._last_lines)
        self._failed_items = FailedItems()
        self._ooms_seen = self._ooms_continued_after = self._dump_count = 0
        """``_dump_count``: of the lines about memory that ran out, those of an allocator that tries again."""

    @property
    def facts(self) -> LogFacts:
        """The facts of the lines read so far."""
        self._facts.placements = self._placements.result()
        self._facts.copies = self._placements.copies()
        self._facts.ooms = self._ooms.result()
        self._facts.frame = self._frames.frame
        self._facts.went_on_after_last_error = self._work.went_on
        if self._work.went_on:
            self._work.note_survived_error()
        self._facts.went_on_after_oom = 0 < self._facts.topics.get("memory.oom", 0) == self._ooms_continued_after
        self._facts.memory_request_frame = self._frames.memory_request_frame
        self._add_frameworks_of_frames()
        if (constant := self._facts.refusals.repeated_bytes) is not None and not self._facts.ooms:
            self._facts.ooms.append(Oom(requested_bytes=constant, verdict="memory.other-process"))
        return self._facts

    def feed(self, line: str) -> None:
        """Takes one line, with or without its end."""
        facts = self._facts
        facts.line_count += 1
        kept = line if len(line) < _MAX_KEPT_CHARS else cut_line(line, _MAX_KEPT_CHARS)
        if line and not line.isspace():
            self._last_lines.append(kept)
        if self._ended_program.lines_since is not None:
            self._ended_program.lines_since.append(kept)
        placer = "): /" in line
        # Of graphs there is a line for each node, in which nothing else needs a look.
        busy = placer and (self._work.wants_lines or self._exceptions.open or self._frames.open or self._multiline.open)
        if placer and not busy and not self._ooms.in_dump() and self._placements.take_known_placer_line(line):
            return
        if line.startswith('{"') and self._take_json_line(line):
            return
        framed = ", line " in line
        if framed and TRACEBACK in line and (pieces := lines_of_joined_traceback(line)):
            self._take_pieces(pieces)
            return
        if self._work.wants_lines:
            self._take_line_after_error(line)
        elif self._work.wants_lines_before_error:
            self._work.take_before_error(line)
        if framed or self._exceptions.open or self._frames.open:
            self._frames.rank = rank_prefix(line)
        if self._exceptions.open:
            self._exceptions.take_following_line(line)
            if self._frames.is_new_program and self._is_another_start(line):
                return
            self._after_exception(line)
        if self._frames.open:
            self._frames.take_code(bare_message(line))
        if framed and self._frames.take_frame(bare_message(line)):
            if self._frames.is_new_program and self._is_another_start(line):
                return
            facts.last_frame_line = None if self._exceptions.in_logging_stack() else facts.line_count
            if self._exceptions.can_follow_syntax_error_location and is_syntax_error_location(line):
                self.start_lines = [line]
        elif TRACEBACK in line:
            self._exceptions.begin_traceback(line)
            self._traceback_head = line
        at = line.find(".cc:")
        if at > 0:
            end = line.find("]", at, at + 12)
            if end > 0:
                message = line[end + 2 :]
                known = self._memo.get(message, 0)
                if known is None:
                    return
                if known.__class__ is tuple:
                    self._placements.count_again(known)
                    return
                if known.__class__ is list:
                    facts.topic_line_numbers.update(dict.fromkeys(known, facts.line_count))
                    return
                if known:
                    facts.refusals.add(known)  # type: ignore[arg-type]
                    return
                if self._ooms.in_dump():
                    if message.startswith(_CHUNK_IN_USE):
                        return
                elif not self._multiline.open:
                    if line.startswith("placer", at - 6) and self._placements.take_placer_line(message):
                        self._messages.add_framework("tensorflow")
                        return
                    if self._take_known_kind(message):
                        return
                self._take_source_line(line, message)
                return
        if self._multiline.open and self._take_table_line(line):
            return
        if not self._multiline.open and not self._ooms.in_dump():
            if placer and self._placements.take_placer_line(line):
                return
            shape = _message_shape(line)
            kind = self._memo.get(shape)
            if kind is not None:
                if kind == _TORCH_OOM_KIND:
                    facts.topics["memory.oom"] += 1
                    facts.topic_line_numbers["memory.oom"] = facts.line_count
                    facts.last_error_line = facts.line_count
                elif kind == _ERROR_KIND:
                    self._failed_items.take(shape)
                return
            if not is_worth_parsing(shape):
                self._remember(shape, _MEANINGLESS_KIND)
                return
            if len(line) > _MEMO_CHARS:
                self._take_plain_line(line)
            elif not self._take_plain_line(line):
                of_an_item = is_error_line(line) and self._failed_items.take(shape, line)
                self._remember(shape, _ERROR_KIND if of_an_item else _MEANINGLESS_KIND)
            elif self._ooms.is_full() and is_pytorch_oom(line) and "\r" not in line:
                # The list of failures is full: only count further ones with the same wording.
                self._remember(shape, _TORCH_OOM_KIND)
            return
        self._take_plain_line(line)

    @property
    def program(self) -> str:
        """The name of the program's file; empty if it is not known."""
        return self._program_start_lines.program or self._frames.ended_program

    def _job_failed(self) -> bool:
        """Whether a launcher has reported that the job failed."""
        last = self._facts.errors[-1] if self._facts.errors else None
        return bool(self._facts.reported_end) or (last is not None and is_about_child(last.type, last.message))

    def _after_exception(self, raw: str) -> None:
        """Begins to look for work after the exception, if this line is one, and keeps what another start may be of."""
        if self._facts.last_error_line == self._facts.line_count:
            self._work.start(raw, self._facts.line_count, ended=bool(self._frames.ended_program))
            ended = self._frames.ended_program and not rank_prefix(raw)
            if ended or self._ended_program.lines_since is not None:
                self._ended_program.set_end(self._facts.line_count if ended else 0)

    def _is_another_start(self, line: str) -> bool:
        """Whether the traceback that begins is of another program than the one that ended, or of another start."""
        self._frames.is_new_program = False
        self.start_lines = self._ended_program.lines_of_next_start(
            self._traceback_head, line, renamed=self._frames.has_new_name
        )
        return bool(self.start_lines)

    def rewind(self) -> None:
        """Forgets what came since an exception ended the program, if that was of another start of it."""
        if self._ended_program.end_line:
            self._facts.line_count, self._ooms_continued_after = self._ended_program.end_line, 0
            self._work.restart()
            self._ended_program.restore_last_lines()

    def _take_line_after_error(self, line: str) -> None:
        ooms = self._facts.topics.get("memory.oom", 0)
        if ooms != self._ooms_seen:
            self._ooms_seen = ooms
            self._work.note_survived_error()
            self._work.restart()
        self._work.take(line)
        if max(self._work.steps, self._work.bar_advances) >= MIN_MANY_STEPS or self._work.success_answers > 1:
            self._ooms_continued_after = ooms

    def _take_known_kind(self, message: str) -> bool:
        """Handles a C++ message of a known kind; False if its kind is not known yet."""
        if message.startswith("Executing op ") and ("\r" not in message or "\r" not in message.rstrip("\r\n")):
            self._messages.add_framework("tensorflow")
            self._remember(message, self._placements.take_eager_line(message))
            return True
        if message.startswith("before computing ") and self._placements.take_copy_line(message):
            return True
        kind = self._memo.get(_message_shape(message))
        if kind == _REFUSED_KIND and (refused := refused_bytes(message)) is not None:
            self._facts.refusals.add(refused)
            return True
        return kind == _MEANINGLESS_KIND

    def _remember(self, text: str | bytes, action: tuple[str, str] | list[str] | int | None) -> None:
        """Forgets everything when it is full: the lines of a log repeat, so it is soon filled with those that do."""
        if len(text) <= _MEMO_CHARS:
            if len(self._memo) >= _MAX_MEMO_ENTRIES:
                self._memo.clear()
            self._memo[text] = action

    @property
    def lines_since_error(self) -> int | None:
        """Lines since the last exception, or report that the program ended badly; None without one."""
        at = max(self._facts.last_error_line or 0, self._facts.reported_end_line_number)
        return self._facts.line_count - at if at else None

    def count_line(self) -> None:
        """Counts a line that is read elsewhere."""
        self._facts.line_count += 1

    def close(self) -> None:
        """Ends the log, and all messages of several lines."""
        facts, last_lines = self._facts, self._last_lines
        self._multiline.close_all()
        self._take_unfinished_line(last_bar_state(last_lines[-1]) if last_lines else "")
        self._frames.frameworks |= frameworks_in_warnings(last_lines)
        file = self._frames.frame.file if self._frames.frame is not None else ""
        for part, environment in _ENVIRONMENT_OF_PATH:
            if part in file.lower():
                facts.note(f"environment.{environment}", file)
        closing = [bare_message(text) for text in list(last_lines)[-2:]]
        self._reported_ends.close(closing[-1] if closing else "", closing[0] if closing else "")
        kept, printed = program_lines([*last_lines], whole=len(last_lines) < log_ending.LAST_LINES)
        end = log_ending.end_of(kept, is_server="server.started" in facts.topics)
        line, placed = end.line, bool(self._placements.result())
        worked = end.kind in (WORK, KERAS_WORK)
        if worked:
            if "memory.retried" in facts.topics or self._worked_after_dumps(line):
                self._ooms_continued_after = facts.topics.get("memory.oom", 0)
            self._messages.forget_warnings(line)
            if end.kind == WORK and only_imported_tensorflow(facts, placed=placed):
                facts.missing_libraries.clear()
                facts.forget("cuda.missing-library")
        since = itertools.takewhile(lambda text: not line or line not in undecorated(text), reversed(last_lines))
        facts.lines_after_ending_line = sum(1 for text in since if bare_message(text))
        if worked and log_ending.shows_work(line):
            self._reported_ends.forget_unstarted_command(facts.line_count - facts.lines_after_ending_line)
        self._add_frameworks_of_frames()
        if facts.errors and facts.errors[-1].type == "KeyboardInterrupt":
            self._reported_ends.forget_unstarted_command(facts.last_error_line or 0)
        worked_without_tensorflow = end.kind == WORK and "tensorflow" not in line
        drop_unused_frameworks(facts, placed=placed, worked=worked_without_tensorflow)
        self._failed_items.store_in(facts, last_lines)
        log_ending.store_last_lines(facts, last_lines, end, printed)

    def _add_frameworks_of_frames(self) -> None:
        for name in sorted(self._frames.frameworks):
            self._messages.add_framework(name)

    def _worked_after_dumps(self, line: str) -> bool:
        """Whether only an allocator reported that memory ran out, no op failed for it, and ``line`` came later."""
        if self._dump_count != self._facts.topics.get("memory.oom", 0) or not self._dump_count or self._facts.errors:
            return False
        since = itertools.takewhile(lambda text: text != self._last_dump_line, reversed(self._last_lines))
        return any(line in undecorated(text) for text in since)

    def _take_source_line(self, line: str, tail: str) -> None:
        if self._take_bar_states(line):
            return
        line = undecorated(line[:MAX_LINE_CHARS])
        found = source_message(line)
        if found is None:
            self._take_plain_line(line)
            return
        source, message = found
        if ".cc:" not in (text := without_prefixes(line)).partition(": ")[0] and is_error(text):
            # An exception that quotes a source: "RuntimeError: [gloo/transport/tcp/pair.cc:598] Connection closed".
            self._take_plain_line(line)
            return
        if "tensorflow" in line or "local_xla" in line or source in _TENSORFLOW_SOURCES:
            self._messages.add_framework("tensorflow")
        self._multiline.close_all()
        action: tuple[str, str] | list[str] | int | None = None
        if source == "bfc_allocator":
            self._take_allocator_message(line, message)
            return
        if source == "execute" and message.startswith("Executing op"):
            action = self._placements.take_eager_line(message)
        elif source in ("placer", "simple_placer") and self._placements.take_placer_line(message):
            pass
        elif (refused := refused_bytes(message)) is not None:
            self._facts.refusals.add(refused)
            self._facts.note("memory.refused", line)
            action = refused
            self._remember(_message_shape(tail), _REFUSED_KIND)
        else:
            known = self._messages.read(source, line, message)
            action = (self._messages.topics_of_line() or None) if known else None
            if _FATAL_PREFIX.search(line, 0, line.find(".cc:")):
                self._facts.note("ended.fatal", line)
            if self._multiline.open:
                return
            if not known:
                self._remember(_message_shape(tail), _MEANINGLESS_KIND)
        self._remember(tail, action)

    def _take_allocator_message(self, line: str, message: str) -> None:
        self._last_dump_line = self._last_lines[-1] if self._last_lines else ""
        if "an out of memory trying" in message:
            if self._ooms.take_dump_head(message, absl_thread(line)):
                self._dump_count += 1
                self._facts.note("memory.oom", line)
            elif "is not a failure" in message:
                self._facts.note("memory.not-a-failure", line)
            return
        if self._ooms.take_headless_dump(message, absl_thread(line)):
            self._facts.note("memory.oom", line)
        self._ooms.take_dump_line(message, absl_thread(line))

    def _take_plain_line(self, raw: str) -> bool:
        """Takes a line that is not from C++; False if it is irrelevant, whatever numbers are in it."""
        if self._take_bar_states(raw) or self._take_unfinished_line(raw):
            return True
        facts, whole = self._facts, undecorated(raw[:MAX_LINE_CHARS])
        line = without_prefixes(whole)
        if self._multiline.open and self._take_message_line(line):
            return True
        if self._ooms.in_dump():
            self._ooms.take_dump_line(line)
        if not line:
            return False
        if "Executing op " in line:
            self._placements.take_eager_line(line)
            return True
        if line.startswith(DCGM_PREFIX):
            for topic, evidence in topics_of_dcgm_metric(line):
                facts.note(topic, evidence)
                facts.note_xid(evidence, evidence)
            return True
        if "pu:" in line.lower() and not is_error(line) and self._placements.take_placer_line(line):
            return True
        if "NVIDIA-SMI" in line and (version := driver_version_of_table(line)) is not None:
            self._multiline.begin_table()
            # nvidia-smi got an answer from the driver.
            facts.kernel_module_version = facts.kernel_module_version or version
            facts.note("driver.loaded", line)
            return True
        if raw.startswith("[rank"):
            facts.note("environment.launcher", raw.rstrip())
        if begins := self._program_start_lines.begins_program(
            raw, self.lines_since_error, job_failed=self._job_failed()
        ):
            self.start_lines = [raw]
        known = begins is not None or self._reported_ends.take(line)
        known = known or (whole != line and self._reported_ends.take(whole))
        if not self._exceptions.is_ignored(line):
            known |= self._messages.read("", line, line)
        if "Xid (" in raw:
            facts.note_xid(raw, line)
        self._frames.rank = rank_prefix(raw)
        known |= self._take_python_error(line)
        self._after_exception(raw)
        return known

    def _take_json_line(self, line: str) -> bool:
        """Takes a line of a container's JSON log, whose text is the program's; False for other lines."""
        within = self._multiline.open or self._ooms.in_dump() or self._frames.open or ", line " in line
        if (
            not within
            and "\\" not in line
            and ".cc:" not in line
            and not is_worth_parsing(line.encode("utf-8", "replace"))
        ):
            return False
        if (text := json_text(line)) is None:
            return False
        self._take_pieces(text.removesuffix("\n").split("\n"))
        return True

    def _take_pieces(self, pieces: Iterable[str]) -> None:
        """Takes each piece of a line as a line."""
        counted = self._facts.line_count
        for piece in pieces:
            self.feed(piece)
        self._facts.line_count = counted

    def _take_bar_states(self, raw: str) -> bool:
        """Takes the last states of a progress bar; False for a line that does not overwrite itself."""
        overwritten = "\r" in raw.rstrip("\r\n")
        if overwritten:
            self._take_pieces(filter(str.strip, raw.split("\r")[-50:]))
        return overwritten

    def _take_unfinished_line(self, raw: str) -> bool:
        """Takes a line in which somebody else's words stand behind what the program left unfinished; False if not."""
        if (parts := split_unfinished_line(raw)) is None:
            return False
        self._last_lines.pop()
        self._take_pieces(parts)
        return True

    def _take_python_error(self, line: str) -> bool:
        if self._exceptions.take_exception(line):
            self._messages.add_frameworks_named_in(line)
            if "tensorflow." in line:
                self._messages.add_framework("tensorflow")
            elif line.startswith("torch."):
                self._messages.add_framework("pytorch")
            return True
        if "Colocation Debug Info" in line:
            self._multiline.begin_colocation(failed=self._messages.placement_failed)
            return True
        return self._exceptions.take_related_line(line)

    def _take_message_line(self, line: str) -> bool:
        """Takes a line of an open unit; False if it may also mean something by itself."""
        if self._multiline.take_colocation_line(line):
            return True
        whole = self._multiline.complete_mapping(line)
        if whole is not None:
            found, joined = whole
            self._messages.add_mapping(found)
            self._facts.note("device.mapped", joined)
            return True
        if self._multiline.is_capability_range(line):
            self._facts.note("build.gpu-unsupported", line)
            self._messages.count_as_warning()
            return True
        self._multiline.take_gpu_property(line)
        return False

    def _take_table_line(self, raw: str) -> bool:
        """Takes a line of nvidia-smi's tables, which may also contain the compute mode."""
        if not self._multiline.take_table_line(raw[:MAX_LINE_CHARS].rstrip()):
            return False
        if "E. Process" in raw or "Prohibited" in raw:
            # A mode that many clusters set on all GPUs: what it keeps out says so itself.
            self._facts.note("mode.shown", raw.strip())
        if "ERR!" in raw and _MIG_ERROR_COLUMN.match(raw) is None:
            self._messages.read("", raw.strip(), raw)
        return True


def parse(text: str) -> LogFacts:
    """The facts of a complete log text."""
    parser = LogParser()
    # splitlines() would also split at the carriage returns of progress bars.
    for line in text.removesuffix("\n").split("\n"):
        parser.feed(line)
    parser.close()
    return parser.facts
