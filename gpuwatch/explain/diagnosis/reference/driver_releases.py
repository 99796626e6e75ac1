"""Which release of NVIDIA's driver a CUDA version needs, and what to do about a driver that is too old.

Source: CUDA Toolkit release notes (the driver of each toolkit) and CUDA Compatibility guide, "minor version
compatibility": the first driver branch for each major version of CUDA, which cannot compile PTX of later toolkits.
"""

from __future__ import annotations

import re

FIRST_RELEASES = {11: 450, 12: 525, 13: 580}
"""The first driver branch for each major version of CUDA."""
RELEASE_OF_TOOLKIT = {
    (11, 0): 450, (11, 1): 455, (11, 2): 460, (11, 3): 465, (11, 4): 470, (11, 5): 495, (11, 6): 510, (11, 7): 515,
    (11, 8): 520, (12, 0): 525, (12, 1): 530, (12, 2): 535, (12, 3): 545, (12, 4): 550, (12, 5): 555, (12, 6): 560,
    (12, 8): 570, (12, 9): 575, (13, 0): 580, (13, 1): 590,
}  # fmt: skip
"""The driver branch that comes with a toolkit and supports all of it."""


def release_branch(driver: str | None) -> int | None:
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
    cuda_major: int | None = None, has_major: int | None = None, framework: str | None = None
) -> str:
    """What to do about a driver that is too old.

    ``cuda_major``: the CUDA that the build needs; ``has_major``: the one that the driver supports, if known.
    """
    if cuda_major is None or (release := FIRST_RELEASES.get(cuda_major)) is None:
        return (
            "Update the NVIDIA driver to the release of the build's CUDA (10.0: 410 or later, 11.8: 520, 12.4: 550,"
            " 12.6: 560, 12.8: 570, 12.9: 575, 13: 580), or use a framework build for an older CUDA."
        )
    action = f"Update the NVIDIA driver to release {release} or later, which CUDA {cuda_major} needs"
    if has_major is None:
        return f"{action}, or use a framework build for an older CUDA."
    action += f"; or use a build for CUDA {has_major}."
    older = _LAST_FOR_CUDA_11.get(framework or "") if has_major == 11 else None
    return f"{action} {older}." if older else action


def driver_update_advice_from_log(has: tuple[int, int] | None, needs: tuple[int, int] | None) -> str:
    """The same from a log: ``has`` is the CUDA version that the driver supports, ``needs`` that of the build."""
    release = RELEASE_OF_TOOLKIT.get(needs) if needs is not None else None
    build = f"use a framework build for CUDA {has[0]}.{has[1]} or older" if has is not None else ""
    if needs is None or release is None:
        newer = driver_update_advice().partition(", or use")[0]
        return f"{newer}; or {build}." if build else driver_update_advice()
    action = f"Update the NVIDIA driver to release {release} or later, which CUDA {needs[0]}.{needs[1]} needs"
    return f"{action}, or {build or 'use a framework build for an older CUDA'}."
