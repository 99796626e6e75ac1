"""Which CUDA version a library or a TensorFlow wheel belongs to, and how to install missing libraries.

Source: file names in NVIDIA's toolkits, and TensorFlow's table "Tested build configurations". Its wheels include CUDA
(``[and-cuda]``) since 2.14; a build for CUDA 10 or another major version cannot use those.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpuwatch.explain.diagnosis.reference.advice_table import TENSORFLOW, libraries_advice
from gpuwatch.explain.logs.missing_libraries import LIBDEVICE

_WHEEL = 'pip install "tensorflow[and-cuda]"'
_RELEASE = re.compile(r"\d+\.\d+\.\d+")
_PLAIN_PATH = re.compile(r"[\w./+@-]+")
"""An interpreter's path that needs no quoting in a shell."""
_FIRST_WITH_WHEELS = (2, 14)
_FIRST_CUDA_WITH_WHEELS = 12
_CUDART_OR_CUBLAS = re.compile(r"(?:lib)?(cudart|cublas|cublasLt)(?:\.so\.|64_)(\d{1,3})(?:\.(\d))?")
_OTHER_LIBRARY = re.compile(r"lib(?:cufft|curand|cusolver|cusparse|cupti)\.so\.(\d{1,2})\.(\d)")
_NEEDED_BY = {
    "8": "1.0 to 1.4", "9": "1.5 to 1.12", "10": "1.13 to 2.3", "10.0": "1.13 to 2.0", "10.1": "2.1 to 2.3",
    "11": "2.4 to 2.14",
}  # fmt: skip
_LATEST_TENSORFLOW_MINOR = 21
"""Minor version of the latest TensorFlow 2.x release whose CUDA is known here."""
_LIBDEVICE_ADVICE = (
    "Install nvidia-cuda-nvcc for the same CUDA (tensorflow[and-cuda] and jax[cuda12] include it), or set"
    " XLA_FLAGS=--xla_gpu_cuda_data_dir= to the folder of a CUDA toolkit that contains nvvm/libdevice."
)


def cuda_version_of(names: Iterable[str]) -> str | None:
    """``10.0`` for libcudart.so.10.0, ``12`` for libcublas.so.12; None if no name tells.

    Sonames of CUDA 11 and later only have the major version; cuDNN's have none of CUDA.
    """
    for name in names:
        match = _CUDART_OR_CUBLAS.search(name)
        if match is not None:
            number, minor = match[2], match[3]
            if (minor is None and len(number) == 3) or (minor is None and number in ("80", "90")):
                number, minor = number[:-1], number[-1]  # cudart64_101.dll
        elif (match := _OTHER_LIBRARY.search(name)) is not None:
            number, minor = match[1], match[2]
        else:
            continue
        return number if int(number) >= 11 or minor is None else f"{number}.{minor}"
    return None


def cuda_of_tensorflow_wheel(version: str | None) -> int | None:
    """The CUDA major version of TensorFlow's wheel ("Tested build configurations"); None if unknown."""
    match = re.match(r"2\.(\d+)(?:\.|$)", version or "")
    minor = int(match[1]) if match else None
    if minor is None or not 4 <= minor <= _LATEST_TENSORFLOW_MINOR:
        return None
    return 11 if minor <= 14 else 12


def install_advice(
    names: Iterable[str], version: str | None = None, *, framework: str = TENSORFLOW, interpreter: str | None = None
) -> str:
    """How to install these libraries for ``framework``.

    ``version`` is TensorFlow's, and ``interpreter`` the path of its Python, if known.
    """
    names = list(names)
    if names == [LIBDEVICE]:
        return _LIBDEVICE_ADVICE
    cuda_version = cuda_version_of(names)
    if framework != TENSORFLOW:
        return libraries_advice(framework, cuda_version)
    release = re.match(r"(\d+)\.(\d+)", version or "")
    without_wheels = release is not None and (int(release[1]), int(release[2])) < _FIRST_WITH_WHEELS
    with_wheels = release is not None and not without_wheels
    if with_wheels or (
        cuda_version is not None
        and int(cuda_version.partition(".")[0]) >= _FIRST_CUDA_WITH_WHEELS
        and not without_wheels
    ):
        # For exactly this interpreter and release, to avoid another environment or an upgrade.
        pip = f"{interpreter} -m pip" if interpreter and _PLAIN_PATH.fullmatch(interpreter) else "pip"
        pin = f"=={version}" if version and _RELEASE.fullmatch(version) else ""
        return f'Install them into the same environment: {pip} install "tensorflow[and-cuda]{pin}".'
    if cuda_version is None and not without_wheels:
        return f"Install them into the same environment: {_WHEEL}, with TensorFlow 2.14 or later."
    if cuda_version is None:
        which = f"the CUDA and cuDNN that TensorFlow {version} was built for"
        return f"Install {which} (system or conda), or a newer TensorFlow with its own: {_WHEEL}."
    needed_by = f", which TensorFlow {version if without_wheels else _NEEDED_BY.get(cuda_version, 'of this age')} needs"
    if cuda_version == "11" and not without_wheels:
        needed_by += " (2.14: " + 'pip install "tensorflow[and-cuda]==2.14.*")'
    return (
        f"Install CUDA {cuda_version} with its cuDNN (system or conda){needed_by}; no other CUDA version works."
        f" Or upgrade to a newer TensorFlow that includes its own: {_WHEEL}."
    )
