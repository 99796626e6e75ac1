"""How a watched program ended: the verdict of its Run, and why a program could not be started."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec

from gpuwatch.core.errors import GpuwatchError
from gpuwatch.core.formatting.durations import hours_minutes
from gpuwatch.core.model.ended_by_own_exception import ended_by_own_exception
from gpuwatch.core.model.run import Outcome, Run, Verdict, signal_name
from gpuwatch.core.model.run_memory import HostMemory
from gpuwatch.explain.logs.python_exceptions import essential_line
from gpuwatch.machine.sources.oom_kills import OomKills, find_kernel_log_line, read_oom_kills

_WORKER = "DataLoader worker (pid"
"""PyTorch's words for a worker that was killed or exited."""


class NotStarted(GpuwatchError):
    """The program could not be executed; the exit code is a shell's (127 or 126)."""


class Termination(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about how a program ended, from other sources than its log."""

    outcome: Outcome
    asked: Sequence[int] = ()
    """Signals that gpuwatch received and passed on."""
    kills: OomKills
    """The kernel's OOM counters before the start."""
    peak_bytes: int | None = None
    """Largest resident set of one of the program's processes."""
    total_bytes: int | None = None
    """The host's memory."""
    pids: Collection[int] = ()
    """Its known processes."""
    left: int = 0
    """Number of processes that it left behind."""
    problems: Sequence[str] = ()


def with_verdict(run: Run, end: Termination) -> Run:
    """The run with its verdict: the program's own end takes precedence over its log."""
    outcome = end.outcome
    kills = _new_kills(end.kills, read_oom_kills())
    killed = signal.SIGKILL in _signals(outcome) and not end.asked
    worker = any(_WORKER in error.message for error in run.errors)
    child = any(child.signal == signal.SIGKILL for child in run.killed_children)
    host = None
    if killed or worker or child:  # mostly the kernel sends it, out of host memory
        host = HostMemory(
            peak_bytes=end.peak_bytes,
            limit_bytes=end.kills.limit_bytes,
            total_bytes=end.total_bytes,
            oom_kills=kills,
            kernel_line=find_kernel_log_line(end.pids),
        )
    starved = killed and bool(kills or (host and host.kernel_line))
    verdict, reason = _verdict(run, end, starved)
    problems = list(run.problems)
    if end.left:
        state = "killed" if outcome.signal is not None else "still running"
        problems.append(f"processes left behind by the program: {end.left} ({state})")
    if kills and not starved:
        where = "on this machine" if end.kills.cgroup is None else "in its control group"
        problems.append(f"the kernel's OOM killer killed a process {where} during the run: perhaps one of its workers")
    problems += end.problems
    return msgspec.structs.replace(
        run,
        verdict=verdict,
        verdict_reason=reason,
        problems=tuple(problems),
        outcome=msgspec.structs.replace(outcome, ended=outcome.exit_code is not None),
        host_memory_out=starved,
        host_memory=host,
        left_behind=end.left,
    )


def _signals(outcome: Outcome) -> tuple[int | None, int]:
    """Numbers of the signal that ended it: its own, or of its last command, as a shell's exit code tells."""
    return outcome.signal, (outcome.exit_code or 0) - 128


def _verdict(run: Run, end: Termination, starved: bool) -> tuple[Verdict, str]:
    outcome = end.outcome
    seconds = run.phases.total_seconds
    lasted = "an unknown time" if seconds is None else hours_minutes(seconds)
    passed_on = [number for number in end.asked if number in _signals(outcome)]
    failed = bool(outcome.exit_code) or outcome.signal is not None
    if outcome.exit_code is None and outcome.signal is None:
        return "interrupted", f"It was still running after {lasted}, when this was saved."
    by_exception = failed and any(error.type == "KeyboardInterrupt" for error in run.errors)
    if by_exception or signal.SIGINT in _signals(outcome):
        return "interrupted", f"It was interrupted (SIGINT, Ctrl+C) after {lasted}."
    if passed_on:
        return "interrupted", f"It was ended by {signal_name(passed_on[-1])} after {lasted}, which gpuwatch passed on."
    if failed and run.ooms and not ended_by_own_exception(run, outcome):
        return "oom", "It ran out of memory."
    if starved:
        limit = end.kills.limit_bytes
        whose = "the host" if limit is None else f"its control group (limit {limit >> 20} MiB)"
        return "error", f"It was killed by the kernel (SIGKILL): {whose} was out of memory."
    if outcome.signal is not None:
        return "error", f"It was {outcome.text} after {lasted}."
    if outcome.exit_code:
        return "error", f"It exited with code {outcome.exit_code}{_exception(run)}."
    return "ok", ""


def not_started(name: str, code: int) -> NotStarted:
    """The error for execve's errno ``code``, with a hint."""
    path = name if "/" in name else shutil.which(name, mode=os.F_OK)
    if path is not None and Path(path).is_dir():
        return NotStarted(f"{name} is a folder, not a program", exit_code=126)
    if code == errno.ENOENT and path is not None and Path(path).exists():
        why = "the interpreter in its first line does not exist"
        return NotStarted(f"{name} cannot be started: {why}", exit_code=127)
    if code in (errno.ENOENT, errno.ENOTDIR):
        hint = (
            f"it is not in PATH; to run the one in this folder, use {'python ' if name.endswith('.py') else './'}{name}"
        )
        here = "/" not in name and Path(name).exists()
        return NotStarted(f"{name}: command not found", hint=hint if here else "", exit_code=127)
    if code == errno.EACCES and path is not None and Path(path).is_file() and not Path(path).stat().st_mode & 0o111:
        hint = f"python {name}" if name.endswith(".py") else f"chmod +x {name}"
        return NotStarted(f"{name} is not executable", hint=hint, exit_code=126)
    return NotStarted(f"{name} cannot be started: {os.strerror(code)}", exit_code=126)


def _new_kills(before: OomKills, after: OomKills) -> int | None:
    """How many processes the OOM killer killed in between, preferably by our control group's counter; None: unknown."""
    pairs = ((before.cgroup, after.cgroup), (before.machine, after.machine))
    return next((now - then for then, now in pairs if then is not None and now is not None), None)


def _exception(run: Run) -> str:
    error = next((error for error in reversed(run.errors) if not error.expected), None)
    if error is None:
        ends = [f"{child.pid} was ended by {signal_name(child.signal)}" for child in run.killed_children]
        return f", after its process {ends[0]}" if ends else ""
    message = essential_line(error.message)
    return f", in {error.type}" + (f": {message[:200].rstrip('.')}" if message else "")
