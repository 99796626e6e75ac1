"""What a message means, whichever file or framework printed it: noted in the facts of its log."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice

from gpuwatch.core.model.run import DeviceMapping, Oom
from gpuwatch.core.parsing import lazy
from gpuwatch.explain.logs import cuda_errors, log_ending, message_topics
from gpuwatch.explain.logs.device_names import explain_device_type, pci_address
from gpuwatch.explain.logs.failure_lines import is_warning, reports_skipping
from gpuwatch.explain.logs.log_facts import LogFacts
from gpuwatch.explain.logs.log_frameworks import FRAMEWORK_WORDS
from gpuwatch.explain.logs.missing_libraries import LIBDEVICE, missing_libraries
from gpuwatch.explain.logs.multiline_messages import MAX_LIST_ENTRIES, OpenMessages
from gpuwatch.explain.logs.oom_collector import OomCollector
from gpuwatch.explain.logs.oom_messages import is_oom_without_dump, is_pytorch_oom, parse_other_oom, parse_pytorch_oom
from gpuwatch.explain.logs.python_exceptions import is_error
from gpuwatch.explain.logs.tensorflow_device_lines import (
    FREE_AT_LIBRARY_START,
    HIDING_VISIBLE_DEVICES,
    KERNEL_DRIVER,
    NUMA_PCI,
    PRINTED_VISIBLE_DEVICES,
    REAL_GPU,
    assigned_visible_devices,
    parse_cuinit_error,
    parse_ignored_gpu,
    parse_mapping,
    starts_mapping,
)

TENSORFLOW_GPU_SOURCES = ("gpu_device", "bfc_allocator", "cuda_driver", "cuda_platform", "placer", "colocation_graph")
_STARTUP_SOURCES = frozenset({"gpu_device", "cuda_driver", "dso_loader", "cuda_diagnostics", "cudart_stub"})
"""Sources of TensorFlow that say what it does without, at whatever level."""
_MAX_WARNING_LINES = 4
"""Lines in which Python's warning may go on."""
# How shells report SIGKILL: "Killed", "Killed: 9", "train.sh: line 3:  4711 Killed   python train.py".
_KILLED_BY_SHELL = re.compile(
    r"^(?:\S{1,400}: line \d{1,9}: +\d{1,10} )?Killed(?:: 9)?(?: {2,}|$)"
    r"|(?:^|(?<=\]))[^\s\]]{1,400}: line \d{1,9}: +\d{1,10} Killed(?= )"  # also behind a progress bar
)
_GROMACS_GPU = re.compile(r"\b[1-9]\d{0,2} (?:\w{1,12} )?GPUs? (?:\w{1,12}-)?(?:detected|selected)\b")
"""GROMACS found a GPU in a later run of the same log; without one it continues on the CPU."""
_ABSL_PREFIX = re.compile(r"[IWEF]\d{4} [\d:.]{1,30}\s+(\d{1,10}) ")
_RANGE_FOLLOWS = "capability supported by this version of PyTorch is"
_HARMLESS = re.compile(
    r"NUMA|PCIe gen|cuDNN version|NVML library|interconnect StreamExecutor|^\d+:|strength|Adding visible"
    r"|remaining|edge matrix|^ *(?:\d+ )+\d*$|Your kernel"
)

_INSTALLED = re.compile(r"^Successfully (?:installed|built) |Built target |Finished processing dependencies")
_HARMLESS_AFTER_WORK = frozenset({"cuda.version-mismatch", "ended.extension", "build.gpu-unsupported"})
"""Topics of warnings that a program which worked to its end has shown to be harmless."""
_CONTAINER_HOST = lazy(r"(?:root@|information for host: |hostname: )[0-9a-f]{12}\b")
"""A message or prompt that names a host as Docker does: by the first digits of its container's number."""

_OUT_OF_MEMORY_TEXTS = ("OUT_OF_MEMORY", "OUT OF MEMORY", "ErrorOutOfMemory", "ErrorMemoryAllocation")
_LIBRARY_TEXTS = ("ould", "libdevice", ".so", "DSO", ".dll", "NCCL lib")
"""One of these is in each message about a library that could not be loaded."""


class MessageReader:
    """Takes messages; what they say goes into ``facts``, ``ooms`` and ``multiline``, which the log's parser owns."""

    def __init__(self, facts: LogFacts, ooms: OomCollector, multiline: OpenMessages, last_lines: Sequence[str]) -> None:
        """``last_lines``: the last lines of the log, the current one included."""
        self._facts, self._ooms, self._multiline, self._last_lines = facts, ooms, multiline, last_lines
        self.placement_failed = False
        self._understood = False
        """Whether the current line means anything."""
        self._nccl_error_follows = False
        """Whether the line before was the heading of what NCCL says of its last error."""
        self.skipped_by_topic: dict[str, int] = {}
        """Lines by topic with which the program said that it skipped something and went on."""

    def read(self, source: str, line: str, message: str) -> bool:
        """Reads everything that a message can mean, whichever file printed it; False if it means nothing."""
        self._read(source, line, message)
        if self._understood and (
            source in _STARTUP_SOURCES or is_warning(*islice(reversed(self._last_lines), _MAX_WARNING_LINES))
        ):
            self.count_as_warning()
        return self._understood

    def count_as_warning(self) -> None:
        """The current line is of a warning."""
        for topic in self.topics_of_line():
            self._facts.warnings_by_topic[topic] = self._facts.warnings_by_topic.get(topic, 0) + 1

    def forget_warnings(self, work_line: str) -> None:
        """Drops topics that only warnings had, without consequence: ``work_line`` ends a program that worked."""
        facts = self._facts
        used, finished = "device.used" in facts.topics, log_ending.reports_completion(work_line)
        for topic, count in [*facts.topics.items()]:
            only_warned = count == facts.warnings_by_topic.get(topic)
            if (only_warned and _were_harmless(topic, facts.evidence[topic], work_line, used=used)) or (
                finished and count == self.skipped_by_topic.get(topic)
            ):
                facts.forget(topic)

    def topics_of_line(self) -> list[str]:
        """The topics of the current line."""
        facts = self._facts
        return [topic for topic, at in facts.topic_line_numbers.items() if at == facts.line_count]

    def _read(self, source: str, line: str, message: str) -> None:
        facts = self._facts
        self._understood = False
        message = message_topics.plain_punctuation(message)
        for topic in (topics := message_topics.topics_of(message)):
            if topic == "driver.bad-state" and "ended.no-switch" in facts.topics:
                continue  # the unit of a fabric manager that is not needed
            if topic == "ended.launch" and "No valid triton configs" in message:
                continue  # PyTorch's autotuning takes another kernel, or says that there is none
            self._note(topic, line)
            if topic == "placement.no-kernel":
                self.placement_failed = "Failed to place the graph" not in message
            elif topic in ("driver.not-running", "driver.no-device-node", "driver.mismatch"):
                self._add_distinct(facts.driver_messages, message)
            elif topic == "cuda.libraries-skipped":
                facts.libraries_skipped = True
            elif topic == "cuda.cudart-missing":
                facts.cudart_missing = True
            elif topic == "cuda.libdevice-unfound":
                self._add_distinct(facts.missing_libraries, LIBDEVICE)
        if self._understood:
            self.add_frameworks_named_in(line)
            if self._last_lines and reports_skipping(self._last_lines[-1]):
                for topic in topics:
                    self.skipped_by_topic[topic] = self.skipped_by_topic.get(topic, 0) + 1
        if message.endswith(_RANGE_FOLLOWS):
            self._multiline.begin_capability_range()
        if "CUDA_VISIBLE_DEVICES" in message and (assigned := assigned_visible_devices(message)) is not None:
            facts.assigned_devices = assigned
            self._note("environment.assigned", line)
        if "Memory usage: " in message and (left := _first_group(FREE_AT_LIBRARY_START, message)) is not None:
            facts.free_bytes_at_library_error = int(left)
            self._note("memory.library-usage", line)
        if "XLA_GPU:" in message and REAL_GPU.search(message) is None:
            self._note("devices.xla-gpu", line)
        if "visibility.none-available" in facts.topics and _GROMACS_GPU.search(message) is not None:
            facts.forget("visibility.none-available")
            self._understood = True
        if self._nccl_error_follows or message.startswith(("what():", "Signal: ")):
            self._note("ended.told", line)
        self._nccl_error_follows = message == "Last error:"
        self._understood |= self._nccl_error_follows
        if "Killed" in message and _KILLED_BY_SHELL.search(message):
            if "server.kills-itself" not in facts.topics:
                facts.note("ended.killed", line)
            self._understood = True
        elif message == "MemoryError":
            self._note("ended.host-memory", line)
        if "evice" in message:
            self._read_device_message(line, message)
        if "OOM when allocating" in message:
            if self._ooms.take_tensor_message(message):
                facts.note("memory.oom", line)
            self._understood = True
        elif "cuMemAllocAsync failed" in message and self._ooms.take_message_without_dump(message):
            self._note("memory.oom", line)
        elif (oom := parse_other_oom(message)) is not None:
            self._ooms.add_complete(oom)
            self.add_framework(oom.allocator or "")
            self._note("memory.oom", line)
        elif is_pytorch_oom(message):
            if not self._ooms.is_full():
                self._ooms.add_complete(parse_pytorch_oom(message))
            self.add_framework("pytorch")
            self._note("memory.oom", line)
        elif (
            ("emory" in message and "out of memory" in message.lower())
            or any(text in message for text in _OUT_OF_MEMORY_TEXTS)
            or is_oom_without_dump(message)
        ):
            self._read_memory_message(source, line, message)
            self._understood = True
        if ("host" in message or "root@" in message) and _CONTAINER_HOST.search(message) is not None:
            self._note("environment.docker", line)
        if "cuInit" in message and (error := parse_cuinit_error(message)) is not None:
            facts.cuinit_error = facts.cuinit_error or error
            self._note("driver.cuinit", line)
        if any(text in message for text in _LIBRARY_TEXTS):
            for name in missing_libraries(message):
                self._add_distinct(facts.missing_libraries, name)
                self._note("cuda.missing-library", line)
        if "hides all GPUs" in message and (value := _first_group(HIDING_VISIBLE_DEVICES, message)) is not None:
            facts.hiding_visible_devices = value.strip("\"'")
            self._note("visibility.hidden", line)
        elif source == "cuda_diagnostics" and (value := _first_group(PRINTED_VISIBLE_DEVICES, message)) is not None:
            facts.visible_devices = value
            self._note("environment.visible-devices", line)
        elif source == "cuda_diagnostics" and (version := _first_group(KERNEL_DRIVER, message)) is not None:
            facts.kernel_module_version = version
            self._note("driver.loaded", line)
        if source in TENSORFLOW_GPU_SOURCES and not self._understood and not _HARMLESS.search(message):
            self._add_distinct(facts.unknown_gpu_lines, line[:400])

    def _read_memory_message(self, source: str, line: str, message: str) -> None:
        failed = "trying to allocate" in message and self._ooms.take_dump_head(message, absl_thread(line))
        failed = failed or self._ooms.take_message_without_dump(message)
        if failed or (is_error(line) and self._ooms.take_bare_exception(message)):
            self._facts.note("memory.oom", line)
        elif (
            not source
            and cuda_errors.OUT_OF_MEMORY in cuda_errors.topics(message_topics.lower_plain(message))
            and not self._ooms.is_full()
        ):
            self._ooms.add_complete(Oom())
            self._facts.note("memory.oom", line)

    def _note(self, topic: str, line: str) -> None:
        self._facts.note(topic, line)
        self._understood = True

    def _read_device_message(self, line: str, message: str) -> None:
        facts = self._facts
        if (found := parse_mapping(message)) is not None:
            self.add_mapping(found)
            self._note("device.mapped", line)
        elif starts_mapping(message):
            self._multiline.begin_wrapped_mapping(message)
            self._understood = True
        elif (gpu := parse_ignored_gpu(message)) is not None:
            if gpu not in facts.ignored_gpus and len(facts.ignored_gpus) < MAX_LIST_ENTRIES:
                facts.ignored_gpus.append(gpu)
            self._note("device.ignored", line)
        elif "Found device" in message and "with properties" in message:
            facts.found_device_lines += 1
            self._note("device.found", line)
            self._multiline.begin_gpu_description(message)
        elif (pci := pci_address(_first_group(NUMA_PCI, message))) is not None:
            self._add_distinct(facts.seen_pci_addresses, pci)
            self._understood = True
        elif "Colocation Debug Info" in message:
            self._multiline.begin_colocation(failed=self.placement_failed)
            self._understood = True

    def add_mapping(self, found: DeviceMapping) -> None:
        known = self._facts.device_map
        self.add_framework("tensorflow")
        for index, earlier in enumerate(known):
            if (earlier.framework_device, earlier.pci_bus_id) == (found.framework_device, found.pci_bus_id):
                if earlier.granted_bytes is None and found.granted_bytes is not None:
                    known[index] = found
                return
            if earlier.framework_device == found.framework_device and earlier.name is None:
                known[index] = found  # the earlier line was cut off
                return
        if len(known) < MAX_LIST_ENTRIES:
            known.append(found)

    def add_framework(self, name: str) -> None:
        if name not in self._facts.frameworks:
            self._facts.frameworks.append(name)

    def add_frameworks_named_in(self, line: str) -> None:
        """Notes the frameworks that a relevant line names."""
        lower = line.lower()
        for word, name in FRAMEWORK_WORDS:
            if word in lower:
                self.add_framework(name)

    @staticmethod
    def _add_distinct(where: list[str], text: str) -> None:
        text = explain_device_type(text)
        if text not in where and len(where) < MAX_LIST_ENTRIES:
            where.append(text)


def _were_harmless(topic: str, lines: Sequence[str], work_line: str, *, used: bool) -> bool:
    """Whether the warnings of a topic had no consequence, since ``work_line`` ends a program that worked.

    A program goes on without a GPU, too, so warnings that there is none stay, unless it only built or installed
    something. ``used``: whether the log shows a GPU in use.
    """
    if topic == "build.gpu-unsupported" and log_ending.announces_work(work_line):
        return False
    if topic in _HARMLESS_AFTER_WORK or _INSTALLED.search(work_line) is not None:
        return True
    if topic == "driver.mismatch":
        return used
    return topic == "build.cpu-only" and all("bitsandbytes" in line for line in lines)


def absl_thread(line: str) -> str:
    """The thread in absl's prefix: ``I0000 00:00:1755594043.834784      19 gpu_device.cc:2022]``."""
    match = _ABSL_PREFIX.search(line)
    return match[1] if match else ""


def _first_group(pattern: re.Pattern[str], message: str) -> str | None:
    match = pattern.search(message)
    return match[1] if match else None
