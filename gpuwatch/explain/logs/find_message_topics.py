"""Finds the topics of a log line: what the texts of ``message_topic_texts.py`` and CUDA's errors mean.

A topic that is a cause id is the text's meaning; other topics are evidence for rules. A text must contain one of the
substrings in :func:`is_worth_parsing`, or be in a C++ line or an exception, which are always parsed (tests check this).
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


def is_worth_parsing(line: bytes) -> bool:
    """Whether a line without a C++ source position is parsed. Written without a loop, which would be slower.

    ``line`` is UTF-8, with or without its digits; it is searched as Latin-1, which is faster.
    """
    text = line.decode("latin-1").lower()
    return (
        "rror" in text or "evice" in text or "emory" in text or "cud" in text or "nvi" in text or "nvm" in text
        or "nvrm" in text or "nvl" in text or "nvs" in text or "nvb" in text or "multicast" in text or "nvcc" in text
        or "nvenc" in text or "pu:" in text or "gpu" in text or "fail" in text or "unable" in text
        or "support" in text or "core dumped" in text or "xception" in text or "colocation" in text
        or "e. process" in text or "nccl" in text or "dnn" in text or "blas" in text or "() " in text
        or "symbol" in text or "sm_" in text or ".so" in text or ".dll" in text or "library" in text
        or "bad_alloc" in text or "oom" in text or "retry" in text or "killed" in text or "terminat" in text
        or "fault" in text or "abort" in text or "illegal" in text or "corrupt" in text or " peer" in text
        or "(): " in text or "***" in text or "panicked" in text or "crash" in text or "command" in text
        or "can't open" in text or "cancelled" in text or "exit" in text or "died" in text or "root cause" in text
        or "term_" in text or "interrupt" in text or "nouveau" in text or "kernel" in text
        or "jax" in text or "slowdown" in text or "module" in text or "adapters" in text or "platform" in text
        or "assertion" in text or "instance" in text or "+c" in text or "docker" in text or "kube" in text
        or "singularity" in text or "nv files" in text or "--nproc" in text or "local_rank" in text or "_vram" in text
        or "root@" in text or "wsl" in text or "microsoft" in text or "outside the" in text or "% |" in text
        or "initializing torch" in text or "tfrt" in text or "err!" in text or "running on" in text
        or "ignoring inp" in text or "w backend" in text or "$ " in text
        or (".py" in text and ("+ " in text or "running" in text or "executing" in text or "launching" in text))
        or "/var/f" in text or "homebrew" in text or "startup comp" in text or "gui go to" in text
        or "server ver" in text or "starting vllm" in text or "default args" in text or "server_args=" in text
        or "fired up" in text or "lly completed" in text or "down with sig" in text
        or "d reference" in text or "bin/sh: " in text or "only has: [" in text or "android" in text
        or "sigkill" in text or "to quit" in text or "remapp" in text or "page blacklist" in text or "xla" in text
        or "death sig" in text or "evicted" in text or "deleted at" in text or "walltime" in text or "wallclock" in text
    )  # fmt: skip


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
