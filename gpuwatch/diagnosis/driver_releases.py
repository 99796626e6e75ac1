"""Which release of NVIDIA's driver a CUDA version needs.

Source: CUDA Toolkit release notes and CUDA Compatibility guide, "minor version compatibility": the first driver branch
for each major version of CUDA.
"""

from __future__ import annotations

import re

_NEWEST_TENSORFLOW = 21
"""Minor version of the latest TensorFlow 2.x release whose CUDA is known here."""
_FIRST = {11: 450, 12: 525, 13: 580}
_LAST_FOR_CUDA_11 = {
    "tensorflow": 'TensorFlow 2.14 (Python 3.9 to 3.11) is the last one for CUDA 11: pip install'
    ' "tensorflow[and-cuda]==2.14.*"',
    "torch": "PyTorch up to 2.7 has one: pip install torch --index-url https://download.pytorch.org/whl/cu118",
}  # fmt: skip


def first_release(cuda_major: int) -> int | None:
    """The first driver branch for a CUDA version, such as 525 for CUDA 12; None if unknown."""
    return _FIRST.get(cuda_major)


def cuda_of_tensorflow(version: str | None) -> int | None:
    """The CUDA major version of TensorFlow's wheel ("Tested build configurations"); None if unknown."""
    match = re.match(r"2\.(\d+)(?:\.|$)", version or "")
    minor = int(match[1]) if match else None
    if minor is None or not 4 <= minor <= _NEWEST_TENSORFLOW:
        return None
    return 11 if minor <= 14 else 12


def branch(driver: str | None) -> int | None:
    """570 of ``570.86.15``."""
    match = re.match(r"(\d{3,4})\.", driver or "")
    return int(match[1]) if match else None


def update(cuda_major: int | None = None, has_major: int | None = None, framework: str | None = None) -> str:
    """What to do about a driver that is too old, with version numbers if known."""
    if cuda_major is None or (release := first_release(cuda_major)) is None:
        return (
            "Update the NVIDIA driver (CUDA 12 needs release 525 or later, CUDA 13 580 or later), or use a framework"
            " build for an older CUDA."
        )
    action = f"Update the NVIDIA driver to release {release} or later, which CUDA {cuda_major} needs"
    if has_major is None:
        return f"{action}, or use a framework build for an older CUDA."
    action += f"; or use a build for CUDA {has_major}."
    older = _LAST_FOR_CUDA_11.get(framework or "") if has_major == 11 else None
    return f"{action} {older}." if older else action
