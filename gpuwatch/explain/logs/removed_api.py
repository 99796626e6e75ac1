"""Calls that TensorFlow 2 and Keras 3 no longer have, by the error that they end in, and what replaces them.

Sources: ``tensorflow1_names.txt``, the public names of ``tf.compat.v1`` that ``tf`` lacks (TensorFlow 2.21; one module
a line); release notes of TensorFlow 2.0, 2.4 and 2.16; Keras's guide "Migrating Keras 2 code to multi-backend Keras 3".
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple


class RemovedApi(NamedTuple):
    """What the code uses, as its programmer writes it, and what to do instead."""

    name: str
    action: str


_KERAS_2_ADVICE = (
    "Newer versions of Keras do not have it (Keras 3 comes with TensorFlow 2.16): pip install tf-keras and set"
    " TF_USE_LEGACY_KERAS=1 to run it unchanged, or rewrite the call (keras.io: Migrating Keras 2 code to Keras 3)."
)
_SESSIONS = "; graphs and sessions also need tf.compat.v1.disable_eager_execution() at the start"
_GRAPH_NAMES = re.compile(r"ession|placeholder|raph|nitializer|variable|collection|Optimizer|Saver")
_UPGRADE = ". tf_upgrade_v2 --infile old.py --outfile new.py rewrites most of TensorFlow 1."
_ESTIMATOR_ADVICE = "Estimators were removed in TensorFlow 2.16: rewrite it with Keras, or install 'tensorflow<2.16'."
_LEGACY = ", and with TensorFlow 2.16 or later only with pip install tf-keras and TF_USE_LEGACY_KERAS=1"
"""Tried with TensorFlow 2.16 and 2.21: else "`dense` is not available with Keras 3"."""
_STRATEGY_ADVICE = "Use tf.distribute.MirroredStrategy() and its scope()."
_ADVICE_BY_NAME = {
    "contrib": "It moved to tf.*, tf-slim or TensorFlow Addons, or was dropped: rewrite those calls. Unchanged, it "
    "runs only on TensorFlow 1.15, which needs Python 3.7 and supports no recent GPU.",
    "examples": "TensorFlow 2 does not include tutorials: read MNIST with tf.keras.datasets.mnist.load_data().",
    "estimator": _ESTIMATOR_ADVICE,
    "layers": f"Use tf.keras.layers. Unchanged it is tf.compat.v1.layers{_LEGACY}.",
    "enable_eager_execution": "TensorFlow 2 executes eagerly without it: remove the call.",
}
"""Names for which the place in ``tf.compat.v1`` is not the best advice."""
_NO_ATTRIBUTE = re.compile(r"module '(tensorflow|keras)([\w.]{0,80})' has no attribute '(\w{1,60})'")
_NO_MODULE = re.compile(r"No module named '(tensorflow|keras)\.([\w.]{1,80})")
_KERAS_2_MODULES = (
    *("engine", "objectives", "wrappers.scikit_learn", "feature_column", "layers.core", "layers.convolutional"),
    *("layers.recurrent", "layers.normalization", "layers.merge", "layers.embeddings", "layers.advanced_activations"),
    *("layers.wrappers", "layers.experimental", "layers.noise", "layers.pooling", "layers.local", "utils.np_utils"),
    *("utils.vis_utils", "utils.generic_utils", "utils.data_utils", "utils.io_utils", "utils.layer_utils"),
    *("utils.conv_utils", "backend.tensorflow_backend", "initializers.initializers_v2", "optimizers.optimizer_v2"),
    *("saving.hdf5_format", "mixed_precision.experimental"),
)
"""Modules of Keras that Keras 3 lacks (3.15)."""
_MULTI_GPU_MODULES = ("utils.training_utils", "utils.multi_gpu_utils")
_SESSION_NAMES = ("set_session", "get_session", "tensorflow_backend")
_DEVICE_NAMES = ("gpu", "GPUOptions", "ConfigProto", "per_process_gpu_memory_fraction")
_KERAS_CLASS = r"(?:Mean\w{0,60}|Sum|\w{0,60}Accuracy|\w{0,60}Crossentropy|AUC|Precision|Recall|Sequential|Functional)"
_TEXTS = (
    (re.compile(r"Argument\(s\) not recognized: \{'(lr|decay)'"), "the argument {} of a Keras optimizer"),
    (re.compile(r"Layer\.(add_variable)\(\) missing 1 required"), "{}(name, shape)"),
    (re.compile(r"initializer identifier: [\[(]\d"), "add_variable(name, shape)"),
    (re.compile(r"must end in `(\.weights\.h5)`"), "save_weights() of a file without {}"),
    (re.compile(r"keyword arguments passed to Embedding: \{'(input_length)'"), "the argument {} of Embedding"),
    (re.compile(r"Unrecognized keyword arguments: \['(batch_input_shape|weights)'"), "the argument {} of a layer"),
    (re.compile(r"ProgbarLogger\.__init__\(\) got an .* argument '(\w{1,60})'"), "the argument {} of ProgbarLogger"),
    (re.compile(r"to_categorical\(\) got an .* argument '(dtype)'"), "the argument {} of to_categorical()"),
    (re.compile(rf"'{_KERAS_CLASS}' object has no attribute '(reset_states)'"), "{}() of a Keras metric or model"),
    (
        re.compile(r"Invalid filepath extension for saving\. Please add either a `(\.keras)`"),
        "save() of a path without {}",
    ),
    (re.compile(r"Only (input tensors) may be passed as positional"), "positional arguments of a layer beside {}"),
    (re.compile(r"(A KerasTensor) cannot be used as input to a TensorFlow function"), "{} in a TensorFlow function"),
    (re.compile(r"`(\w{1,60})` is not available with Keras 3"), "{} of tf.compat.v1"),
    (re.compile(r"(Keras 3) only supports V3 `\.keras` files"), "a model file that {} cannot load"),
)
"""What Keras 3 says to code of Keras 2."""

_HINTS = (
    "has no attribute '", "no module named '", "multi_gpu_model", "not recognized: {'", "() missing 1 required",
    "initializer identifier: ", "must end in `", "keyword arguments", "a kerastensor ", "only supports v3",
    "not available with keras 3", "unexpected keyword argument '", "filepath extension for", "only input tensors may",
)  # fmt: skip


def may_name_removed_api(lower: str) -> bool:
    """Whether :func:`find_removed_api` can find something in a line, given in lower case."""
    return any(sign in lower for sign in _HINTS)


def find_removed_api(text: str) -> RemovedApi | None:
    """The call that an error names, if an installed TensorFlow or Keras has removed it; None for all other errors."""
    if (match := _NO_ATTRIBUTE.search(text)) is not None:
        return _removed_attribute(match[1], match[2].strip("."), match[3])
    if (match := _NO_MODULE.search(text)) is not None:
        return _removed_module(match[1], match[2])
    if "multi_gpu_model" in text and "cannot import name" in text:
        return RemovedApi("multi_gpu_model", _STRATEGY_ADVICE)
    for pattern, name in _TEXTS:
        if (match := pattern.search(text)) is not None:
            return RemovedApi(name.format(*match.groups()), _KERAS_2_ADVICE)
    return None


def _removed_attribute(package: str, path: str, name: str) -> RemovedApi | None:
    """``path``: ``_api.v2.train``, as a module of TensorFlow calls itself, or ``backend``."""
    path = re.sub(r"^(?:_api\.v[12]|python)\b\.?", "", path)
    if package == "keras" or path.startswith("keras"):
        if name == "multi_gpu_model":
            return RemovedApi(name, _STRATEGY_ADVICE)
        instead = f"tf.compat.v1.keras.backend{'' if name == _SESSION_NAMES[-1] else f'.{name}'}"
        action = f"Set memory and devices with tf.config. Unchanged it is {instead}{_LEGACY}."
        return RemovedApi(f"keras.backend.{name}", action) if name in _SESSION_NAMES else None
    within_v1 = path.startswith("compat.v1")
    path = path.removeprefix("compat.v1").strip(".")
    dotted = ".".join(filter(None, (path, name)))
    if not path and name in _ADVICE_BY_NAME:
        return RemovedApi(f"tf.{name}", _ADVICE_BY_NAME[name])
    if path == "config" and name in _DEVICE_NAMES:
        return RemovedApi(f"tf.{dotted}", "Use tf.config.experimental.set_memory_growth(gpu, True).")
    if within_v1 or name not in _names_of_tensorflow_1().get(path or "tf", ()):
        return None
    if dotted == "nn.rnn_cell":
        return RemovedApi("tf.nn.rnn_cell", f"Use tf.keras.layers. Unchanged it is tf.compat.v1.nn.rnn_cell{_LEGACY}.")
    sessions = _SESSIONS if _GRAPH_NAMES.search(name) else ""
    return RemovedApi(f"tf.{dotted}", f"In TensorFlow 2 it is tf.compat.v1.{dotted}{sessions}{_UPGRADE}")


def _removed_module(package: str, path: str) -> RemovedApi | None:
    head = path.partition(".")[0]
    if package == "tensorflow" and head in _ADVICE_BY_NAME:
        return RemovedApi(f"tensorflow.{head}", _ADVICE_BY_NAME[head])
    if package == "tensorflow":
        _, inside, path = f".{path}".partition(".keras.")
        if not inside:
            return None
    if path in _MULTI_GPU_MODULES:
        return RemovedApi(f"keras.{path}", _STRATEGY_ADVICE)
    if any(path == gone or path.startswith(f"{gone}.") for gone in _KERAS_2_MODULES):
        return RemovedApi(f"keras.{path}", _KERAS_2_ADVICE)
    return None


@cache
def _names_of_tensorflow_1() -> dict[str, frozenset[str]]:
    lines = Path(__file__).with_name("tensorflow1_names.txt").read_text().splitlines()[1:]
    return {module: frozenset(names.split()) for module, _, names in (line.partition(": ") for line in lines)}
