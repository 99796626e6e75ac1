"""A run: one execution of a probe, with everything that was observed. ``gpuwatch.run/1``."""

from __future__ import annotations

import datetime
from typing import Any, Literal

import msgspec

from gpuwatch.model.findings import Finding

Verdict = Literal["ok", "fallback", "oom", "error", "timeout", "skipped", "interrupted"]
"""``interrupted``: it did not come to its end, and that was somebody's wish, or gpuwatch's own end."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for, and what is in effect as far as the framework tells."""

    asked: Any
    effective: Any = None
    note: str = ""
    source: str = ""
    """Who asked, of a watched program: ``environment``, ``the program (os.environ)``, ``train.py:12``."""


class Framework(msgspec.Struct, frozen=True, kw_only=True):
    """The framework that the probe loaded."""

    name: str
    version: str | None = None
    gpu_build: bool | None = None
    """Built with CUDA, as the framework says of itself; None where it was not asked."""
    interpreter: str | None = None
    python_version: str | None = None
    build: dict[str, Any] = {}
    """``tf.sysconfig.get_build_info()``, as far as it is plain data."""


class Devices(msgspec.Struct, frozen=True, kw_only=True):
    """What the framework listed."""

    physical: tuple[str, ...] = ()
    visible: tuple[str, ...] = ()
    virtual: tuple[str, ...] = ()
    logical: tuple[str, ...] = ()


class DeviceMapping(msgspec.Struct, frozen=True, kw_only=True):
    """A framework device and the physical GPU behind it (joined by PCI bus id)."""

    framework_device: str
    """``/device:GPU:0``."""
    cuda_ordinal: int | None = None
    physical_index: int | None = None
    uuid: str | None = None
    pci_bus_id: str | None = None
    name: str | None = None
    compute_capability: str | None = None
    granted_bytes: int | None = None
    """The allocator's limit, from the framework's own line."""


class PredictedMapping(msgspec.Struct, frozen=True, kw_only=True):
    """A framework device as it was to be expected before the launch."""

    framework_device: str
    uuid: str
    physical_index: int
    cuda_ordinal: int
    granted_bytes: int | None = None
    """In whole MiB, as the framework prints it; None where nothing tells it."""
    tolerance_bytes: int = 0
    """How far the observed limit may be from it; 0 where every number is known."""
    how: str = ""
    """The arithmetic, in words."""


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Where an op ran, how often. ``requested`` is None where nobody asked (auto)."""

    op: str
    dtype: str | None = None
    requested: str | None = None
    actual: str
    count: int = 1
    gpu_kernel: bool | None = None
    """Whether the process had a kernel of this op and type for GPUs, by its own registry; None: not asked."""
    cuda_kernel: bool | None = None
    """Whether TensorFlow has one for CUDA; differs from ``gpu_kernel`` on GPUs simulated as a plugin."""


class PlacementCoverage(msgspec.Struct, frozen=True, kw_only=True):
    """How much of what TensorFlow placed is told with the device that the program asked for."""

    nodes: int
    """Nodes of graphs that the log placed."""
    unclear: int
    """Those of them that could not be joined with a traced graph: counted, without what was asked."""


class DeviceCopy(msgspec.Struct, frozen=True, kw_only=True):
    """An input of eager ops that lay on another device, so that TensorFlow copied it by itself."""

    op: str
    input: int
    """Its number among the op's inputs."""
    source: str
    destination: str
    count: int = 1


class Fallback(msgspec.Struct, frozen=True, kw_only=True):
    """An op that did not run where it was asked to."""

    op: str
    dtype: str | None = None
    requested: str
    actual: str
    reason: str
    """A cause id."""
    detail: str = ""
    count: int = 1


class MemoryHolder(msgspec.Struct, frozen=True, kw_only=True):
    """Another process with memory on the device, as the framework names it."""

    pid: int
    held_bytes: int


class Oom(msgspec.Struct, frozen=True, kw_only=True):
    """An out-of-memory failure, with its numbers in bytes; None where it was not said."""

    device: str | None = None
    allocator: str | None = None
    requested_bytes: int | None = None
    limit_bytes: int | None = None
    in_use_bytes: int | None = None
    largest_free_bytes: int | None = None
    pool_bytes: int | None = None
    """What the allocator had got from the driver; less than its limit where it grows, or was refused more."""
    alike_blocks: int | None = None
    """Blocks that were in use and have the very size that was asked; None where the log lists none."""
    equal_blocks: int | None = None
    """Blocks in use of the one size that holds most of the memory; None where the log lists none."""
    equal_block_bytes: int | None = None
    """The size of each of them."""
    device_total_bytes: int | None = None
    """The device's memory. PyTorch tells it, and has no limit unless a fraction was set."""
    device_free_bytes: int | None = None
    """What nobody held on the device."""
    process_bytes: int | None = None
    """What the failing process held of the device, its context included."""
    unallocated_bytes: int | None = None
    """What the allocator had reserved and not handed out: free, in blocks of any size."""
    others: tuple[MemoryHolder, ...] = ()
    verdict: str | None = None
    """A cause id."""
    expected: bool = False

    @property
    def free_bytes(self) -> int | None:
        """What the framework says is free on the device; else limit less in use, and never less than the largest
        free block: totals of logs are rounded, blocks not."""
        if self.device_free_bytes is not None:
            return self.device_free_bytes
        if self.limit_bytes is None or self.in_use_bytes is None:
            return None
        return max(self.limit_bytes - self.in_use_bytes, self.largest_free_bytes or 0)

    @property
    def rounded(self) -> bool:
        """Whether the totals contradict the blocks, so that they can only be rounded ones."""
        known = self.device_free_bytes is None and self.limit_bytes is not None and self.in_use_bytes is not None
        return known and self.free_bytes != self.limit_bytes - self.in_use_bytes  # type: ignore[operator]


class MemoryPoint(msgspec.Struct, frozen=True, kw_only=True):
    """Device memory at one moment of the run, as NVML and the allocator see it."""

    t: float
    """Seconds since the probe was started."""
    device_used_bytes: int | None = None
    process_bytes: int | None = None
    allocator_bytes: int | None = None
    gpu_percent: float | None = None


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    """What one process held of one GPU, by NVML, and when it was seen there."""

    pid: int
    own: bool = False
    """Whether it is a process of this run."""
    before_bytes: int | None = None
    """At the look before the start; None: it was not there, or NVML did not tell."""
    peak_bytes: int | None = None
    first_seconds: float | None = None
    """Since the start; None: it was gone before the first sample."""
    last_seconds: float | None = None


class DeviceMemory(msgspec.Struct, frozen=True, kw_only=True):
    """One device of the run, as NVML showed it in the sample in which most of it was used."""

    uuid: str
    index: int
    total_bytes: int | None = None
    before_bytes: int | None = None
    """In use before the start, all owners together."""
    used_bytes: int | None = None
    process_bytes: int | None = None
    """This process's part of it."""
    others_bytes: int | None = None
    """What NVML says of processes that are not of this run."""
    unexplained_bytes: int | None = None
    """Used, and of no process that NVML lists."""
    driver_reserved_bytes: int | None = None
    """Kept by the driver, apart from what is used."""
    context_bytes: int | None = None
    """A CUDA context's size, known of simulated devices only."""
    others_before_bytes: int | None = None
    others_start_bytes: int | None = None
    """What they held in the first sample in which this run was on the device."""
    others_peak_bytes: int | None = None
    """The most that NVML said of other processes, in any sample."""
    least_free_bytes: int | None = None
    """The least that was free on the device, in any sample."""
    holders: tuple[Holding, ...] = ()
    """Every process that was seen on the device, at the look before the start or later; largest first."""


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of the run; each number has one owner and they are never added up.

    Without another name in front, numbers of NVML are those of the device on which this process held most.
    """

    allocator_peak_bytes: int | None = None
    allocator_limit_bytes: int | None = None
    nvml_peak_bytes: int | None = None
    """Largest memory of this process that NVML showed, on its busiest device."""
    nvml_device_peak_bytes: int | None = None
    """Largest memory used on the device, all owners together."""
    nvml_before_bytes: int | None = None
    device_total_bytes: int | None = None
    device_uuid: str | None = None
    driver_reserved_bytes: int | None = None
    unexplained_bytes: int | None = None
    """Used at the peak, and of no process that NVML lists."""
    context_bytes: int | None = None
    devices: tuple[DeviceMemory, ...] = ()
    """Every device on which this process was seen, in NVML's order."""
    allocators: dict[str, int] = {}
    """Logical device to its allocator's peak in use."""
    timeline: tuple[MemoryPoint, ...] = ()


class Throughput(msgspec.Struct, frozen=True, kw_only=True):
    """Speed of the workload; warm-up and compilation are not in it."""

    device: str | None = None
    steps: int
    warmup_steps: int
    median_step_seconds: float
    p10_step_seconds: float
    p90_step_seconds: float
    steps_per_second: float
    execution: str = ""
    """How the steps were executed, where that makes their time another: ``in a TF1 session``, ``eagerly``."""
    counted: str = ""
    """What a step is, where somebody else's program was counted: ``batches of Keras`` for example."""
    examples_per_second: float | None = None
    flops_per_second: float | None = None
    bytes_per_second: float | None = None
    compile_seconds: float | None = None


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """One of several processes of a run that share a device, or work together."""

    name: str
    """``first``, ``second``, ``worker 0``; the same name may come once per ``setting``."""
    setting: str = ""
    """What the workers of this round were started with: ``default``, ``growth``, ``fraction 0.4``."""
    pid: int | None = None
    verdict: Verdict = "ok"
    detail: str = ""
    granted_bytes: int | None = None
    nvml_bytes: int | None = None
    throughput: Throughput | None = None
    alone: Throughput | None = None
    """The same work with the device to itself."""


class Phases(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time went, in seconds; None for a phase that was not reached."""

    import_seconds: float | None = None
    device_init_seconds: float | None = None
    first_step_seconds: float | None = None
    total_seconds: float | None = None


class RunError(msgspec.Struct, frozen=True, kw_only=True):
    """An exception of the probe's framework code."""

    type: str
    message: str
    expected: bool = False


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How the process ended."""

    exit_code: int | None = None
    signal: int | None = None
    timed_out: bool = False
    ended: bool = False
    """Whether the last event arrived."""


class HostMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The host's memory (RAM) of a watched program that a signal ended."""

    peak_bytes: int | None = None
    """Largest resident set of one of its processes that have ended (``getrusage(2)``: ru_maxrss)."""
    limit_bytes: int | None = None
    """Of its control group."""
    total_bytes: int | None = None
    """Of the machine."""
    oom_kills: int | None = None
    """Processes that the kernel's OOM killer ended meanwhile, in the control group or else on the machine."""
    kernel_line: str = ""
    """The kernel's own line about it; empty where it has none, or may not be read."""


class RunProcess(msgspec.Struct, frozen=True, kw_only=True):
    """One process of a watched program: one that loaded a framework, held GPU memory or ran out of it."""

    pid: int
    command: str = ""
    environment: dict[str, str] = {}
    """Variables that bear on GPUs, as this process had them."""
    framework: Framework | None = None
    devices: Devices = Devices()
    device_map: tuple[DeviceMapping, ...] = ()
    allocators: dict[str, int] = {}
    """Logical device to its allocator's peak in use, in bytes."""
    held_bytes: dict[str, int] = {}
    """UUID to the most that NVML showed of this process."""
    ooms: int = 0
    """How often it ran out of device memory."""
    throughput: Throughput | None = None
    errors: tuple[RunError, ...] = ()


class Run(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="gpuwatch.run/1"):
    """One execution of a probe."""

    config: str
    title: str = ""
    group: str
    workload: str
    workload_parameters: dict[str, Any] = {}
    simulated: bool
    simulation: str | None = None
    """``driver``, ``plugin`` or None."""
    simulation_limits: tuple[str, ...] = ()
    """What the simulated GPUs could not do of what the program asked for, one sentence each."""
    started_at: datetime.datetime
    fresh: bool = True
    pid: int | None = None
    host: str | None = None
    settings: dict[str, Setting] = {}
    environment: dict[str, str] = {}
    """The variables that the probe set or that bear on GPUs, as they were at its start."""
    framework: Framework | None = None
    devices: Devices = Devices()
    device_map: tuple[DeviceMapping, ...] = ()
    predicted: tuple[PredictedMapping, ...] | None = None
    """The map that was to be expected; None where nothing could be said."""
    placements: tuple[Placement, ...] = ()
    placement_coverage: PlacementCoverage | None = None
    """Of a watched program with --placement; None where no graph was placed, or nobody looked."""
    copies: tuple[DeviceCopy, ...] = ()
    fallbacks: tuple[Fallback, ...] = ()
    ooms: tuple[Oom, ...] = ()
    memory: Memory = Memory()
    throughput: Throughput | None = None
    phases: Phases = Phases()
    workers: tuple[Worker, ...] = ()
    processes: tuple[RunProcess, ...] = ()
    """Those of a watched program; numbers of the run itself are of all of them, or of the busiest."""
    results: dict[str, Any] = {}
    """What this configuration is after, by name: ``largest_batch`` for example."""
    errors: tuple[RunError, ...] = ()
    missing_libraries: tuple[str, ...] = ()
    outcome: Outcome = Outcome()
    host_memory_out: bool = False
    """Killed by the kernel for want of host memory, as the kernel's counters tell (watched programs only)."""
    host_memory: HostMemory | None = None
    """Looked at where SIGKILL ended it."""
    left_behind: int = 0
    """Processes that a watched program left behind."""
    verdict: Verdict
    verdict_reason: str = ""
    findings: tuple[Finding, ...] = ()
    primary: str | None = None
    driver_version: str | None = None
    gpus: tuple[str, ...] = ()
    """Physical GPUs of the machine: ``0 NVIDIA H200 GPU-…``."""
    problems: tuple[str, ...] = ()
    """What could not be observed, and why."""
    log_tail: tuple[str, ...] = ()


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Two runs of a comparison: what was changed, and what changed with it."""

    run: int
    """Index of the run that is told of."""
    against: int
    """Index of the run that it is held against."""
    changed: tuple[str, ...] = ()
    """What was chosen differently: settings, version, machine."""
    effects: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    """Causes that explain it."""
    text: str = ""
    """All of it in sentences."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="gpuwatch.comparison/1"):
    """Runs side by side."""

    runs: tuple[Run, ...]
    columns: tuple[str, ...]
    best: dict[str, str]
    """Column to the configuration that is best in it, among the comparable runs."""
    worst: dict[str, str] = {}
    best_run: dict[str, int] = {}
    """The same by index in ``runs``: a configuration can be there more than once."""
    worst_run: dict[str, int] = {}
    comparable: tuple[int, ...] = ()
    """Runs whose speeds may be compared: one workload, size, type and kind of device."""
    notes: tuple[str, ...] = ()
    """What to mind when reading the numbers, one sentence each."""
    differences: tuple[Difference, ...] = ()
