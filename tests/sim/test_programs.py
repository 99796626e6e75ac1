"""Programs as people write them on simulated GPUs: what needs NCCL, cuDNN or XLA goes another way, and says so."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.experiment.probing.probe_scripts import example_code, find_probes
from gpuwatch.sim.libraries import Tier
from tests.conftest import Result, gpuwatch
from tests.forked import gpuwatch_forked
from tests.sim.test_plugin import PYTHON, tensorflow
from tests.sim.test_settings import Open, answers

_NUMBERS = """
import numpy, keras
import tensorflow as tf
x = numpy.random.default_rng(1).random((64, 5, 4)).astype("float32")
y = x.sum((1, 2))[:, None]
"""
MIRRORED = (
    _NUMBERS
    + """
strategy = tf.distribute.MirroredStrategy(cross_device_ops=tf.distribute.NcclAllReduce())
with strategy.scope():
    model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)])
    model.compile("adam", "mse")
losses = model.fit(x, y, epochs=2, batch_size=16, verbose=0).history["loss"]
answer = [strategy.num_replicas_in_sync, losses[-1] < losses[0]]
"""
)
SHARED_LSTM = (
    _NUMBERS
    + """
shared, first, second = keras.layers.LSTM(4), keras.Input((5, 4)), keras.Input((5, 4))
with tf.device("/GPU:0"):
    one = shared(first)
with tf.device("/GPU:1"):
    two = shared(second)
model = keras.Model([first, second], keras.layers.Dense(1)(keras.layers.concatenate([one, two])))
model.compile("rmsprop", "mse")
losses = model.fit([x, x], y, epochs=2, verbose=0).history["loss"]
answer = [losses[-1] < losses[0], keras.layers.GRU(4)(x).device[-5:]]
"""
)
SOFT_SESSION = """
import tensorflow as tf
with tf.Graph().as_default():
    with tf.device("/device:GPU:2"):
        product = tf.matmul(tf.constant([[1.0, 2.0]]), tf.constant([[3.0], [4.0]]))
    config = tf.compat.v1.ConfigProto(allow_soft_placement=True, log_device_placement=True)
    with tf.compat.v1.Session(config=config) as session:
        answer = session.run(product).tolist()
"""
VIRTUAL_AND_MIRRORED = (
    "import tensorflow as tf\n"
    "for gpu in tf.config.list_physical_devices('GPU'):\n"
    "    part = tf.config.LogicalDeviceConfiguration(memory_limit=512)\n"
    "    tf.config.set_logical_device_configuration(gpu, [part, part])\n"
    + MIRRORED.replace("cross_device_ops=tf.distribute.NcclAllReduce()", "")
)
KINDS = {
    "mirrored": (MIRRORED, [2, True]),
    "shared-lstm": (SHARED_LSTM, [True, "GPU:0"]),
    "soft-session": (SOFT_SESSION, [[11.0]]),
    "virtual-mirrored": (VIRTUAL_AND_MIRRORED, [4, True]),
}
NO_NCCL = "gpuwatch: simulated GPUs have no NCCL: MirroredStrategy reduces on one device (ReductionToOneDevice)\n"
NO_CUDNN = "gpuwatch: simulated GPUs have no cuDNN: Keras computes LSTM and GRU layers without it\n"
NO_XLA = "gpuwatch: simulated GPUs have no XLA: Keras does not compile models by default\n"


@tensorflow
def test_programs_that_are_not_watched(sim_machine: Open) -> None:
    """The other kinds are those that are watched, below."""
    (nccl, expected), (soft, product) = KINDS["mirrored"], KINDS["soft-session"]
    found, log = answers(sim_machine("2x4GiB"), [nccl, soft])
    assert found == [expected, product], log[-4000:]
    # Once in each process that it concerns.
    assert (log.count(NO_NCCL), log.count(NO_CUDNN), log.count(NO_XLA)) == (1, 0, 0)


HIDDEN = """
import os
import tensorflow as tf
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
print(repr(tf.test.gpu_device_name()), tf.config.list_physical_devices("GPU"), tf.ones([]).device[-5:])
"""


@tensorflow
def test_gpus_hidden_after_the_import_from_a_first_look_at_devices_that_makes_them(tmp_path: Path) -> None:
    done, run = watched(tmp_path, "plugin", HIDDEN)
    assert done.out == "'' [] CPU:0\n", done.err[-3000:]
    assert run["primary"] == "visibility.hidden"
    assert not [problem for problem in run["problems"] if problem.startswith("Devices.")]


COMPILED = """
import keras, numpy
import tensorflow as tf

@tf.function(jit_compile=True)
def double(x):
    return x * 2.0

@tf.function
def outer(x):
    return double(x)

for call in (double, outer):
    try:
        call(tf.ones([4]))
    except Exception:
        pass
with tf.device("/CPU:0"):
    print(double(tf.ones([4]))[0].numpy())
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse", jit_compile=True)
model.fit(numpy.ones((64, 4), "float32"), numpy.ones((64, 1), "float32"), verbose=0)
"""
NO_XLA_NOTES = [
    "simulated GPUs have no XLA: a tf.function with jit_compile=True failed on a GPU",
    "simulated GPUs have no XLA: jit_compile=True is not honored, Keras does not compile the model",
]


@tensorflow
def test_an_explicit_jit_compile_is_told_also_if_its_error_is_caught(tmp_path: Path) -> None:
    done, run = watched(tmp_path, "plugin", COMPILED)
    assert done.code == 0, done.err[-3000:]
    (found,) = [one for one in run["findings"] if one["id"] == "simulation.limit"]
    assert (found["severity"], found["evidence"][:2]) == ("warning", NO_XLA_NOTES)
    setting = run["settings"]["jit_compile"]
    assert (setting["asked"], setting["effective"]) == (True, False)
    assert "2.0" in done.out.splitlines()  # the placer writes there too
    assert any("functions that XLA compiles" in line for line in run["problems"])
    assert ("Mul", "CPU:0") in {(one["op"], one["actual"]) for one in run["placements"]}, "within a compiled function"
    assert [done.err.count(f"gpuwatch: {note}\n") for note in NO_XLA_NOTES] == [1, 1]
    assert NO_XLA not in done.err, "it was no default"


# Watched, on both tiers

WATCHED = VIRTUAL_AND_MIRRORED + "print(answer)\n" + SHARED_LSTM.replace(_NUMBERS, "") + "print(answer)\n"
ASYNC = "import os\nos.environ['TF_GPU_ALLOCATOR'] = 'cuda_malloc_async'\n"


def spelled_out(code: str) -> str:
    """With what simulated GPUs that compute do for a program: the driver tier runs no NCCL, cuDNN or XLA either."""
    one_device = "MirroredStrategy(cross_device_ops=tf.distribute.ReductionToOneDevice())"
    code = re.sub(r"MirroredStrategy\([^\n]*", one_device, code)
    # The driver tier does not compute the comparison that would end an eager loop.
    code = code.replace("LSTM(4)", "LSTM(4, use_cudnn=False)").replace("GRU(4)", "GRU(4, use_cudnn=False, unroll=True)")
    return code.replace('"mse")', '"mse", jit_compile=False)')


def watched(folder: Path, tier: Tier, code: str, *more: str) -> tuple[Result, dict[str, Any]]:
    """What ``run --placement`` tells of a program on two simulated GPUs."""
    script, out = folder / f"{tier}.py", folder / f"{tier}.json"
    script.write_text(code)
    options = ("--placement", "-q", "--no-save", "--sim", "2x2GiB", "--sim-tier", tier, "-o", str(out))
    command = ("run", *options, *more, "--", PYTHON, str(script))
    done = gpuwatch_forked(*command, environment=dict(os.environ), timeout=900, tier=tier)
    return done, json.loads(out.read_text())


def map_of(run: dict[str, Any]) -> list[tuple[str, int, int]]:
    """Logical devices, each with its physical GPU and what it was granted in bytes."""
    return [(one["framework_device"], one["physical_index"], one["granted_bytes"]) for one in run["device_map"]]


def devices_of(run: dict[str, Any]) -> dict[tuple[str, str], set[str]]:
    """Kinds of op to where they ran, but for those without a type."""
    found: dict[tuple[str, str], set[str]] = {}
    for one in run["placements"]:
        if one["dtype"] is not None:
            found.setdefault((one["op"], one["dtype"]), set()).add(one["actual"])
    return found


def is_as_on(driver: dict[str, Any], plugin: dict[str, Any]) -> None:
    """The plugin tier maps, grants and places as the driver tier, whose TensorFlow is the code of real GPUs."""
    mapped, expected = map_of(plugin), map_of(driver)
    assert [one[:2] for one in mapped] == [one[:2] for one in expected]
    assert [one[2] for one in mapped] == pytest.approx([one[2] for one in expected], rel=0.02)
    lacking = {
        (one["op"], one["dtype"]): one["actual"]
        for one in plugin["placements"]
        if (one["gpu_kernel"], one["cuda_kernel"]) == (False, True)
    }
    here, there = devices_of(plugin), devices_of(driver)
    # TensorFlow's optimizers merge other nodes for a plug-in than for CUDA.
    both = here.keys() & there.keys()
    assert len(both) >= 0.8 * len(here.keys() | there.keys()), here.keys() ^ there.keys()
    assert {kind: here[kind] for kind in both - lacking.keys()} == {kind: there[kind] for kind in both - lacking.keys()}
    assert here
    assert set(lacking.values()) <= {"CPU:0"}, "what the simulated GPU has no kernel for"


@pytest.fixture(scope="module")
def on_plugin(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, dict[str, Any]]:
    return watched(tmp_path_factory.mktemp("plugin"), "plugin", ASYNC + WATCHED)


@tensorflow
def test_a_watched_program_has_what_was_changed_in_its_document(on_plugin: tuple[Result, dict[str, Any]]) -> None:
    done, run = on_plugin
    printed = [line for line in done.out.splitlines() if line.startswith("[")]  # the placer writes there too
    assert (done.code, printed) == (0, ["[4, True]", "[True, 'GPU:0']"]), done.err[-3000:]
    assert [done.err.count(note) for note in (NO_NCCL, NO_CUDNN, NO_XLA)] == [1, 1, 1]
    setting = run["settings"]["cross_device_ops"]
    assert (setting["asked"], setting["effective"]) == (None, "ReductionToOneDevice")
    assert "no NCCL" in setting["note"]
    # Two logical devices on each GPU, by CUDA's numbers.
    devices = run["device_map"]
    shown = [(one["framework_device"][-5:], one["cuda_ordinal"], one["granted_bytes"] >> 20) for one in devices]
    assert shown == [("GPU:0", 0, 512), ("GPU:1", 0, 512), ("GPU:2", 1, 512), ("GPU:3", 1, 512)]
    assert [one["physical_index"] for one in devices] == [0, 0, 1, 1]
    # What cannot be honoured.
    (limit,) = run["simulation_limits"]
    assert limit.startswith("cuda_malloc_async needs CUDA")
    (finding,) = [one for one in run["findings"] if one["id"] == "simulation.limit"]
    assert (finding["severity"], finding["evidence"]) == ("warning", [limit])


@tensorflow
def test_the_driver_tier_maps_and_places_alike_and_calls_its_numbers_meaningless(
    on_plugin: tuple[Result, dict[str, Any]], tmp_path: Path
) -> None:
    done, run = watched(tmp_path, "driver", spelled_out(WATCHED))
    if run["framework"]["gpu_build"] is False:
        pytest.skip("this TensorFlow has no GPUs on the driver tier")
    assert done.code == 0, done.err[-3000:]
    assert done.err.count("compute only matrix products") == 1
    (finding,) = [one for one in run["findings"] if one["id"] == "simulation.limit"]
    assert "meaningless" in finding["title"]
    is_as_on(run, on_plugin[1])


@tensorflow
def test_memory_is_recorded_without_cupti(tmp_path: Path) -> None:
    """TensorFlow's profiler opens it for GPUs unless an option says otherwise; it writes to the program's log."""
    done, run = watched(
        tmp_path, "driver", "import tensorflow as tf\na = tf.constant([[1.0] * 64] * 64)\na @ a\n", "--memory"
    )
    if run["framework"]["gpu_build"] is False:
        pytest.skip("this TensorFlow has no GPUs on the driver tier")
    assert run["memory_profiles"], run["problems"]
    assert "cupti" not in done.err


# All of them


RECIPES = {f"recipe-{name}": one for name, one in find_probes().items() if one.framework == "tensorflow"}


@pytest.mark.long
@pytest.mark.timeout(1800)
@tensorflow
@pytest.mark.parametrize("command", ["sim", "run"])
@pytest.mark.parametrize("name", [*KINDS, *RECIPES])
def test_every_recipe_and_every_kind(name: str, command: str, tmp_path: Path) -> None:
    """From nothing, as a user pastes and starts it: none ends in an error but those that are about one."""
    script, out = tmp_path / "pasted.py", tmp_path / "run.json"
    script.write_text(KINDS[name][0] if name in KINDS else example_code(RECIPES[name]))
    more = ("-q", "--no-save", "-o", str(out)) if command == "run" else ()
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "1"}
    done = gpuwatch(command, *more, "--sim", "2x24GiB", "--", PYTHON, str(script), environment=environment, timeout=900)
    assert done.code == 0, done.err[-3000:]
    if command == "run":
        run = json.loads(out.read_text())
        assert run["verdict"] in ("ok", "fallback", "oom"), run["verdict_reason"]
        assert run["simulation"] == "plugin"


@pytest.mark.long
@pytest.mark.timeout(1800)
@tensorflow
@pytest.mark.parametrize("name", KINDS)
def test_every_kind_is_mapped_and_placed_as_on_the_driver_tier(name: str, tmp_path: Path) -> None:
    code = KINDS[name][0]
    done, driver = watched(tmp_path, "driver", spelled_out(code))
    if driver["framework"]["gpu_build"] is False:
        pytest.skip("this TensorFlow has no GPUs on the driver tier")
    assert done.code == 0, done.err[-3000:]
    done, plugin = watched(tmp_path, "plugin", code)
    assert done.code == 0, done.err[-3000:]
    is_as_on(driver, plugin)
