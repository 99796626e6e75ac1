"""A program's settings of memory and devices on simulated GPUs that compute: honoured as a CUDA build does it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpuwatch.experiment.probing.launch_program import with_watch_hook
from gpuwatch.sim.simulated_machine import SimMachine, context_bytes
from gpuwatch.sim.simulation_limit_messages import SETTINGS_IGNORED
from tests.conftest import gpuwatch
from tests.forked import Result, python_forked
from tests.sim.test_plugin import PYTHON, tensorflow

MIB = 2**20
Open = Callable[[str], SimMachine]

_PROGRAM = """
import json, os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import tensorflow as tf
sys.path += json.loads(os.environ["PACKAGES"])  # pynvml and gpuwatch, where another interpreter is tested

def limit(mib):
    return tf.config.LogicalDeviceConfiguration(memory_limit=mib)

def session(**options):
    config = tf.compat.v1.ConfigProto(gpu_options=tf.compat.v1.GPUOptions(**options))
    with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as one:
        one.run(tf.matmul([[1.0]], [[2.0]]))
        return [[d.name[-5:], d.memory_limit_bytes >> 20] for d in one.list_devices() if d.device_type == "GPU"]

def granted():
    from tensorflow.python.eager import context
    from tensorflow.python import pywrap_tfe
    from tensorflow.python.client import pywrap_tf_session as session
    context.context().ensure_initialized()
    found = pywrap_tfe.TFE_ContextListDevices(context.context()._handle)
    every = [[session.TF_DeviceListName(found, i)[-5:], session.TF_DeviceListMemoryBytes(found, i) >> 20]
             for i in range(session.TF_DeviceListCount(found))]
    return [one for one in every if "GPU" in one[0]]

def refused(size):
    try:
        with tf.device("/GPU:0"):
            return tf.zeros([size << 18]) is None
    except tf.errors.ResourceExhaustedError:
        return True

def held():
    import pynvml
    pynvml.nvmlInit()
    handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
    return [sum(p.usedGpuMemory for p in pynvml.nvmlDeviceGetComputeRunningProcesses(h)) >> 20 for h in handles]

gpus = tf.config.list_physical_devices("GPU")
tf.config.get_soft_device_placement()  # asks for the configuration, and makes no device
"""


_FORKS = """
import gc
gc.collect()
gc.freeze()  # or each fork walks, and so copies, all that TensorFlow has imported
answers = []
for code in json.loads(sys.argv[1]):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        exec(code)
        os.write(writer, json.dumps(answer).encode())
        os._exit(0)
    os.close(writer)
    text = os.fdopen(reader).read()
    os.waitpid(child, 0)
    answers.append(json.loads(text) if text else None)
print(json.dumps(answers))
"""


def answers(machine: SimMachine, codes: list[str], **environment: str) -> tuple[list[Any], str]:
    """What each program left in ``answer``, and the log: each is a fork of one process."""
    around = {**machine.environment(os.environ, tier="plugin"), "PACKAGES": json.dumps(sys.path), **environment}
    command = ("-c", _PROGRAM + _FORKS, json.dumps(codes))
    if sys.executable == PYTHON:
        done = python_forked(*command, environment=with_watch_hook(around), imported_with=around, timeout=300)
    else:
        started = subprocess.run(
            [PYTHON, *command], env=with_watch_hook(around), capture_output=True, text=True, timeout=300
        )
        done = Result(started.returncode, started.stdout, started.stderr)
    assert done.code == 0, done.err[-4000:]
    return json.loads(done.out.splitlines()[-1]), done.err


def default(machine: SimMachine) -> int:
    """What a CUDA build grants on an idle card of capability 8.6, in MiB: ``MinSystemMemory`` of gpu_device.cc."""
    card = machine.devices()[0]
    free = card.memory_bytes - card.reserved_bytes - context_bytes(card.memory_bytes)
    return (free - (225 if free < 2048 * MIB else 1536) * MIB) // MIB


_LIMIT = """
tf.config.set_logical_device_configuration(gpus[0], [limit(500)])
tf.config.set_visible_devices(gpus[0], "GPU")
answer = [granted(), refused(600), refused(100), held()]
"""
_VIRTUAL = """
tf.config.set_logical_device_configuration(gpus[0], [limit(300), limit(400)])
tf.config.set_logical_device_configuration(gpus[1], [limit(700)])
devices = granted()
for name, _ in devices:
    with tf.device(name):
        tf.random.normal([8, 8]) @ tf.ones([8, 8])
from gpuwatch.sim.simulated_machine import SimMachine
machine = SimMachine.from_environment(os.environ)
uuids = [device.uuid for device in machine.devices()]
answer = [devices, held(), [[number, uuids.index(uuid)] for number, uuid in machine.ordinals(os.getpid())]]
"""
_GROWTH_UNDER_A_LIMIT = """
os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
tf.config.set_logical_device_configuration(gpus[0], [limit(500)])
tf.config.set_visible_devices(gpus[0], "GPU")
answer = [granted(), refused(50), held(), refused(600)]
"""
_LISTED = """
from tensorflow.python.client import device_lib
found = [[d.name[-5:], d.memory_limit >> 20] for d in device_lib.list_local_devices()][1:]
answer = [found, held()]
"""
_RESERVE = """
os.environ["TF_DEVICE_MIN_SYS_MEMORY_IN_MB"] = "1000"
answer = granted()
"""
_TOO_FULL = """
from gpuwatch.sim.simulated_machine import SimMachine
machine = SimMachine.from_environment(os.environ)
child = os.fork()
if child == 0:
    import time
    time.sleep(60)
card = machine.devices()[0]
machine.attach(child, 0, card.memory_bytes - card.reserved_bytes - (100 << 20))
try:
    answer = granted()
except tf.errors.InternalError as error:
    answer = str(error)
os.kill(child, 9)
os.waitpid(child, 0)
"""
_ANOTHER_LIST = """
found = session(visible_device_list="1", allow_growth=True)
try:
    answer = granted()
except tf.errors.AlreadyExistsError as error:
    answer = str(error)
"""
_WRONG_LISTS = """
answer = []
for listed in ("1,2", "x", "0,0", "0,,1"):
    try:
        answer.append(session(visible_device_list=listed))
    except tf.errors.InvalidArgumentError as error:
        answer.append(error.message)
answer.append(session(visible_device_list=" 1"))
"""


@tensorflow
def test_settings_are_honoured_as_a_cuda_build_does_it(sim_machine: Open) -> None:
    machine = sim_machine("2x4GiB")
    context = context_bytes(machine.devices()[0].memory_bytes) // MIB
    usual = default(machine)
    found, log = answers(
        machine,
        [
            _LIMIT,
            "tf.config.set_visible_devices(gpus[1:], 'GPU')\nanswer = [granted(), held()]",
            _VIRTUAL,
            "answer = [session(per_process_gpu_memory_fraction=0.25), held()]",
            _GROWTH_UNDER_A_LIMIT,
            _LISTED,
            _RESERVE,
            _TOO_FULL,
            _ANOTHER_LIST,
            _WRONG_LISTS,
        ],
    )
    assert None not in found, log[-4000:]
    limit, visible, virtual, fraction, grown, listed, reserve, full, mapped_twice, wrong = found
    assert limit == [[["GPU:0", 500]], True, False, [500 + context, 0]]
    assert visible == [[["GPU:0", usual]], [0, context]]
    # Each with its part; the first is CUDA's number of its GPU, the third one the plug-in's own.
    assert virtual == [
        [["GPU:0", 300], ["GPU:1", 400], ["GPU:2", 700]],
        [700 + context, 700 + context],
        [[0, 0], [1, 1], [2, 0]],
    ]
    assert fraction == [
        [["GPU:0", 1024], ["GPU:1", 1024]],
        [1024 + context, context],
    ]  # the second has not computed yet
    devices, refusal, held, at_the_limit = grown
    assert (devices, refusal, at_the_limit) == ([["GPU:0", 500]], False, True)
    assert context + 50 <= held[0] < context + 500
    assert listed == [[["GPU:0", usual], ["GPU:1", usual]], [context] * 2]
    assert reserve == [["GPU:0", usual + 536], ["GPU:1", usual + 536]]
    assert "failed call to cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY" in full
    assert "is being mapped to multiple devices" in mapped_twice
    assert wrong == [
        "'visible_device_list' listed an invalid Device id '2' but visible device count is 2",
        "Could not parse entry in 'visible_device_list': 'x'.",
        "visible_device_list contained a duplicate entry: 0,0",
        "Could not parse entry in 'visible_device_list': ''.",
        [["GPU:0", usual]],
    ]


@tensorflow
def test_a_python_that_ignores_pythonpath_is_told_so(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    code = "import tensorflow as tf; print(len(tf.config.list_logical_devices('GPU')))"
    command = ("--sim", "1x2GiB", "-o", str(out), "--", PYTHON, "-I", "-c", code)
    done = gpuwatch("run", "--no-save", *command)
    assert done.out == "1\n"
    assert (
        done.err.count(SETTINGS_IGNORED + "its Python ignores PYTHONPATH (-I, -E, -S), or it is not a Python program\n")
        == 1
    )
    (finding,) = [one for one in json.loads(out.read_text())["findings"] if one["id"] == "simulation.limit"]
    assert finding["severity"] == "warning"
    assert "without -I, -E and -S" in finding["action"]
    # The usual header would say that mappings and memory are meaningful.
    assert "differ from a real GPU's" in " ".join(done.err.split())
