"""The filter of the process table, in the language of :mod:`gpuwatch.ui.tables.filter_language`.

``python alice`` · ``user:alice`` · ``gpu:1`` · ``mem>2GiB`` · ``time>1h30m`` · ``cmd:"a b"`` · ``-xorg`` (not)

Every column of the table is a field, by its id and by its header.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import lru_cache

from gpuwatch.core.formatting.brief import short_framework
from gpuwatch.core.formatting.units import shown_memory
from gpuwatch.core.model.snapshot import Process
from gpuwatch.ui.tables import filter_language as language
from gpuwatch.ui.tables.columns import on_cpu
from gpuwatch.ui.tables.filter_language import Amount, Fields, FilterError, Kind, whole

__all__ = ["FIELDS", "SIGNS", "Filter", "FilterError", "Test", "field", "parse"]

Test = Callable[[Process, float], bool]
"""Of a process at a moment, in seconds since the epoch."""
Filter = language.Filter[[Process, float]]


@lru_cache(maxsize=256)
def _names_of(framework: str) -> str:
    """A framework's full name and every form in which the column may show it."""
    name, _, version = framework.partition(" ")
    brief = f"{'tf' if name == 'tensorflow' else name} {version}"
    return "\n".join((framework, brief, *(short_framework(framework, width) for width in range(6, 16)))).lower()


def _reading(
    name: str, kind: Kind = "count", shown: Callable[[float], float] | None = None
) -> Amount[[Process, float]]:
    def get(process: Process, at: float) -> float | None:
        return process.number(name)

    return Amount(get, kind) if shown is None else Amount(get, kind, shown)


def _gpu(wanted: str) -> Test:
    if wanted == "cpu":
        return lambda process, at: on_cpu(process)
    index = whole("gpu", wanted, "the number of a GPU, or cpu")
    return lambda process, at: process.device_index == index


def _mig(wanted: str) -> Test:
    return lambda process, at: (
        (process.mig_instance or "").lower() == wanted
        or (process.mig_instance is not None and process.mig_instance.lower().startswith(f"{wanted}/"))
    )


_PAIR = re.compile(r"^(\d{1,18})(?:→|->|>)(\d{1,18})$")


def _sees(wanted: str) -> Test:
    pair = _PAIR.match(wanted)
    if pair is not None:
        own, index = int(pair[1]), int(pair[2])
        return lambda process, at: any((one.ordinal, one.index) == (own, index) for one in process.device_map)
    index = whole("sees", wanted, "the number of a GPU, or 0>1 for its own device 0 on GPU 1")
    return lambda process, at: any(one.index == index for one in process.device_map)


def _visible(wanted: str) -> Test:
    return lambda process, at: _lists(process.cuda_visible_devices, wanted)


def _lists(visible: str | None, wanted: str) -> bool:
    """Whether CUDA_VISIBLE_DEVICES lists a device, by number or UUID prefix, or equals ``wanted``."""
    if visible is None:
        return False
    named = [one.strip() for one in visible.lower().split(",")]
    if wanted.isdecimal():
        return wanted in named
    return visible.lower() == wanted or any(one.startswith(wanted) for one in named)


_TEXTS: dict[str, Callable[[Process, float], str]] = {
    "user": lambda p, at: p.user or "",
    "type": lambda p, at: p.type,
    "job": lambda p, at: p.container or "",
    "framework": lambda p, at: _names_of(p.framework) if p.framework else "",
    "cmd": lambda p, at: p.command or p.name or "",
}


def _anywhere(wanted: str) -> Test:
    def test(process: Process, at: float) -> bool:
        if str(process.device_index) == wanted or wanted in str(process.pid):
            return True
        return any(wanted in get(process, at).lower() for get in _TEXTS.values())

    return test


_FIELDS: Fields[[Process, float]] = Fields(
    texts=_TEXTS,
    amounts={
        "mem": _reading("gpu_memory_bytes", "size", shown_memory),
        "sm": _reading("sm_percent", "percent", round),
        "mbw": _reading("memory_percent", "percent", round),
        "enc": _reading("encoder_percent", "percent", round),
        "dec": _reading("decoder_percent", "percent", round),
        "cpu": _reading("cpu_percent", "percent"),
        "host": _reading("host_memory_bytes", "size"),
        "threads": _reading("threads"),
        "time": Amount(Process.run_seconds, "time", math.floor),
    },
    anywhere=_anywhere,
    exact={"gpu": _gpu, "mig": _mig, "sees": _sees, "visible": _visible},
    ids={"pid": lambda process, at: process.pid},
    also={"memory": "mem", "gpu-mem": "mem", "thr": "threads", "command": "cmd", "container": "job"},
)
FIELDS = ("gpu", "pid", "mig", "sees", "visible", *_FIELDS.texts, *_FIELDS.amounts)
SIGNS = {field: ">" if field in _FIELDS.amounts else ":" for field in FIELDS}
"""The operator between a field and its value."""


def field(name: str, wanted: str) -> str:
    """The filter word that matches ``wanted`` in a text field, quoted if needed."""
    return f'{name}:"{wanted}"' if any(char.isspace() for char in wanted) else f"{name}:{wanted}"


def parse(text: str) -> Filter | None:
    """The filter for ``text``, None if empty; :class:`FilterError` if a word is invalid."""
    return language.parse(text, _FIELDS)
