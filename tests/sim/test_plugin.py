"""TensorFlow on simulated GPUs that compute (the plug-in tier): devices, memory, processes, training.

GPUWATCH_TENSORFLOW_PYTHON names another interpreter with TensorFlow to test with.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.core.errors import GpuwatchError
from gpuwatch.sim import libraries, library_cache
from gpuwatch.sim.environment import ENV_PLUGIN
from gpuwatch.sim.simulated_machine import SimMachine
from tests.forked import forked
from tests.sim.conftest import REPOSITORY

MIB = 2**20
PYTHON = os.environ.get("GPUWATCH_TENSORFLOW_PYTHON", sys.executable)
HAS_TENSORFLOW = sys.executable != PYTHON or importlib.util.find_spec("tensorflow") is not None
needs_tensorflow = [
    pytest.mark.tensorflow,
    pytest.mark.skipif(not HAS_TENSORFLOW, reason="no TensorFlow here"),
]


def tensorflow(function: Callable[..., None]) -> Callable[..., None]:
    for mark in needs_tensorflow:
        function = mark(function)
    return function


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def begin() -> Iterator[Start]:
    """Start a program on a machine's plug-in tier, in a fork; killed at the end if it still runs."""
    running: list[subprocess.Popen[str]] = []

    def start(machine: SimMachine, code: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        process = forked(
            ["-c", "import json, os, sys\nimport tensorflow as tf\n" + textwrap.dedent(code), *arguments],
            {**machine.environment(os.environ, tier="plugin"), "TF_CPP_MIN_LOG_LEVEL": "0", **environment},
            python=PYTHON,
        )
        running.append(process)
        return process

    yield start
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def run(begin: Start) -> Callable[..., tuple[Any, str]]:
    """Run a program to its end: the JSON that it printed last, and its log."""

    def call(machine: SimMachine, code: str, *arguments: str, **environment: str) -> tuple[Any, str]:
        process = begin(machine, code, *arguments, **environment)
        out, log = process.communicate(timeout=200)
        assert process.returncode == 0, log[-4000:]
        return json.loads(out.splitlines()[-1]), log

    return call


Run = Callable[..., tuple[Any, str]]
Open = Callable[[str], SimMachine]


def granted(machine: SimMachine, device: int = 0) -> int:
    """What TensorFlow maps by default where no hook is in the program's Python, in MB."""
    card = machine.devices()[device]
    free = card.memory_bytes - card.reserved_bytes
    left = 255 * MIB if free < 2048 * MIB else max(300 * MIB, int(free * 0.06))
    return (free - left) // MIB


def said(log: str) -> list[tuple[int, int, int]]:
    """(TensorFlow's device, MB, physical device) of each line that creates one."""
    line = r"device:GPU:(\d+) with (\d+) MB memory\) -> physical PluggableDevice \(device: (\d+)"
    return [(int(a), int(b), int(c)) for a, b, c in re.findall(line, log)]


# --- building ---------------------------------------------------------------------------------------------


def test_builds_in_a_folder_of_its_own() -> None:
    folder = library_cache.ensure_built("plugin")
    names = {path.name for path in folder.iterdir()}
    assert names == {
        *("libgpuwatchplugin.so", "libgpuwatchrename.so"),
        *("libgpuwatchsim.so", "libnvidia-ml.so.1", "libnvidia-ml.so"),
    }
    assert (folder / "libnvidia-ml.so.1").resolve() == (library_cache.ensure_built() / "libnvidia-ml.so.1").resolve()
    assert library_cache.ensure_built("plugin") == folder
    needed = subprocess.run(["readelf", "-d", folder / "libgpuwatchplugin.so"], capture_output=True, text=True).stdout
    assert "[libtensorflow_framework.so.2]" in needed


def test_no_cxx_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gcc").symlink_to("/usr/bin/gcc")
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GpuwatchError, match=r"need a C\+\+ compiler") as caught:
        library_cache.find_cxx_compiler()
    assert "apt install g++" in caught.value.hint
    monkeypatch.setenv("CXX", "no-such-compiler -m64")
    with pytest.raises(GpuwatchError, match="no-such-compiler"):
        library_cache.find_cxx_compiler()


def test_sources_compile_without_warnings() -> None:
    sources = REPOSITORY / "gpuwatch" / "sim" / "csrc"
    names = {name for library in libraries.PLUGIN_LIBRARIES for name in library.sources if name.startswith("plugin")}
    assert names == {path.name for path in sources.glob("plugin*") if path.suffix != ".h"}
    for name in sorted(names):
        compiler = ["g++", "-std=c++17"] if name.endswith(".cc") else ["gcc", "-std=gnu11"]
        subprocess.run(
            [
                *(*compiler, "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-psabi", "-fopenmp-simd", "-pthread"),
                *("-fsyntax-only", str(sources / name)),
            ],
            check=True,
        )


def test_environment(sim_machine: Open) -> None:
    machine = sim_machine("2x2GiB")
    folder = library_cache.ensure_built("plugin")
    base = {"LD_LIBRARY_PATH": f"/a:{machine.library_dir}", "LD_PRELOAD": "/x.so /y.so", "Z": "1"}
    env = machine.environment(base, tier="plugin")
    assert env["LD_LIBRARY_PATH"] == f"{folder}:/a"  # not the driver tier's: it has a libcuda
    assert env["LD_PRELOAD"] == f"{folder}/libgpuwatchrename.so:/x.so:/y.so"
    assert env[ENV_PLUGIN] == f"{folder}/libgpuwatchplugin.so"
    assert env["Z"] == "1"
    assert machine.environment(env, tier="plugin") == env
    back = machine.environment(env, tier="driver")
    assert back["LD_LIBRARY_PATH"] == f"{machine.library_dir}:/a"
    assert back["LD_PRELOAD"] == f"{machine.library_dir}/{libraries.PROC_LIBRARY}:/x.so:/y.so"
    assert ENV_PLUGIN not in back
    assert ENV_PLUGIN in SimMachine.open(machine.shape, name="tier", tier="plugin").environment({})
    SimMachine.open(machine.shape, name="tier").remove()


# --- devices and memory -----------------------------------------------------------------------------------

DEVICES = """
    print(json.dumps([[d.name for d in tf.config.list_physical_devices("GPU")],
                      [d.name for d in tf.config.list_logical_devices("GPU")], os.getpid()]))
"""


@tensorflow
def test_devices_and_what_they_are_granted(sim_machine: Open, run: Run) -> None:
    machine = sim_machine("2x3GiB")
    (physical, logical, _), log = run(machine, DEVICES)
    assert physical == ["/physical_device:GPU:0", "/physical_device:GPU:1"]
    assert logical == ["/device:GPU:0", "/device:GPU:1"]
    assert said(log) == [(0, granted(machine), 0), (1, granted(machine), 1)]
    assert "Failed to call" not in log
    assert machine.used_bytes(0) == machine.used_bytes(1) == 0  # it has ended


@tensorflow
def test_cuda_visible_devices(sim_machine: Open, run: Run) -> None:
    """Read when the plug-in is loaded, since TensorFlow asks for the devices then. A process that is forked
    after TensorFlow's import, and loads the plug-in itself, has devices of its own."""
    wanted = {"1": 1, "-1": 0, "": 0, "0,7,1": 1, "1,0": 2, "1,1": 0, "-1,0": 0, " 1 , 0": 2}
    result, _ = run(
        sim_machine("2x2GiB"),
        """
        from tensorflow.python.framework import load_library
        assert tf.config.list_physical_devices("GPU") == []
        answers = {}
        for visible in json.loads(sys.argv[1]):
            reader, writer = os.pipe()
            if os.fork() == 0:
                os.environ["CUDA_VISIBLE_DEVICES"] = visible
                load_library.load_pluggable_device_library(os.environ["PLUGIN"])
                os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # too late
                before, after = tf.config.list_physical_devices("GPU"), tf.config.list_logical_devices("GPU")
                os.write(writer, json.dumps([len(before), len(after)]).encode())
                os._exit(0)
            os.wait()
            answers[visible] = json.loads(os.read(reader, 1000))
        print(json.dumps(answers))
        """,
        json.dumps(list(wanted)),
        TF_PLUGGABLE_DEVICE_LIBRARY_PATH="",
        PLUGIN=str(library_cache.ensure_built("plugin") / libraries.PLUGIN_LIBRARY),
    )
    assert result == {visible: [count, count] for visible, count in wanted.items()}


@tensorflow
def test_a_driver_that_does_not_start(sim_machine: Open, run: Run) -> None:
    machine = sim_machine("2x2GiB")
    machine.inject("cuInit", code=999)
    (physical, logical, _), _ = run(machine, DEVICES)
    assert physical == logical == []


MAP = """
    with tf.device("/GPU:0"):
        x = tf.ones([1000])
    print(json.dumps([x.device, os.getpid()]), flush=True)
    sys.stdin.read()
"""


def first_line(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise AssertionError(process.communicate()[1][-4000:])
    return json.loads(line)


@tensorflow
def test_which_ordinal_is_which_device(sim_machine: Open, begin: Start) -> None:
    machine = sim_machine("3x2GiB")
    uuids = [device.uuid for device in machine.devices()]
    process = begin(machine, MAP, CUDA_VISIBLE_DEVICES=f"{uuids[2][:12]},{uuids[0]}")
    _, pid = first_line(process)
    assert pid == process.pid
    assert machine.ordinals(pid) == ((0, uuids[2]), (1, uuids[0]))
    assert [machine.used_bytes(i) > 0 for i in range(3)] == [False, False, True]  # a pool is mapped by its first use
    assert machine.used_bytes(2) == granted(machine) * MIB
    process.communicate("", timeout=60)
    assert machine.ordinals(pid) == ()


SET = """
    gpus = tf.config.list_physical_devices("GPU")
    if "growth" in sys.argv:
        for gpu in gpus: tf.config.experimental.set_memory_growth(gpu, True)
    if "last" in sys.argv: tf.config.set_visible_devices(gpus[-1], "GPU")
    if "limit" in sys.argv:
        two = [tf.config.LogicalDeviceConfiguration(memory_limit=512)] * 2
        tf.config.set_logical_device_configuration(gpus[0], two)
    with tf.device("/GPU:0"): x = tf.random.normal([1000, 1000])
    print(json.dumps([len(tf.config.list_logical_devices("GPU")), x.device]), flush=True)
    sys.stdin.read()
"""


@tensorflow
@pytest.mark.parametrize("how", ["api", "environment"])
def test_growth(sim_machine: Open, begin: Start, how: str) -> None:
    machine = sim_machine("1x3GiB")
    environment = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"} if how == "environment" else {}
    process = begin(machine, SET, *(["growth"] if how == "api" else []), **environment)
    first_line(process)
    assert 4_000_000 <= machine.used_bytes(0) <= 64 * MIB


@tensorflow
def test_set_visible_devices(sim_machine: Open, begin: Start) -> None:
    machine = sim_machine("2x2GiB")
    process = begin(machine, SET, "last")
    count, device = first_line(process)
    assert (count, device[-5:]) == (1, "GPU:0")
    assert (machine.used_bytes(0), machine.used_bytes(1)) == (0, granted(machine) * MIB)
    assert machine.ordinals(process.pid) == ((1, machine.devices()[1].uuid),)


@tensorflow
def test_tensorflow_ignores_limits_here(sim_machine: Open, begin: Start) -> None:
    """A fact about TensorFlow that probes rely on: if it changes, they must."""
    machine = sim_machine("1x2GiB")
    count, _ = first_line(begin(machine, SET, "limit"))
    assert count == 1
    assert machine.used_bytes(0) == granted(machine) * MIB


@tensorflow
def test_session_with_fraction_and_visible_list(sim_machine: Open, run: Run) -> None:
    machine = sim_machine("2x2GiB")
    result, log = run(
        machine,
        """
        tf1 = tf.compat.v1
        config = tf1.ConfigProto()
        wanted = [config.gpu_options]
        if hasattr(config, "pluggable_device_options"): wanted.append(config.pluggable_device_options)  # from 2.17 on
        for options in wanted:
            options.per_process_gpu_memory_fraction = 0.4
            options.visible_device_list = "1"
        with tf.Graph().as_default(), tf1.Session(config=config) as session:
            print(json.dumps([float(session.run(tf.reduce_sum(tf.ones([10, 10])))),
                              [d.name for d in session.list_devices() if "GPU" in d.name]]))
        """,
    )
    assert result == [100.0, ["/job:localhost/replica:0/task:0/device:GPU:0"]]
    card = machine.devices()[1]
    assert said(log) == [(0, int(card.memory_bytes * 0.4) // MIB, 1)]


@tensorflow
def test_placement_and_missing_kernels(sim_machine: Open, run: Run) -> None:
    result, _ = run(
        sim_machine("1x2GiB"),
        """
        def device_of(function, name):
            try:
                with tf.device(name): return function().device.rsplit(":", 2)[-2] + ":" + function().device[-1]
            except Exception as error: return f"{type(error).__name__}: {error}"
        product = lambda: tf.constant([[1.0]]) @ tf.constant([[2.0]])
        integer = lambda: tf.Variable(1)
        text = lambda: tf.strings.length(tf.constant("abc"))
        answer = {}
        for soft in (True, False):
            tf.config.set_soft_device_placement(soft)
            answer[str(soft)] = [device_of(product, "/GPU:0"), device_of(product, "/GPU:7"),
                                 device_of(integer, "/GPU:0"), device_of(text, "/GPU:0"),
                                 device_of(lambda: tf.cast(tf.constant(1.5), tf.int32), "/GPU:0")]
        print(json.dumps(answer))
        """,
    )
    assert result["True"][:4] == ["GPU:0", "GPU:0", "CPU:0", "CPU:0"]
    hard = result["False"]
    assert hard[0] == "GPU:0"
    assert "Could not satisfy device specification" in hard[1]
    assert "No registered" in hard[2] or "Could not satisfy" in hard[2]
    assert "Could not satisfy" in hard[3] or "No OpKernel" in hard[3] or "NotFound" in hard[3]
    assert result["True"][4] == hard[4] == "GPU:0"


@tensorflow
def test_out_of_memory_is_reported_by_the_allocator(sim_machine: Open, run: Run) -> None:
    result, log = run(
        sim_machine("1x512MiB"),
        """
        try:
            with tf.device("/GPU:0"): kept = [tf.ones([1 << 24]) for _ in range(20)]
        except tf.errors.ResourceExhaustedError as error: print(json.dumps(str(error)))
        """,
    )
    assert "OOM when allocating tensor with shape[16777216]" in result
    assert "by allocator" in result
    assert re.search(r"Allocator \((GPU|PluggableDevice)_0_bfc\) ran out of memory trying to allocate 64\.00MiB", log)
    assert "Stats: " in log
    assert "Sum Total of in-use chunks" in log


# --- processes --------------------------------------------------------------------------------------------


@tensorflow
def test_nvml_shows_who_computes(sim_machine: Open, begin: Start) -> None:
    machine = sim_machine("2x2GiB")
    process = begin(
        machine,
        """
        with tf.device("/GPU:1"):
            x = tf.random.normal([700, 700])
            print(json.dumps(os.getpid()), flush=True)
            while True: x = x @ x * 1e-3
        """,
    )
    pid = first_line(process)
    time.sleep(1.5)  # of which the driver reports the load
    seen = subprocess.run(
        [
            sys.executable,
            "-c",
            "import json, pynvml as n; n.nvmlInit(); c = [n.nvmlDeviceGetHandleByIndex(i) for i in (0, 1)]\n"
            "print(json.dumps([[[p.pid, p.usedGpuMemory] for p in n.nvmlDeviceGetComputeRunningProcesses(h)] +"
            " [n.nvmlDeviceGetUtilizationRates(h).gpu] for h in c]))",
        ],
        env=machine.environment(os.environ),
        capture_output=True,
        text=True,
        check=True,
    )
    idle, busy = json.loads(seen.stdout)
    assert idle == [[pid, 0], 0]  # TensorFlow set it up, and used it for nothing
    assert busy[0] == [pid, granted(machine, 1) * MIB]
    assert busy[1] > 50
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert machine.used_bytes(1) == 0
    assert machine.ordinals(pid) == ()


@tensorflow
def test_two_processes_share_a_device(sim_machine: Open, begin: Start, run: Run) -> None:
    machine = sim_machine("1x2GiB")
    process = begin(machine, MAP)
    first_line(process)
    held = machine.used_bytes(0)
    _, log = run(machine, DEVICES)
    assert held == granted(machine) * MIB
    left = (machine.devices()[0].memory_bytes - machine.devices()[0].reserved_bytes - held) // MIB
    assert said(log) == [(0, left if left <= 255 else left - 255, 0)]
    assert process.poll() is None


@tensorflow
def test_fork_after_the_import(sim_machine: Open, run: Run) -> None:
    """Nothing of a device belongs to a process that has not used it."""
    machine = sim_machine("2x2GiB")
    result, _ = run(
        machine,
        """
        answers = []
        for device in ("/GPU:0", "/GPU:1"):
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:
                with tf.device(device):
                    x = tf.reduce_sum(tf.matmul(tf.ones([300, 300]), tf.ones([300, 300])))
                    os.write(writer, json.dumps([float(x), x.device[-5:]]).encode())
                os._exit(0)
            os.close(writer)
            answers.append(json.loads(os.read(reader, 1000)))
            os.waitpid(child, 0)
        print(json.dumps([answers, len(tf.config.list_logical_devices("GPU"))]))
        """,
    )
    assert result == [[[300.0**3, "GPU:0"], [300.0**3, "GPU:1"]], 2]
    assert machine.used_bytes(0) == machine.used_bytes(1) == 0


@tensorflow
def test_forgotten_renaming_means_no_devices(sim_machine: Open) -> None:
    """A CUDA build without the preloaded library has kernels that would crash: it gets no simulated GPUs."""
    machine = sim_machine("1x2GiB")
    done = subprocess.run(
        [
            PYTHON,
            "-c",
            "import tensorflow as tf; print(tf.test.is_built_with_cuda(), tf.config.list_physical_devices('GPU'))",
        ],
        env={**machine.environment(os.environ, tier="plugin"), "LD_PRELOAD": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    if done.stdout.startswith("True"):
        assert done.stdout == "True []\n"
        assert "libgpuwatchrename.so is not" in done.stderr
    else:
        assert "GPU:0" in done.stdout


# --- training ---------------------------------------------------------------------------------------------

TRAIN = """
    import keras
    from keras import layers as L
    keras.utils.set_random_seed(1)
    kind, optimizer = sys.argv[1:3]
    strategy = tf.distribute.get_strategy()
    if kind == "mirrored":
        strategy = tf.distribute.MirroredStrategy(cross_device_ops=tf.distribute.HierarchicalCopyAllReduce())
    shape = {"conv": (12, 12, 1), "lstm": (8, 10)}.get(kind, (40,))
    with strategy.scope():
        if kind == "conv":
            inner = [L.Conv2D(8, 3, activation="relu", padding="same"), L.MaxPooling2D(2), L.Conv2D(8, 3),
                     L.BatchNormalization(), L.AveragePooling2D(2), L.Flatten()]
        elif kind == "lstm":
            inner = [L.LSTM(24, use_cudnn=False)]
        else:
            inner = [L.Dense(32, activation="relu"), L.BatchNormalization(), L.Dropout(0.1),
                     L.Dense(32, activation="tanh")]
        model = keras.Sequential([L.Input(shape), *inner, L.Dense(10)])
        model.compile({"sgd": keras.optimizers.SGD(0.1, momentum=0.9), "adam": keras.optimizers.Adam(0.01)}[optimizer],
                      keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"],
                      jit_compile=False)
    x = tf.random.stateless_normal([512, *shape], [1, 2]).numpy()
    y = x.reshape(512, -1)[:, :10].argmax(1) if kind != "lstm" else x.sum(1).argmax(1)
    losses = model.fit(x, y, batch_size=64, epochs=5, verbose=0).history["loss"]
    if kind == "mirrored": devices = sorted({v.device[-5:] for w in model.trainable_variables for v in w.value.values})
    else: devices = sorted({w.value.device[-5:] for w in model.trainable_variables})
    model.predict(x[:32], verbose=0)
    print(json.dumps([losses, devices, [tf.config.experimental.get_memory_info(f"GPU:{i}")["peak"] for i in (0, 1)]]))
"""


@tensorflow
@pytest.mark.parametrize(
    ("kind", "optimizer"),
    [("dense", "sgd"), ("conv", "adam"), ("lstm", "adam"), ("mirrored", "adam")],
)
def test_training(sim_machine: Open, run: Run, kind: str, optimizer: str) -> None:
    machine = sim_machine("2x2GiB")
    (losses, devices, peaks), log = run(machine, TRAIN, kind, optimizer)
    assert losses[-1] < 0.8 * losses[0], losses
    assert devices == (["GPU:0", "GPU:1"] if kind == "mirrored" else ["GPU:0"])
    assert peaks[0] > 10_000
    if kind == "mirrored":
        assert peaks[1] > 10_000
    assert "no simulated kernel" not in log


@tensorflow
def test_ops_on_variables(sim_machine: Open, run: Run) -> None:
    """They must run where the variable is: without a kernel there they would fail, not fall back."""
    result, _ = run(
        sim_machine("1x2GiB"),
        """
        import keras
        train = tf.compat.v1.train
        v, table, index = tf.Variable(tf.ones([3, 3])), tf.Variable(tf.ones([9, 2])), tf.Variable([1, 2, 3])
        answers = []
        for optimizer in (train.GradientDescentOptimizer(0.1), train.MomentumOptimizer(0.1, 0.9),
                          train.AdamOptimizer(0.1), train.RMSPropOptimizer(0.1), train.AdagradOptimizer(0.1)):
            before = float(tf.reduce_sum(v * v))
            with tf.GradientTape() as tape: loss = tf.reduce_sum(v * v)
            optimizer.apply_gradients([(tape.gradient(loss, v), v)])
            answers.append(float(tf.reduce_sum(v * v)) < before)
        with tf.GradientTape() as tape: loss = tf.reduce_sum(tf.nn.embedding_lookup(table, [1, 2, 2]) ** 2)
        train.GradientDescentOptimizer(0.1).apply_gradients([(tape.gradient(loss, table), table)])
        index.scatter_nd_add([[0]], [5])
        model = keras.Sequential([keras.layers.Input((5,), dtype="int32"), keras.layers.Embedding(20, 8),
                                  keras.layers.Flatten(), keras.layers.Dense(3)])
        model.compile("adam", "mse", jit_compile=False)
        losses = model.fit(tf.ones([32, 5], tf.int32), tf.ones([32, 3]), epochs=3, verbose=0).history["loss"]
        print(json.dumps([answers, [round(x, 3) for x in table.numpy()[:4, 0].tolist()], index.numpy().tolist(),
                          v.device[-5:], table.device[-5:], index.device[-5:], losses[2] < losses[0]]))
        """,
    )
    assert result == [[True] * 5, [1.0, 0.8, 0.6, 1.0], [6, 2, 3], "GPU:0", "GPU:0", "CPU:0", True]


@tensorflow
def test_several_threads_and_two_devices_at_once(sim_machine: Open, run: Run) -> None:
    result, _ = run(
        sim_machine("2x2GiB"),
        """
        import threading
        wrong = []
        def work(number):
            with tf.device(f"/GPU:{number % 2}"):
                for i in range(60):
                    x = tf.fill([64, 64], float(number + 1))
                    y = tf.reduce_sum(x @ x)
                    if abs(float(y) - 64**3 * (number + 1) ** 2) > 1: wrong.append([number, i, float(y)])
        threads = [threading.Thread(target=work, args=[i]) for i in range(8)]
        [t.start() for t in threads]; [t.join() for t in threads]
        print(json.dumps(wrong))
        """,
    )
    assert result == []


# --- kernels ----------------------------------------------------------------------------------------------


@tensorflow
def test_every_kernel_computes_what_the_cpu_does(sim_machine: Open) -> None:
    environment = {**sim_machine("1x2GiB").environment(os.environ, tier="plugin"), "TF_CPP_MIN_LOG_LEVEL": "0"}
    with forked([str(Path(__file__).with_name("plugin_kernels.py"))], environment, python=PYTHON) as process:
        out, log = process.communicate(timeout=200)
    assert process.returncode == 0, log[-4000:]
    results = json.loads(out)
    assert len(results) > 500
    assert {name: result for name, result in results.items() if result != "ok"} == {}


@tensorflow
def test_only_kernels_that_cuda_has(sim_machine: Open, run: Run) -> None:
    """What a real GPU computes on the CPU, a simulated one must not compute: fallbacks are what probes look for."""
    kernels, _ = run(
        sim_machine("1x2GiB"),
        """
        from tensorflow.python.framework import kernels
        found = {}
        for k in kernels.get_all_registered_kernels().kernel:
            host = sorted(k.host_memory_arg)
            types = sorted([c.name, sorted(c.allowed_values.list.type)] for c in k.constraint)
            found.setdefault(k.device_type, []).append([k.op, types, host])
        print(json.dumps({name: found.get(name, []) for name in ("GPU", "GPU_CUDA", "DEFAULT")}))
        """,
    )
    if not kernels["GPU_CUDA"]:
        pytest.skip("a build without CUDA has no kernels to compare with")
    theirs: dict[str, list[tuple[dict[str, set[int]], list[str]]]] = {}
    for op, types, host in kernels["GPU_CUDA"]:
        theirs.setdefault(op, []).append(({name: set(allowed) for name, allowed in types}, host))
    sources = REPOSITORY / "gpuwatch" / "sim" / "csrc"
    # Kernels for CUDA that run here as they are, and ops whose CPU kernels serve.
    host_code = _names((sources / "plugin_rename.c").read_text().split("host_code[] =")[1].split(";")[0])
    served = _names((sources / "plugin_cpu_kernels.h").read_text().split("cpu_kernels[] =")[1])
    added = [kernel for kernel in kernels["GPU"] if kernel[0] not in host_code]
    # TensorFlow's own for any device have more in host memory than those for CUDA.
    added += [
        (op, types, host)
        for op, types, host in kernels["DEFAULT"]
        if op in served and any(host == other_host for _, other_host in theirs.get(op, []))
    ]
    extra = []
    for op, types, host in added:
        ours = {name: set(allowed) for name, allowed in types}
        fits = any(
            host == other_host and all(ours.get(name, allowed) <= allowed for name, allowed in other.items())
            for other, other_host in theirs.get(op, [])
        )
        if not fits:
            extra.append((op, types, host))
    assert len(added) > 2000
    assert extra == []


def _names(source: str) -> set[str]:
    """The names in the C strings of a source."""
    return {name for text in re.findall(r'"([^"]*)"', source) for name in text.split()}
