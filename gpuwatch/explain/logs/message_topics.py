"""Finds the topics of a log line: what the texts of ``message_topic_texts.py`` and CUDA's errors mean.

A topic that is a cause id is the text's meaning; other topics are evidence for rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpuwatch.explain.logs import cuda_errors, message_topic_texts
from gpuwatch.explain.logs.message_topic_texts import Needle
from gpuwatch.explain.logs.removed_api import find_removed_api, may_name_removed_api

_ASCII = str.maketrans(
    "\u2018\u2019\u201a\u2032\u201c\u201d\u201e\u2033\u00ab\u00bb\u00a0\u2010\u2011\u2013\u2014", '\'\'\'\'"""""" ----'
)
"""Typographic quotes and dashes to plain ones."""


def plain_punctuation(text: str) -> str:
    """The text with plain quotes and dashes."""
    return text if text.isascii() else text.translate(_ASCII)


def lower_plain(text: str) -> str:
    """Lower case with plain quotes and dashes, as the tables' texts are compared."""
    return plain_punctuation(text).lower()


_SLURM_OOM = ": Out Of Memory"
_GPU_WORD = re.compile(r"cuda|gpu|\bhip\b")
_CASE_SENSITIVE: tuple[tuple[str, str], ...] = (
    (_SLURM_OOM, "ended.host-memory"),
    ("Out of memory: Kill", "ended.host-memory"),
    ("cgroup out of memory: Kill", "ended.host-memory"),
)
"""Case-sensitive texts."""

_EXPLICIT_ROWS, _INFERRED_ROWS = (
    tuple((needle, topic) for table in tables for topic, needles in table.items() for needle in needles)
    for tables in ((message_topic_texts.EXPLICIT,), (message_topic_texts.INFERRED, message_topic_texts.ENVIRONMENTS))
)
TEXTS_AND_TOPICS: tuple[tuple[Needle, str], ...] = (*_CASE_SENSITIVE, *_EXPLICIT_ROWS, *_INFERRED_ROWS)

# Rows are only compared if the line contains their gate: few lines contain many gates.
_GATES = (
    "nvrm", "nvml", "nvidia", "amdgpu", "jax", "torch", "tensorflow", "attribute", "could not", "initializ", "availab",
    "librar", "launch", "driver", "version", "capab", "compil", "memory", "undefined", "allocat", "unable to", "cannot",
    "cudnn", "cublas", "nccl", "failed to", "_status_", "xla", "found", "kernel", "instance", "support",
    "slowdown", "device", "gpu", "cuda", "rror", "fail", "not ", "is ", "cu", "",
)  # fmt: skip

_Row = tuple[int, tuple[str, ...], str]


def _rows_by_gate(rows: Iterable[tuple[Needle, str]]) -> tuple[tuple[str, tuple[_Row, ...]], ...]:
    gated: dict[str, list[_Row]] = {gate: [] for gate in _GATES}
    for rank, (needle, topic) in enumerate(rows):
        parts = (needle,) if isinstance(needle, str) else needle
        gate = next(gate for gate in _GATES if any(gate in part for part in parts))
        gated[gate].append((rank, parts, topic))
    return tuple((gate, tuple(entries)) for gate, entries in gated.items() if entries)


_ROWS_BY_GATE = _rows_by_gate((*_EXPLICIT_ROWS, *_INFERRED_ROWS))
_EXPLICIT_CUDA_TEXTS = ("no_binary_for_gpu", "no kernel image is available", "cuda driver version is insufficient")
"""CUDA's errors that have only one meaning."""


_BACKEND_TRIED = re.compile(r"(?:^|\bI\d{4} .{1,80}\] ?|\bINFO\b.{0,80})Unable to initialize backend '")
_DEVICE_SPECIFICATION = re.compile(r"device specification '(\S{1,200}?)'.{0,400}All available devices \[([^\]]*)")


_CUDA_WORDS = ("cud", "an illegal", "kernel", "error", "driver", "provided ptx", "launch failure")
_OTHER_CUDA_MESSAGES = ("failed call to cuinit", "triton error [cuda]: device kernel image")
"""Errors of CUDA that have their own parser, or another meaning."""
_CUDNN_NOISE = ("Failed to determine cuDNN version", "link the cuDNN plugin)")
"""TensorFlow 2.21 prints this for a cuDNN without a version query; a wrapped line has only one of the two."""


def topics_of(text: str) -> tuple[str, ...]:
    """The topics whose texts occur in ``text``, in the order of the tables, then those of CUDA's errors."""
    lower = lower_plain(text)
    found = [topic for _, topic in _rows_in(lower)]
    if any(word in lower for word in _CUDA_WORDS) and not any(text in lower for text in _OTHER_CUDA_MESSAGES):
        known = {*found, cuda_errors.OUT_OF_MEMORY}  # which has its own parsers
        found += [topic for topic in cuda_errors.topics(lower) if topic not in known]
    found += [topic for needle, topic in _CASE_SENSITIVE if needle in text and not _is_gpu_memory(needle, lower)]
    if may_name_removed_api(lower) and find_removed_api(text) is not None:
        found.append("api.removed")
    if not found or _CUDNN_NOISE[0] in text or _CUDNN_NOISE[1] in text:
        return ()
    topics = dict.fromkeys(found)
    specified = _DEVICE_SPECIFICATION.search(text) if "placement.device-missing" in topics else None
    if specified is not None and f"{specified[1]}," in f"{specified[2]},":
        # The device is there: eager TensorFlow prints the same sentence for a missing kernel.
        topics = {topic if topic != "placement.device-missing" else "placement.no-kernel": None for topic in topics}
    if "ended.jax-backend" in topics and _BACKEND_TRIED.search(text) is not None:
        topics.pop("ended.jax-backend")  # JAX tries each kind of device when it starts
    if "build.cpu-only" in topics and "available platform names" in text.lower() and "TPU" in text:
        return ("device.used",)  # JAX on a TPU needs no build for GPUs
    return tuple(topics)


def states_explicitly(text: str, topic: str) -> bool:
    """Whether ``text`` names ``topic`` explicitly."""
    lower = lower_plain(text)
    named = any(rank < len(_EXPLICIT_ROWS) and found == topic for rank, found in _rows_in(lower))
    if named or (topic == "api.removed" and find_removed_api(text) is not None):
        return True
    return topic in cuda_errors.topics(lower) and any(code in lower for code in _EXPLICIT_CUDA_TEXTS)


def _is_gpu_memory(needle: str, lower: str) -> bool:
    """Whether "Out Of Memory" is about a GPU: Slurm writes it so too, of a task on a host named gpu01."""
    return (
        needle == _SLURM_OOM
        and _GPU_WORD.search(lower) is not None
        and not any(word in lower for word in ("srun", "slurm", "task"))
    )


def _rows_in(lower: str) -> list[tuple[int, str]]:
    """Rank and topic of the rows whose texts occur, in the order of the tables."""
    found: list[tuple[int, str]] = []
    for gate, rows in _ROWS_BY_GATE:
        if gate in lower:
            found += [
                (rank, topic)
                for rank, parts, topic in rows
                if parts[0] in lower and (len(parts) == 1 or all(part in lower for part in parts))
            ]
    return sorted(found)
