"""Which words tell the framework or program that printed a line."""

from __future__ import annotations

FRAMEWORK_WORDS = (
    (":tensorflow:", "tensorflow"),
    ("torch", "pytorch"),
    ("runtimeerror: cudnn error: ", "pytorch"),
    ("cuda error: cublas_", "pytorch"),
    ("cuda error: cusolver", "pytorch"),
    ("cuda error: cusparse", "pytorch"),
    ("jax", "jax"),
    ("external/xla/xla/", "jax"),
    ("onnxruntime", "onnxruntime"),
    ("cupy", "cupy"),
    ("numba", "numba"),
    ("bitsandbytes", "bitsandbytes"),
    ("cuda_setup", "bitsandbytes"),
    ("cuda setup", "bitsandbytes"),
    ("vllm", "vllm"),
    ("ggml", "llama.cpp"),
    *((word, "llama.cpp") for word in ("llama.cpp", "llama_model_load", "llama_kv", "llama_context", "llama-server")),
    *((word, "llama.cpp") for word in ("llama_new_context", "llama_init", "llama-cpp", "llama_cpp", "llama runner")),
    ("comfyui", "comfyui"),
    ("sglang", "sglang"),
    ("ctranslate2", "ctranslate2"),
    ("paddle", "paddlepaddle"),
    ("mxnet", "mxnet"),
    ("caffe", "caffe"),
    ("darknet", "darknet"),
)
"""Words of a relevant line, in lower case, to the name that findings use."""
