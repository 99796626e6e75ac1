"""Results of NVIDIA's ``dcgmi diag -j`` (DCGM 2 to 4): the tests of each GPU, passed, failed or skipped.

DCGM 4 names the GPU by ``entity_group`` and ``entity_id``, older ones by ``gpu_ids``; older ones also leave ``null`` in
their lists, and print warnings before the JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from gpuwatch.core.model.explanation import GpuTest, TestStatus
from gpuwatch.explain.traces import InvalidTrace

_MAX_TESTS = 2000
_MAX_MESSAGES = 8
_MAX_TEXT_CHARS = 500
_HEAD = re.compile(rb'"DCGM (?:GPU )?Diagnostic"\s*:')
_STATUSES: dict[str, TestStatus] = {"pass": "pass", "fail": "fail", "warn": "warn", "skip": "skip", "skipped": "skip"}


class Diagnostic(NamedTuple):
    """The tests of one diagnostic run, with versions of DCGM and driver."""

    tests: tuple[GpuTest, ...]
    version: str
    driver: str
    error: str
    """Why the tests could not be run; empty if they were."""


def is_diagnostic(start: bytes) -> bool:
    """Whether a file begins as the output of ``dcgmi diag -j``."""
    return _HEAD.search(start) is not None


def read(data: bytes) -> Diagnostic:
    """The tests; :class:`InvalidTrace` for anything else."""
    begin, end = data.find(b"{"), data.rfind(b"}") + 1
    try:
        value = msgspec.json.decode(data[max(begin, 0) : end])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidTrace(f"it is not JSON: {str(error)[:100]}") from None
    top = _object_at(value, "DCGM Diagnostic") or _object_at(value, "DCGM GPU Diagnostic")
    if not top:
        raise InvalidTrace('it has no part "DCGM Diagnostic"')
    known = {**_object_at(value, "metadata"), **top}
    return Diagnostic(
        tuple(islice(_tests(top), _MAX_TESTS)),
        _short_text(known.get("version")),
        _short_text(known.get("Driver Version Detected") or known.get("driver_version")),
        _short_text(known.get("runtime_error") or known.get("Runtime Error")),
    )


def _tests(top: dict[str, Any]) -> Iterator[GpuTest]:
    for category in _objects(top.get("test_categories")):
        for test in _objects(category.get("tests")):
            for result in _objects(test.get("results")):
                status = _short_text(result.get("status")).lower()
                yield GpuTest(
                    category=_short_text(category.get("category")),
                    name=_short_text(test.get("name")) or "a test without a name",
                    gpus=_gpus(result),
                    # Whatever else it is, such as "Not Run", it has not passed.
                    status=_STATUSES.get(status, "skip"),
                    messages=tuple(islice(_messages(result), _MAX_MESSAGES)),
                )


def _gpus(result: dict[str, Any]) -> str:
    group, entity = _short_text(result.get("entity_group")), result.get("entity_id")
    if group and type(entity) is int:
        return f"{group} {entity}"
    numbers = _short_text(result.get("gpu_ids")) or _short_text(result.get("gpu_id"))
    if not numbers:
        return ""
    return f"GPU{'s' if ',' in numbers else ''} {numbers.replace(',', ', ')}"


def _messages(result: dict[str, Any]) -> Iterator[str]:
    for name in ("warnings", "info"):
        given = result.get(name)
        for item in given if isinstance(given, list) else [given]:
            if text := _short_text(item.get("warning") if isinstance(item, dict) else item):
                yield text


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    for item in value if isinstance(value, list) else ():
        if isinstance(item, dict):
            yield item


def _object_at(value: Any, name: str) -> dict[str, Any]:
    part = value.get(name) if isinstance(value, dict) else None
    return part if isinstance(part, dict) else {}


def _short_text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return ""
    return " ".join(str(value)[:_MAX_TEXT_CHARS].split())
