"""Which release of NVIDIA's driver a CUDA version needs.

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
