"""Failures in a program's output that are not its own: it printed them from elsewhere, such as an older log.

Two things prove that: the line's own time stamp is from before the start, or the program's processes counted no failure
of that kind until they ended.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable

import msgspec

from gpuwatch.core.model.run import HOST_ALLOCATORS, Oom
from gpuwatch.explain.logs.log_facts import LogFacts, RefusedAllocations

_EPOCH_TIME = re.compile(r"^[IWEF]0000 00:00:(\d{9,11})\.\d+ ")
"""absl before it is initialized, as TensorFlow uses it from 2.17 on."""
_LOCAL_TIME = re.compile(r"^(\d{4}-\d\d-\d\d [012]\d:[0-5]\d:[0-5]\d)\.\d+: [IWEF] ")
_MAX_EARLY_SECONDS = 5.0
"""Seconds by which a line's time stamp may be before the start that gpuwatch noted, as clocks differ."""
_TIME_ZONES_SECONDS = 26 * 3600.0
"""Seconds between the earliest and the latest local time on Earth: the program may have a time zone of its own."""
_MEMORY_TOPICS = ("memory.oom", "memory.refused", "memory.retried")
_KERNEL_TOPICS = ("ended.assert", "ended.kernel", "ended.launch", "ended.watchdog")
_FAILED_OP_TOPICS = (
    *("memory.masked", "memory.library-failed", "memory.library-usage", "hardware.fault", "driver.cuinit"),
    *_KERNEL_TOPICS,
)


class FailureCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What all processes of a program counted themselves."""

    failed_allocations: int
    """Requests for memory that failed."""
    other_failures: int | None
    """Other failures of ops that a GPU's state may cause; None if they are not counted."""
    used_framework: bool
    used_gpus: bool
    """Whether one of them had GPUs."""


def was_written_before(line: str, started: datetime.datetime) -> bool:
    """Whether a framework wrote this line before ``started``, by the line's own time."""
    if (match := _EPOCH_TIME.match(line)) is not None:
        return int(match[1]) < started.timestamp() - _MAX_EARLY_SECONDS
    if (match := _LOCAL_TIME.match(line)) is None:
        return False
    try:
        written = datetime.datetime.fromisoformat(match[1]).replace(tzinfo=datetime.UTC)
    except ValueError:
        return False
    return (started - written).total_seconds() > _TIME_ZONES_SECONDS


def without_quoted_failures(facts: LogFacts, counts: FailureCounts | None) -> LogFacts:
    """The facts without failures that no process of the program had; ``counts`` is None if that is not known."""
    if counts is None:
        return facts
    # Host memory that runs out is not counted: any library may request it.
    host_ooms = [oom for oom in facts.ooms if oom.allocator in HOST_ALLOCATORS]
    if not counts.used_framework:
        return _without_topics(
            _facts_that_need_no_framework(facts, host_ooms),
            lambda topic: not topic.startswith("ended.") or topic in _KERNEL_TOPICS,
        )
    if counts.failed_allocations:
        return facts
    facts = msgspec.structs.replace(facts, ooms=host_ooms, refusals=RefusedAllocations())
    if counts.other_failures != 0 or not counts.used_gpus:
        return _without_topics(facts, lambda topic: topic in _MEMORY_TOPICS)
    facts = msgspec.structs.replace(facts, cuinit_error=None)
    return _without_topics(facts, lambda topic: topic in (*_MEMORY_TOPICS, *_FAILED_OP_TOPICS))


def _without_topics(facts: LogFacts, is_dropped: Callable[[str], bool]) -> LogFacts:
    return msgspec.structs.replace(
        facts,
        topics={topic: count for topic, count in facts.topics.items() if not is_dropped(topic)},
        evidence={topic: lines for topic, lines in facts.evidence.items() if not is_dropped(topic)},
    )


def _facts_that_need_no_framework(facts: LogFacts, host_ooms: list[Oom]) -> LogFacts:
    """The facts that a program has with or without a framework."""
    return LogFacts(
        line_count=facts.line_count,
        ooms=host_ooms,
        topics=facts.topics,
        evidence=facts.evidence,
        errors=facts.errors,
        error_frames=facts.error_frames,
        error_places=facts.error_places,
        last_error_line_before_many_steps=facts.last_error_line_before_many_steps,
        frame=facts.frame,
        last_error_line=facts.last_error_line,
        last_error_in=facts.last_error_in,
        last_error_has_traceback=facts.last_error_has_traceback,
        went_on_after_last_error=facts.went_on_after_last_error,
        steps_printed_after_error=facts.steps_printed_after_error,
        last_frame_line=facts.last_frame_line,
        open_traceback_line=facts.open_traceback_line,
        reported_end=facts.reported_end,
        reported_end_line=facts.reported_end_line,
        reported_end_line_number=facts.reported_end_line_number,
        ending_kind=facts.ending_kind,
        ending_line=facts.ending_line,
    )
