"""Whether a TensorFlow build has code for a GPU: native, compiled at the start, or none.

``cuda_compute_capabilities`` of ``tf.sysconfig.get_build_info()`` lists ``sm_80`` (binary code) and ``compute_90``
(binary code, and PTX that the driver can compile for newer GPUs). Binary code runs on the same major version with an
equal or higher minor one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Literal

Support = Literal["native", "jit", "no"]
_ENTRY = re.compile(r"^(sm|compute)_(\d{2,3})[af]?$")


def parse_capability(text: object) -> tuple[int, int] | None:
    """``(8, 6)`` of ``8.6``; None for anything else."""
    match = re.fullmatch(r"(\d+)\.(\d+)", str(text))
    return (int(match[1]), int(match[2])) if match else None


def capabilities_of_build(build: dict[str, Any]) -> tuple[tuple[str, tuple[int, int]], ...]:
    """The capabilities in a build, with their kind (``sm`` or ``compute``); empty if it lists none."""
    listed = build.get("cuda_compute_capabilities")
    if not isinstance(listed, (list, tuple)):
        return ()
    matches = [_ENTRY.match(str(entry)) for entry in listed]
    return tuple((match[1], divmod(int(match[2]), 10)) for match in matches if match)


def support_of_build(card: tuple[int, int], built: Iterable[tuple[str, tuple[int, int]]]) -> Support:
    """How a build supports a card of this compute capability."""
    entries = tuple(built)
    if any(major == card[0] and minor <= card[1] for _, (major, minor) in entries):
        return "native"
    if any(kind == "compute" and version <= card for kind, version in entries):
        return "jit"
    return "no"
