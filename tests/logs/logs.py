"""The logs that tests read: TensorFlow on a machine without a GPU (lab), and over stub drivers (stub)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from gpuwatch.explain.logs.log_facts import LogFacts
from gpuwatch.explain.logs.log_parser import parse

FIXTURES = Path(__file__).parent / "fixtures"
NAMES = tuple(sorted(path.stem for path in FIXTURES.glob("*.txt")))

MIB = 1 << 20


@cache
def text(name: str) -> str:
    return (FIXTURES / f"{name}.txt").read_text(encoding="utf-8", errors="replace")


def facts(name: str) -> LogFacts:
    return parse(text(name))
