"""The real TensorFlow (its CUDA wheel) on simulated GPUs."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from gpuwatch.sim.simulated_machine import SimMachine
from tests.conftest import has_cuda_wheel
from tests.forked import forked

GIB, MIB = 2**30, 2**20
Start = Callable[..., "subprocess.Popen[str]"]
Machines = Callable[[str], SimMachine]


pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.skipif(not has_cuda_wheel(), reason="no CUDA build of TensorFlow here"),
]

PROGRAM = """
import sys, numpy as np, tensorflow as tf
if "growth" in sys.argv:
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
if "limit" in sys.argv:
    gpu = tf.config.list_physical_devices("GPU")[0]
    tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=1024)] * 2)
with tf.device("/GPU:0"):
    a, b = (np.random.rand(*shape).astype("float32") for shape in ((300, 200), (200, 100)))
    eager = tf.matmul(a, b)
    graph = tf.function(lambda x, y: tf.matmul(x, y))(tf.constant(a), tf.constant(b))
    stacked = tf.matmul(np.stack([a] * 3), np.stack([b] * 3))
    half = tf.matmul(tf.constant(a.astype("float16")), tf.constant(b.astype("float16")))
    filled = tf.ones([8]) + tf.fill([8], 2.0) + tf.random.normal([8])
if "cudnn" in sys.argv:
    try:
        tf.nn.conv2d(tf.ones([1, 8, 8, 1]), tf.ones([3, 3, 1, 1]), 1, "SAME")
    except tf.errors.OpError as error:
        print(type(error).__name__, error.message, file=sys.stderr)
want = a @ b
print("RESULT", eager.device, filled.device, np.allclose(eager, want, atol=1e-3), np.allclose(graph, want, atol=1e-3),
      np.allclose(stacked, want, atol=1e-3), np.allclose(half, want, rtol=1e-2),
      tf.config.experimental.get_memory_info("GPU:0")["peak"] > 0, len(tf.config.list_logical_devices("GPU")),
      flush=True)
if "work" in sys.argv:
    import time
    x = tf.constant(np.random.rand(512, 512).astype("float32")); end = time.time() + 2
    with tf.device("/GPU:0"):
        while time.time() < end: x = tf.matmul(x, x) * 0 + 1
    x.numpy()
    print("WORKED", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def begin() -> Iterator[Start]:
    """Starts a program that uses TensorFlow on a machine; killed at the end if it still runs."""
    running: list[subprocess.Popen[str]] = []

    def launch(machine: SimMachine, code: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        running.append(forked(["-c", code, *arguments], machine.environment({**os.environ, **environment})))
        return running[-1]

    yield launch
    for process in running:
        process.kill()
        process.communicate()


def result(process: subprocess.Popen[str], mark: str = "RESULT") -> list[str]:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(mark):
            return line.split()[1:]
    raise AssertionError(process.communicate()[1][-3000:])


def finish(process: subprocess.Popen[str]) -> str:
    _, log = process.communicate(timeout=60)
    assert process.returncode == 0, log[-3000:]
    return log


FINE = ["True"] * 5


def test_default_maps_nearly_all_of_the_card(sim_machine: Machines, begin: Start, start: Start) -> None:
    machine = sim_machine("2x12GiB")
    process = begin(machine, PROGRAM)
    eager, filled, *rest = result(process)
    assert eager.endswith("device:GPU:0")
    assert filled.endswith("device:GPU:0")
    assert rest == [*FINE, "2"]
    used = machine.used_bytes(0)
    listed = _nvml_processes(machine, start)
    log = finish(process)
    mapped = re.findall(
        r"Created device \S+/device:GPU:(\d) with (\d+) MB memory:  -> device: (\d), "
        r"name: (.+), pci bus id: (\S+), compute capability: 8.6",
        log,
    )
    assert [(gpu, device, name, bus) for gpu, _, device, name, bus in mapped] == [
        ("0", "0", "Simulated GPU 12GiB", "0000:01:00.0"),
        ("1", "1", "Simulated GPU 12GiB", "0000:02:00.0"),
    ]
    free = 12 * 1024 - machine.devices()[0].reserved_bytes // MIB - 320  # its own context was there first
    assert {int(megabytes) for _, megabytes, *_ in mapped} == {free - 1536}  # TensorFlow's reserve for 8.6
    assert 0.8 * 12 * GIB < used < 12 * GIB
    assert listed[0] == [(process.pid, used)]
    assert "CUDNN_STATUS" not in log
    assert machine.used_bytes(0) == 0


def _nvml_processes(machine: SimMachine, start: Start) -> list[list[tuple[int, int]]]:
    code = """
import pynvml as N
N.nvmlInit()
print([[(p.pid, p.usedGpuMemory) for p in N.nvmlDeviceGetComputeRunningProcesses(N.nvmlDeviceGetHandleByIndex(i))]
       for i in range(N.nvmlDeviceGetCount())])"""
    out, _ = start(machine, code).communicate(timeout=30)
    answer: list[list[tuple[int, int]]] = ast.literal_eval(out)
    return answer


def test_growth_stays_small_and_work_shows(sim_machine: Machines, begin: Start, start: Start) -> None:
    machine = sim_machine("1x12GiB")
    process = begin(machine, PROGRAM, "growth", "work")
    assert result(process)[2:] == [*FINE, "1"]
    assert 320 * MIB < machine.used_bytes(0) < GIB
    time.sleep(1.2)  # of which the driver reports the load
    code = """
import pynvml as N
N.nvmlInit()
d = N.nvmlDeviceGetHandleByIndex(0)
print(N.nvmlDeviceGetUtilizationRates(d).gpu, *[s.smUtil for s in N.nvmlDeviceGetProcessUtilization(d, 0)])"""
    out, _ = start(machine, code).communicate(timeout=30)
    device, own = out.split()
    assert int(device) > 10
    assert abs(int(device) - int(own)) < 25
    assert result(process, "WORKED") == []
    finish(process)


def test_limit_as_two_virtual_gpus(sim_machine: Machines, begin: Start) -> None:
    machine = sim_machine("2x12GiB")
    process = begin(machine, PROGRAM, "limit", "cudnn", CUDA_VISIBLE_DEVICES="1")
    assert result(process)[2:] == [*FINE, "2"]
    assert machine.used_bytes(0) == 0
    assert GIB < machine.used_bytes(1) < 3 * GIB
    log = finish(process)
    assert len(re.findall(r"with 1024 MB memory:  -> device: 0, .*pci bus id: 0000:02:00.0", log)) == 2
    # What cuDNN's failure for want of memory does not have: the simulation's line, and this status.
    own, tensorflow = (log.find(text) for text in ("the simulated driver lacks cuDNN", "CUDNN_STATUS_NOT_SUPPORTED"))
    assert 0 <= own < tensorflow
    assert "InvalidArgumentError" in log


@pytest.mark.parametrize(
    ("function", "code", "says"),
    [
        ("cuInit", 999, r"failed call to cuInit: .*CUDA_ERROR_UNKNOWN"),
        ("cuInit", 803, r"failed call to cuInit: .*CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
        ("cuDevicePrimaryCtxRetain", 2, r"CUDA_ERROR_OUT_OF_MEMORY: out of memory"),
    ],
)
def test_driver_failures_read_as_tensorflow_says_them(
    sim_machine: Machines, begin: Start, function: str, code: int, says: str
) -> None:
    machine = sim_machine("1x12GiB")
    machine.inject(function, code=code)
    process = begin(machine, "import tensorflow as tf; print(tf.config.list_logical_devices('GPU'))")
    _, log = process.communicate(timeout=60)
    assert re.search(says, log), log[-3000:]
