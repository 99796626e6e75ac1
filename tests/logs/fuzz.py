"""Mutated logs, thrown at the whole of explain; says what breaks and how to see it again.

By hand, for a million inputs in one polite process (about ten minutes):

    nice -n 10 python -m tests.logs.fuzz --count 1000000

``--seed`` repeats a run, ``--only N`` one of its inputs. A few thousand run with every ``pytest`` (test_fuzz.py).
"""

from __future__ import annotations

import argparse
import json
import random
import time
import traceback
from collections.abc import Callable

from gpuwatch.core.model.causes import CAUSES
from gpuwatch.core.model.json_codec import to_json
from gpuwatch.explain.diagnosis.explain_log import explain_facts
from gpuwatch.explain.logs.log_facts import LINES_PER_TOPIC
from gpuwatch.explain.logs.log_parser import LogParser
from gpuwatch.explain.logs.wrapped_lines import join_wrapped_lines
from tests.logs.logs import NAMES, text

_PIECES = tuple(line for name in NAMES for line in text(name).splitlines())
_HUGE = ("9" * 400, "9" * 4400, "0", "-1", "1e999", "18446744073709551616", "٣", "0x7f", "NaN", "1.1.1", "")
_NOISE = (
    "\r",
    "\x00",
    "\x1b[31m",
    "\x1b]0;",
    "\\ud800",
    "\u2028",
    "\ufeff",
    "[" * 300,
    "{" * 300,
    '{"log":"',
    "> " * 50,
)
_WORDS = (
    "Tried to allocate ", "GPU 0 has a total capacity of ", "OOM when allocating tensor with shape[", "Stats: ",
    "ran out of memory trying to allocate ", "failed call to cuInit: ", "Colocation Debug Info:", "Limit: ",
    "Created device /device:GPU:", " -> device: ", "Root Member(", "Executing op ", "env: CUDA_VISIBLE_DEVICES=\"",
    "Found device 0 with properties: ", "Total memory: ", "Free  at 7f of size ", "Error: ", ".cc:1] ",
)  # fmt: skip


def _number(line: str, rng: random.Random) -> str:
    at = [i for i, c in enumerate(line) if c.isdigit()]
    if not at:
        return line
    i = rng.choice(at)
    return line[:i] + rng.choice(_HUGE) + line[i + 1 :]


def _cut(line: str, rng: random.Random) -> str:
    return line[: rng.randrange(len(line) + 1)]


def _behead(line: str, rng: random.Random) -> str:
    return line[rng.randrange(len(line) + 1) :]


def _splice(line: str, rng: random.Random) -> str:
    return _cut(line, rng) + _behead(rng.choice(_PIECES), rng)


def _insert(line: str, rng: random.Random) -> str:
    at = rng.randrange(len(line) + 1)
    return line[:at] + rng.choice((*_NOISE, *_WORDS)) + line[at:]


def _bytes(line: str, rng: random.Random) -> str:
    raw = bytearray(line.encode("utf-8", "replace"))
    for _ in range(rng.randrange(1, 6)):
        if raw:
            raw[rng.randrange(len(raw))] = rng.randrange(256)
    return raw.decode(rng.choice(("utf-8", "latin-1", "utf-16-le")), "replace")


def _repeat(line: str, rng: random.Random) -> str:
    return line * rng.choice((2, 3, 40))


def _json(line: str, rng: random.Random) -> str:
    return json.dumps({rng.choice(("log", "msg", "message", "data")): line + "\n" + rng.choice(_PIECES)})


_MUTATIONS: tuple[Callable[[str, random.Random], str], ...] = (
    _number, _cut, _behead, _splice, _insert, _insert, _bytes, _repeat, _json,
)  # fmt: skip


def made(seed: int, index: int) -> list[str]:
    """One input: a few lines of real logs, out of order and damaged."""
    rng = random.Random(f"{seed}-{index}")
    start = rng.randrange(len(_PIECES))
    lines = list(_PIECES[start : start + rng.randrange(1, 14)])
    lines += rng.choices(_PIECES, k=rng.randrange(4))
    if rng.random() < 0.3:
        rng.shuffle(lines)
    for _ in range(rng.randrange(1, 8)):
        at = rng.randrange(len(lines))
        lines[at] = rng.choice(_MUTATIONS)(lines[at], rng)
    return lines


def check(lines: list[str]) -> None:
    """Everything that holds of any log; raises where it does not."""
    parser = LogParser()
    for line in lines:
        parser.feed(line)
    parser.close()
    facts = parser.facts
    assert facts.line_count == len(lines)
    assert all(len(kept) <= LINES_PER_TOPIC for kept in facts.evidence.values())
    document = explain_facts(facts, {}, source="fuzz")
    assert document.primary in CAUSES
    assert not any("own rule" in found.title for found in document.findings), document.findings
    assert all((oom.requested_bytes or 0) >= 0 for oom in document.ooms)
    to_json(document)
    joined = list(join_wrapped_lines(lines))
    assert len(joined) <= len(lines)


def run(seed: int, count: int, first: int = 0) -> list[tuple[int, str]]:
    """Checks that many inputs; what failed, with its traceback."""
    broken = []
    for index in range(first, first + count):
        try:
            check(made(seed, index))
        except Exception:  # noqa: BLE001 - the whole point
            broken.append((index, traceback.format_exc(limit=-4)))
    return broken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int)
    options = parser.parse_args()
    if options.only is not None:
        lines = made(options.seed, options.only)
        print("\n".join(map(repr, lines)))
        check(lines)
        return
    began, step = time.process_time(), 10_000
    broken: list[tuple[int, str]] = []
    for first in range(0, options.count, step):
        broken += run(options.seed, min(step, options.count - first), first)
        for index, trace in broken[-3:] if len(broken) > 20 else broken:
            print(f"input {index}:\n{trace}", flush=True)
        if len(broken) > 20:
            break
    print(f"{options.count} inputs, {len(broken)} broken, {time.process_time() - began:.0f} s of CPU")
    raise SystemExit(bool(broken))


if __name__ == "__main__":
    main()
