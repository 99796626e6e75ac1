"""The table of causes: what a finding can be, in the order of primary causes; and the output of ``gpuwatch cause``."""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from gpuwatch.core.model.findings import Certainty


class Cause(NamedTuple):
    """What is known of a cause before it is found."""

    ends: Literal["work", "gpu", "nothing"]
    """``work``: it ended the program's work; ``gpu``: no GPU was usable because of it."""
    title: str
    stated: Certainty | None = None
    """How certain it is where a log states it (``explain/logs/message_topic_texts.py``); None: a rule finds it."""
    action: str = ""
    """What to do about one that a log states."""


# fmt: off
CAUSE_TABLE: dict[str, Cause] = {
    # What ended the work, in the order in which one of several is the primary cause:
    "memory.context-failed": Cause("work", "Out of memory: no room for a CUDA context"),
    "memory.fragmented": Cause("work", "Out of memory: GPU memory is fragmented; no free block is large enough"),
    "memory.other-process": Cause("work", "Another process holds the GPU memory", "likely",
        "Stop the other programs on this GPU, or lower gpu_memory_utilization to what they leave."),
    "memory.limit-too-small": Cause("work", "Out of memory: the memory limit that was set is too small", "likely",
        "Raise gpu_memory_utilization or lower max_model_len; if it is at 0.9 already, the model is too large."),
    "memory.request-too-large": Cause("work", "Out of memory: one request exceeds the allocator's whole limit"),
    "memory.growing": Cause("work",
        "Out of memory: memory in use grew step by step; the program probably keeps tensors"),
    "memory.model-too-large": Cause("work", "Out of memory: the program needs more GPU memory than is left"),
    "memory.masked": Cause("work", "A CUDA library failed to initialize, probably out of memory"),
    "placement.no-kernel": Cause("work", "No kernel for the requested device or type"),
    "placement.device-missing": Cause("work", "The requested device does not exist"),
    "config.too-late": Cause("work", "A setting came too late: the devices were already initialized"),
    "config.inconsistent": Cause("work", "Settings conflict, or differ between GPUs"),
    "distribution.devices-missing": Cause("work", "A distribution strategy uses devices that do not exist"),
    "api.removed": Cause("work", "The code uses an API that this framework version removed", "fact",
        "Use the current API (tf.compat.v1.Session, tf.config, tf.distribute.MirroredStrategy)."),
    "hardware.fault": Cause("work", "The GPU reports a hardware fault"),
    # Otherwise, why no GPU was usable, in that order too:
    "visibility.hidden": Cause("gpu", "CUDA_VISIBLE_DEVICES hides every GPU"),
    "visibility.bad-ordinal": Cause("gpu", "CUDA_VISIBLE_DEVICES contains an invalid entry"),
    "driver.missing": Cause("gpu", "No NVIDIA driver found"),
    "driver.mismatch": Cause("gpu", "Driver/library version mismatch"),
    "driver.too-old": Cause("gpu", "The driver is too old for the framework's CUDA version"),
    "driver.bad-state": Cause("gpu", "The driver is installed but does not start", "likely",
        "Reload nvidia_uvm (modprobe -r nvidia_uvm && modprobe nvidia_uvm), or reboot."),
    "container.lost-devices": Cause("gpu", "The container has lost access to its GPUs", "likely",
        "Recreate the container: usually a systemctl daemon-reload on the host took its GPUs away. With CDI "
        "(docker run --device nvidia.com/gpu=all) or Docker's cgroup driver cgroupfs, that cannot happen again."),
    "cuda.libraries-missing": Cause("gpu", "CUDA libraries cannot be loaded"),
    "cuda.version-mismatch": Cause("gpu", "CUDA library version mismatch", "fact",
        "Install the version of the library that the framework was compiled with."),
    "build.cpu-only": Cause("gpu", "CPU-only build: the framework has no GPU support"),
    "build.gpu-unsupported": Cause("gpu", "The framework's build has no code for this GPU"),
    "mode.exclusive": Cause("gpu", "The GPU is in exclusive or prohibited compute mode", "likely",
        "nvidia-smi -q -d COMPUTE shows the mode: any other than Default keeps programs out (use nvidia-smi -c 0, "
        "MPS, or another GPU). If it is Default, look for a program that fills or hangs the GPU, then reset it."),
    "mig.misuse": Cause("gpu", "MIG instances are addressed in a way that CUDA does not support", "likely",
        "Name an instance by its UUID (nvidia-smi -L), and create instances of profiles that fit."),
    # The rest:
    "placement.together": Cause("nothing", "The op runs where its variable or table is, not where it was requested"),
    "visibility.renumbered": Cause("nothing", "GPU numbers differ from nvidia-smi's"),
    "visibility.misspelt": Cause("nothing", "An environment variable is misspelled and has no effect"),
    "container.pid-namespace": Cause("nothing", "GPU processes are in another PID namespace (container)"),
    "throttle.thermal": Cause("nothing", "Thermal throttling: the driver lowers the clocks because of heat", "fact",
        "Improve the cooling (fans, dust, airflow between cards), or lower the power limit."),
    "throttle.power": Cause("nothing", "Power throttling: the power limit or power brake holds the clocks down", "fact",
        "Check the power supply and its cables, and the node's power brake."),
    "pcie.degraded": Cause("nothing", "The PCIe link runs below its maximum speed or width"),
    "idle.memory-held": Cause("nothing", "An idle process holds GPU memory"),
    "input.bound": Cause("nothing", "The GPU is starved for input"),
    "program.error": Cause("nothing", "The program's own error, not the GPU's"),
    "program.stalled": Cause("nothing", "The program kept running but made no more steps"),
    "function.retraced": Cause("nothing", "A tf.function is traced again and again"),
    "function.eager": Cause("nothing", "TensorFlow runs the program's steps eagerly, op by op"),
    "function.constant": Cause("nothing", "A large array is a constant of a tf.function's graph"),
    "program.forked": Cause("nothing", "The program forked after TensorFlow had started its GPUs"),
    "simulation.limit": Cause("nothing", "A limitation of the simulated GPU; real GPUs are not known to have it"),
    "healthy": Cause("nothing", "No problems found"),
    "unknown": Cause("nothing", "An error that gpuwatch does not recognize"),
}
"""Every cause by its id."""
# fmt: on
CAUSES = {cause: row.title for cause, row in CAUSE_TABLE.items()}
ENDED_WORK = tuple(cause for cause, row in CAUSE_TABLE.items() if row.ends == "work")
NO_GPU = tuple(cause for cause, row in CAUSE_TABLE.items() if row.ends == "gpu")


class CausePage(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="gpuwatch.cause/1"):
    """The page of a cause."""

    id: str
    title: str
    markdown: str
    """Its page: what it is, how it is recognized, what to do."""


class CauseName(msgspec.Struct, frozen=True, kw_only=True):
    """A cause in the list of all."""

    id: str
    title: str


class CauseList(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="gpuwatch.causes/1"):
    """Every cause that gpuwatch knows."""

    causes: tuple[CauseName, ...]
