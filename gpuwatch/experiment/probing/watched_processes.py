"""The processes of a watched program: which ones belong to it, and what each Python among them reports.

Every Python process that the program starts, at any depth, connects to a socket in the abstract namespace
(``unix(7)``), which leaves no file behind; the kernel reports the peer's pid. TensorFlow's log lines carry the id of
the thread that wrote them, so they can be matched to a process too.
"""

from __future__ import annotations

import os
import re
import socket
import struct
import time
from collections.abc import Collection

import msgspec

from gpuwatch.core.model.memory_profile import MemoryProfile
from gpuwatch.core.model.run import DeviceMapping, Framework, KilledChild, RunProcess
from gpuwatch.experiment.probing.launch_program import PENDING_CONNECTIONS
from gpuwatch.experiment.probing.op_placement import OpCounts
from gpuwatch.experiment.probing.pipe_reader import LineSplitter, StreamReader
from gpuwatch.experiment.probing.probe_runner import gpu_variables
from gpuwatch.experiment.probing.received_events import Applied, ReceivedEvents
from gpuwatch.experiment.probing.reprinted_lines import FailureCounts
from gpuwatch.experiment.probing.run_draft import own_ordinal
from gpuwatch.explain.logs import tensorflow_device_lines
from gpuwatch.explain.logs.oom_collector import is_out_of_memory_error
from gpuwatch.explain.logs.sizes_and_device_names import device_name
from gpuwatch.machine.sources.procfs import descends, leader_of, runs_python, start_time

_MAX_PROCESSES = 256
_MAX_PROFILES = 16
_CACHED_SECONDS = 10.0
"""Seconds for which an answer about a pid is cached: pids are reused."""
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_SLOWER_FACTOR, _SETTLING_SECONDS = 1.5, 1.0
"""Factor and seconds by which one process of a program may be later than another with its first step."""
_MIN_STEPS_AT_WORK = 6
"""Steps by which a process has taken its memory."""
_WROTE = re.compile(rb"[IWEF]\d{4} \d\d:\d\d:[\d.]+ +(\d+) [\w./-]+:\d+\] (.*)")
_LOG_MARKERS = (b"Created ", b"out of memory trying")


class _Member:
    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.state = ReceivedEvents()
        self.map: list[DeviceMapping] = []
        self.ooms = 0
        self.disconnected = False

    @property
    def framework(self) -> Framework | None:
        return self.state.framework

    @property
    def worth_telling(self) -> bool:
        state = self.state
        return bool(self.map or self.ooms or state.ooms or state.allocators or state.throughput or state.errors)

    @property
    def rank(self) -> tuple[bool, bool, bool, int]:
        """Sort key: the process that does the work ranks highest."""
        state = self.state
        gpu = any("GPU" in name or "cuda" in name for name in state.devices.logical)
        return (bool(state.throughput), gpu, bool(state.framework), max(state.allocators.values(), default=0))


class WatchedProcesses:
    """Accepts reports from the program's processes, and tells them from other processes."""

    def __init__(self, streams: StreamReader, reports: socket.socket) -> None:
        """``reports``: the listening socket to which the processes connect."""
        self._streams = streams
        self._members: dict[int, _Member] = {}
        self._answers: dict[int, tuple[bool, float]] = {}
        self._quiet: set[int] = set()
        """Pids of processes that could not use a GPU, by their own word."""
        self._connections: dict[int, tuple[socket.socket, LineSplitter]] = {}
        self.ancestor: int | None = None
        """Pid of the guard, the ancestor of every process of the program."""
        self._socket = reports
        streams.on_ready(self._socket.fileno(), self._accept)

    def close(self) -> None:
        for connection, lines in list(self._connections.values()):
            self._streams.remove(connection.fileno())
            lines.close()
            connection.close()
        self._connections.clear()
        self._streams.remove(self._socket.fileno())

    def stop_accepting(self) -> None:
        """Accepts no new connections; reports that were already sent are still read.

        A short program may have connected, reported and ended before anything was accepted.
        """
        for _ in range(PENDING_CONNECTIONS):
            self._accept()
        self._streams.remove(self._socket.fileno())

    def belongs(self, pid: int) -> bool:
        now = time.monotonic()
        known = self._answers.get(pid)
        if known is not None and now - known[1] < _CACHED_SECONDS:
            return known[0]
        answer = self.ancestor is not None and descends(pid, self.ancestor)
        if len(self._answers) > 4 * _MAX_PROCESSES:
            self._answers.clear()
        self._answers[pid] = (answer, now)
        return answer

    def log_line(self, raw: bytes) -> None:
        """Assigns device maps and failed allocations in TensorFlow's log to the process that logged them."""
        if not any(text in raw for text in _LOG_MARKERS):
            return
        found = _WROTE.search(raw)
        if found is None:
            return
        message = found[2].decode("utf-8", "replace")
        mapping = tensorflow_device_lines.parse_mapping(message)
        refused = "out of memory trying" in message and "is not a failure" not in message
        if mapping is None and not refused:
            return
        thread = int(found[1])
        pid = thread if thread in self._members else leader_of(thread)
        if pid is None:
            return
        member = self._member(pid)
        if member is None:
            return
        if refused:
            member.ooms += 1
        elif mapping is not None and all(mapping.framework_device != known.framework_device for known in member.map):
            member.map.append(mapping)

    def leading(self, pid: int) -> ReceivedEvents:
        """The state of the process that does the work; ``pid``: the program's own."""
        best = self._leader()
        if best is None:
            state = ReceivedEvents()
            state.pid = pid
            return state
        return best.state

    def stepping(self, pid: int) -> ReceivedEvents:
        """The state of the process that counts most steps; before any does, of the leading one (see there)."""
        best = max(self._members.values(), key=lambda member: member.state.steps.count, default=None)
        return best.state if best is not None and best.state.steps.count else self.leading(pid)

    def starting(self, pids: Collection[int]) -> bool:
        """Whether one of ``pids``, all processes of the program, may still be on its way to its first steps.

        It may if it has a framework, or is a Python that was started rather than forked, and had hardly more time yet
        than the process that stepped first took to its first step; so may one that has just begun to step.
        """
        stepping = [member for member in self._members.values() if member.state.steps.first_at is not None]
        first = min(stepping, key=lambda member: member.state.steps.first_at or 0.0, default=None)
        began = None if first is None else start_time(first.pid)
        if first is None or began is None:
            return False
        assert first.state.steps.first_at is not None
        patience = _SLOWER_FACTOR * (first.state.steps.first_at - began) + _SETTLING_SECONDS
        now = time.monotonic()
        for pid in pids:
            member = self._members.get(pid)
            if member is first or (member is not None and member.state.ended):
                continue
            if member is None and (not runs_python(pid) or descends(first.pid, pid)):
                continue
            steps = member.state.steps if member is not None else None
            if steps is not None and steps.count >= _MIN_STEPS_AT_WORK:
                continue
            since = steps.first_at if steps is not None and steps.first_at is not None else start_time(pid)
            if since is not None and now - since < patience:
                return True
        return False

    def applied(self) -> Applied | None:
        """What became of the setting that is tried: what the program overrides before what was applied."""
        found = [member.state.applied for member in self._members.values() if member.state.applied is not None]
        return max(found, key=lambda applied: (bool(applied.overridden), bool(applied.applied)), default=None)

    @property
    def pids(self) -> set[int]:
        return set(self._members)

    @property
    def reporting(self) -> bool:
        """Whether any process said anything: then Python reads PYTHONPATH."""
        return any(member.state.command for member in self._members.values())

    def in_use(self) -> tuple[int, int]:
        """GPUs used by all processes together, and the sum of their allocators' peaks in bytes."""
        members = self._members.values()
        gpus = sum(len({*(m.framework_device for m in member.map), *member.state.mappings}) for member in members)
        return gpus, sum(sum(member.state.allocators.values()) for member in members)

    def ends(self) -> int:
        """How many processes with a framework have reported that they are about to exit."""
        return sum(member.state.ended and member.state.framework is not None for member in self._members.values())

    def placed(self) -> tuple[OpCounts, ...]:
        """With --placement: the ops of every process that reported any."""
        lead = self.leading(0)
        theirs = (lead.environment or {}).get(_VISIBLE)
        found = []
        for state in (member.state for member in self._members.values()):
            if state.placed.counts or state.placed.graph_nodes:
                own = (state.environment or {}).get(_VISIBLE)
                found.append(
                    state.placed.with_process_devices(state.devices, lead.devices, own if own != theirs else None)
                )
        return tuple(found)

    def without_last_report(self) -> tuple[int, ...]:
        """With --placement: processes with ops that are gone without a last report, as SIGKILL leaves none."""
        gone = [member for member in self._members.values() if member.disconnected and not member.state.ended]
        return tuple(member.pid for member in gone if member.state.placed.counts)

    def killed(self) -> tuple[KilledChild, ...]:
        """Workers that a crash or SIGKILL ended, and other children that had a framework: no tool that it runs."""
        found = []
        for child in [child for member in self._members.values() for child in member.state.killed]:
            member = self._members.get(child.pid)
            if member is not None:
                has = member.framework is not None
                found.append(msgspec.structs.replace(child, command=member.state.command, framework=has))
            elif child.started_by == "multiprocessing":
                found.append(child)
        return tuple(found)

    def failure_counts(self, program: int) -> FailureCounts | None:
        """What ``program`` and its children counted as failed until their ends; None unless all that may have loaded a
        framework did."""
        members = [member for member in self._members.values() if member.framework is not None or member.state.children]
        states = [member.state for member in members if member.pid not in self._quiet]
        told = self._quiet | {member.pid for member in members if member.state.ended}
        every = {program}.union({member.pid for member in members}, *(member.state.children for member in members))
        if not every <= told or any(state.exhausted is None for state in states):
            return None
        failures = [state.failures for state in states if state.failures is not None]
        gpus = any(member.map or member.state.mappings for member in members)
        ended_by_memory = sum(is_out_of_memory_error(error) for state in states for error in state.errors)
        refused = sum(state.exhausted or 0 for state in states) + ended_by_memory
        others = sum(failures) if len(failures) == len(states) else None
        return FailureCounts(exhausted=refused, failures=others, framework=bool(states), gpus=gpus)

    def profile_themselves(self) -> bool:
        """With --memory: whether a process has begun a profile of its own."""
        return any(member.state.memory_records.program_profiles_itself for member in self._members.values())

    def memory_profiles(self) -> tuple[tuple[MemoryProfile, ...], tuple[str, ...]]:
        """With --memory: the profiles of every process, the fullest first, and what could not be recorded."""
        found: list[MemoryProfile] = []
        problems: list[str] = []
        for pid, member in self._members.items():
            records = member.state.memory_records
            peaks = {device_name(name): peak for name, peak in member.state.allocators.items()}
            for profile in records.profiles(pid):
                whole = max(profile.program_peak_bytes or 0, peaks.get(profile.device, 0)) or None
                found.append(msgspec.structs.replace(profile, program_peak_bytes=whole))
            problems += [f"memory of process {pid}: {text}" for text in records.problems()]
        found.sort(key=lambda profile: (profile.device == "host", -profile.peak_bytes))
        return tuple(found[:_MAX_PROFILES]), tuple(problems)

    def map_of_leading(self) -> tuple[DeviceMapping, ...] | None:
        """The device map of the leading process if several have one: the log mixes them. Otherwise None."""
        best = self._leader()
        if best is None or sum(bool(member.map or member.state.mappings) for member in self._members.values()) < 2:
            return None
        return self._process_entry(best.pid, {}).device_map

    def _leader(self) -> _Member | None:
        return max(self._members.values(), key=lambda member: member.rank, default=None)

    def processes(self, held: dict[int, dict[str, int]]) -> tuple[RunProcess, ...]:
        """The processes worth reporting. ``held``: GPU memory that NVML showed, in bytes by pid and device UUID."""
        pids = [pid for pid, member in self._members.items() if member.worth_telling or pid in held]
        pids = pids or [pid for pid, member in self._members.items() if member.framework is not None]
        pids += [pid for pid in held if pid not in self._members]
        codes = {pid: code for member in self._members.values() for pid, code in member.state.children.items()}
        return tuple(self._process_entry(pid, held.get(pid, {}), codes.get(pid)) for pid in pids[:_MAX_PROCESSES])

    def _process_entry(self, pid: int, held: dict[str, int], code: int | None = None) -> RunProcess:
        member = self._members.get(pid)
        if member is None:
            return RunProcess(pid=pid, held_bytes=held, exit_code=code)
        state = member.state
        names = {mapping.framework_device for mapping in member.map}
        return RunProcess(
            pid=pid,
            command=state.command,
            environment=gpu_variables(state.environment or {}),
            framework=state.framework,
            devices=state.devices,
            device_map=(
                *(own_ordinal(mapping, state.mappings) for mapping in member.map),
                *(mapping for name, mapping in state.mappings.items() if name not in names),
            ),
            allocators=dict(state.allocators),
            held_bytes=held,
            ooms=max(member.ooms, state.ooms, sum(map(is_out_of_memory_error, state.errors))),
            throughput=state.throughput,
            errors=tuple(state.errors),
            exit_code=code,
        )

    def _member(self, pid: int) -> _Member | None:
        member = self._members.get(pid)
        if member is None:
            if len(self._members) >= _MAX_PROCESSES:
                return None
            member = self._members[pid] = _Member(pid)
        return member

    def _accept(self) -> bool:
        """Takes a connection; True if it is one to read: what a short program said may all be in it already."""
        try:
            connection, _ = self._socket.accept()
        except OSError:
            return False  # the peer has already disconnected
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, user, _ = struct.unpack("3i", credentials)
        member = self._member(pid) if user in (os.getuid(), 0) else None
        if member is None:
            connection.close()
            return False
        if member.state.ended:
            member.state = ReceivedEvents()  # the pid of an exited process was reused
        lines = LineSplitter(member.state.line)
        descriptor = connection.fileno()
        self._connections[descriptor] = (connection, lines)
        self._streams.add(descriptor, lines.feed, lambda: self._connection_closed(descriptor, member))
        return True

    def _connection_closed(self, descriptor: int, member: _Member) -> None:
        connection, lines = self._connections.pop(descriptor)
        member.disconnected = True
        lines.close()
        connection.close()
        if member.state.quiet and len(self._quiet) < 4 * _MAX_PROCESSES:
            self._quiet.add(member.pid)
        # A pool that keeps replacing its workers must not fill the list.
        told = member.worth_telling or member.state.killed or bool(member.state.placed.counts)
        if not told and len(self._members) > 8:
            self._members.pop(member.pid, None)
