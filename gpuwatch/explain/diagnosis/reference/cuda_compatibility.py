"""What fits a CUDA version: drivers, TensorFlow's wheels, libraries and GPUs; and what to install or update.

Sources: CUDA Toolkit release notes (the driver of each toolkit); CUDA Compatibility guide, "minor version
compatibility": the first driver branch for each major version of CUDA, which cannot compile PTX of later toolkits; file
names in NVIDIA's toolkits; TensorFlow's table "Tested build configurations". Its wheels include CUDA (``[and-cuda]``)
since 2.14; a build for CUDA 10 or another major version cannot use those.

``cuda_compute_capabilities`` of ``tf.sysconfig.get_build_info()`` lists ``sm_80`` (binary code) and ``compute_90``
(binary code, and PTX that the driver can compile for newer GPUs). Binary code runs on the same major version with an
equal or higher minor one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Literal

from gpuwatch.explain.diagnosis.reference.advice_table import TENSORFLOW, libraries_advice
from gpuwatch.explain.logs.missing_libraries import LIBDEVICE

Support = Literal["native", "jit", "no"]
_BUILT_CAPABILITY = re.compile(r"^(sm|compute)_(\d{2,3})[af]?$")


def parse_capability(text: object) -> tuple[int, int] | None:
    """``(8, 6)`` of ``8.6``; None for anything else."""
    match = re.fullmatch(r"(\d+)\.(\d+)", str(text))
    return (int(match[1]), int(match[2])) if match else None


def capabilities_of_build(build: dict[str, Any]) -> tuple[tuple[str, tuple[int, int]], ...]:
    """The capabilities in a build, with their kind (``sm`` or ``compute``); empty if it lists none."""
    listed = build.get("cuda_compute_capabilities")
    if not isinstance(listed, (list, tuple)):
        return ()
    matches = [_BUILT_CAPABILITY.match(str(entry)) for entry in listed]
    return tuple((match[1], divmod(int(match[2]), 10)) for match in matches if match)


def support_of_build(card: tuple[int, int], built: Iterable[tuple[str, tuple[int, int]]]) -> Support:
    """How a build supports a card of this compute capability."""
    entries = tuple(built)
    if any(major == card[0] and minor <= card[1] for _, (major, minor) in entries):
        return "native"
    if any(kind == "compute" and version <= card for kind, version in entries):
        return "jit"
    return "no"


FIRST_DRIVER_RELEASES = {11: 450, 12: 525, 13: 580}
"""The first driver branch for each major version of CUDA."""
DRIVER_OF_TOOLKIT = {
    (11, 0): 450, (11, 1): 455, (11, 2): 460, (11, 3): 465, (11, 4): 470, (11, 5): 495, (11, 6): 510, (11, 7): 515,
    (11, 8): 520, (12, 0): 525, (12, 1): 530, (12, 2): 535, (12, 3): 545, (12, 4): 550, (12, 5): 555, (12, 6): 560,
    (12, 8): 570, (12, 9): 575, (13, 0): 580, (13, 1): 590,
}  # fmt: skip
"""The driver branch that comes with a toolkit and supports all of it."""


def driver_branch(driver: str | None) -> int | None:
    """570 of ``570.86.15``; None for what is no release."""
    match = re.match(r"(\d{3,4})\.", driver or "")
    return int(match[1]) if match else None


_LAST_FOR_CUDA_11 = {
    "tensorflow": 'TensorFlow 2.14 (Python 3.9 to 3.11) is the last one for CUDA 11: pip install'
    ' "tensorflow[and-cuda]==2.14.*"',
    "torch": "PyTorch up to 2.7 has such a build: pip install torch --index-url https://download.pytorch.org/whl/cu118",
}  # fmt: skip
"""The last build for CUDA 11, by framework."""


def driver_update_advice(
    cuda_major: int | None = None, driver_cuda_major: int | None = None, framework: str | None = None
) -> str:
    """What to do about a driver that is too old.

    ``cuda_major``: the CUDA that the build needs; ``driver_cuda_major``: the one that the driver supports, if known.
    """
    if cuda_major is None or (release := FIRST_DRIVER_RELEASES.get(cuda_major)) is None:
        return (
            "Update the NVIDIA driver to the release of the build's CUDA (10.0: 410 or later, 11.8: 520, 12.4: 550,"
            " 12.6: 560, 12.8: 570, 12.9: 575, 13: 580), or use a framework build for an older CUDA."
        )
    action = f"Update the NVIDIA driver to release {release} or later, which CUDA {cuda_major} needs"
    if driver_cuda_major is None:
        return f"{action}, or use a framework build for an older CUDA."
    action += f"; or use a build for CUDA {driver_cuda_major}."
    older = _LAST_FOR_CUDA_11.get(framework or "") if driver_cuda_major == 11 else None
    return f"{action} {older}." if older else action


def driver_update_advice_from_log(has: tuple[int, int] | None, needs: tuple[int, int] | None) -> str:
    """The same from a log: ``has`` is the CUDA version that the driver supports, ``needs`` that of the build."""
    release = DRIVER_OF_TOOLKIT.get(needs) if needs is not None else None
    build = f"use a framework build for CUDA {has[0]}.{has[1]} or older" if has is not None else ""
    if needs is None or release is None:
        newer = driver_update_advice().partition(", or use")[0]
        return f"{newer}; or {build}." if build else driver_update_advice()
    action = f"Update the NVIDIA driver to release {release} or later, which CUDA {needs[0]}.{needs[1]} needs"
    return f"{action}, or {build or 'use a framework build for an older CUDA'}."


_PIP_INSTALL = 'pip install "tensorflow[and-cuda]"'
_TENSORFLOW_RELEASE = re.compile(r"\d+\.\d+\.\d+")
_PLAIN_PATH = re.compile(r"[\w./+@-]+")
"""An interpreter's path that needs no quoting in a shell."""
_FIRST_WITH_CUDA_EXTRA = (2, 14)
"""TensorFlow's first release with the extra ``and-cuda``."""
_FIRST_CUDA_OF_EXTRA = 12
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
    lacks_cuda_extra = release is not None and (int(release[1]), int(release[2])) < _FIRST_WITH_CUDA_EXTRA
    has_cuda_extra = release is not None and not lacks_cuda_extra
    if has_cuda_extra or (
        cuda_version is not None
        and int(cuda_version.partition(".")[0]) >= _FIRST_CUDA_OF_EXTRA
        and not lacks_cuda_extra
    ):
        # For exactly this interpreter and release, to avoid another environment or an upgrade.
        pip = f"{interpreter} -m pip" if interpreter and _PLAIN_PATH.fullmatch(interpreter) else "pip"
        pin = f"=={version}" if version and _TENSORFLOW_RELEASE.fullmatch(version) else ""
        return f'Install them into the same environment: {pip} install "tensorflow[and-cuda]{pin}".'
    if cuda_version is None and not lacks_cuda_extra:
        return f"Install them into the same environment: {_PIP_INSTALL}, with TensorFlow 2.14 or later."
    if cuda_version is None:
        which = f"the CUDA and cuDNN that TensorFlow {version} was built for"
        return f"Install {which} (system or conda), or a newer TensorFlow with its own: {_PIP_INSTALL}."
    needed_by = (
        f", which TensorFlow {version if lacks_cuda_extra else _NEEDED_BY.get(cuda_version, 'of this age')} needs"
    )
    if cuda_version == "11" and not lacks_cuda_extra:
        needed_by += " (2.14: " + 'pip install "tensorflow[and-cuda]==2.14.*")'
    return (
        f"Install CUDA {cuda_version} with its cuDNN (system or conda){needed_by}; no other CUDA version works."
        f" Or upgrade to a newer TensorFlow that includes its own: {_PIP_INSTALL}."
    )
