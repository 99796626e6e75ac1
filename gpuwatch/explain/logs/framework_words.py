"""Which words tell the framework or program that printed a line."""

from __future__ import annotations

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
    ("mxnet", "mxnet"), ("jax", "jax"), ("external/xla/xla/", "jax"),
    ("torch", "pytorch"), ("runtimeerror: cudnn error: ", "pytorch"), ("cuda error: cublas_", "pytorch"),
    ("cuda error: cusolver", "pytorch"), ("cuda error: cusparse", "pytorch"), (":tensorflow:", "tensorflow"),
    ("caffe", "caffe"), ("darknet", "darknet"),
)  # fmt: skip
"""Words of a relevant line, in lower case, to the name that findings use. Of several in one line the first tells which
program failed: others use PyTorch, XLA's lines look like TensorFlow's."""

NOT_BESIDE = {"whisper.cpp": "llama.cpp", "Lua Torch": "pytorch"}
"""Programs whose lines contain the words of another one, which they are not."""
