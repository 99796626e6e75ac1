"""A run: one execution of a probe or a watched program, with everything observed. ``gpuwatch.run/1``."""

from __future__ import annotations

import datetime
import signal
from typing import Any, Final, Literal

import msgspec

from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.memory_profile import MemoryProfile
from gpuwatch.core.model.program_behavior import PipelineStage, RetracedFunction, Standstill, Waiting
from gpuwatch.core.model.run_memory import HostMemory, Memory

Verdict = Literal["ok", "fallback", "oom", "error", "timeout", "skipped", "interrupted"]
"""``interrupted``: stopped by the user, or because gpuwatch itself ended."""
INHERITED: Final = "environment"
"""Source of a setting by a variable that a watched program was started with."""
MIN_MEASURED_STEPS = 20
"""Steps from which on their times show how even they are."""
_MIN_MEDIAN_TO_MEAN = 0.7
"""Share of the mean step that the median one takes, if what comes between steps comes before each: no validation."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A requested setting, and its effective value as far as the framework reports it."""

    asked: Any
    effective: Any = None
    note: str = ""
    source: str = ""
    """Where a watched program got it from: ``environment``, ``the process that starts this one``, ``train.py:12``."""


class Framework(msgspec.Struct, frozen=True, kw_only=True):
    """The framework that was loaded."""

    name: str
    version: str | None = None
    gpu_build: bool | None = None
    """Whether the framework reports a CUDA build; None if it was not asked."""
    interpreter: str | None = None
    python_version: str | None = None
    build: dict[str, Any] = {}
    """``tf.sysconfig.get_build_info()``, as far as it is plain data."""


class Devices(msgspec.Struct, frozen=True, kw_only=True):
    """The devices that the framework lists."""

    physical: tuple[str, ...] = ()
    visible: tuple[str, ...] = ()
    virtual: tuple[str, ...] = ()
    logical: tuple[str, ...] = ()


class DeviceMapping(msgspec.Struct, frozen=True, kw_only=True):
    """A framework device and its physical GPU (joined by PCI bus id)."""

    framework_device: str
    """``/device:GPU:0``."""
    cuda_ordinal: int | None = None
    physical_index: int | None = None
    uuid: str | None = None
    pci_bus_id: str | None = None
    name: str | None = None
    compute_capability: str | None = None
    granted_bytes: int | None = None
    """The allocator's limit, from the framework's log line."""


class PredictedMapping(msgspec.Struct, frozen=True, kw_only=True):
    """A framework device as predicted before the launch."""

    framework_device: str
    uuid: str
    physical_index: int
    cuda_ordinal: int
    granted_bytes: int | None = None
    """In whole MiB, as the framework prints it; None if unknown."""
    tolerance_bytes: int = 0
    """How far the observed limit may differ; 0 if every number is known."""
    how: str = ""
    """The arithmetic in words."""


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Where an op ran, and how often. ``requested`` is None if no device was requested (auto)."""

    op: str
    dtype: str | None = None
    requested: str | None = None
    scope: str | None = None
    """``train.py:12``: the program's ``with tf.device`` that requested it, if known."""
    why: str = ""
    """``resource``: it runs where its variable or table is; ``colocated:SparseApplyMomentum``: with this op, which has
    no kernel for the requested device; ``framework``: TensorFlow itself chose this device; ``data``: a dataset's
    function has it, which runs on the CPU; ``refused``: it did not run, as it has no kernel there and soft placement is
    off; ``missing``: the requested GPU does not exist, and where it ran is not known; ``absent``: nor did it run."""
    actual: str
    """Empty if it did not run, or where is not known."""
    count: int = 1
    gpu_kernel: bool | None = None
    """Whether the process's kernel registry has a GPU kernel for this op and type; None: not asked."""
    cuda_kernel: bool | None = None
    """Whether TensorFlow has a CUDA kernel; differs from ``gpu_kernel`` on GPUs simulated as a plugin."""
    some_type: bool | None = None
    """Whether TensorFlow has a CUDA kernel of this op for some type; None: not asked."""
    line: str | None = None
    """``train.py:14``: the program's line of the first one, of eager ops that did not run where requested."""
    process_has: str | None = None
    """``no GPU (CUDA_VISIBLE_DEVICES='')``: what the process that ran it has, if not the requested device; empty: it
    has that, which the leading process has not. None: as ``Run.devices`` says."""


class PlacementCoverage(msgspec.Struct, frozen=True, kw_only=True):
    """For how many nodes of functions and sessions it is known where they ran and what was requested."""

    nodes: int
    """Nodes that were placed, without constants and what only passes data on."""
    unclear: int
    """Nodes made by TensorFlow's optimizers, of functions that XLA compiles or tf.data calls."""


class DeviceCopy(msgspec.Struct, frozen=True, kw_only=True):
    """An input of eager ops on another device, which TensorFlow copied implicitly."""

    op: str
    input: int
    """Its index among the op's inputs."""
    source: str
    destination: str
    count: int = 1


class Fallback(msgspec.Struct, frozen=True, kw_only=True):
    """An op that did not run on the requested device."""

    op: str
    dtype: str | None = None
    requested: str
    scope: str | None = None
    """``train.py:12``: the program's ``with tf.device`` that requested it, if known."""
    actual: str
    reason: str
    """A cause id."""
    detail: str = ""
    some_type: bool | None = None
    """Whether TensorFlow has a GPU kernel of this op for some type; None: not known."""
    line: str | None = None
    """``train.py:14``: the program's line of the first one, if known."""
    in_data: bool = False
    """Whether it is in a function of a dataset, which runs on the CPU."""
    colocated: str | None = None
    """The op without a GPU kernel that had to be on one device with it."""
    count: int = 1

    @property
    def kind(self) -> str:
        """``MatMul float32``: the op with its type, if that is known."""
        return f"{self.op} {self.dtype}" if self.dtype else self.op


class MemoryHolder(msgspec.Struct, frozen=True, kw_only=True):
    """Another process with memory on the device, as reported by the framework."""

    pid: int
    held_bytes: int


HOST_ALLOCATORS = ("cpu", "mklcpu")
"""TensorFlow's allocators of host memory, which an :class:`Oom` names."""


class Oom(msgspec.Struct, frozen=True, kw_only=True):
    """An out-of-memory failure; numbers are in bytes, and None if not reported."""

    device: str | None = None
    allocator: str | None = None
    requested_bytes: int | None = None
    limit_bytes: int | None = None
    in_use_bytes: int | None = None
    largest_free_bytes: int | None = None
    pool_bytes: int | None = None
    """What the allocator had got from the driver; below its limit if it grows, or was refused more."""
    alike_blocks: int | None = None
    """Blocks in use of exactly the requested size; None if the log lists none."""
    equal_blocks: int | None = None
    """Blocks in use of the size that holds most of the memory; None if the log lists none."""
    equal_block_bytes: int | None = None
    """The size of each of them."""
    device_total_bytes: int | None = None
    """The device's memory, as PyTorch reports it, which has no limit unless a fraction was set."""
    device_free_bytes: int | None = None
    """Free memory of the device."""
    process_bytes: int | None = None
    """Device memory of the failing process, including its context."""
    unallocated_bytes: int | None = None
    """Memory that the allocator had reserved but not handed out, in blocks of any size."""
    others: tuple[MemoryHolder, ...] = ()
    verdict: str | None = None
    """A cause id."""
    expected: bool = False

    @property
    def free_bytes(self) -> int | None:
        """The device's if reported; else limit minus in use, at least the largest block: logs round totals only."""
        if self.device_free_bytes is not None:
            return self.device_free_bytes
        if self.limit_bytes is None or self.in_use_bytes is None:
            return None
        return max(self.limit_bytes - self.in_use_bytes, self.largest_free_bytes or 0)

    @property
    def rounded(self) -> bool:
        """Whether the totals contradict the blocks, because they are rounded."""
        known = self.device_free_bytes is None and self.limit_bytes is not None and self.in_use_bytes is not None
        return known and self.free_bytes != self.limit_bytes - self.in_use_bytes  # type: ignore[operator]


class Throughput(msgspec.Struct, frozen=True, kw_only=True):
    """Speed of the workload, without warm-up and compilation."""

    device: str | None = None
    steps: int
    warmup_steps: int
    median_step_seconds: float
    p10_step_seconds: float
    p90_step_seconds: float
    median_low_seconds: float | None = None
    """Lower end of the median's 95 % interval, by order statistics; None in documents of older versions."""
    median_high_seconds: float | None = None
    """Upper end of the median's 95 % interval."""
    steps_per_second: float
    execution: str = ""
    """How the steps were executed, if that affects their time: ``in a TF1 session``, ``eagerly``."""
    counted: str = ""
    """What counts as a step in a watched program, such as ``batches of Keras``."""
    examples_per_second: float | None = None
    flops_per_second: float | None = None
    bytes_per_second: float | None = None
    compile_seconds: float | None = None


class TimedStep(msgspec.Struct, frozen=True, kw_only=True):
    """When a step of a watched program was made, or several that were counted together."""

    t: float
    """Its end, in seconds since the start of the run."""
    seconds: float
    """Since the end of the step before, with whatever the program did in between."""
    number: int
    """Number of the step, or of the last of several, counted from 1."""
    steps: int = 1
    """How many were counted together: calls of a tf.function are, and Keras's batches with steps_per_execution."""


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """One of several processes of a run that share a device or work together."""

    name: str
    """``first``, ``second``, ``worker 0``; a name occurs once per ``setting``."""
    setting: str = ""
    """The setting of the workers of this round: ``default``, ``growth``, ``fraction 0.4``."""
    pid: int | None = None
    verdict: Verdict = "ok"
    detail: str = ""
    granted_bytes: int | None = None
    nvml_bytes: int | None = None
    throughput: Throughput | None = None
    alone: Throughput | None = None
    """The same work with the device to itself."""


class Phases(msgspec.Struct, frozen=True, kw_only=True):
    """Duration of each phase in seconds; None for a phase that was not reached."""

    import_seconds: float | None = None
    device_init_seconds: float | None = None
    first_step_seconds: float | None = None
    total_seconds: float | None = None
    ended_at: dict[str, float] = {}
    """Seconds from the start of the run to the end of ``import``, ``device_init``, ``first_step`` and ``steps``."""


class RunError(msgspec.Struct, frozen=True, kw_only=True):
    """An exception of the program or of its framework."""

    type: str
    message: str
    expected: bool = False
    alone: bool = False
    """Whether it ended a watched program, and no other exception led to it or was being handled."""
    by_signal: bool = False
    """Whether a signal raised it (a KeyboardInterrupt), rather than the program's own ``raise``."""


def signal_name(number: int) -> str:
    """``SIGKILL``, or ``signal 40`` for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"  # a real-time signal


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How the process ended."""

    exit_code: int | None = None
    signal: int | None = None
    timed_out: bool = False
    ended: bool = False
    """Whether its last event arrived; False for a process that was killed."""

    @property
    def text(self) -> str:
        """``killed by SIGSEGV``, ``exit code 1``; empty while it runs."""
        if self.signal is not None:
            return f"killed by {signal_name(self.signal)}"
        return "" if self.exit_code is None else f"exit code {self.exit_code}"


class RunProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process of a watched program that loaded a framework, held GPU memory or ran out of it."""

    pid: int
    command: str = ""
    environment: dict[str, str] = {}
    """Variables that affect GPUs, as this process had them."""
    framework: Framework | None = None
    devices: Devices = Devices()
    device_map: tuple[DeviceMapping, ...] = ()
    allocators: dict[str, int] = {}
    """Peak bytes in use of each logical device's allocator."""
    held_bytes: dict[str, int] = {}
    """Peak bytes of this process by NVML, by GPU UUID."""
    ooms: int = 0
    """How often it ran out of device memory."""
    throughput: Throughput | None = None
    errors: tuple[RunError, ...] = ()
    exit_code: int | None = None
    """As its parent was told, which started it from Python; negative: a signal. None: not known."""


class KilledChild(msgspec.Struct, frozen=True, kw_only=True):
    """A process that the program started, ended by a crash or by SIGKILL, as the process that waited for it tells."""

    pid: int
    signal: int
    started_by: str
    """``multiprocessing`` or ``subprocess``, Python's modules."""
    command: str = ""
    framework: bool = False
    """Whether it had loaded one."""


class Run(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="gpuwatch.run/1"):
    """One execution of a probe or a watched program."""

    config: str
    title: str = ""
    group: str
    workload: str
    workload_parameters: dict[str, Any] = {}
    simulated: bool
    simulation: str | None = None
    """``driver``, ``plugin`` or None."""
    simulation_limits: tuple[str, ...] = ()
    """What the program requested and the simulated GPUs cannot do, one sentence each."""
    started_at: datetime.datetime
    fresh: bool = True
    pid: int | None = None
    host: str | None = None
    node: str | None = None
    """The node of a cluster on which it was run; null for a run by itself."""
    settings: dict[str, Setting] = {}
    environment: dict[str, str] = {}
    """The variables that the probe set or that affect GPUs, at its start."""
    framework: Framework | None = None
    devices: Devices = Devices()
    device_map: tuple[DeviceMapping, ...] = ()
    predicted: tuple[PredictedMapping, ...] | None = None
    """The predicted map; None if there was no prediction."""
    placements: tuple[Placement, ...] = ()
    placement_coverage: PlacementCoverage | None = None
    """For a watched program with --placement; None if no graph was placed, or it was not checked."""
    copies: tuple[DeviceCopy, ...] = ()
    fallbacks: tuple[Fallback, ...] = ()
    ooms: tuple[Oom, ...] = ()
    memory: Memory = Memory()
    memory_profiles: tuple[MemoryProfile, ...] = ()
    """Who held the memory at the peak, of a watched program with --memory; the fullest allocator first."""
    throughput: Throughput | None = None
    step_times: tuple[TimedStep, ...] = ()
    """The latest steps of a watched program, at most 1,000, oldest first; of what ``throughput`` counts."""
    phases: Phases = Phases()
    retraced: tuple[RetracedFunction, ...] = ()
    """Functions of a watched program that TensorFlow traced several times."""
    waiting: Waiting | None = None
    """Of a watched program whose steps were counted."""
    pipeline: PipelineStage | None = None
    """Of a watched program with a dataset of TensorFlow 2.17 or later."""
    standstill: Standstill | None = None
    """Of a watched program that makes no more steps; None once it does again."""
    killed_children: tuple[KilledChild, ...] = ()
    """Processes that the program started and that a crash or SIGKILL ended."""
    workers: tuple[Worker, ...] = ()
    processes: tuple[RunProcess, ...] = ()
    """Processes of a watched program; the run's own numbers are of all of them, or of the busiest."""
    results: dict[str, Any] = {}
    """Results of this configuration by name, such as ``largest_batch``."""
    errors: tuple[RunError, ...] = ()
    missing_libraries: tuple[str, ...] = ()
    outcome: Outcome = Outcome()
    host_memory_out: bool = False
    """Killed by the kernel because host memory ran out, by the kernel's counters (watched programs only)."""
    host_memory: HostMemory | None = None
    """Only if SIGKILL ended it, or a process that it started."""
    left_behind: int = 0
    """Processes that a watched program left running."""
    verdict: Verdict
    verdict_reason: str = ""
    findings: tuple[Finding, ...] = ()
    primary: str | None = None
    driver_version: str | None = None
    gpus: tuple[str, ...] = ()
    """Physical GPUs of the machine: ``0 NVIDIA H200 GPU-…``."""
    problems: tuple[str, ...] = ()
    log_tail: tuple[str, ...] = ()

    @property
    def is_program(self) -> bool:
        """Whether it is a user's program under ``gpuwatch run``, not a probe."""
        return self.group == "run"

    @property
    def mean_of_uneven_steps(self) -> float | None:
        """Seconds of the average step if most steps are much shorter, so that the median is not their speed; else None.

        PyTorch's steps only queue work for the GPU, until one waits for all of it.
        """
        if self.throughput is None or len(self.step_times) < MIN_MEASURED_STEPS:
            return None
        times = [step for step in self.step_times if step.number > self.throughput.warmup_steps]
        mean = sum(step.seconds for step in times) / max(sum(step.steps for step in times), 1)
        return mean if self.throughput.median_step_seconds < _MIN_MEDIAN_TO_MEAN * mean else None
