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
from gpuwatch.experiment.probing.device_maps import joined_device_map, with_reported_ordinal
from gpuwatch.experiment.probing.environment_settings import stored_variables
from gpuwatch.experiment.probing.launch_program import PENDING_CONNECTIONS
from gpuwatch.experiment.probing.op_placement import OpCounts
from gpuwatch.experiment.probing.quoted_failures import FailureCounts
from gpuwatch.experiment.probing.received_events import AppliedSetting, ReceivedEvents
from gpuwatch.experiment.probing.stream_reader import LineSplitter, StreamReader
from gpuwatch.explain.logs import tensorflow_device_lines
from gpuwatch.explain.logs.device_names import device_name, is_gpu
from gpuwatch.explain.logs.oom_messages import is_out_of_memory_error
from gpuwatch.machine.sources.procfs import descends, leader_of, runs_python, start_time

_MAX_PROCESSES = 256
_MAX_PROFILES = 16
_CACHED_SECONDS = 10.0
"""Seconds for which an answer about a pid is cached: pids are reused."""
_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
_SLOWER_FACTOR, _SETTLING_SECONDS = 1.5, 1.0
"""Factor and seconds by which one process of a program may be later than another with its first step."""
_MIN_STEPS_AT_WORK = 6
"""Steps by which a process has taken its memory."""
_TENSORFLOW_LINE = re.compile(rb"[IWEF]\d{4} \d\d:\d\d:[\d.]+ +(\d+) [\w./-]+:\d+\] (.*)")
_LOG_MARKERS = (b"Created ", b"out of memory trying")


class _WatchedProcess:
    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.received = ReceivedEvents()
        self.device_map: list[DeviceMapping] = []
        self.logged_ooms = 0
        self.has_disconnected = False

    @property
    def framework(self) -> Framework | None:
        return self.received.framework

    @property
    def device_names(self) -> set[str]:
        """The framework's names of the GPUs in its log and its reports."""
        return {*(mapping.framework_device for mapping in self.device_map), *self.received.device_mappings}

    @property
    def is_reportable(self) -> bool:
        state = self.received
        return bool(
            self.device_map
            or self.logged_ooms
            or state.allocator_ooms
            or state.allocator_peaks
            or state.throughput
            or state.errors
        )

    @property
    def rank(self) -> tuple[bool, bool, bool, int]:
        """Sort key: the process that does the work ranks highest."""
        received = self.received
        has_gpu = any(map(is_gpu, received.devices.logical))
        peak_bytes = max(received.allocator_peaks.values(), default=0)
        return bool(received.throughput), has_gpu, bool(received.framework), peak_bytes


class WatchedProcesses:
    """Accepts reports from the program's processes, and tells them from other processes."""

    def __init__(self, streams: StreamReader, reports: socket.socket) -> None:
        """``reports``: the listening socket to which the processes connect."""
        self._streams = streams
        self._known: dict[int, _WatchedProcess] = {}
        self._membership_cache: dict[int, tuple[bool, float]] = {}
        self._pids_without_gpu: set[int] = set()
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

    def is_of_program(self, pid: int) -> bool:
        now = time.monotonic()
        cached = self._membership_cache.get(pid)
        if cached is not None and now - cached[1] < _CACHED_SECONDS:
            return cached[0]
        is_member = self.ancestor is not None and descends(pid, self.ancestor)
        if len(self._membership_cache) > 4 * _MAX_PROCESSES:
            self._membership_cache.clear()
        self._membership_cache[pid] = (is_member, now)
        return is_member

    def take_log_line(self, line: bytes) -> None:
        """Assigns device maps and failed allocations in TensorFlow's log to the process that logged them."""
        if not any(text in line for text in _LOG_MARKERS):
            return
        match = _TENSORFLOW_LINE.search(line)
        if match is None:
            return
        message = match[2].decode("utf-8", "replace")
        logged_device = tensorflow_device_lines.parse_mapping(message)
        is_oom = "out of memory trying" in message and "is not a failure" not in message
        if logged_device is None and not is_oom:
            return
        thread = int(match[1])
        pid = thread if thread in self._known else leader_of(thread)
        if pid is None:
            return
        process = self._process_of(pid)
        if process is None:
            return
        if is_oom:
            process.logged_ooms += 1
        elif logged_device is not None and all(
            logged_device.framework_device != earlier.framework_device for earlier in process.device_map
        ):
            process.device_map.append(logged_device)

    def leading(self, pid: int) -> ReceivedEvents:
        """The state of the process that does the work; ``pid``: the program's own."""
        leader = self._leader()
        if leader is None:
            state = ReceivedEvents()
            state.pid = pid
            return state
        return leader.received

    def stepping(self, pid: int) -> ReceivedEvents:
        """The state of the process that counts most steps; before any does, of the leading one (see there)."""
        most_steps = max(self._known.values(), key=lambda process: process.received.steps.count, default=None)
        return most_steps.received if most_steps is not None and most_steps.received.steps.count else self.leading(pid)

    def any_may_be_starting(self, pids: Collection[int]) -> bool:
        """Whether one of ``pids``, all processes of the program, may still be on its way to its first steps.

        It may if it has a framework, or is a Python that was started rather than forked, and had hardly more time yet
        than the process that stepped first took to its first step; so may one that has just begun to step.
        """
        stepping = [process for process in self._known.values() if process.received.steps.first_at is not None]
        first = min(stepping, key=lambda process: process.received.steps.first_at or 0.0, default=None)
        first_start = None if first is None else start_time(first.pid)
        if first is None or first_start is None:
            return False
        assert first.received.steps.first_at is not None
        max_seconds = _SLOWER_FACTOR * (first.received.steps.first_at - first_start) + _SETTLING_SECONDS
        now = time.monotonic()
        for pid in pids:
            process = self._known.get(pid)
            if process is first or (process is not None and process.received.end_event_received):
                continue
            if process is None and (not runs_python(pid) or descends(first.pid, pid)):
                continue
            steps = process.received.steps if process is not None else None
            if steps is not None and steps.count >= _MIN_STEPS_AT_WORK:
                continue
            started_at = steps.first_at if steps is not None and steps.first_at is not None else start_time(pid)
            if started_at is not None and now - started_at < max_seconds:
                return True
        return False

    def applied(self) -> AppliedSetting | None:
        """What became of the setting that is tried: what the program overrides before what was applied."""
        found = [process.received.applied for process in self._known.values() if process.received.applied is not None]
        return max(found, key=lambda applied: (bool(applied.overridden), bool(applied.applied)), default=None)

    @property
    def pids(self) -> set[int]:
        return set(self._known)

    @property
    def any_has_reported(self) -> bool:
        """Whether any process said anything: then Python reads PYTHONPATH."""
        return any(process.received.command for process in self._known.values())

    def gpus_and_bytes_in_use(self) -> tuple[int, int]:
        """GPUs used by all processes together, and the sum of their allocators' peaks in bytes."""
        members = self._known.values()
        gpus = sum(len(process.device_names) for process in members)
        return gpus, sum(sum(process.received.allocator_peaks.values()) for process in members)

    def ended_count(self) -> int:
        """How many processes with a framework have reported that they are about to exit."""
        return sum(
            process.received.end_event_received and process.framework is not None for process in self._known.values()
        )

    def op_counts(self) -> tuple[OpCounts, ...]:
        """With --placement: the ops of every process that reported any."""
        leading_state = self.leading(0)
        leading_visible = (leading_state.environment or {}).get(_VISIBLE_DEVICES)
        counts = []
        for state in (process.received for process in self._known.values()):
            if state.op_counts.counts or state.op_counts.graph_nodes:
                own_visible = (state.environment or {}).get(_VISIBLE_DEVICES)
                counts.append(
                    state.op_counts.with_process_devices(
                        state.devices, leading_state.devices, own_visible if own_visible != leading_visible else None
                    )
                )
        return tuple(counts)

    def pids_without_last_report(self) -> tuple[int, ...]:
        """With --placement: processes with ops that are gone without a last report, as SIGKILL leaves none."""
        gone = [
            process
            for process in self._known.values()
            if process.has_disconnected and not process.received.end_event_received
        ]
        return tuple(process.pid for process in gone if process.received.op_counts.counts)

    def killed_children(self) -> tuple[KilledChild, ...]:
        """Workers that a crash or SIGKILL ended, and other children that had a framework: no tool that it runs."""
        children = []
        for child in [child for process in self._known.values() for child in process.received.killed_children]:
            process = self._known.get(child.pid)
            if process is not None:
                loaded = process.framework is not None
                children.append(msgspec.structs.replace(child, command=process.received.command, framework=loaded))
            elif child.started_by == "multiprocessing":
                children.append(child)
        return tuple(children)

    def failure_counts(self, program: int) -> FailureCounts | None:
        """What ``program`` and its children counted as failed until their ends; None unless all that may have loaded a
        framework did."""
        processes = [process for process in self._known.values() if process.framework or process.received.children]
        states = [process.received for process in processes if process.pid not in self._pids_without_gpu]
        accounted_pids = self._pids_without_gpu | {
            process.pid for process in processes if process.received.end_event_received
        }
        all_pids = {program, *(process.pid for process in processes)}
        all_pids.update(*(process.received.children for process in processes))
        if not all_pids <= accounted_pids or any(state.failed_allocations is None for state in states):
            return None
        failures = [state.other_failures for state in states if state.other_failures is not None]
        used_gpus = any(process.device_names for process in processes)
        oom_exceptions = sum(is_out_of_memory_error(error) for state in states for error in state.errors)
        failed_allocations = sum(state.failed_allocations or 0 for state in states) + oom_exceptions
        other_failures = sum(failures) if len(failures) == len(states) else None
        return FailureCounts(
            failed_allocations=failed_allocations,
            other_failures=other_failures,
            used_framework=bool(states),
            used_gpus=used_gpus,
        )

    def any_profiles_itself(self) -> bool:
        """With --memory: whether a process has begun a profile of its own."""
        return any(process.received.memory_records.program_profiles_itself for process in self._known.values())

    def memory_profiles(self) -> tuple[tuple[MemoryProfile, ...], tuple[str, ...]]:
        """With --memory: the profiles of every process, the fullest first, and what could not be recorded."""
        profiles: list[MemoryProfile] = []
        problems: list[str] = []
        for pid, process in self._known.items():
            records = process.received.memory_records
            peaks = {device_name(name): peak for name, peak in process.received.allocator_peaks.items()}
            for profile in records.profiles(pid):
                program_peak_bytes = max(profile.program_peak_bytes or 0, peaks.get(profile.device, 0)) or None
                profiles.append(msgspec.structs.replace(profile, program_peak_bytes=program_peak_bytes))
            problems += [f"memory of process {pid}: {text}" for text in records.problems()]
        profiles.sort(key=lambda profile: (profile.device == "host", -profile.peak_bytes))
        return tuple(profiles[:_MAX_PROFILES]), tuple(problems)

    def allocated_nothing(self) -> bool:
        """Whether the framework's allocators of GPUs are known, and no process allocated anything with them."""
        peaks = [peak for process in self._known.values() for peak in process.received.allocator_peaks.values()]
        return bool(peaks) and not any(peaks)

    def leading_device_map(self) -> tuple[DeviceMapping, ...] | None:
        """The device map of the leading process if several have one: the log mixes them. Otherwise None."""
        leader = self._leader()
        mapped = [process for process in self._known.values() if process.device_names]
        return self._process_entry(leader.pid, {}).device_map if leader is not None and len(mapped) > 1 else None

    def _leader(self) -> _WatchedProcess | None:
        return max(self._known.values(), key=lambda process: process.rank, default=None)

    def processes(self, held: dict[int, dict[str, int]]) -> tuple[RunProcess, ...]:
        """The processes worth reporting. ``held``: GPU memory that NVML showed, in bytes by pid and device UUID."""
        pids = [pid for pid, process in self._known.items() if process.is_reportable or pid in held]
        pids = pids or [pid for pid, process in self._known.items() if process.framework is not None]
        pids += [pid for pid in held if pid not in self._known]
        codes = {pid: code for process in self._known.values() for pid, code in process.received.children.items()}
        return tuple(self._process_entry(pid, held.get(pid, {}), codes.get(pid)) for pid in pids[:_MAX_PROCESSES])

    def _process_entry(self, pid: int, held: dict[str, int], code: int | None = None) -> RunProcess:
        process = self._known.get(pid)
        if process is None:
            return RunProcess(pid=pid, held_bytes=held, exit_code=code)
        state = process.received
        logged = (with_reported_ordinal(mapping, state.device_mappings) for mapping in process.device_map)
        return RunProcess(
            pid=pid,
            command=state.command,
            environment=stored_variables(state.environment or {}),
            framework=state.framework,
            devices=state.devices,
            device_map=joined_device_map(logged, state.device_mappings),
            allocators=dict(state.allocator_peaks),
            held_bytes=held,
            ooms=max(process.logged_ooms, state.allocator_ooms, sum(map(is_out_of_memory_error, state.errors))),
            throughput=state.throughput,
            errors=tuple(state.errors),
            exit_code=code,
        )

    def _process_of(self, pid: int) -> _WatchedProcess | None:
        process = self._known.get(pid)
        if process is None:
            if len(self._known) >= _MAX_PROCESSES:
                return None
            process = self._known[pid] = _WatchedProcess(pid)
        return process

    def _accept(self) -> bool:
        """Takes a connection; True if it is one to read: what a short program said may all be in it already."""
        try:
            connection, _ = self._socket.accept()
        except OSError:
            return False  # the peer has already disconnected
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, user, _ = struct.unpack("3i", credentials)
        process = self._process_of(pid) if user in (os.getuid(), 0) else None
        if process is None:
            connection.close()
            return False
        if process.received.end_event_received:
            process.received = ReceivedEvents()  # the pid of an exited process was reused
        lines = LineSplitter(process.received.take_line)
        descriptor = connection.fileno()
        self._connections[descriptor] = (connection, lines)
        self._streams.add(descriptor, lines.feed, lambda: self._connection_closed(descriptor, process))
        return True

    def _connection_closed(self, descriptor: int, process: _WatchedProcess) -> None:
        connection, lines = self._connections.pop(descriptor)
        process.has_disconnected = True
        lines.close()
        connection.close()
        if process.received.used_no_gpu and len(self._pids_without_gpu) < 4 * _MAX_PROCESSES:
            self._pids_without_gpu.add(process.pid)
        # A pool that keeps replacing its workers must not fill the list.
        is_kept = process.is_reportable or process.received.killed_children or bool(process.received.op_counts.counts)
        if not is_kept and len(self._known) > 8:
            self._known.pop(process.pid, None)
