"""Facts about processes by pid, from /proc.

A sample reads one small file per process (``/proc/<pid>/stat``: identity, CPU time, memory, threads in
one read), and only of those whose CPU clock says that they have run; what does not change (user,
command, environment, job or container, framework) is read once per process and kept under (pid, start time).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from gpuwatch.core.model.reading import Value
from gpuwatch.core.model.snapshot import CPU_BUILD
from gpuwatch.machine.sources import procfs
from gpuwatch.machine.sources.procfs import TICKS, process_stat, user_name

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

GPU_VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "TF_FORCE_GPU_ALLOW_GROWTH",
    "TF_GPU_ALLOCATOR",
    "PYTORCH_CUDA_ALLOC_CONF",
    "NVIDIA_VISIBLE_DEVICES",
)
"""Environment variables that affect which GPUs a process uses, and how."""

# A container's id in a cgroup path: docker, podman, containerd and cri-o use 64 hex digits.
_CONTAINER_CGROUP = re.compile(r"(?:docker|libpod|cri-containerd|crio|containerd)?[-/:]?([0-9a-f]{64})")
_SLURM_CGROUP = re.compile(r"/job_(\d+)")
_JOB_VARIABLES = frozenset({"SLURM_JOB_ID", "KUBERNETES_SERVICE_HOST", "HOSTNAME"})
"""Set by Slurm for a job's processes, and by Kubernetes in a pod, whose host name is its name."""
_POD_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,252}")
# The library that each framework always has open, and the distribution that carries its version.
_FRAMEWORKS = (
    (re.compile(r"(\S+)/tensorflow/(?:libtensorflow_framework|libtensorflow_cc|python/_pywrap)"), "tensorflow"),
    (re.compile(r"(\S+)/torch/lib/libtorch"), "torch"),
    (re.compile(r"(\S+)/jaxlib/"), "jaxlib"),
)
DENIED = "permission denied: "
"""Start of the note on a process of which not everything may be read."""
_HIDING_CHECK_SECONDS = 60.0
"""Seconds between looks at how /proc is mounted."""
_YOUNG_SECONDS = 120.0
"""Seconds after its start for which a process most likely imports a framework."""
_RETRY_YOUNG_SECONDS = 10.0
"""Seconds between two searches for the framework of a young process."""
_RETRY_OLD_SECONDS = 120.0
"""Seconds between two searches for the framework of an older process."""
_READ_IDLE_SECONDS = 30.0
"""Seconds after which an idle process is read again all the same: the kernel may have swapped it out."""


class ProcessFacts(msgspec.Struct):
    """Facts about one process; None for what could not be read, with the reason in ``note``."""

    pid: int
    start_ticks: int
    create_time: float
    name: str
    argument_addresses: tuple[bytes, ...] = ()
    """See :class:`.procfs.ProcessStat`."""
    uid: int | None = None
    user: str | None = None
    command: str | None = None
    environment: dict[str, str] | None = None
    """The :data:`GPU_VARIABLES` that are set; None when the environment may not be read."""
    job_or_container: str | None = None
    """``slurm job 4711``, ``pod train-0``, ``container 4f1d4f1d4f1d``."""
    framework: str | None = None
    """Name and version: ``tensorflow 2.21.0``."""
    note: str = ""
    cpu_percent: float | None = None
    """Percent of one core since the previous sample; None on the first."""
    readings: dict[str, Value] = {}
    """Its other readings of :data:`.snapshot.HOST_PROCESS_READINGS`."""
    state: str | None = None
    """``D`` (uninterruptible sleep, mostly disk) or ``Z`` (zombie) of proc(5); None for all others."""
    changes: int = 0
    """Counts changes of the facts above: equal counts mean equal facts."""
    framework_checked_at: float = 0.0
    framework_checked_clock: int | None = None
    """Its CPU clock when a framework was last searched: a process that has not run since has loaded no library."""
    cpu_seconds: float = 0.0
    seen_at: float = 0.0
    clock: int | None = None
    """Its CPU clock in nanoseconds when it was last read; None where that clock cannot be read."""
    read_at: float = 0.0


def _comparable_facts(facts: ProcessFacts) -> tuple[object, ...]:
    changed = (facts.cpu_percent, facts.readings, facts.state, facts.framework)
    return (*changed, facts.name, facts.user, facts.command, facts.argument_addresses)


def cpu_clock_id(pid: int) -> int:
    """The id of a process's CPU clock, computed as clock_getcpuclockid(3) does."""
    return ~pid << 3 | 2


def cpu_clock(pid: int) -> int | None:
    """CPU nanoseconds of all threads of a process: a tenth of the cost of reading a file of /proc.

    None for a process that has exited, and on systems without such clocks.
    """
    try:
        return time.clock_gettime_ns(cpu_clock_id(pid))
    except (OSError, OverflowError):
        return None


class ProcessTable:
    """Facts about processes by pid; CPU percent is computed between two looks, constant facts are read once."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._has_cpu_clocks = proc == "/proc"
        self._facts: dict[int, ProcessFacts] = {}
        self._ticks_before: dict[int, tuple[int, int]] = {}
        self._boot_time = procfs.boot_time()
        self._hiding = ""
        self._hiding_read_at = float("-inf")
        self.process_count = 0
        """How many processes :meth:`busiest` found last, without kernel threads."""

    def facts_of(self, pid: int, now: float) -> ProcessFacts | None:
        """Facts about ``pid`` at monotonic time ``now``; None when there is no such process here."""
        facts = self._facts.get(pid)
        if facts is not None and facts.seen_at == now:
            return facts  # on another device too
        clock = cpu_clock(pid) if self._has_cpu_clocks else None
        if (
            facts is not None
            and clock is not None
            and clock == facts.clock
            and now < facts.read_at + _READ_IDLE_SECONDS
        ):
            # It has not run since: its threads, name and memory are unchanged.
            facts.seen_at = now
            if facts.cpu_percent != 0.0:
                facts.cpu_percent = 0.0
                facts.changes += 1
            return facts
        stat = process_stat(pid, self._proc)
        if stat is None:
            self._facts.pop(pid, None)
            return None
        start, state = stat.start_ticks, stat.state.decode()
        cpu_seconds = stat.cpu_ticks / TICKS if clock is None else clock / 1e9
        before: tuple[object, ...] = ()
        if facts is None or facts.start_ticks != start:
            name, created = stat.name.decode("utf-8", "replace"), self._boot_time + start / TICKS
            facts = ProcessFacts(pid, start, created, name, stat.argument_addresses)
            self._facts[pid] = facts
            self._read_constant_facts(facts, state)
            facts.framework_checked_clock = clock
            facts.read_at = now - pid % _READ_IDLE_SECONDS  # not all of them at once
        else:
            before = _comparable_facts(facts)
            facts.cpu_percent = max(0.0, (cpu_seconds - facts.cpu_seconds) / (now - facts.seen_at) * 100)
            facts.read_at = now
            name, addresses = stat.name.decode("utf-8", "replace"), stat.argument_addresses
            executed = name != facts.name or addresses != facts.argument_addresses
            if executed or self._owner_of(pid) != facts.uid:
                facts.name, facts.argument_addresses = name, addresses
                self._read_constant_facts(facts, state)
        facts.cpu_seconds, facts.clock, facts.seen_at = cpu_seconds, clock, now
        facts.readings = {"host_memory_bytes": stat.resident_pages * _PAGE_BYTES, "threads": int(stat.fields[17])}
        facts.state = state if state in ("D", "Z") else None
        if facts.framework is None and (clock is None or clock != facts.framework_checked_clock):
            # Frameworks are imported some seconds after the start; later it gets unlikely.
            young = time.time() - facts.create_time < _YOUNG_SECONDS
            if now - facts.framework_checked_at > (_RETRY_YOUNG_SECONDS if young else _RETRY_OLD_SECONDS):
                facts.framework_checked_at, facts.framework_checked_clock = now, clock
                facts.framework = self._find_framework(pid)
        if before != _comparable_facts(facts):
            facts.changes += 1
        return facts

    def why_absent(self, pid: int, now: float) -> str:
        """Why nothing can be read about a pid, at monotonic time ``now``."""
        if now - self._hiding_read_at >= _HIDING_CHECK_SECONDS:
            self._hiding_read_at, self._hiding = now, procfs.hiding_option(self._proc)
        is_hidden = self._hiding and procfs.process_exists(pid)
        return procfs.HIDDEN + self._hiding if is_hidden else procfs.ELSEWHERE

    def are_unchanged(self, known: Iterable[tuple[int, ProcessFacts, int]], now: float) -> bool:
        """Whether none of these processes changed; each is given with its clock's id and its count of changes.

        After False some of them have been read; :meth:`facts_of` does not read them again for the same ``now``.
        """
        read = time.clock_gettime_ns
        for clock_id, facts, changes in known:
            if facts.seen_at != now:
                try:
                    idle = self._has_cpu_clocks and facts.cpu_percent == 0.0 and read(clock_id) == facts.clock
                except OSError:
                    idle = False
                if idle and now < facts.read_at + _READ_IDLE_SECONDS:
                    facts.seen_at = now
                elif self.facts_of(facts.pid, now) is not facts:
                    return False
            if facts.changes != changes:
                return False
        return True

    def busiest(self, now: float, limit: int = 50) -> list[ProcessFacts]:
        """The busiest processes of this host, for machines without a GPU; without kernel threads."""
        rows: list[tuple[float, int, int]] = []
        before, self._ticks_before = self._ticks_before, {}
        for pid in procfs.pids(self._proc):
            stat = process_stat(pid, self._proc)
            if stat is None or not stat.resident_pages:
                continue
            start, ticks = self._ticks_before[pid] = stat.start_ticks, stat.cpu_ticks
            known = before.get(pid)
            cpu_ticks = ticks - known[1] if known is not None and known[0] == start else 0
            rows.append((-cpu_ticks, -stat.resident_pages, pid))
        rows.sort()
        self.process_count = len(rows)
        return [facts for _, _, pid in rows[:limit] if (facts := self.facts_of(pid, now)) is not None]

    def keep_only(self, pids: set[int]) -> None:
        """Drops the facts about all processes that are not in ``pids``."""
        for pid in self._facts.keys() - pids:
            del self._facts[pid]

    def _read_constant_facts(self, facts: ProcessFacts, state: str) -> None:
        base = f"{self._proc}/{facts.pid}"
        denied: list[str] = []
        facts.uid = self._owner_of(facts.pid)
        if facts.uid is None:
            denied.append("owner")
        else:
            facts.user = user_name(facts.uid) or str(facts.uid)
        command = _read_file(f"{base}/cmdline", denied, "command line")
        if command is not None:
            facts.command = command.rstrip(b"\0").replace(b"\0", b" ").decode("utf-8", "replace") or None
        job: dict[str, str] = {}
        environ = _read_file(f"{base}/environ", denied, "environment")
        if environ is not None:
            facts.environment = {}
            for entry in environ.split(b"\0"):
                key, _, value = entry.partition(b"=")
                if (text := key.decode("utf-8", "replace")) in GPU_VARIABLES:
                    facts.environment[text] = value.decode("utf-8", "replace")
                elif text in _JOB_VARIABLES:
                    job[text] = value.decode("utf-8", "replace")
        cgroup = _read_file(f"{base}/cgroup", denied, "cgroup")
        facts.job_or_container = _job_or_container((cgroup or b"").decode("utf-8", "replace"), job)
        facts.framework = self._find_framework(facts.pid)
        facts.framework_checked_at = time.monotonic()
        facts.note = ""
        if state == "Z":
            facts.note = "zombie: its parent has not waited for it"
        elif denied:
            facts.note = DENIED + ", ".join(denied)

    def _owner_of(self, pid: int) -> int | None:
        """The owner of a process; None if it has exited or may not be seen."""
        try:
            return os.stat(f"{self._proc}/{pid}").st_uid
        except OSError:
            return None

    def _find_framework(self, pid: int) -> str | None:
        try:
            with open(f"{self._proc}/{pid}/maps", encoding="utf-8", errors="replace") as file:
                for line in file:
                    if "tensorflow" not in line and "torch" not in line and "jaxlib" not in line:
                        continue
                    for pattern, distribution in _FRAMEWORKS:
                        match = pattern.search(line)
                        if match:
                            return _framework_version(Path(match.group(1)), distribution)
        except OSError:
            return None
        return None


def _framework_version(site: Path, distribution: str) -> str:
    """``tensorflow 2.21.0``: the version from the dist-info folder beside the package; ``+cpu`` without CUDA."""
    try:
        found = sorted(site.glob(f"{distribution}-*.dist-info"))
        without_cuda = [] if found else sorted(site.glob(f"{distribution}_cpu*-*.dist-info"))
        found = found or without_cuda or sorted(site.glob(f"{distribution}_*-*.dist-info"))
    except OSError:
        found = without_cuda = []
    if not found:
        return distribution
    version = found[0].name.removesuffix(".dist-info").partition("-")[2]
    # Wheels of PyTorch without CUDA carry this suffix in their version, those of TensorFlow have another name.
    return f"{distribution} {version}{CPU_BUILD if without_cuda else ''}"


def _read_file(path: str, denied: list[str], what: str) -> bytes | None:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(1 << 20)
    except PermissionError:
        denied.append(what)
    except OSError:
        return None
    return None


def _job_or_container(cgroup: str, variables: Mapping[str, str]) -> str | None:
    """``slurm job 4711``, ``pod train-0``, ``container 4f1d4f1d4f1d``: by its cgroup and :data:`_JOB_VARIABLES`."""
    job = _SLURM_CGROUP.search(cgroup)
    number = job.group(1) if job else variables.get("SLURM_JOB_ID", "")
    if number.isascii() and number.isdecimal():
        return f"slurm job {number[:20]}"
    pod = variables.get("HOSTNAME", "") if "KUBERNETES_SERVICE_HOST" in variables else ""
    if _POD_NAME.fullmatch(pod):
        return f"pod {pod}"
    match = _CONTAINER_CGROUP.search(cgroup)
    if match is None:
        return None
    kind = "pod" if "kubepods" in cgroup else "container"
    return f"{kind} {match.group(1)[:12]}"
