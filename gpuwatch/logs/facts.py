"""What a framework's log said, as data. Filled by the parsers, read by diagnosis and probing.

"Seen", "mapped" and "dropped (why)" are three states of a GPU and are kept apart here:
``found_device_lines`` and ``seen_pci``, ``device_map``, ``ignored_gpus``.
"""

from __future__ import annotations

import msgspec

from gpuwatch.logs.clean import in_words
from gpuwatch.logs.frames import Frame
from gpuwatch.model.run import DeviceCopy, DeviceMapping, Oom, Placement, RunError

LINES_PER_TOPIC = 6
_LINE_CHARS = 400


class IgnoredGpu(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU that the framework saw and did not take."""

    name: str | None
    pci_bus_id: str | None
    cuda_ordinal: int | None = None
    reason: str
    """``capability`` (too old for this build), ``core-count`` or ``other``."""
    detail: str = ""


class SeenCard(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU as the framework described it, with its memory where it told it (before 2.6)."""

    name: str | None = None
    pci_bus_id: str | None = None
    total_bytes: int | None = None
    free_bytes: int | None = None
    """At the start of the framework: what is lacking, somebody else holds."""


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
    """What ``cuInit`` answered. ``code`` is CUDA's CUresult, None where the name is unknown to us."""

    name: str | None
    code: int | None
    text: str


class Member(msgspec.Struct, frozen=True):
    """One op of a colocation group, with the device that the user asked for."""

    node: str
    op: str
    requested: str


class Colocation(msgspec.Struct, frozen=True, kw_only=True):
    """A colocation report: who was tied together, what was asked, what the kernels support."""

    members: tuple[Member, ...]
    requested: str | None
    supported: tuple[str, ...]
    """Device types, such as ``("CPU",)``."""
    failed: bool
    """True where placement failed, False where the placer moved the group (soft placement)."""


class Refusals(msgspec.Struct, kw_only=True):
    """Allocations that the driver refused to TensorFlow's allocator (a back-off series is no failure)."""

    count: int = 0
    first_bytes: int | None = None
    smallest_bytes: int | None = None
    last_bytes: int | None = None
    constant_bytes: int | None = None
    """A size that was refused twice in a row: no back-off, nothing is left."""

    def add(self, amount: int) -> None:
        """One more refusal."""
        if amount == self.last_bytes and self.constant_bytes is None:
            self.constant_bytes = amount
        self.count += 1
        self.last_bytes = amount
        self.first_bytes = amount if self.first_bytes is None else self.first_bytes
        self.smallest_bytes = amount if self.smallest_bytes is None else min(self.smallest_bytes, amount)


class LogFacts(msgspec.Struct, kw_only=True):
    """Everything that one log said."""

    lines: int = 0
    frameworks: list[str] = []
    device_map: list[DeviceMapping] = []
    placements: list[Placement] = []
    copies: list[DeviceCopy] = []
    """Inputs that TensorFlow copied from another device by itself, under its device policy ``warn``."""
    ooms: list[Oom] = []
    missing_libraries: list[str] = []
    ignored_gpus: list[IgnoredGpu] = []
    cuinit_error: CuInitError | None = None
    driver_messages: list[str] = []
    hidden_by_environment: str | None = None
    """The value of CUDA_VISIBLE_DEVICES that TensorFlow itself blames (2.19 and later)."""
    visible_devices: str | None = None
    """CUDA_VISIBLE_DEVICES as TensorFlow prints it when cuInit fails (2.19 and later)."""
    assigned_devices: str | None = None
    """CUDA_VISIBLE_DEVICES as the program's own code or command line sets it, where the log shows that line."""
    library_free_bytes: int | None = None
    """What cuDNN's or cuBLAS' failure to start found free on the GPU (``Memory usage: N bytes free``)."""
    kernel_driver: str | None = None
    """Version of the kernel module that TensorFlow read: the driver is loaded, whatever else fails."""
    cards: list[SeenCard] = []
    """GPUs with their memory, of versions that print it."""
    smi_processes: list[SmiProcess] = []
    """Who held memory, by the last nvidia-smi table in the log."""
    last_error_line: int | None = None
    """The line with the last exception; at the end of the log it is what ended the program."""
    last_frame_line: int | None = None
    """The line with the last frame of a traceback; after the last exception, its own is still to come."""
    open_traceback_line: int | None = None
    """The head of the last traceback of a notebook, which names the error that its end tells."""
    frame: Frame | None = None
    """The user's own line in the latest traceback."""
    found_device_lines: int = 0
    seen_pci: list[str] = []
    """Devices that driver code named without a mapping: proof that cuInit and PCI enumeration worked."""
    libraries_skipped: bool = False
    """``Cannot dlopen some GPU libraries``: the driver works, a CUDA library does not, all GPUs are dropped."""
    cudart_missing: bool = False
    """``Could not find cuda drivers``: libcudart could not be opened. Says nothing of the driver."""
    errors: list[RunError] = []
    colocations: list[Colocation] = []
    refusals: Refusals = msgspec.field(default_factory=Refusals)
    topics: dict[str, int] = {}
    """How often each topic of :mod:`gpuwatch.logs.topics` was met."""
    evidence: dict[str, list[str]] = {}
    """Topic to its first lines, cleaned, verbatim otherwise."""
    unrecognised: list[str] = []
    """Lines of TensorFlow's GPU sources that no rule knows, so that drift of formats is visible."""

    @property
    def colocation(self) -> Colocation | None:
        """The last colocation report."""
        return self.colocations[-1] if self.colocations else None

    @property
    def gpus_mapped(self) -> int:
        """Distinct framework GPUs."""
        return len({mapping.framework_device for mapping in self.device_map})

    def note(self, topic: str, line: str) -> None:
        """Counts ``topic`` and keeps its first distinct lines."""
        self.topics[topic] = self.topics.get(topic, 0) + 1
        kept = self.evidence.setdefault(topic, [])
        if len(kept) < LINES_PER_TOPIC:
            line = in_words(line[:_LINE_CHARS])
            if line not in kept:
                kept.append(line)

    def lines_of(self, *topics: str) -> tuple[str, ...]:
        """Evidence lines of these topics, in their order."""
        return tuple(line for topic in topics for line in self.evidence.get(topic, ()))
