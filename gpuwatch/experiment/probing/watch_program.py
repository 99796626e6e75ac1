"""Watches a user's program, without changing it or its output, and makes a Run of it.

The program stays in our process group, so that Ctrl+C, Ctrl+Z and SIGHUP reach it as they would without us; a signal
sent to us alone is passed on. Its parent is a guard (:mod:`gpuwatch.experiment.probing.guard_process`), which ends it
with everything that it started if we are killed.

A trial (:meth:`Watch.measure`) is different: the program runs in a session of its own without input, its output goes
to a file, and it is ended with everything that it started once it was measured.
"""

from __future__ import annotations

import datetime
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Self

import msgspec

from gpuwatch.core.masking.mask_secrets import mask_command
from gpuwatch.core.model.run import Outcome, Run
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.core.model.try_results import EndedBy
from gpuwatch.experiment.probing import guard_process
from gpuwatch.experiment.probing.environment_settings import environment_settings, stored_variables
from gpuwatch.experiment.probing.execve_errors import not_started
from gpuwatch.experiment.probing.guard_client import SIGINT_SECONDS, GuardReports, ProgramEnder
from gpuwatch.experiment.probing.launch_program import GuardedProgram
from gpuwatch.experiment.probing.output_backlog import OutputBacklog
from gpuwatch.experiment.probing.probe_scripts import ProbeScript
from gpuwatch.experiment.probing.profiler_log_filter import ProfilerLogFilter
from gpuwatch.experiment.probing.program_end import EndFacts, with_program_end
from gpuwatch.experiment.probing.received_events import AppliedSetting, ReceivedEvents, StepCount
from gpuwatch.experiment.probing.run_draft import RunDraft, RunDraftBuilder, SnapshotSource
from gpuwatch.experiment.probing.stream_reader import LineSplitter, Sink
from gpuwatch.experiment.probing.watched_processes import WatchedProcesses

_TICK_SECONDS = 0.5
_UPDATE_SECONDS = 0.02
_GRACE_SECONDS = 2.0
"""Seconds to read the output of a program that has ended, while other processes may still write."""
_QUIET_SECONDS = 0.2
_EXTRA_SAMPLE_SECONDS, _EXTRA_SAMPLE_GROWTH = 0.1, 1.1
"""Seconds between extra samples, and the factor by which the program's memory must have grown for the next one."""
_EAGER_SAVE_SECONDS = 10.0
"""Seconds for which the unfinished run is saved every second, in case it is killed early."""
_END_SIGNALS = frozenset(guard_process.PASSED_SIGNALS) - {signal.SIGUSR1, signal.SIGUSR2}
"""Signals to us that end a trial."""
_PROCESS_POLL_SECONDS = 0.2
"""Seconds between looks for processes of the program that are starting."""
_LAST_SAMPLE_SECONDS = 1.0
"""Seconds to wait for the last sample of a measured program."""
_WATCHED = frozenset({"tensorflow", "pytorch", "jax"})
_NOT_WATCHED_TEXT = "inside the program: its Python ignores PYTHONPATH (-I, -E), or it is not a Python program"
_NO_REPORT = "inside the program: none of its Python processes reported its framework before it ended"
_ONLY_OUTSIDE = "which its output mentions, is not watched; TensorFlow, Keras, PyTorch and JAX are"
_NO_MEMORY = "memory: no process of the program used a GPU through TensorFlow or PyTorch"
_NO_PROFILE = "memory: there is no profile of the GPU that the program used; why is not known"
_NO_ALLOCATION = "memory: the program allocated nothing on its GPU"
_JAX_MEMORY = "memory: JAX cannot record it; gpuwatch explain reads what jax.profiler.save_device_memory_profile writes"
_MAX_SAVE_SHARE, _MAX_EAGER_SAVE_SHARE = 0.005, 0.05
"""Share of a core that diagnosing and saving an unfinished run may cost."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """A program as it was measured, before it was ended."""

    draft: RunDraft
    steps: StepCount
    applied: AppliedSetting | None
    """What became of the setting that is tried; None if the program did not report it."""
    ended_by: EndedBy
    interrupted: int | None = None
    """The signal to gpuwatch that broke the measurement off."""


ShouldStop = Callable[[ReceivedEvents, float, Callable[[], bool]], bool]
"""Whether a measurement ends: asked with what the stepping process reported, the seconds since the start, and whether
other processes of the program may still be on their way to their first steps."""
RunSaver = Callable[[RunDraft], Run]
"""Diagnoses a draft and saves the run."""


class Watch:
    """One program until its end. A context manager, inside that of the program."""

    def __init__(
        self,
        program: GuardedProgram,
        save_run: RunSaver,
        *,
        snapshots: SnapshotSource,
        snapshot_before: Snapshot | None,
        sample_now: Callable[[], None],
    ) -> None:
        """``program`` may have been started. ``save_run`` is also called while it runs, so that a run that breaks off
        is saved.

        ``snapshot_before``: the machine before the start. ``sample_now`` makes ``snapshots`` take an extra snapshot,
        when the program takes devices or memory.
        """
        self._sample_now = sample_now
        self._guarded = program
        self._save_run = save_run
        self._options = program.options
        self._source = snapshots
        self._streams = program.streams
        self._processes = WatchedProcesses(self._streams, program.report_socket)
        self._channel = program.channel
        self._own_session = program.has_own_session
        self._status_line = program.status_line
        self._profiler_lines = ProfilerLogFilter() if program.options.record_memory else None
        self._backlog = OutputBacklog(self._take_log_line)
        self._signals = program.signals
        self._signals.on_signal = self._take_signal
        self._line_sink: Sink = lambda raw: None
        self._gpus_at_sample, self._bytes_at_sample = 0, 0
        """GPUs and allocated bytes at the last extra sample."""
        self._ended_at_sample = 0
        """Processes that had reported their end at the last extra sample."""
        self._next_extra_sample_at = 0.0
        self._starting_polled_at, self._others_may_be_starting = 0.0, False
        self._received_signals: list[int] = []
        self._signal_times: dict[int, float] = {}
        """By number, the monotonic time at which the last such signal came."""
        self._reports = GuardReports(program.signals)
        self._ender = ProgramEnder(program, self._reports, self._processes, self._received_signals)
        self._started = program.started_monotonic
        self._builder = RunDraftBuilder(
            self._started, snapshot_before, is_of_run=self._processes.is_of_program, started_at=program.started_at
        )
        self._latest_snapshot = snapshot_before
        self._next_save_at = self._started
        self._next_update_at = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._processes.close()

    # From start to end

    def run(self) -> Run:
        """Runs the program to its end and returns the run as ``save_run`` has completed it.

        The exit code or signal is in the run's outcome. Raises
        :class:`~gpuwatch.experiment.probing.execve_errors.NotStarted`.
        """
        self._connect()
        self._read_until_end(self._draw_and_save)
        ended_at = time.monotonic()
        self._read_rest()
        self._note_late_signals(ended_at)
        self._update()
        self._status_line.end()
        self._status_line.print_findings()
        return self._save_run(self._with_memory(self._draft(self._reports.outcome)))

    def measure(self, should_stop: ShouldStop, line_sink: Sink) -> Measured:
        """Runs the program until ``should_stop`` or a signal to us says so, or it ends; ends it with all that it
        started.

        What it prints, writes or returns after the measurement counts for nothing. ``line_sink`` gets every line of its
        output. Needs ``WatchOptions.output``. Raises :class:`~gpuwatch.experiment.probing.execve_errors.NotStarted`.
        """
        self._line_sink = line_sink
        self._connect()
        self._read_until_end(lambda: not self._received_signals and not self._should_stop(should_stop))
        if self._about_to_end():
            self._ender.wait(SIGINT_SECONDS)
        else:
            self._sample_once_more()
        ended_by_itself = self._reports.has_ended
        if ended_by_itself:
            self._read_rest()
        else:
            self._backlog.close()
        self._update()
        measured = Measured(
            draft=self._draft(self._reports.outcome if ended_by_itself else Outcome()),
            steps=deepcopy(self._stepping_process().steps),
            applied=self._processes.applied(),
            ended_by="the program",
            interrupted=self._received_signals[0] if self._received_signals else None,
        )
        if not ended_by_itself:
            measured = msgspec.structs.replace(measured, ended_by=self._ender.end())
        return msgspec.structs.replace(measured, draft=self._with_memory(measured.draft))

    def _sample_once_more(self) -> None:
        """Waits for a sample of now: a short program may have taken its memory after the last one."""
        requested_at = datetime.datetime.now(datetime.UTC)
        ends_at = time.monotonic() + _LAST_SAMPLE_SECONDS
        self._sample_now()
        while self._reports.wait_status is None and time.monotonic() < ends_at:
            if self._latest_snapshot is not None and self._latest_snapshot.taken_at >= requested_at:
                return
            self._drain(0.02)
            self._update()

    def _about_to_end(self) -> bool:
        """Whether the program has ended, or is about to, though the guard has not said so yet: perhaps it failed."""
        assert self._reports.program_pid is not None
        try:
            stat = Path(f"/proc/{self._reports.program_pid}/stat").read_bytes()
        except OSError:
            return True
        return (
            stat.rpartition(b")")[2].split()[0] == b"Z"
            or self._processes.leading(self._reports.program_pid).end_event_received
        )

    def _should_stop(self, should_stop: ShouldStop) -> bool:
        started_at = self._reports.started_at
        return self._reports.program_pid is not None and should_stop(
            self._stepping_process(), time.monotonic() - started_at, self._others_are_starting
        )

    def _others_are_starting(self) -> bool:
        """Whether other processes may still be starting, and have not taken their memory."""
        if time.monotonic() >= self._starting_polled_at + _PROCESS_POLL_SECONDS:
            self._starting_polled_at = time.monotonic()
            self._others_may_be_starting = self._processes.any_may_be_starting(self._descendants())
        return self._others_may_be_starting

    def _descendants(self) -> list[int]:
        """Pids of the program and of what it started."""
        return [] if self._guarded.guard is None else guard_process.descendants(self._guarded.guard.pid)

    def _stepping_process(self) -> ReceivedEvents:
        return self._processes.stepping(self._reports.program_pid or 0)

    def _read_until_end(self, should_continue: Callable[[], bool]) -> None:
        """Reads what the program reports and prints until it ends, or ``should_continue`` says no after a look at
        it."""
        is_following = True
        while is_following and self._reports.start_errno is None and not self._reports.has_ended:
            if not self._drain(0 if len(self._backlog) else self._signals.longest_wait(_TICK_SECONDS)):
                self._backlog.parse_next()  # only when there is no output to pass on
            if time.monotonic() >= self._next_update_at:
                self._next_update_at = time.monotonic() + _UPDATE_SECONDS
                self._signals.deliver()
                self._update()
                is_following = should_continue()
        if self._reports.start_errno is not None:
            self._status_line.end()
            raise not_started(self._guarded.command[0], self._reports.start_errno)
        if self._reports.program_pid is None:
            raise KeyboardInterrupt  # the guard was killed before it could start the program

    def _draw_and_save(self) -> bool:
        """Draws the status line and saves the unfinished run, when it is time."""
        self._status_line.tick()
        if self._reports.program_pid is not None and time.monotonic() >= self._next_save_at:
            self._save_unfinished()
        return True

    def _connect(self) -> None:
        """Starts the program, if the caller has not, and reads what it, its output and its guard send."""
        if self._guarded.guard is None:
            self._guarded.start()
        assert self._guarded.guard is not None
        self._processes.ancestor = self._guarded.guard.pid
        if self._channel.is_open:
            self._streams.add(self._channel.read_fd, self._take_output)
        self._streams.add(
            self._guarded.control.fileno(), LineSplitter(self._reports.take_line).feed, self._reports.end_of_file
        )

    def _read_rest(self) -> None:
        """Reads the rest of the output, and deals with processes that were left behind."""
        ends_at = time.monotonic() + _GRACE_SECONDS
        last_output_at = time.monotonic()
        while self._channel.is_open and self._streams.is_reading(self._channel.read_fd) and time.monotonic() < ends_at:
            if self._drain(0.02):
                last_output_at = time.monotonic()
            elif self._reports.left_behind_count and time.monotonic() - last_output_at > _QUIET_SECONDS:
                break  # a process that was left behind holds it open and is silent
        self._processes.stop_accepting()
        while self._drain(0, is_last=True):
            pass
        self._backlog.close()
        if self._own_session:
            self._ender.end_and_release()
            return
        if self._reports.left_behind_count and self._reports.was_killed:
            # Nothing else ends the workers of a killed program, which may still hold GPUs.
            self._ender.end_left_behind()
        self._guarded.send_command("leave")

    # What comes in

    def _drain(self, timeout: float, *, is_last: bool = False) -> bool:
        received_output = self._streams.drain(timeout)
        if self._profiler_lines is not None:
            if self._profiler_lines.has_profiler_line:
                self._streams.drain(0)  # a program says before it that it profiles itself
            if output := self._profiler_lines.take_output(
                program_profiles_itself=self._processes.any_profiles_itself(), is_last=is_last
            ):
                self._pass_on(output)
        return received_output

    def _take_output(self, chunk: bytes) -> None:
        if self._profiler_lines is not None:
            self._profiler_lines.add(chunk)
        else:
            self._pass_on(chunk)

    def _pass_on(self, chunk: bytes) -> None:
        self._channel.pass_on(chunk)
        self._backlog.queue(chunk)
        if self._channel.stderr_is_closed:
            self._streams.remove(self._channel.read_fd)
            self._channel.close()
            self._guarded.send_command("drop")

    def _take_log_line(self, line: bytes) -> None:
        self._line_sink(line)
        self._builder.take_log_line(line)
        self._processes.take_log_line(line)

    def _take_signal(self, number: int, to_group: bool, arrived_at: float) -> None:
        """Handles a signal to us, or to our whole process group (``to_group``), at monotonic time ``arrived_at``."""
        self._signal_times[number] = arrived_at
        if number == signal.SIGWINCH:
            self._status_line.resized()
            self._guarded.send_restore_bytes()
            # The program got its own SIGWINCH before its terminal was resized.
            for pid in self._descendants():
                with suppress(OSError):
                    os.kill(pid, signal.SIGWINCH)
        elif number == signal.SIGTSTP:
            self._pause()
        elif self._own_session:
            if number in _END_SIGNALS:
                self._received_signals.append(number)
        elif self._reports.program_pid is not None:
            self._received_signals.append(number)
            if not to_group or arrived_at < self._reports.started_at:
                for pid in self._recipients(number):
                    with suppress(OSError):
                        os.kill(pid, number)

    def _note_late_signals(self, ended_at: float) -> None:
        """Counts signals that ended the program before it was known whether it got them, too: Ctrl+C, timeout(1)."""
        for number, arrived_at in self._signals.take_pending():
            if number in _END_SIGNALS and arrived_at < ended_at:
                self._received_signals.append(number)
                self._signal_times[number] = arrived_at

    def _recipients(self, number: int) -> list[int]:
        """Recipients of a signal that was sent to us alone: the program, or for Ctrl+C's signals its process group.

        A shell or launcher waits for its child and relies on the child getting SIGINT and SIGQUIT too.
        """
        assert self._reports.program_pid is not None
        pids = [self._reports.program_pid]
        for pid in sorted(self._descendants()) if number in (signal.SIGINT, signal.SIGQUIT) else ():
            with suppress(OSError):
                if pid != self._reports.program_pid and os.getpgid(pid) == os.getpgrp():
                    pids.append(pid)
        return pids

    def _pause(self) -> None:
        """Ctrl+Z: gives the terminal to the shell until we are continued."""
        self._status_line.end()
        self._guarded.send_restore_bytes()
        if self._own_session:
            self._guarded.send_command(f"group {int(signal.SIGSTOP)}")
        self._signals.stop_self()
        if self._own_session:
            self._guarded.send_command(f"group {int(signal.SIGCONT)}")
        self._status_line.begin()
        self._guarded.send_restore_bytes()

    # What goes out

    def _update(self) -> None:
        builder = self._builder
        if self._reports.program_pid is not None:
            builder.received = self._processes.leading(self._reports.program_pid)
            builder.pid = builder.received.pid or self._reports.program_pid
        self._sample_before_exit()
        for snapshot in self._source.drain():
            builder.take_snapshot(snapshot, time.monotonic())
            self._latest_snapshot = snapshot
        used_bytes_by_gpu: dict[str, int] = {}
        for process in self._latest_snapshot.processes if self._latest_snapshot is not None else ():
            held_bytes = process.number("gpu_memory_bytes")
            if held_bytes is not None and process.device_uuid and self._processes.is_of_program(process.pid):
                used_bytes_by_gpu[process.device_uuid] = used_bytes_by_gpu.get(process.device_uuid, 0) + int(held_bytes)
        self._status_line.update(self._latest_snapshot, used_bytes_by_gpu, builder.received.throughput)

    def _sample_before_exit(self) -> None:
        """Takes an extra sample when the program takes devices or memory: it may exit before the next regular one.

        And when a process is about to exit, while it still holds what it held last.
        """
        if (ended_count := self._processes.ended_count()) > self._ended_at_sample:
            self._ended_at_sample = ended_count
            self._sample_now()
            return
        gpu_count, allocated_bytes = self._processes.gpus_and_bytes_in_use()
        has_grown = gpu_count > self._gpus_at_sample or allocated_bytes > _EXTRA_SAMPLE_GROWTH * self._bytes_at_sample
        if not has_grown or time.monotonic() < self._next_extra_sample_at:
            return
        self._gpus_at_sample = max(gpu_count, self._gpus_at_sample)
        self._bytes_at_sample = max(allocated_bytes, self._bytes_at_sample)
        self._next_extra_sample_at = time.monotonic() + _EXTRA_SAMPLE_SECONDS
        self._sample_now()

    def _save_unfinished(self) -> None:
        """Saves the unfinished run: every second at first, later at most every minute."""
        cpu_seconds_before = time.process_time()
        run = self._save_run(self._draft(Outcome()))
        self._status_line.queue_findings(run.findings)
        cpu_seconds = time.process_time() - cpu_seconds_before
        now = time.monotonic()
        if now - self._started < _EAGER_SAVE_SECONDS:
            pause = max(1.0, cpu_seconds / _MAX_EAGER_SAVE_SHARE)
        else:
            pause = max(min(60.0, max(5.0, (now - self._started) / 100)), cpu_seconds / _MAX_SAVE_SHARE)
        self._next_save_at = now + pause

    def _draft(self, outcome: Outcome) -> RunDraft:
        received, snapshot = self._builder.received, self._latest_snapshot
        environment = self._guarded.environment if received.environment is None else received.environment
        program_pid, left_behind_count = self._reports.program_pid or 0, self._reports.left_behind_count
        draft = self._builder.build(
            _script_of_command(self._guarded.command),
            outcome,
            started_at=self._guarded.started_at,
            total_seconds=time.monotonic() - self._started,
            fresh=True,
            environment=stored_variables(environment),
            simulation=self._options.simulation,
            processes=self._processes.processes(self._builder.peak_bytes_by_pid),
            op_counts=self._processes.op_counts(),
            failure_counts=None if left_behind_count else self._processes.failure_counts(program_pid),
        )
        settings = {
            **environment_settings(
                received.environment or {}, self._guarded.environment, received.framework, received.environment_lines
            ),
            **draft.run.settings,
        }
        run = with_program_end(
            msgspec.structs.replace(draft.run, settings=settings, killed_children=self._processes.killed_children()),
            EndFacts(
                outcome=outcome,
                received_signals=tuple(self._received_signals),
                signal_seconds={number: max(at - self._started, 0.0) for number, at in self._signal_times.items()},
                logged_errors=draft.log.errors,
                oom_kills_before=self._guarded.oom_kills_before,
                peak_resident_bytes=self._reports.peak_bytes,
                host_memory_bytes=None if snapshot is None else snapshot.host.memory_total_bytes,
                pids=self._processes.pids | {program_pid},
                left_behind_count=left_behind_count,
                problems=tuple(self._problems(draft.run)),
            ),
        )
        leading_device_map = self._processes.leading_device_map()
        if leading_device_map is not None:
            run = msgspec.structs.replace(run, device_map=leading_device_map)
        return msgspec.structs.replace(draft, run=run)

    def _with_memory(self, draft: RunDraft) -> RunDraft:
        """With --memory: the draft with what was recorded, which is read once the program has ended."""
        if not self._options.record_memory:
            return draft
        profiles, problems = self._processes.memory_profiles()
        if not profiles and not problems:
            is_jax = draft.run.framework is not None and draft.run.framework.name == "jax" and draft.run.device_map
            used_gpu = draft.run.device_map or self._processes.gpus_and_bytes_in_use()[0]
            no_profile = _NO_ALLOCATION if self._processes.allocated_nothing() else _NO_PROFILE
            problems = (_JAX_MEMORY if is_jax else no_profile if used_gpu else _NO_MEMORY,)
        run = draft.run
        return msgspec.structs.replace(
            draft,
            run=msgspec.structs.replace(run, memory_profiles=profiles, problems=(*run.problems, *problems)),
        )

    def _problems(self, run: Run) -> Iterator[str]:
        # A program that runs yet, or was killed, may not have got beyond its imports.
        has_exited = run.outcome.exit_code is not None
        if (named_frameworks := self._builder.log.frameworks) and run.framework is None and has_exited:
            why_unseen = _NO_REPORT if self._processes.any_has_reported else _NOT_WATCHED_TEXT
            yield (
                why_unseen
                if _WATCHED.intersection(named_frameworks)
                else f"inside the program: {named_frameworks[0]}, {_ONLY_OUTSIDE}"
            )
        for pid in self._processes.pids_without_last_report():
            yield f"placement: process {pid} ended without a final report: not all of its ops and graphs are counted"
        if self._backlog.skipped_bytes:
            yield f"{self._backlog.skipped_bytes >> 20} MiB of output came too fast to be parsed"
        if not self._options.read_log:
            yield "the log was not read (--no-log)"


def _script_of_command(command: Sequence[str]) -> ProbeScript:
    return ProbeScript(
        name="run",
        title=mask_command(command),
        summary="A user's program.",
        group="run",
        framework="tensorflow",
        workload="program",
        path=Path(command[0]),
    )
