"""What to do about a cause, by the environment that the log shows, the framework that failed, and its line.

Sources: the installation guides and documentation of NVIDIA's container toolkit, device plugin, CUDA on WSL, CUDA
compatibility and fabric manager, Apptainer, DKMS, PyTorch ("CUDA semantics", torchrun), Triton, JAX ("GPU memory
allocation"), vLLM, SGLang, text-generation-inference, llama.cpp, ComfyUI, ONNX Runtime and the others named.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

TENSORFLOW, TORCH, JAX = "tensorflow", "pytorch", "jax"


class Advice(NamedTuple):
    """One cell. The first that fits wins: those of a line stand before those of an environment or framework."""

    action: str
    """With the named groups of ``says`` in braces, where it has any."""
    says: str = ""
    """What one of the finding's lines says (a regular expression, in any case); empty: whatever it says."""
    environment: str = ""
    """As in the topics ``environment.*``; empty: any."""
    framework: str = ""
    """Empty: any."""
    done: str = ""
    """How the log shows that this was done already (a regular expression): then the next cell is tried."""


def _read() -> dict[str, tuple[Advice, ...]]:
    table: dict[str, list[Advice]] = {}
    causes: list[str] = []
    for line in Path(__file__).with_name("advice.txt").read_text("utf-8").splitlines():
        if line.startswith("["):
            causes = line.strip("[]").split()
        elif line.startswith("    "):
            name, _, value = line.strip().partition(" ")
            for cause in causes:
                table[cause][-1] = table[cause][-1]._replace(**{name: value})
        elif line and not line.startswith("#"):
            for cause in causes:
                table.setdefault(cause, []).append(Advice(line))
    return {cause: tuple(cells) for cause, cells in table.items()}


TABLE = _read()
"""By cause: the cells of ``advice.txt``."""


def compiled(pattern: str) -> re.Pattern[str]:
    """A cell's expression, which no letter case changes."""
    return re.compile(pattern, re.IGNORECASE)
