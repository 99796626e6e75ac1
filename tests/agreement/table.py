"""Every cause that simulated GPUs, an environment or a folder of libraries can produce for real.

``cause`` is what doctor, run and explain must all name. ``but`` says what one of them says instead because it
cannot know better from what it sees, and why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gpuwatch.experiment.probing.probe_runner import LOG_ENVIRONMENT
from gpuwatch.sim.simulated_machine import SimMachine

GIB = 1 << 30
NOBODY = 2**22 + 1
"""No process of this machine has this number: somebody of another PID namespace."""

# Programs, as users write them.
MATMUL = """
import tensorflow as tf
x = tf.ones([64, 64])
print(tf.matmul(x, x).device)
"""
MISSING_DEVICE = """
import tensorflow as tf
tf.config.set_soft_device_placement(False)
with tf.device("/GPU:7"):
    tf.ones([64, 64])
"""
NO_KERNEL = """
import tensorflow as tf
tf.config.set_soft_device_placement(False)
numbers = tf.constant([[1, 2], [3, 4]])
with tf.device("/GPU:0"):
    tf.matmul(numbers, numbers)
"""
TOO_LATE = (
    MATMUL
    + """
tf.config.experimental.set_memory_growth(tf.config.list_physical_devices("GPU")[0], True)
"""
)
INCONSISTENT = """
import tensorflow as tf
tf.config.experimental.set_memory_growth(tf.config.list_physical_devices("GPU")[0], True)
tf.ones([64, 64])
"""
TOO_LARGE_A_REQUEST = """
import tensorflow as tf
tf.ones([1 << 36])
"""
TOO_LARGE_A_MODEL = """
import tensorflow as tf
kept = [tf.ones([1 << 28]) for _ in range(64)]
"""
_LIMIT = """
import tensorflow as tf
gpu = tf.config.list_physical_devices("GPU")[0]
tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit={})])
"""
LIMIT_TOO_SMALL = (
    _LIMIT.format(256)
    + """
kept = [tf.zeros([1 << 24]) for _ in range(10)]
"""
)
FRAGMENTED = (
    _LIMIT.format(1024)
    + """
kept = [tf.zeros([1 << 24]) for _ in range(15)][::2]
tf.zeros([1 << 26])
"""
)

Fault = Callable[[SimMachine], object]


def nothing(machine: SimMachine) -> None:
    """A healthy machine."""


def start_fails(code: int) -> Fault:
    return lambda machine: machine.inject("cuInit", code=code)


def nvml_fails(code: int) -> Fault:
    return lambda machine: machine.inject("nvmlInit", code=code)


def context_fails(code: int) -> Fault:
    return lambda machine: machine.inject("cuDevicePrimaryCtxRetain", code=code)


def is_set(name: str, value: int, device: int = 0) -> Fault:
    return lambda machine: machine.override(device, name, value)


def held(gib: float) -> Fault:
    return lambda machine: machine.attach(NOBODY, 0, int(gib * GIB), foreign=True)


def exclusive_and_held(machine: SimMachine) -> None:
    machine.override(0, "compute_mode", 3)
    machine.attach(NOBODY, 0, GIB, foreign=True)


@dataclass(frozen=True)
class Row:
    """One way to go wrong."""

    name: str
    cause: str
    fault: Fault = nothing
    program: str = MATMUL
    shape: str = "1x2GiB"
    """Small, because TensorFlow fills a table of 1/32 of each pool. Empty: no simulated machine at all."""
    variables: Mapping[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    but: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Who says something else: what, and why."""
    check: str = ""
    """The doctor's check that shows it; a probe on such a machine names the same cause."""
    long: bool = False
    """Whether it runs with the long tests alone: another row shows the same through the same path."""
    title: str = ""
    """What ``run`` says of the cause, where it is more than the cause's own title."""

    def expected(self, who: str) -> str:
        return self.but[who][0] if who in self.but else self.cause


NO_PROGRAM = {"doctor": ("healthy", "the machine is fine: what fails is the program, which the doctor does not run")}
NOT_SAID = {"explain": ("healthy", "TensorFlow 2.21 says nothing when NVML does not work: its log mentions no GPU")}
NO_ENVIRONMENT = {"explain": ("healthy", "a log does not tell the environment, and nothing failed")}

ROWS = (
    Row("healthy", "healthy"),
    # The environment
    Row("hidden", "visibility.hidden", variables={"CUDA_VISIBLE_DEVICES": "-1"}, check="environment.visible-devices"),
    Row("hidden by nothing", "visibility.hidden", variables={"CUDA_VISIBLE_DEVICES": ""}),
    Row("no such ordinal", "visibility.bad-ordinal", variables={"CUDA_VISIBLE_DEVICES": "5"}),
    Row("-1 in front", "visibility.bad-ordinal", variables={"CUDA_VISIBLE_DEVICES": "-1,0"}),
    Row("misspelt", "visibility.misspelt", variables={"CUDA_VISIBLE_DIVICES": "1"}, but=NO_ENVIRONMENT),
    Row("growth that cannot be read", "visibility.misspelt", variables={"TF_FORCE_GPU_ALLOW_GROWTH": "ture"}),
    # The program
    Row("missing device", "placement.device-missing", program=MISSING_DEVICE, but=NO_PROGRAM),
    Row(
        "no kernel",
        "placement.no-kernel",
        program=NO_KERNEL,
        but=NO_PROGRAM,
        title="MatMul requested /GPU:0, it has only a CPU kernel for the types of its inputs",
    ),
    Row("too late", "config.too-late", program=TOO_LATE, but=NO_PROGRAM),
    Row("inconsistent", "config.inconsistent", program=INCONSISTENT, shape="2x2GiB", but=NO_PROGRAM),
    Row("too large a request", "memory.request-too-large", program=TOO_LARGE_A_REQUEST, but=NO_PROGRAM),
    Row("too large a model", "memory.model-too-large", program=TOO_LARGE_A_MODEL, but=NO_PROGRAM),
    Row("limit too small", "memory.limit-too-small", program=LIMIT_TOO_SMALL, but=NO_PROGRAM),
    Row("fragmented", "memory.fragmented", program=FRAGMENTED, but=NO_PROGRAM),
    # Who is on the GPU
    Row("another process", "memory.other-process", held(20), program=TOO_LARGE_A_MODEL, shape="1x24GiB"),
    Row("no room for a context", "memory.context-failed", held(3.7), shape="1x4GiB", check="devices.memory"),
    Row("exclusive and taken", "mode.exclusive", exclusive_and_held),
    Row("prohibited", "mode.exclusive", is_set("compute_mode", 2)),
    Row(
        "exclusive and free",
        "mode.exclusive",
        is_set("compute_mode", 3),
        but={"explain": ("healthy", "the first process gets in, so its log says nothing of the mode")},
    ),
    # The driver
    Row("no driver", "driver.missing", shape=""),
    # With the doctor's variables, so that both share an import; "no driver" has TensorFlow's own log
    Row("no libcuda", "driver.missing", without=("libcuda.so.1",), variables=LOG_ENVIRONMENT),
    Row("no NVML", "driver.missing", without=("libnvidia-ml.so.1",), but=NOT_SAID),
    Row(
        "no NVML, and TensorFlow names it",
        "driver.missing",
        without=("libnvidia-ml.so.1",),
        variables=LOG_ENVIRONMENT,  # as the doctor sets it: both share an import
    ),
    Row("NVML: not loaded", "driver.missing", nvml_fails(9), but=NOT_SAID),
    Row("NVML: two versions", "driver.mismatch", nvml_fails(18), but=NOT_SAID, check="driver.nvml"),
    Row("NVML: unknown error", "container.lost-devices", nvml_fails(999), but=NOT_SAID),
    Row("CUDA: no device", "container.lost-devices", start_fails(100), check="driver.start"),
    Row("CUDA: stub library", "driver.bad-state", start_fails(34)),
    Row("CUDA: not ready", "driver.bad-state", start_fails(802)),
    Row("CUDA: two versions", "driver.mismatch", start_fails(803), check="driver.start"),
    Row("CUDA: compat library", "driver.mismatch", start_fails(804)),
    Row("CUDA: unknown error", "driver.bad-state", start_fails(999), check="driver.start"),
    Row("context: unknown error", "driver.bad-state", context_fails(999)),
    Row("context: invalid device", "visibility.bad-ordinal", context_fails(101)),
    Row("context: ECC error", "hardware.fault", context_fails(214)),
    Row("old driver", "driver.too-old", is_set("cuda_version", 11040)),
    # The build against the card
    Row("old card", "build.gpu-unsupported", is_set("compute_capability", 52)),
    Row("new card", "build.gpu-unsupported", is_set("compute_capability", 120)),
    # TensorFlow lists the second card as visible, and makes no device of it
    Row("too old a card in front", "build.gpu-unsupported", is_set("compute_capability", 30), shape="2x2GiB"),
    Row("a MIG instance that is not there", "mig.misuse", variables={"CUDA_VISIBLE_DEVICES": "MIG-aaaa"}),
    Row("weak card beside", "build.gpu-unsupported", is_set("multiprocessors", 4, device=1), shape="2x2GiB"),
    # The toolkit's libraries: one that is missing costs TensorFlow every GPU
    *(
        Row(
            f"no {library.partition('.')[0]}",
            "cuda.libraries-missing",
            without=(library,),
            long=library.startswith(("libcublasLt", "libcufft", "libcusolver", "libcusparse")),
        )
        for library in (
            "libcudart.so.12",
            "libcublas.so.12",
            "libcublasLt.so.12",
            "libcufft.so.11",
            "libcusolver.so.11",
            "libcusparse.so.12",
            "libcudnn.so.9",
        )
    ),
)
