"""The frameworks of a log: the words and packages that name them, and which of them its program used."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpuwatch.explain.logs.log_facts import KERAS_WORK, LogFacts

FRAMEWORK_WORDS = (
    ("bitsandbytes", "bitsandbytes"), ("cuda_setup", "bitsandbytes"), ("cuda setup", "bitsandbytes"),
    ("csrc/ops.cu", "bitsandbytes"), ("csrc\\ops.cu", "bitsandbytes"),
    ("onnxruntime", "onnxruntime"), ("cupy", "cupy"), ("numba", "numba"), ("sglang", "sglang"), ("vllm", "vllm"),
    ("ctranslate2", "ctranslate2"), ("ggml", "llama.cpp"), ("llama.cpp", "llama.cpp"),
    ("llama_model_load", "llama.cpp"), ("llama_kv", "llama.cpp"), ("llama_context", "llama.cpp"),
    ("llama-server", "llama.cpp"), ("llama_new_context", "llama.cpp"), ("llama_init", "llama.cpp"),
    ("llama-cpp", "llama.cpp"), ("llama_cpp", "llama.cpp"), ("llama runner", "llama.cpp"), ("comfyui", "comfyui"),
    ("paddle", "paddlepaddle"), ("n_gpu: ", "pytorch"), ("whisper_", "whisper.cpp"), ("whisper.cpp", "whisper.cpp"),
    ("torch/install/", "Lua Torch"), ("cutorch", "Lua Torch"),
    ("mxnet", "mxnet"), ("jax", "jax"), ("external/xla/xla/", "jax"), ("xla/xla_client/", "pytorch"),
    ("external/org_tensorflow/", "jax"),
    ("torch", "pytorch"), ("runtimeerror: cudnn error: ", "pytorch"), ("cuda error: cublas_", "pytorch"),
    ("cuda error: cusolver", "pytorch"), ("cuda error: cusparse", "pytorch"), (":tensorflow:", "tensorflow"),
    ("caffe", "caffe"), ("darknet", "darknet"),
)  # fmt: skip
"""Words of a relevant line, in lower case, to the name that findings use. Of several in one line the first names the
program that failed: others use PyTorch, XLA's lines look like TensorFlow's."""

FRAMEWORK_OF_PACKAGE = {
    **{name: name for name in ("bitsandbytes", "comfyui", "ctranslate2", "mxnet", "onnxruntime", "sglang", "vllm")},
    **dict.fromkeys(("jax", "jaxlib", "jax_plugins"), "jax"),
    **dict.fromkeys(("cupy", "cupy_backends"), "cupy"),
    **dict.fromkeys(("numba", "numba_cuda"), "numba"),
    **dict.fromkeys(("torch", "accelerate", "lightning", "peft", "pytorch_lightning", "torchvision", "trl"), "pytorch"),
    "paddle": "paddlepaddle",
    "text_generation_server": "text-generation-inference",
}
"""Framework names, as findings use them, by Python package."""
_PACKAGE_IN_PATH = re.compile(
    r"[/\\](?:(?:site|dist)-packages[/\\](?P<package>\w{1,40})"
    r"|(?P<program>sglang|(?i:comfyui)|text_generation_server)(?:\.git)?[/\\])"
)
_PYTORCH_TEXT = re.compile(
    r"Loading checkpoint shards: |A decoder-only architecture is being used"
    r"|transformers[/\\]generation[/\\](?!tf_|flax_)"
    r"|Some weights of (?!TF|Flax)\w+ were not|transformers[/\\](?:optimization|train\w+)\.py"
)
"""Said by transformers of its models and modules for PyTorch only."""
_PYTORCH_HINTS = ("Some weights of", "Warning: ", "checkpoint shards", "A decoder-only")
"""One of these is in each line that names a framework outside tracebacks."""
_MISTAKEN_FOR = {"whisper.cpp": "llama.cpp", "Lua Torch": "pytorch"}
"""Programs whose lines contain the words of another one, which they are not."""


def packages_in(path: str) -> list[str]:
    """The names of the packages, and of programs of known frameworks, in a file's path."""
    return [found["package"] or found["program"] for found in _PACKAGE_IN_PATH.finditer(path)]


def frameworks_in(text: str) -> set[str]:
    """The frameworks of the packages that a path or a warning names."""
    named = (FRAMEWORK_OF_PACKAGE.get(name) or FRAMEWORK_OF_PACKAGE.get(name.lower()) for name in packages_in(text))
    found = {framework for framework in named if framework is not None}
    return found | {"pytorch"} if _PYTORCH_TEXT.search(text) is not None else found


def frameworks_in_warnings(lines: Iterable[str]) -> set[str]:
    """The frameworks of the packages that warnings among these lines name."""
    hints = (line for line in lines if any(words in line for words in _PYTORCH_HINTS))
    return {framework for line in hints for framework in frameworks_in(line)}


def drop_unused_frameworks(facts: LogFacts, *, placed: bool, worked: bool) -> None:
    """Drops the frameworks of a log's facts that its program did not use.

    ``placed``: TensorFlow logged where ops ran; ``worked``: the log ends at work that is not TensorFlow's.
    """
    mistaken = {_MISTAKEN_FOR.get(name) for name in facts.frameworks}
    facts.frameworks[:] = [name for name in facts.frameworks if name not in mistaken]
    others = [name for name in facts.frameworks if name != "tensorflow"]
    unused = others or (worked and not facts.errors)
    if worked and others == ["bitsandbytes"]:
        facts.frameworks[:] = others = ["pytorch"]  # its wish for another library, without which it worked
    if unused and not _used_tensorflow(facts, placed=placed, xla="jax" in others):
        facts.frameworks[:] = others


def only_imported_tensorflow(facts: LogFacts, *, placed: bool) -> bool:
    """Whether TensorFlow missed libcudart at its import, and nothing shows that the program then used it."""
    missing = facts.missing_libraries
    cudart = "cuda.missing-library" in facts.topics and all("cudart" in library for library in missing)
    started = "tensorflow.started" in facts.topics
    return cudart and not started and not facts.errors and not _used_tensorflow(facts, placed=placed)


def shows_only_tensorflow(facts: LogFacts) -> bool:
    """Whether nothing in a log shows the work of another framework than TensorFlow."""
    return not {*facts.frameworks} - {"tensorflow"} and facts.ending_kind in ("", KERAS_WORK)


def _used_tensorflow(facts: LogFacts, *, placed: bool, xla: bool = False) -> bool:
    """Whether the log shows more of TensorFlow than its import: many programs import it and never use it.

    ``xla``: JAX is there, whose lines of XLA look like TensorFlow's.
    """
    used = placed or bool(facts.libraries_skipped or facts.device_map or facts.found_device_lines)
    used = used or (facts.cuinit_error is not None and not xla)
    named = (f"{frame.file} {frame.error_package}" for frame in facts.error_frames.values())
    return used or any(re.search(r"tensorflow\b", text) for text in named)
