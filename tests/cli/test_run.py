"""``gpuwatch run``: the program's own output and end are untouched, and the run tells what happened."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gpuwatch.cli.run import _is_interactive
from gpuwatch.sim.machine_shape import SimShape
from gpuwatch.sim.simulated_machine import SimMachine
from tests.conftest import gpuwatch, has_cuda_wheel, has_driver
from tests.forked import gpuwatch_forked, python_forked, run_gpuwatch
from tests.terminal import Terminal, wait_until_ended

_KERAS = """
import tensorflow as tf
tf.keras.utils.set_random_seed(1)
model = tf.keras.Sequential([tf.keras.layers.Dense(32, activation="relu"), tf.keras.layers.Dense(1)])
model.compile(optimizer="sgd", loss="mse")
x = tf.random.stateless_uniform([4096, 8], seed=[1, 2])
history = model.fit(x, x[:, :1] * 2, batch_size=32, epochs=3, verbose=2)
print("loss", round(history.history["loss"][-1], 4))
"""


def watched(*command: str, **keywords: Any) -> subprocess.CompletedProcess[bytes]:
    return run_gpuwatch("run", "-q", *command, **keywords)


@pytest.mark.parametrize(
    "code",
    [
        "import sys; sys.stdout.write('no newline'); sys.stderr.write('nor here'); sys.exit(7)",
        "import os; os.write(1, bytes(range(256)) * 400); os.write(2, bytes(range(256)) * 400)",
        "import sys; print(sys.stdin.read().upper(), sys.argv, sys.flags.ignore_environment)",
        "raise ValueError('seen')",
        "import sys; print(sys.path, sys.flags, [name for name in sys.modules if 'gpuwatch' in name])",
        "import os, subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1)'], check=True)",
        "import threading; print(threading.main_thread().name)",
    ],
)
def test_output_and_exit_code_are_the_programs_own(code: str) -> None:
    command = [sys.executable, "-c", code, "--seconds", "-o"]
    alone = subprocess.run(command, input=b"some input", capture_output=True, check=False)
    seen = watched("--", *command, input=b"some input")
    assert (seen.stdout, seen.stderr, seen.returncode) == (alone.stdout, alone.stderr, alone.returncode)


def test_a_sitecustomize_of_the_users_own_still_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nif sys.orig_argv[1] == '-c': print('mine')")
    seen = watched("--", sys.executable, "-c", "import sitecustomize", env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert (seen.stdout, seen.stderr) == (b"mine\n", b"")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGABRT])
def test_a_signal_that_ends_the_program_ends_us_the_same_way(number: signal.Signals, tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    code = f"import os, resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); os.kill(os.getpid(), {int(number)})"
    seen = watched("-o", str(out), "--", sys.executable, "-c", code)
    assert seen.returncode == -number
    run = json.loads(out.read_text())
    assert run["outcome"]["signal"] == number
    assert run["verdict"] == "error"
    (found,) = run["findings"]
    assert (found["id"], found["severity"]) == ("unknown", "error")
    assert signal.Signals(number).name in found["title"]
    if number == signal.SIGKILL:
        assert run["host_memory"]["peak_bytes"] > 1 << 20


def test_a_signal_to_us_is_the_programs_to_handle(tmp_path: Path) -> None:
    code = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('saving'), sys.exit(3)))\n"
        "print('ready', flush=True); time.sleep(60)"
    )
    started = subprocess.Popen(
        [sys.executable, "-m", "gpuwatch", "run", "-q", "--", sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert started.stdout is not None
    assert started.stdout.readline() == "ready\n"
    started.send_signal(signal.SIGTERM)
    assert started.stdout.read() == "saving\n"
    assert started.wait(10) == 3


def test_nothing_keeps_running_if_gpuwatch_is_killed() -> None:
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    started = subprocess.Popen(
        [sys.executable, "-m", "gpuwatch", "run", "--", sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    )
    assert started.stdout is not None
    pid = int(started.stdout.readline())
    started.kill()
    started.wait()
    wait_until_ended(pid)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run"], "no command to run"),
        (["run", "--", ""], "the command is empty"),
        (["run", "--json", "--", "true"], "--json needs -o"),
        (["run", "-o", "/nonexistent/x.json", "--", "true"], "its folder does not exist"),
    ],
)
def test_bad_input(arguments: list[str], says: str) -> None:
    result = gpuwatch(*arguments)
    assert (result.code, result.out) == (2, "")
    assert result.err.count("\n") == 1
    assert says in result.err


@pytest.mark.parametrize(
    ("command", "by_hand"),
    [
        ("less train.log", True),
        ("bash", True),
        ("/bin/zsh -l", True),
        ("bash --norc -i", True),
        ("bash train.sh", False),
        ("bash -c train", False),
        ("sh -ec train", False),
        ("python train.py", False),
    ],
)
def test_interactive_programs_keep_their_terminal(command: str, by_hand: bool) -> None:
    assert _is_interactive(command.split()) is by_hand


def test_keys_reach_an_interactive_shell() -> None:
    terminal = Terminal([sys.executable, "-m", "gpuwatch", "run", "--no-save", "--", "sh"], os.environ)
    try:
        terminal.drain(20, lambda seen: b"is interactive" in seen)
        terminal.keys("test -t 2 && echo it is $((6 * 7))\nexit 5\n")
        terminal.drain(20, lambda seen: b"it is 42" in seen)
        assert b"it is 42" in terminal.output
    finally:
        assert terminal.close() == 5


def test_helpers_that_end_with_their_program_are_not_left_behind(tmp_path: Path) -> None:
    output = tmp_path / "run.json"
    lasting = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep({})'])"
    for seconds, left in ((0.05, 0), (5, 1)):
        command = ["run", "-q", "--no-save", "-o", str(output), "--", sys.executable, "-c", lasting.format(seconds)]
        assert gpuwatch(*command).code == 0
        assert json.loads(output.read_text())["left_behind"] == left


# Variables on either side, a function within a function, and ops without a kernel; nothing that a GPU lacks.
_PLACED = """
with tf.device("/CPU:0"):
    on_cpu = tf.Variable([[1.0, 2.0], [3.0, 4.0]])
    lying = tf.constant([[1.0, 2.0], [3.0, 4.0]])
with tf.device("/GPU:0"):
    on_gpu = tf.Variable([[1.0, 2.0], [3.0, 4.0]])
    product = lying * 2.0

@tf.function
def inner(x):
    with tf.device("/GPU:0"):
        return x - on_cpu * on_gpu

@tf.function
def outer(x, n):
    with tf.device("/GPU:0"):
        text, rest = tf.strings.as_string(n), tf.tile(tf.cast([n], tf.float16), [2])
    with tf.device("/CPU:0"):
        x = x - 2.0
    return inner(x) - inner(x + 1.0), text, rest

outer(product, tf.constant(7, tf.int64))
"""


@pytest.mark.tensorflow
def test_an_unadapted_keras_training_runs_on_a_simulated_gpu(
    sim_machine: Callable[[str], SimMachine], tmp_path: Path
) -> None:
    script, out = tmp_path / "train.py", tmp_path / "run.json"
    script.write_text(_KERAS + _PLACED)
    environment = sim_machine("1x2GiB").environment(os.environ, tier="plugin")
    command = ("run", "-q", "--placement", "-o", str(out), "--", sys.executable, str(script))
    seen = gpuwatch_forked(*command, environment=environment)
    assert seen.code == 0, seen.err[-2000:]
    run = json.loads(out.read_text())
    cuda = run["framework"]["gpu_build"]
    assert (run["verdict"], run["simulation"]) == ("fallback" if cuda else "ok", "plugin")
    assert run["device_map"][0]["physical_index"] == 0
    assert run["throughput"]["steps"] == 3 * 4096 // 32
    assert run["memory"]["allocators"]["/device:GPU:0"] > 0
    assert run["memory"]["devices"][0]["process_bytes"] > 0
    assert run["settings"]["jit_compile"]["effective"] is False
    # What Keras itself asks for is no request of the program's; ops on variables follow them.
    fallen = {(entry["op"], entry["dtype"], entry["reason"]) for entry in run["fallbacks"]}
    assert fallen == {
        ("Tile", "float16", "simulation.limit"),
        # No type of it has a GPU kernel in CUDA builds, so none is named.
        ("AsString", None, "placement.no-kernel") if cuda else ("AsString", "string", "simulation.limit"),
    }
    assert run["placement_coverage"]["unclear"] < 0.2 * run["placement_coverage"]["nodes"]
    placed = {(p["op"], p["dtype"], p["requested"], p["actual"]) for p in run["placements"]}
    assert {
        ("MatMul", "float32", None, "GPU:0"),
        ("Sub", "float32", "CPU:0", "CPU:0"),
        ("Sub", "float32", "GPU:0", "GPU:0"),
        ("Sub", "float32", None, "GPU:0"),
        ("ReadVariableOp", "float32", None, "CPU:0"),
        ("ReadVariableOp", "float32", None, "GPU:0"),
    } <= placed
    assert ("ReadVariableOp", "float32", "GPU:0", "CPU:0") not in placed
    copied = {(entry["op"], entry["source"], entry["destination"]) for entry in run["copies"]}
    assert ("Mul", "CPU:0", "GPU:0") in copied
    assert "GPU_CUDA" not in out.read_text()


# What a program can see of TensorFlow's own: signatures, tracebacks, warnings; and settings of each kind.
_SETTINGS = """
import inspect, os, traceback, warnings
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["TF_GPU_HOST_MEM_LIMIT_IN_MB"] = "4096"
import tensorflow as tf
v1 = tf.compat.v1
gpus = tf.config.list_physical_devices("GPU")

def caught(call):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            call()
        except Exception:
            print(traceback.format_exc())
    print([(str(one.message)[:60], one.filename, one.lineno) for one in seen])

with v1.Session(config=v1.ConfigProto(device_count={"GPU": 0}, gpu_options=v1.GPUOptions(allow_growth=True))): pass
tf.config.set_visible_devices(gpus[:1], "GPU")
tf.config.set_logical_device_configuration(gpus[0], [tf.config.LogicalDeviceConfiguration(memory_limit=512)])
tf.config.set_soft_device_placement(True)
print([device.name for device in tf.config.list_logical_devices()])
caught(lambda: tf.config.set_visible_devices([], "GPU"))
caught(lambda: tf.config.set_visible_devices("nonsense"))
caught(lambda: tf.config.experimental.set_memory_growth(gpus[1], True))
caught(lambda: tf.config.set_logical_device_configuration(gpus[1], [tf.config.LogicalDeviceConfiguration()]))
caught(lambda: v1.Session(config="nonsense"))
caught(lambda: v1.Session("nonsense://"))
caught(lambda: tf.device("nonsense").__enter__())
caught(lambda: tf.constant([1.0]) + tf.constant(["a"]))
caught(lambda: v1.Session().run("nothing"))
for one in (tf.config.set_visible_devices, tf.config.experimental.set_memory_growth, v1.Session, v1.Session.__init__,
            tf.config.set_logical_device_configuration, tf.device, tf.config.set_soft_device_placement):
    print(inspect.signature(one), one.__module__, one.__qualname__)
"""


@pytest.mark.tensorflow
def test_settings_of_a_program_are_recorded_without_traces(
    sim_machine: Callable[[str], SimMachine], tmp_path: Path
) -> None:
    script, out = tmp_path / "train.py", tmp_path / "run.json"
    script.write_text(_SETTINGS)
    environment = sim_machine("2x2GiB").environment(os.environ, tier="plugin")
    environment["TF_FORCE_GPU_ALLOW_GROWTH"] = "false"
    alone = python_forked(str(script), environment=environment, imported_with=environment)
    command = ("run", "-q", "--placement", "-o", str(out), "--", sys.executable, str(script))
    seen = gpuwatch_forked(*command, environment=environment)
    assert alone.code == seen.code == 0
    # Where an object lies differs from run to run. What --placement switches on is logged, to stdout too, and is a
    # setting of sessions that their errors print.
    ours = r"0x[0-9a-f]+|\{target: .*|^\S+: \(\w+\): /job:\S+\n"
    traces = [re.sub(ours, "", each.out, flags=re.MULTILINE) for each in (alone, seen)]
    assert traces[1].splitlines() == traces[0].splitlines()
    assert traces[0].count("Traceback") >= 7
    line = {name: script.read_text()[: script.read_text().index(name)].count("\n") + 1 for name in _CALLS}
    settings = json.loads(out.read_text())["settings"]
    told = {name: (one["asked"], one["effective"], one["source"]) for name, one in settings.items()}
    assert told["TF_FORCE_GPU_ALLOW_GROWTH"] == ("false", False, "environment")
    assert told["TF_GPU_HOST_MEM_LIMIT_IN_MB"] == ("4096", None, f"train.py:{line['TF_GPU_HOST_MEM']}")
    assert told["memory_limit"] == (512, 512, f"train.py:{line['tf.config.set_logical_device']}")
    assert told["soft placement"] == (True, True, f"train.py:{line['tf.config.set_soft']}")
    # The last word, which came too late: what TensorFlow has is another.
    assert told["visible devices"] == ([], ["/physical_device:GPU:0"], f"train.py:{line['caught(lambda: tf.config']}")
    growth = settings["memory growth"]
    assert (growth["asked"], growth["effective"]) == (True, False)
    assert "TF_FORCE_GPU_ALLOW_GROWTH" in growth["note"]
    assert told["allow_growth"][2] == f"train.py:{line['with v1.Session']}"
    # The program caught the errors: only a comparison of what it asked for with what TensorFlow has tells.
    findings = json.loads(out.read_text())["findings"]
    lost = {one["id"]: one["title"] for one in findings if one["id"].startswith("config")}
    assert lost["config.too-late"].endswith(": visible devices")
    assert lost["config.inconsistent"].startswith("TF_FORCE_GPU_ALLOW_GROWTH=")


_CALLS = (
    "TF_GPU_HOST_MEM",
    "tf.config.set_logical_device",
    "tf.config.set_soft",
    "caught(lambda: tf.config",
    "with v1.Session",
)

_ENVIRONMENT = """
import copy, os, traceback

def caught(call):
    try:
        call()
    except Exception:
        print(traceback.format_exc())

os.environ["TF_GPU_ALLOCATOR"] = "x"
os.environ.update(CUDA_VISIBLE_DEVICES="1")
os.environ.setdefault("XLA_FLAGS", "y")
os.environb[b"TF_XLA_FLAGS"] = b"z"
del os.environ["TF_GPU_ALLOCATOR"]
caught(lambda: os.environ.__setitem__("TF_A", 3))
caught(lambda: os.environ.__setitem__("TF_A", "a\\0b"))
caught(lambda: os.environ["TF_A"])
print(sorted(name for name in os.environ if name[:3] in ("CUD", "XLA", "TF_")))
print(os.popen("echo $CUDA_VISIBLE_DEVICES $TF_XLA_FLAGS").read())
print(type(os.environ), os.environ.copy() == dict(os.environ), type(os.environ | {}))
"""


def test_a_program_that_sets_variables_has_its_own_tracebacks(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(_ENVIRONMENT)
    command = [sys.executable, str(script)]
    alone = subprocess.run(command, capture_output=True, check=True)
    assert watched("--no-save", "--", *command).stdout == alone.stdout
    assert alone.stdout.count(b"Traceback") == 3


_ONLY_SESSIONS = """
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
import tensorflow as tf
v1 = tf.compat.v1
v1.disable_eager_execution()
options = v1.GPUOptions(per_process_gpu_memory_fraction=0.25, visible_device_list="1")
with v1.Session(config=v1.ConfigProto(gpu_options=options)) as session:
    print(session.run(tf.matmul([[1.0]], [[2.0]])))
"""


@pytest.mark.tensorflow
def test_a_program_of_sessions_without_a_log_has_its_devices(
    sim_machine: Callable[[str], SimMachine], tmp_path: Path
) -> None:
    script, out = tmp_path / "train.py", tmp_path / "run.json"
    script.write_text(_ONLY_SESSIONS)
    environment = sim_machine("2x2GiB").environment(os.environ, tier="plugin")
    seen = gpuwatch_forked("run", "-q", "-o", str(out), "--", sys.executable, str(script), environment=environment)
    assert seen.code == 0, seen.err[-2000:]
    run = json.loads(out.read_text())
    (device,) = run["device_map"]
    assert (device["cuda_ordinal"], device["physical_index"], device["granted_bytes"]) == (1, 1, 512 << 20)
    told = {name: (one["asked"], one["effective"], one["note"], one["source"]) for name, one in run["settings"].items()}
    assert told["TF_FORCE_GPU_ALLOW_GROWTH"] == ("true", True, "", "train.py:4")
    assert told["visible_device_list"] == ("1", "1", "", "train.py:9")
    assert told["per_process_gpu_memory_fraction"] == (0.25, None, "granted: GPU:0 512 MiB", "train.py:9")


_BAR = """
import os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf
tf.keras.utils.set_random_seed(1)
model = tf.keras.Sequential([tf.keras.layers.Dense(32, activation="relu"), tf.keras.layers.Dense(1)])
model.compile(optimizer="sgd", loss="mse", jit_compile=False)
x = tf.random.stateless_uniform([2048, 8], seed=[1, 2])
model.fit(x, x[:, :1] * 2, batch_size=32, epochs=2, verbose=1)
print(sys.stdout.isatty(), sys.stderr.isatty(), file=sys.stderr)
"""


def _without_times(shown: bytes) -> list[bytes]:
    """The last state of each line: how often a bar is drawn, and its times, differ from run to run."""
    lines = [line.rstrip(b"\r").rpartition(b"\r")[2] for line in shown.split(b"\n")]
    lines = [line.rpartition(b"\x08")[2] for line in lines if b"absl::InitializeLog" not in line]
    return [
        re.sub(rb"[\d.]+ ?(?:ms|us|s)\b", b"T", line).rstrip() for line in lines if not re.match(rb"[IWE]0000 ", line)
    ]


class Bars(NamedTuple):
    """What a training printed alone and watched, in the same kind of output, and the run."""

    alone: bytes
    seen: bytes
    run: dict[str, Any]


@pytest.fixture(scope="module")
def in_terminals(tmp_path_factory: pytest.TempPathFactory) -> Bars:
    return _bars(tmp_path_factory.mktemp("bars"), _in_a_terminal)


def _bars(folder: Path, shown: Callable[[list[str], dict[str, str]], bytes]) -> Bars:
    script, out = folder / "train.py", folder / "run.json"
    script.write_text(_BAR)
    alone = [sys.executable, str(script)]
    watched = [sys.executable, "-m", "gpuwatch", "run", "-q", "--no-live", "--no-save", "-o", str(out), "--", *alone]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
    return Bars(shown(alone, environment), shown(watched, environment), json.loads(out.read_text()))


def _in_a_terminal(command: list[str], environment: dict[str, str]) -> bytes:
    shown = Terminal(command, environment, columns=120, rows=40)
    assert shown.close(60) == 0
    return bytes(shown.output)


def _in_pipes(command: list[str], environment: dict[str, str]) -> bytes:
    done = subprocess.run(command, capture_output=True, check=True, env=environment)
    return done.stderr + done.stdout


@pytest.mark.tensorflow
def test_the_bar_of_keras_is_the_same(in_terminals: Bars) -> None:
    assert _without_times(in_terminals.seen) == _without_times(in_terminals.alone)
    assert b"True True" in in_terminals.seen
    assert b"loss" in in_terminals.seen


@pytest.mark.tensorflow
@pytest.mark.long
def test_the_bar_of_keras_is_the_same_in_pipes(tmp_path: Path) -> None:
    bars = _bars(tmp_path, _in_pipes)
    assert _without_times(bars.seen) == _without_times(bars.alone)
    assert b"False False" in bars.seen
    assert b"loss" in bars.seen


@pytest.mark.tensorflow
def test_a_keras_training(in_terminals: Bars) -> None:
    run = in_terminals.run
    assert run["framework"]["version"]
    assert run["throughput"]["steps"] == 2 * 2048 // 32
    assert run["throughput"]["steps_per_second"] > 1
    assert run["outcome"]["exit_code"] == 0
    assert run["throughput"]["counted"] == "batches of Keras"
    assert run["step_times"][-1]["number"] == run["throughput"]["steps"]
    assert 0 < run["step_times"][0]["t"] < run["step_times"][-1]["t"] < run["phases"]["total_seconds"]
    assert run["primary"] == ("visibility.hidden" if has_driver() else "driver.missing")
    assert run["verdict"] == "fallback"
    assert run["verdict_reason"].startswith("All of it ran on the CPU: ")


_ON_A_GPU = """
import os, time
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf
with tf.device("/GPU:0"):
    tf.strings.join(["a", "b"])
with tf.device("/GPU:7"):
    tf.random.uniform([4, 4]) + 1.0
a = tf.random.uniform([256, 256])
print(tf.matmul(a, a).device)
time.sleep(0.8)
"""


@pytest.fixture(scope="module")
def on_a_gpu(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The run of a program on a simulated GPU."""
    out = tmp_path_factory.mktemp("run") / "run.json"
    machine = SimMachine.open(SimShape.parse("1x4GiB"), name=f"test-{uuid.uuid4().hex[:12]}")
    # Nothing but the program's own doing makes gpuwatch look: the clock is far from it.
    command = ("run", "-q", "--placement", "--interval", "60", "-o", str(out), "--", sys.executable, "-c", _ON_A_GPU)
    try:
        seen = gpuwatch_forked(*command, environment=machine.environment(os.environ))
    finally:
        machine.remove()
    assert seen.code == 0, seen.err
    assert "GPU:0" in seen.out
    run: dict[str, Any] = json.loads(out.read_text())
    return run


@pytest.mark.tensorflow
@pytest.mark.skipif(not has_cuda_wheel(), reason="no CUDA build of TensorFlow here")
def test_ops_that_fell_back_are_named_with_their_reason(on_a_gpu: dict[str, Any]) -> None:
    assert on_a_gpu["verdict"] == "fallback"
    found = {(entry["op"], entry["requested"]): (entry["actual"], entry["reason"]) for entry in on_a_gpu["fallbacks"]}
    assert found["StringJoin", "GPU:0"] == ("CPU:0", "placement.no-kernel")
    assert found["RandomUniform", "GPU:7"] == ("GPU:0", "placement.device-missing")


@pytest.mark.tensorflow
@pytest.mark.skipif(not has_cuda_wheel(), reason="no CUDA build of TensorFlow here")
def test_what_it_held_on_the_gpu(on_a_gpu: dict[str, Any]) -> None:
    (device,) = on_a_gpu["device_map"]
    assert device["uuid"].startswith("GPU-")
    assert on_a_gpu["memory"]["nvml_peak_bytes"] > 2 * 2**30
    assert 0 < on_a_gpu["memory"]["allocator_peak_bytes"] < 2**24
    assert any(p["op"] == "MatMul" and p["actual"].endswith("GPU:0") for p in on_a_gpu["placements"])
