"""How a watched program ended: exit code, signals, the kernel's OOM killer; the verdict that follows from these alone.

What its log and its memory add comes later: :mod:`gpuwatch.explain.diagnosis.runs.final_verdict`.
"""

from __future__ import annotations

import signal
from collections.abc import Collection, Mapping, Sequence

import msgspec

from gpuwatch.core.formatting.durations import hours_minutes
from gpuwatch.core.model.run import Outcome, Run, RunError, Verdict, signal_name
from gpuwatch.core.model.run_memory import HostMemory
from gpuwatch.core.safe_text import shorten
from gpuwatch.explain.diagnosis.rules.error_evidence import INTENDED_ENDS
from gpuwatch.explain.logs.python_exceptions import essential_line, is_carried_interrupt
from gpuwatch.machine.sources.oom_kills import OomKills, find_kernel_log_line, read_oom_kills

_END_SIGNALS = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT})
"""Signals that ask a program to end."""
_SIGNAL_EXCEPTION = "SignalException"
"""What torchrun raises when it receives a signal."""
_DATALOADER_WORKER = "DataLoader worker (pid"
"""PyTorch's words for a worker that was killed or exited."""

_MAX_MESSAGE_CHARS = 200
"""Characters of an exception's message in the verdict's reason."""


class EndFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about how a program ended."""

    outcome: Outcome
    received_signals: Sequence[int] = ()
    """Signals that gpuwatch received and passed on."""
    signal_seconds: Mapping[int, float] = {}
    """By number, the seconds from the program's start to the last such signal."""
    logged_errors: Sequence[RunError] = ()
    """Exceptions in its log."""
    oom_kills_before: OomKills
    """The kernel's OOM counters before the start."""
    peak_resident_bytes: int | None = None
    """Largest resident set of one of the program's processes."""
    host_memory_bytes: int | None = None
    """The host's memory."""
    pids: Collection[int] = ()
    """Its known processes."""
    left_behind_count: int = 0
    """Number of processes that it left behind."""
    problems: Sequence[str] = ()


def with_program_end(run: Run, facts: EndFacts) -> Run:
    """The run with how it ended, and its verdict by that: the program's own end takes precedence over its log."""
    outcome = facts.outcome
    errors = tuple(error for error in run.errors if not _is_interruption(error, facts))
    interrupted = len(errors) < len(run.errors)
    run = msgspec.structs.replace(run, errors=errors)
    new_kills = _kills_between(facts.oom_kills_before, read_oom_kills())
    by_sigkill = signal.SIGKILL in _end_signals(outcome) and not facts.received_signals
    dataloader_worker_killed = any(_DATALOADER_WORKER in error.message for error in run.errors)
    child_killed = any(child.signal == signal.SIGKILL for child in run.killed_children)
    host_memory = None
    if by_sigkill or dataloader_worker_killed or child_killed:  # mostly the kernel sends it, out of host memory
        host_memory = HostMemory(
            peak_bytes=facts.peak_resident_bytes,
            limit_bytes=facts.oom_kills_before.limit_bytes,
            total_bytes=facts.host_memory_bytes,
            oom_kills=new_kills,
            kernel_line=find_kernel_log_line(facts.pids),
        )
    host_memory_out = by_sigkill and bool(new_kills or (host_memory and host_memory.kernel_line))
    verdict, reason = _verdict(run, facts, host_memory_out, interrupted)
    problems = list(run.problems)
    if facts.left_behind_count:
        state = "killed" if outcome.signal is not None else "still running"
        problems.append(f"processes left behind by the program: {facts.left_behind_count} ({state})")
    if new_kills and not host_memory_out:
        where = "on this machine" if facts.oom_kills_before.cgroup is None else "in its control group"
        problems.append(f"the kernel's OOM killer killed a process {where} during the run: perhaps one of its workers")
    problems += facts.problems
    return msgspec.structs.replace(
        run,
        verdict=verdict,
        verdict_reason=reason,
        problems=tuple(problems),
        outcome=msgspec.structs.replace(outcome, ended=outcome.exit_code is not None),
        host_memory_out=host_memory_out,
        host_memory=host_memory,
        left_behind=facts.left_behind_count,
    )


def _end_signals(outcome: Outcome) -> tuple[int | None, int]:
    """Numbers of the signal that ended it: its own, or of its last command, as a shell's exit code tells."""
    return outcome.signal, (outcome.exit_code or 0) - 128


def _is_interruption(error: RunError, facts: EndFacts) -> bool:
    """Whether an exception only says that a signal came: Python's, or that of native code or of a launcher."""
    came = error.by_signal or not _END_SIGNALS.isdisjoint(facts.received_signals)
    if error.type == "KeyboardInterrupt":
        return came
    return is_carried_interrupt(error.message) or (error.type == _SIGNAL_EXCEPTION and came)


def _verdict(run: Run, facts: EndFacts, host_memory_out: bool, interrupted: bool) -> tuple[Verdict, str]:
    """The verdict and its reason. ``interrupted``: whether an exception said that a signal came."""
    from gpuwatch.explain.diagnosis.runs.final_verdict import ended_by_own_exception  # its rules delay the start

    outcome = facts.outcome
    seconds = run.phases.total_seconds
    duration = "an unknown time" if seconds is None else hours_minutes(seconds)
    failed = bool(outcome.exit_code) or outcome.signal is not None
    own_errors = [error for error in run.errors if not error.expected]
    logged = (error for error in facts.logged_errors if error.type not in INTENDED_ENDS)
    has_error = bool(own_errors or run.ooms or run.killed_children)
    has_error = has_error or not all(_is_interruption(error, facts) for error in logged)
    # A program may end with a code of its own: by SystemExit in its handler.
    possible_ends = (*_end_signals(outcome), *(() if has_error or not failed else _END_SIGNALS))
    passed_on_signals = [number for number in facts.received_signals if number in possible_ends]
    if outcome.exit_code is None and outcome.signal is None:
        return "interrupted", f"It was still running after {duration}, when this was saved."
    own_interrupt = any(error.type == "KeyboardInterrupt" for error in own_errors)
    by_sigint = signal.SIGINT in (*_end_signals(outcome), *passed_on_signals[-1:])  # some catch it and exit with 1
    if (interrupted and failed) or (by_sigint and not own_interrupt):
        number = next(reversed(passed_on_signals), signal.SIGINT)
        if number == signal.SIGINT:
            return "interrupted", f"It was interrupted (SIGINT, Ctrl+C) after {duration}."
    if own_interrupt and failed:
        return "error", f"It ended after {duration} in KeyboardInterrupt, which its own code raised: no signal came."
    if passed_on_signals:
        return (
            "interrupted",
            f"It was ended by {signal_name(passed_on_signals[-1])}, which gpuwatch passed on, after {duration}.",
        )
    if failed and run.ooms and not ended_by_own_exception(run, outcome):
        return "oom", "It ran out of memory."
    if host_memory_out:
        limit = facts.oom_kills_before.limit_bytes
        whose_memory = "the host" if limit is None else f"its control group (limit {limit >> 20} MiB)"
        return "error", f"It was killed by the kernel (SIGKILL): {whose_memory} was out of memory."
    if outcome.signal is not None:
        return "error", f"It was {outcome.text} after {duration}."
    if outcome.exit_code:
        reason = f"It exited with code {outcome.exit_code}{_exception_text(run)}"
        return "error", reason if reason.endswith("…") else f"{reason}."
    return "ok", _handled_signal(facts)


def _handled_signal(facts: EndFacts) -> str:
    """Of a program that exited with 0: the last signal that asked it to end; empty if none came."""
    number = next((number for number in reversed(facts.received_signals) if number in _END_SIGNALS), None)
    if number is None:
        return ""
    seconds = facts.signal_seconds.get(number)
    when = "" if seconds is None else f" after {hours_minutes(seconds)}"
    return f"It was sent {signal_name(number)}{when}, and ended by itself."


def _kills_between(before: OomKills, after: OomKills) -> int | None:
    """How many processes the OOM killer killed in between, preferably by our control group's counter; None: unknown."""
    counters = ((before.cgroup, after.cgroup), (before.machine, after.machine))
    return next((now - then for then, now in counters if then is not None and now is not None), None)


def _exception_text(run: Run) -> str:
    error = next((error for error in reversed(run.errors) if not error.expected), None)
    if error is None:
        child_ends = [f"{child.pid} was ended by {signal_name(child.signal)}" for child in run.killed_children]
        return f", after its process {child_ends[0]}" if child_ends else ""
    message = essential_line(error.message)
    return f", in {error.type}" + (f": {shorten(message.rstrip('.: '), _MAX_MESSAGE_CHARS)}" if message else "")
