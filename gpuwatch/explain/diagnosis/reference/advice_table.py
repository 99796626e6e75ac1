"""Looks up the advice table: what to do, in the terms of the framework that failed and the environment it ran in.

A TensorFlow setting does not help a JAX program, and nobody needs to be told what the log shows that they did.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from gpuwatch.core.model.causes import CAUSES
from gpuwatch.core.model.findings import Finding
from gpuwatch.explain.diagnosis.evidence import NO_LOG, Evidence
from gpuwatch.explain.logs.log_frameworks import FRAMEWORK_WORDS

TENSORFLOW, TORCH, JAX = "tensorflow", "pytorch", "jax"
Match = Literal["any", "environment", "line"]
"""Cells that may be taken: any; those for an environment or a line; those for one of the finding's lines."""


class Advice(NamedTuple):
    """One cell. The first that fits wins: those of a line stand before those of an environment or framework."""

    action: str
    """With the named groups of ``says`` in braces, where it has any."""
    says: re.Pattern[str] | None = None
    """What one of the finding's lines says, in any case; None: whatever it says."""
    environment: str = ""
    """Environment, named as in the topics ``environment.*``; empty for any."""
    framework: str = ""
    """Empty: any."""
    done: re.Pattern[str] | None = None
    """How the log shows that this was done already: then the next cell is tried."""


def _read() -> dict[str, tuple[Advice, ...]]:
    table: dict[str, list[Advice]] = {}
    causes: list[str] = []
    for line in Path(__file__).with_name("advice.txt").read_text("utf-8").splitlines():
        if line.startswith("["):
            causes = line.strip("[]").split()
        elif line.startswith("    "):
            name, _, value = line.strip().partition(" ")
            part: Any = re.compile(value, re.IGNORECASE) if name in ("says", "done") else value
            for cause in causes:
                table[cause][-1] = table[cause][-1]._replace(**{name: part})
        elif line and not line.startswith("#"):
            for cause in causes:
                table.setdefault(cause, []).append(Advice(line))
    return {cause: tuple(cells) for cause, cells in table.items()}


TABLE = _read()
"""By cause: the cells of ``advice.txt``."""


_FRAMEWORK_ORDER = (
    "bitsandbytes", "onnxruntime", "cupy", "numba", "comfyui", "sglang", "vllm", "text-generation-inference",
    "ctranslate2", "llama.cpp", "paddlepaddle", "mxnet", "caffe", "darknet", "DirectML", JAX, TORCH, TENSORFLOW,
)  # fmt: skip
"""If a log names several, the first of these failed: XLA's lines look like TensorFlow's, others use PyTorch."""
_BUILT_ON_PYTORCH = frozenset({"comfyui", "sglang", "vllm", "text-generation-inference", "bitsandbytes"})
"""Programs to which PyTorch's own advice applies where the table has none of theirs."""
_GENERAL_MEMORY_ADVICE = {
    "memory.fragmented": "Keep batch shapes constant, or make the batches smaller.",
    "memory.masked": "Free GPU memory before the library starts: end other programs on it, or make the batch smaller.",
    "memory.limit-too-small": "Raise the memory limit that was set: the device has room for more.",
}
_GENERAL_LIBRARIES_ADVICE = (
    "Install the CUDA libraries in the version that the program was built for{}, and add their folder to"
    " LD_LIBRARY_PATH (PATH on Windows)."
)
_ENVIRONMENT_TOPIC = "environment."


def framework_of(evidence: Evidence, lines: Iterable[str] = ()) -> str:
    """The framework that printed ``lines``, else that of the run or the log; empty if unknown."""
    if evidence.framework is not None:
        return TORCH if evidence.framework.name == "torch" else evidence.framework.name
    text = " ".join(lines).lower()
    for word, name in FRAMEWORK_WORDS:
        if word in text:
            return name
    return next((name for name in _FRAMEWORK_ORDER if name in evidence.log.frameworks), "")


def advice(
    cause: str, framework: str, lines: Iterable[str] = (), evidence: Evidence | None = None, match: Match = "any"
) -> str:
    """The table's action for a cause; empty if it has none.

    ``lines``: the finding's evidence. ``match``: how closely a cell must fit.
    """
    log = evidence.log if evidence is not None and evidence.run is None else NO_LOG
    environments = {topic.removeprefix(_ENVIRONMENT_TOPIC) for topic in log.topics}
    finding_lines = list(lines)
    log_text = "\n".join(line for kept in log.evidence.values() for line in kept)
    for name in (framework, TORCH) if framework in _BUILT_ON_PYTORCH else (framework,):
        for cell in TABLE.get(cause, ()):
            if cell.framework not in ("", name):
                continue
            if cell.environment and cell.environment not in environments:
                continue
            if match != "any" and cell.says is None and not (cell.environment and match == "environment"):
                continue
            said = next(filter(None, map(cell.says.search, finding_lines)), None) if cell.says is not None else None
            if (cell.says is not None and said is None) or (cell.done is not None and cell.done.search(log_text)):
                continue
            return cell.action.format(**said.groupdict()) if said is not None and said.groupdict() else cell.action
    return ""


def with_advice(found: Finding, evidence: Evidence) -> Finding:
    """The finding of a log, with the action for its lines, and for the environment that the log shows if its rule
    knew no more than the cause."""
    if found.id == "healthy":
        return found
    match: Match = "environment" if found.title == CAUSES[found.id] else "line"
    framework = framework_of(evidence, found.evidence)
    return replace(found, action=advice(found.id, framework, found.evidence, evidence, match) or found.action)


def memory_advice(cause: str, framework: str, evidence: Evidence | None = None) -> str:
    """The framework's own remedy for a memory cause; empty if the cause's general advice applies."""
    if framework in ("", TENSORFLOW):
        return ""
    return advice(cause, framework, (), evidence) or _GENERAL_MEMORY_ADVICE.get(cause, "")


def libraries_advice(framework: str, cuda: str | None = None) -> str:
    """How to install the CUDA libraries for a framework other than TensorFlow; ``cuda``: the version, if known."""
    return advice("cuda.libraries-missing", framework) or _GENERAL_LIBRARIES_ADVICE.format(
        f", CUDA {cuda}" if cuda else ""
    )


def gpu_build_advice(framework: str) -> str:
    """How to install the build with GPU support."""
    return advice("build.cpu-only", framework) or "Install (or compile) a build of the program with CUDA support."
