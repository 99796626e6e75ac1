"""A setting that is applied inside a program: it takes effect, and the program runs as it would without it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import gpuwatch
from gpuwatch.experiment.probing.received_events import AppliedSetting
from gpuwatch.experiment.trials.trial_settings import find_setting
from gpuwatch.sim.libraries import Tier
from gpuwatch.sim.simulated_machine import SimMachine
from tests.conftest import has_cuda_wheel
from tests.forked import gpuwatch_forked
from tests.probing.trials import Tried, tried

Open = Callable[[str], SimMachine]
MIB = 1 << 20

_EAGER = """
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import tensorflow as tf
"""
KERAS = (
    _EAGER
    + """
import numpy
import keras
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4), keras.layers.Dense(1)])
model.compile("sgd", "mse")
x = numpy.ones((1024, 8), "float32")
model.fit(x, x[:, :1], batch_size=16, epochs=2, verbose=0)
print("trained")
"""
)


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Tried]:
    def start(
        machine: SimMachine | None,
        code: str,
        setting: str | None,
        *,
        tier: Tier = "plugin",
        watched: bool = True,
        fork: bool = False,
        **more: object,
    ) -> Tried:
        script = tmp_path / "train.py"
        script.write_text(code)
        chosen = find_setting(setting) if setting else None
        variables = chosen.variables if chosen is not None else {}
        trial = {"probe": chosen.probe, "options": chosen.options, **more} if chosen is not None else None
        environment = machine.environment(os.environ, tier=tier) if machine is not None else os.environ
        return tried([str(script)], {**environment, **variables}, trial=trial, watched=watched, fork=fork)

    return start


def granted(found: Tried) -> list[int | None]:
    """What TensorFlow granted on each GPU, in MiB."""
    amounts = [one.granted_bytes for one in found.state.device_mappings.values()]
    return [None if amount is None else amount // MIB for amount in amounts]


@pytest.mark.tensorflow
def test_a_limit_takes_effect_in_a_training_whose_steps_are_counted(
    sim_machine: Open, run: Callable[..., Tried]
) -> None:
    found = run(sim_machine("2x2GiB"), KERAS, "limit=700MiB", fork=True)
    assert (found.done.returncode, found.done.stdout) == (0, "trained\n"), found.done.stderr
    assert found.state.applied == AppliedSetting(name="limit", applied=True, effective={"memory_limit": 700})
    assert granted(found) == [700, 700]
    steps = found.state.steps
    assert (steps.counted, steps.count) == ("batches of Keras", 128)
    assert 100 < len(steps.times) <= 123
    assert all(seconds > 0 for seconds in steps.times)
    assert steps.first_at is not None
    assert steps.last_at is not None
    assert steps.first_at <= steps.last_at


_BEGIN = """
import multiprocessing, sys, tempfile, threading, traceback
v1 = tf.compat.v1

def physical():
    return tf.config.list_physical_devices("GPU")

def limit(mib):
    return tf.config.LogicalDeviceConfiguration(memory_limit=mib)

def caught(call):
    try:
        print(call())
    except Exception:
        print(traceback.format_exc())
"""
_CASES = {
    "hides a GPU after the import": """
os.environ["CUDA_VISIBLE_DEVICES"] = "1"
print(tf.config.list_logical_devices("GPU"))
""",
    "forks after the import": """
def work(queue):
    queue.put(tf.matmul([[1.0]], [[2.0]]).device)
context = multiprocessing.get_context("fork")
queue = context.Queue()
child = context.Process(target=work, args=(queue,))
child.start()
print(queue.get(timeout=60))
child.join()
""",
    "profiles itself": """
tf.matmul([[1.0]], [[2.0]])
tf.profiler.experimental.start(tempfile.mkdtemp())
tf.matmul([[1.0]], [[2.0]])
tf.profiler.experimental.stop()
print("profiled")
""",
    "has a session's configuration": """
options = v1.GPUOptions(per_process_gpu_memory_fraction=0.25, allow_growth=True)
with tf.Graph().as_default(), v1.Session(config=v1.ConfigProto(gpu_options=options)) as session:
    print(session.run(tf.matmul([[1.0]], [[2.0]])))
    print([(device.name, device.memory_limit_bytes) for device in session.list_devices()])
""",
    "sets growth": """
for gpu in physical():
    tf.config.experimental.set_memory_growth(gpu, True)
print(tf.matmul([[1.0]], [[2.0]]).device, [tf.config.experimental.get_memory_growth(gpu) for gpu in physical()])
""",
    "sets growth after a list of devices": """
print(tf.test.gpu_device_name())
for gpu in physical():
    tf.config.experimental.set_memory_growth(gpu, True)
print(tf.matmul([[1.0]], [[2.0]]).device)
""",
    "uses tf.config after a session": """
with tf.Graph().as_default(), v1.Session() as session:
    print(session.run(tf.matmul([[1.0]], [[2.0]])))
print([tf.config.get_logical_device_configuration(gpu) for gpu in physical()])
for gpu in physical():
    tf.config.experimental.set_memory_growth(gpu, True)
print(tf.matmul([[1.0]], [[2.0]]).device)
""",
    "sets growth for one GPU of two": """
tf.config.experimental.set_memory_growth(physical()[0], True)
caught(tf.config.list_logical_devices)
tf.config.experimental.set_memory_growth(physical()[1], True)
print(tf.config.list_logical_devices())
""",
    "has a limit": """
tf.config.set_logical_device_configuration(physical()[0], [limit(300), limit(400)])
print(tf.config.list_logical_devices())
caught(lambda: tf.zeros([500 << 18]))
""",
    "makes errors": """
tf.matmul([[1.0]], [[2.0]])
caught(lambda: tf.config.set_visible_devices([], "GPU"))
caught(lambda: tf.config.set_logical_device_configuration(physical()[0], [limit(300)]))
caught(lambda: tf.config.experimental.set_memory_growth("nonsense", True))
caught(lambda: tf.matmul([[1.0]], [[2.0], [3.0]]))
caught(lambda: v1.Session(config="nonsense"))
with tf.Graph().as_default() as graph, v1.Session() as session:
    caught(lambda: session.run("nothing"))
    one = v1.placeholder(tf.float32)
    caught(lambda: session.run(tf.reshape(one, [3]), {one: 1.0}))
""",
    "begins in threads": """
found = []
threads = [threading.Thread(target=lambda: found.append(tf.matmul([[1.0]], [[2.0]]).device)) for _ in range(4)]
for one in threads:
    one.start()
for one in threads:
    one.join()
print(found)
""",
    "looks at itself": """
import inspect
tf.matmul([[1.0]], [[2.0]])
print([name for name in sys.path if "gpuwatch" in name and "site-packages" not in name][1:])
print([name for name in sys.modules if name.startswith("_gpuwatch")])
for one in (tf.config.set_visible_devices, v1.Session, v1.Session.__init__, v1.Session.run):
    print(inspect.signature(one), one.__module__, one.__qualname__)
""",
}
_EACH = """
for name, code in CASES.items():
    print("==", name, flush=True)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            exec(compile(code, name, "exec"), globals())
            status = 0
        except SystemExit as error:
            status = error.code
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(status)
    print("--", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.mark.tensorflow
@pytest.mark.slow
def test_programs_of_every_kind_run_as_they_would_alone(sim_machine: Open, run: Callable[..., Tried]) -> None:
    machine = sim_machine("2x2GiB")
    code = f"{_EAGER}{_BEGIN}CASES = {_CASES!r}\n{_EACH}"
    alone = run(machine, code, None, watched=False, fork=True)
    limited = run(machine, code, "limit=500MiB", no_retry=True, fork=True)
    shown = [re.sub("0x[0-9a-f]+", "0x", each.done.stdout) for each in (alone, limited)]
    assert shown[1].splitlines() == shown[0].splitlines()
    assert any(state.applied is not None and state.applied.applied for state in limited.states)
    assert alone.done.returncode == limited.done.returncode == 0
    assert shown[0].count("\n-- 0\n") == len(_CASES), alone.done.stderr[-3000:]
    assert shown[0].count("Traceback") >= 8


_HELD = """
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import tensorflow as tf
a = tf.random.uniform([1024, 1024])
tf.matmul(a, a)
for device in tf.config.list_logical_devices("GPU"):
    with tf.device(device.name):
        tf.random.uniform([1])
import pynvml
pynvml.nvmlInit()
handles = [pynvml.nvmlDeviceGetHandleByIndex(number) for number in range(pynvml.nvmlDeviceGetCount())]
for handle in handles:
    print(sum(one.usedGpuMemory for one in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)) >> 20)
"""
_SETTINGS = {
    "growth": "growth-env",
    "limit=1GiB": "limit",
    "grow-to-limit=1GiB": "grow-to-limit",
    "async-allocator": "async-allocator",
    "cpu-only": "cpu-only",
    "default": "default",
}
"""Probes whose options by default are the same."""


@pytest.mark.tensorflow
@pytest.mark.skipif(not has_cuda_wheel(), reason="no CUDA build of TensorFlow here")
@pytest.mark.parametrize(
    ("shape", "settings"),
    [
        pytest.param("1x2GiB", ["limit=1GiB"], id="one"),
        pytest.param("1x2GiB", list(_SETTINGS), id="small", marks=pytest.mark.long),
        pytest.param("2x24GiB", list(_SETTINGS), id="large", marks=pytest.mark.long),
    ],
)
def test_a_setting_takes_effect_as_its_probe_says(
    shape: str, settings: list[str], sim_machine: Open, run: Callable[..., Tried]
) -> None:
    machine = sim_machine(shape)
    asked = [part for name in settings for part in ("--config", _SETTINGS[name])]
    result = gpuwatch_forked(
        "probe", *asked, "--seconds", "0.05", "--json", environment=machine.environment(os.environ)
    )
    document = json.loads(result.out)
    runs = document["runs"] if len(settings) > 1 else [document]
    for name, probed in zip(settings, runs, strict=True):
        found = run(machine, _HELD, name, tier="driver", fork=True)
        assert found.done.returncode == 0, found.done.stderr[-2000:]
        assert granted(found) == [one["granted_bytes"] // MIB for one in probed["device_map"]], name
        held = [one["process_bytes"] // MIB for one in probed["memory"]["devices"]] if probed["device_map"] else [0]
        # Tensors differ a little where memory is taken as needed.
        holds = [int(line) for line in found.done.stdout.split()]
        assert holds[: len(held)] == pytest.approx(held, abs=16), name


_LISTED = """
from tensorflow.python.client import device_lib
print([one.memory_limit >> 20 for one in device_lib.list_local_devices() if one.device_type == "GPU"])
tf.matmul([[1.0]], [[2.0]])
"""


@pytest.mark.tensorflow
@pytest.mark.long
def test_a_list_of_devices_starts_them_with_the_setting(sim_machine: Open, run: Callable[..., Tried]) -> None:
    found = run(sim_machine("2x2GiB"), _EAGER + _LISTED, "limit=700MiB")
    assert (found.done.returncode, found.done.stdout) == (0, "[700, 700]\n"), found.done.stderr[-2000:]
    assert granted(found) == [700, 700]
    assert found.state.settings["memory_limit"].effective == 700


_SESSION = """
import os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import tensorflow.compat.v1 as tf
tf.disable_eager_execution()
a = tf.get_variable("a", [32, 32])
loss = tf.reduce_sum(tf.matmul(a, a))
step = tf.train.GradientDescentOptimizer(1e-9).minimize(loss)
with tf.Session(CONFIG) as session:
    session.run(tf.global_variables_initializer())
    for _ in range(50):
        session.run([step, loss])
    print([device.memory_limit_bytes >> 20 for device in session.list_devices() if device.device_type == "GPU"])
"""


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("config", "setting", "amounts", "overridden"),
    [
        pytest.param("", "limit=700MiB", [700, 700], "", marks=pytest.mark.long),
        ("config=tf.ConfigProto(gpu_options=tf.GPUOptions(allow_growth=True))", "limit=700MiB", [700, 700], ""),
        pytest.param(
            "config=tf.ConfigProto(gpu_options=tf.GPUOptions(visible_device_list='1'))",
            "limit=700MiB",
            [700],
            "",
            marks=pytest.mark.long,
        ),
        pytest.param(
            "config=tf.ConfigProto(gpu_options=tf.GPUOptions(per_process_gpu_memory_fraction=0.25))",
            "limit=700MiB",
            [512, 512],
            "train.py:9",
            marks=pytest.mark.long,
        ),
        pytest.param("", "fraction=0.5", [1024, 1024], "", marks=pytest.mark.long),
    ],
)
def test_a_session_has_the_setting_where_the_program_left_it_open(
    config: str, setting: str, amounts: list[int], overridden: str, sim_machine: Open, run: Callable[..., Tried]
) -> None:
    found = run(sim_machine("2x2GiB"), _SESSION.replace("CONFIG", config), setting, fork=True)
    assert (found.done.returncode, found.done.stdout) == (0, f"{amounts}\n"), found.done.stderr[-2000:]
    assert found.state.applied is not None
    assert (found.state.applied.applied, found.state.applied.overridden) == (not overridden, overridden)
    assert found.state.steps.counted == "runs of the session (fetches: 1, operations: 1)"
    assert found.state.steps.count == 50


_EXHAUSTED = """
import time
a = tf.zeros([1, 1 << 15])
began = time.monotonic()
try:
    tf.matmul(tf.zeros([1 << 15, 1]), a)
except tf.errors.ResourceExhaustedError:
    print("failed", "late" if time.monotonic() - began > 5 else "at once")
"""


@pytest.mark.tensorflow
@pytest.mark.skipif(not has_cuda_wheel(), reason="no CUDA build of TensorFlow here")
def test_a_search_does_not_wait_for_memory(sim_machine: Open, run: Callable[..., Tried]) -> None:
    found = run(sim_machine("1x2GiB"), _EAGER + _EXHAUSTED, "default", tier="driver", fork=True, no_retry=True)
    assert found.done.stdout == "failed at once\n", found.done.stderr[-2000:]


_POLICY = """
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
IMPORT
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
print(model.layers[0].compute_dtype)
"""


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("imports", "dtype", "overridden"),
    [
        pytest.param("import keras", "float16", "", marks=pytest.mark.long),
        ("from tensorflow import keras", "float16", ""),
        pytest.param(
            "import importlib.util; importlib.util.find_spec('keras'); import tensorflow, keras",
            "float16",
            "",
            marks=pytest.mark.long,
        ),
        pytest.param(
            "import keras; keras.config.set_dtype_policy('float32')", "float32", "train.py:4", marks=pytest.mark.long
        ),
        pytest.param(
            "import keras; keras.Sequential([]); keras.utils.clear_session()",
            "float32",
            "train.py:5",
            marks=pytest.mark.long,
        ),
    ],
)
def test_mixed_precision_is_set_once_keras_is_complete(
    imports: str, dtype: str, overridden: str, run: Callable[..., Tried]
) -> None:
    found = run(None, _POLICY.replace("IMPORT", imports), "mixed-float16")
    assert (found.done.returncode, found.done.stdout) == (0, f"{dtype}\n"), found.done.stderr[-2000:]
    effective = {} if overridden else {"dtype policy": "mixed_float16"}
    expected = AppliedSetting(name="mixed-float16", applied=not overridden, overridden=overridden, effective=effective)
    assert found.state.applied == expected


@pytest.mark.tensorflow
@pytest.mark.long
def test_a_program_without_a_keras_model_is_told_so(run: Callable[..., Tried]) -> None:
    found = run(None, _EAGER + "tf.matmul([[1.0]], [[2.0]])\n", "mixed-float16")
    assert found.state.applied is not None
    assert (found.state.applied.applied, "no Keras model" in found.state.applied.reason) == (False, True)


@pytest.mark.tensorflow
def test_calls_of_a_function_are_counted_where_nothing_better_is(sim_machine: Open, run: Callable[..., Tried]) -> None:
    code = """
variable = tf.Variable(tf.ones([64, 64]))
@tf.function
def train():
    variable.assign_add(tf.matmul(variable, variable) * 1e-9)
import time
for _ in range(400):
    train()
    time.sleep(0.005)
"""
    found = run(sim_machine("1x2GiB"), _EAGER + code, "growth", fork=True)
    steps = found.state.steps
    assert steps.counted == "calls of the tf.function train (train.py:7)"
    assert steps.count == 400
    assert steps.times
    assert all(0.004 < seconds < 0.1 for seconds in steps.times)
    assert found.state.applied is None, "a variable is all that it needs"
    assert found.state.settings == {}


@pytest.mark.tensorflow
def test_a_few_calls_of_a_function_are_counted_at_the_end(sim_machine: Open, run: Callable[..., Tried]) -> None:
    code = "@tf.function\ndef train(x):\n    return x * 2.0\nfor _ in range(3):\n    train(tf.ones([2]))\n"
    found = run(sim_machine("1x2GiB"), _EAGER + code, None, fork=True)
    steps = found.state.steps
    assert (steps.counted.split(" (")[0], steps.count, steps.times) == ("calls of the tf.function train", 3, [])


def test_a_program_can_count_its_own_steps(run: Callable[..., Tried]) -> None:
    root = Path(gpuwatch.__file__).parents[1]
    code = f"import sys, time; sys.path.insert(0, {str(root)!r})\nimport gpuwatch\n"
    code += "for _ in range(30):\n    gpuwatch.step()\n    time.sleep(0.02)\n"
    found = run(None, code, "default")
    assert found.done.returncode == 0, found.done.stderr
    steps = found.state.steps
    assert (steps.counted, steps.count, len(steps.times)) == ("calls of gpuwatch.step()", 30, 25)
    assert all(seconds >= 0.02 for seconds in steps.times)
    alone = run(None, code, None, watched=False)
    assert (alone.done.returncode, alone.done.stderr, alone.states) == (0, "", [])
