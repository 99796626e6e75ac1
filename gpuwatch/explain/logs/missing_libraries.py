"""Libraries of CUDA that a message says could not be loaded, whichever framework or loader printed it."""

from __future__ import annotations

import re

from gpuwatch.core.parsing import lazy

_TENSORFLOW_LIBRARY = lazy(r"[Cc]ould(?: not load dynamic library|n't open CUDA library) '?([^\s';]+)'?")
# The loader's message may be translated; the exception around it is not.
_LOADER_MESSAGE = lazy(
    r"(?:^|[\s:'\"(])(lib(?:cu|nccl|nv)[\w-]{0,60}\.so[.\d]*): cannot open shared object"
    r"|(?:ImportError|OSError): (lib(?:cu|nccl|nv)[\w-]{0,60}\.so[.\d]*): "
)
_LIBRARY_FILE = r"((?:lib)?[\w+-]{1,60}\.(?:so[.\d]{0,20}|dll|dylib))(?![\w])"
# Files that cuDNN, PaddlePaddle, CTranslate2, CuPy, bitsandbytes or JAX could not load.
_NOT_LOADED = lazy(
    rf"(?:could not|cannot|can't|couldn't|unable to|failed to) (?:load|locate|find|open)(?: the)?(?: dynamic)?"
    rf"(?: shared)?(?: library| object| any of)?:? [{{'\"]?{_LIBRARY_FILE}"
    rf"|library '?{_LIBRARY_FILE}'? (?:is |was )?not found"
    rf"|required library version not found: {_LIBRARY_FILE}"
    rf"|{_LIBRARY_FILE} not found in any environmental path",
    re.IGNORECASE,
)
_DLL = lazy(
    r"Could not find '([\w.-]+\.dll)'"
    r"|WinError 12[67]\].{0,200}?Error loading [\"\u201c][^\"\u201c\u201d]{0,300}?([\w.-]{1,100}\.dll)[\"\u201d]",
    re.IGNORECASE,
)
_CUDA_LIBRARY = lazy(r"^(?:lib)?(?:cu|nv|nccl|libdevice|bitsandbytes_cuda|onnxruntime_providers_)|cuda", re.IGNORECASE)
"""Libraries of CUDA and the driver, or linked against them."""
_DLERROR = lazy(r"dlerror: ([^\s:;]+\.so[.\d]*): cannot open shared object")
_LIBDEVICE_MESSAGE = lazy(r"(?:libdevice not found at|was not found at|Can't find) (?:\S{0,300}/)?(libdevice[\w.]*bc)")
# TensorFlow 0.x
_TENSORFLOW_0_DSO = lazy(r"Unable to load (cu[A-Za-z]{2,10}) DSO")
LIBDEVICE = "libdevice.10.bc"
"""The file that XLA searches for (its name since CUDA 9)."""
_OPTIONAL_LIBRARIES = ("libnvinfer", "nvinfer", "libnccl-", "libnvidia-gtk", "libnvidia-cfg")
"""TensorRT, plug-ins of NCCL (libnccl-net.so, libnccl-tuner.so), and libraries of nvidia-settings and
nvidia-persistenced: GPUs work without them."""


def missing_libraries(message: str) -> list[str]:
    """Libraries that could not be loaded; a dlerror in the line may name a second one."""
    names = []
    if match := _TENSORFLOW_LIBRARY.search(message):
        names.append(match[1].rstrip(".,"))
        if (second := _DLERROR.search(message)) and second[1] not in names:
            names.append(second[1])
    elif match := _LIBDEVICE_MESSAGE.search(message):
        names.append(match[1])
    elif "Unable to load NCCL library" in message:  # nccl_stub.cc of TensorFlow
        names.append("libnccl.so.2")
    elif match := _DLL.search(message):
        names += [name for name in match.groups() if name and _CUDA_LIBRARY.search(name)]
    else:
        if match := _NOT_LOADED.search(message):
            names += [name.rstrip(".") for name in match.groups() if name and _CUDA_LIBRARY.search(name)]
        elif match := _TENSORFLOW_0_DSO.search(message):
            names.append(f"lib{match[1].lower()}.so")
        if (match := _LOADER_MESSAGE.search(message)) and (match[1] or match[2]) not in names:
            names.append(match[1] or match[2])
    return [name for name in names if not name.startswith(_OPTIONAL_LIBRARIES)]
