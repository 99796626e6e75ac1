"""The facts from a framework's log. Filled by the parsers, read by diagnosis and probing.

A GPU can be seen (``found_device_lines``, ``seen_pci_addresses``), mapped (``device_map``) or dropped
(``ignored_gpus``).
"""

from __future__ import annotations

import re

import msgspec

from gpuwatch.core.model.run import DeviceCopy, DeviceMapping, Oom, Placement, RunError
from gpuwatch.core.model.xids import Xid, xid_in_line
from gpuwatch.explain.logs.device_names import explain_device_type
from gpuwatch.explain.logs.line_times import LineTime

LINES_PER_TOPIC = 6
_LINE_CHARS = 400
_THREAD = re.compile(r"block: \[[\d,]+\], thread: \[[\d,]+\] ")
"""The kernel's thread whose assertion failed: thousands fail the same way."""
WORK = "work"
KERAS_WORK = "keras"
"""Work of Keras' own progress bar, which only TensorFlow, JAX or PyTorch below it can have done: a group of
:data:`~gpuwatch.explain.logs.progress_and_success_patterns.PROGRESS`.
"""
FAILURE = "failure"


class IgnoredGpu(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU that the framework saw and does not use."""

    name: str | None
    pci_bus_id: str | None
    cuda_ordinal: int | None = None
    reason: str
    """``capability`` (too old for this build), ``core-count`` or ``other``."""
    detail: str = ""


class LoggedGpu(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU with its memory, as TensorFlow before 2.6 describes it, or nvidia-smi's table."""

    name: str | None = None
    pci_bus_id: str | None = None
    total_bytes: int | None = None
    free_bytes: int | None = None
    """At the framework's start, or when nvidia-smi was called: processes hold the rest."""


class SmiProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A row of nvidia-smi's process table."""

    gpu: int
    """nvidia-smi's index."""
    pid: int
    type: str
    """``C``, ``G``, ``C+G``, ``M+C``."""
    name: str
    held_bytes: int | None = None


class CuInitError(msgspec.Struct, frozen=True, kw_only=True):
    """The error of ``cuInit``. ``code`` is its CUresult; None if the name is unknown."""

    name: str | None
    code: int | None
    text: str


class ColocatedOp(msgspec.Struct, frozen=True):
    """One op of a colocation group, with the device that the user requested."""

    node: str
    op: str
    requested: str


class ColocationReport(msgspec.Struct, frozen=True, kw_only=True):
    """A colocation report: the group's ops, the requested device, and the devices with kernels."""

    members: tuple[ColocatedOp, ...]
    requested: str | None
    supported: tuple[str, ...]
    """Device types, such as ``("CPU",)``."""
    lacking: tuple[str, ...] = ()
    """The ops of the group that have no kernel for the requested type of device: they decide for the others."""
    failed: bool
    """True if placement failed, False if the placer moved the group (soft placement)."""


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the user's program."""

    file: str
    line: int
    function: str | None = None
    code: str = ""
    """The source text, if the traceback has it."""
    error_package: str = ""
    """The package of the exception that it led to, if its name has one: ``sqlite3``."""
    is_library: bool = False
    """Whether it is the last line of a traceback that has none of the user's."""
    last_package: str = ""
    """The last package other than PyTorch itself through which the traceback went."""


class ErrorPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where in a log an exception stands, the last time that it came."""

    line: int
    """Number of its line."""
    time: LineTime | None
    """What a logger wrote shortly before it."""


class XidErrors(msgspec.Struct, kw_only=True):
    """All errors of one Xid."""

    xid: Xid
    """The first error with this number."""
    line: str
    """Its line."""
    count: int = 1


class RefusedAllocations(msgspec.Struct, kw_only=True):
    """Allocations that the driver refused to TensorFlow's allocator; retries with smaller sizes are not failures."""

    count: int = 0
    first_bytes: int | None = None
    smallest_bytes: int | None = None
    last_bytes: int | None = None
    repeated_bytes: int | None = None
    """A size that was refused twice in a row: not a retry with a smaller size, the memory is full."""

    def add(self, amount: int) -> None:
        """Counts a refused allocation of ``amount`` bytes."""
        if amount == self.last_bytes and self.repeated_bytes is None:
            self.repeated_bytes = amount
        self.count += 1
        self.last_bytes = amount
        self.first_bytes = amount if self.first_bytes is None else self.first_bytes
        self.smallest_bytes = amount if self.smallest_bytes is None else min(self.smallest_bytes, amount)


class LogFacts(msgspec.Struct, kw_only=True):
    """Everything that was read from one log."""

    line_count: int = 0
    frameworks: list[str] = []
    device_map: list[DeviceMapping] = []
    placements: list[Placement] = []
    copies: list[DeviceCopy] = []
    """Inputs that TensorFlow copied from another device, logged under its device policy ``warn``."""
    ooms: list[Oom] = []
    missing_libraries: list[str] = []
    ignored_gpus: list[IgnoredGpu] = []
    cuinit_error: CuInitError | None = None
    driver_messages: list[str] = []
    hiding_visible_devices: str | None = None
    """The value of CUDA_VISIBLE_DEVICES that hides all GPUs, as TensorFlow 2.19 and later say."""
    visible_devices: str | None = None
    """CUDA_VISIBLE_DEVICES as TensorFlow prints it when cuInit fails (2.19 and later)."""
    assigned_devices: str | None = None
    """CUDA_VISIBLE_DEVICES as the program's code or command line sets it, if the log shows that line."""
    free_bytes_at_library_error: int | None = None
    """Free GPU memory when cuDNN or cuBLAS failed to start (``Memory usage: N bytes free``)."""
    kernel_module_version: str | None = None
    """Version of the kernel module that TensorFlow read, which proves that the driver is loaded."""
    gpus: list[LoggedGpu] = []
    """GPUs with their memory, if the log shows it."""
    smi_processes: list[SmiProcess] = []
    """The processes in the last nvidia-smi table in the log."""
    last_error_line: int | None = None
    """Line of the last exception; at the end of the log it is what ended the program."""
    last_error_in: str = ""
    """``thread`` or ``task`` if Python said that the last exception was in one."""
    last_error_has_traceback: bool = False
    other_program_worked: bool = False
    """Whether what worked after that exception was another program: its steps have another form."""
    went_on_after_last_error: bool = False
    """Whether the program's logger shows that it worked on after the last exception."""
    server_answered_after_error: bool = False
    """Whether a server answered after it, if only that it had an error."""
    steps_printed_after_error: int = 0
    """Lines of steps after the last exception, if the program printed steps before it, too. If it did not, and they
    begin with the first step, they were printed before the exception and written when the program ended."""
    went_on_after_oom: bool = False
    """Whether the program worked on after every error out of memory, for many steps: other ranks work on for a few."""
    last_frame_line: int | None = None
    """Line of the last frame of a traceback; if it follows the last exception, its own exception is still to come."""
    open_traceback_line: int | None = None
    """Line of the head of a notebook's last traceback, which names the same error as its end."""
    open_traceback_error: str = ""
    """That error."""
    reported_end: str = ""
    """Topic of how a shell, launcher or scheduler says that the program ended
    (:mod:`gpuwatch.explain.logs.reported_ends`)."""
    reported_end_line: str = ""
    """The last line that reports an end."""
    reported_end_line_number: int = 0
    """Its number."""
    ending_kind: str = ""
    """What the last lines show: :data:`WORK`, :data:`KERAS_WORK`, :data:`FAILURE` or nothing
    (:mod:`gpuwatch.explain.logs.log_ending`)."""
    ending_line: str = ""
    """The line that shows it."""
    lines_after_ending_line: int = 0
    ending_line_is_last: bool = False
    """Whether that line is the very last one."""
    unexplained_failure_line: str = ""
    """A line near the end that speaks of a failure which nothing explains."""
    logged_error: str = ""
    """The first line that a logger called an error, and that no rule knows."""
    error_of_every_item: str = ""
    """The error that came for every item of the work (:mod:`gpuwatch.explain.logs.work_despite_errors`)."""
    nan_loss_line: str = ""
    """A line near the end with a loss that is NaN or infinite."""
    last_lines: tuple[str, ...] = ()
    """Those near the end of a log that ends in a failure, the last first."""
    frame: Frame | None = None
    """The user's own line in the latest traceback."""
    memory_request_frame: Frame | None = None
    """The user's own line in the latest traceback that may have ended in memory that ran out."""
    found_device_lines: int = 0
    seen_pci_addresses: list[str] = []
    """Devices in driver messages other than mappings, which prove that cuInit and PCI enumeration worked."""
    libraries_skipped: bool = False
    """``Cannot dlopen some GPU libraries``: the driver works, a CUDA library is missing, all GPUs are dropped."""
    cudart_missing: bool = False
    """``Could not find cuda drivers``: libcudart could not be opened; the driver may be fine."""
    errors: list[RunError] = []
    error_frames: dict[str, Frame] = {}
    """The user's own line in the tracebacks of ``errors``, by ``Type: message``."""
    error_places: dict[str, ErrorPlace] = {}
    """Where ``errors`` stand, by ``Type: message``."""
    first_in_chain: dict[str, str] = {}
    """The exception at the beginning of a chain by the one at its end, both as ``Type: message``."""
    xids: dict[int, XidErrors] = {}
    """The Xids of a kernel's log, by number, in its order."""
    colocations: list[ColocationReport] = []
    refusals: RefusedAllocations = msgspec.field(default_factory=RefusedAllocations)
    topics: dict[str, int] = {}
    """Count by topic of :mod:`gpuwatch.explain.logs.message_topics`."""
    evidence: dict[str, list[str]] = {}
    """First lines by topic, without prefixes."""
    topic_line_numbers: dict[str, int] = {}
    """Number of the last line by topic."""
    warnings_by_topic: dict[str, int] = {}
    """How many lines with a topic were warnings: of Python's module, of a logger, or of TensorFlow's sources, whose
    errors an exception repeats if they end the program."""
    last_survived_error_line: int = 0
    """Line of the last error after which the program, or another start of it, worked on."""
    last_error_line_before_many_steps: int = 0
    """Line of the last error after which the logger of a job wrote so many steps that none of its ranks had failed."""
    last_warning: str = ""
    """The last warning of Python's module in its last lines."""
    interrupt_line: str = ""
    """The line near its end in which the program reports that it was interrupted, or stopped at its time limit."""
    failed_after_interrupt: bool = False
    """Whether an exception follows that line, which reports an interrupt from the keyboard."""
    leaked_resources_line: str = ""
    """What Python's resource tracker cleaned up after a process that ended in the middle of its work."""
    last_line: str = ""
    """The last line that is not empty."""
    last_output_line: str = ""
    """The last line, if the last ones have the form of a log's."""
    received_sigterm: bool = False
    """Whether its last lines show that it was sent SIGTERM, and ended in order."""
    unknown_gpu_lines: list[str] = []
    """Lines of TensorFlow's GPU sources that no rule knows: they show when formats change."""

    def note(self, topic: str, line: str) -> None:
        """Counts ``topic`` and keeps its first distinct lines."""
        self.topics[topic] = self.topics.get(topic, 0) + 1
        self.topic_line_numbers[topic] = self.line_count
        kept = self.evidence.setdefault(topic, [])
        if len(kept) < LINES_PER_TOPIC:
            line = explain_device_type(line[:_LINE_CHARS])
            same = _THREAD.sub("", line)
            if all(_THREAD.sub("", other) != same for other in kept):
                kept.append(line)

    def forget(self, topic: str) -> None:
        """Drops a topic, whose lines turned out to be of no consequence."""
        del self.topics[topic], self.evidence[topic]

    def note_xid(self, raw: str, line: str) -> None:
        """Keeps the first line of each Xid, without its prefix, and counts them."""
        xid = xid_in_line(raw)
        if xid is None or xid.code is None:
            return
        if (seen := self.xids.get(xid.code)) is not None:
            seen.count += 1
        else:
            self.xids[xid.code] = XidErrors(xid=xid, line=explain_device_type(line[:_LINE_CHARS]))

    def lines_of(self, *topics: str) -> tuple[str, ...]:
        """Evidence of these topics, in this order."""
        return tuple(line for topic in topics for line in self.evidence.get(topic, ()))
