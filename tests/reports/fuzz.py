"""Documents made up out of their types, thrown at every format; says what breaks and how to see it again.

By hand, for ten thousand (about ten minutes):

    nice -n 10 python -m tests.reports.fuzz --count 10000

``--seed`` repeats one of them. Some run with every ``pytest`` (test_any_document.py).
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import random
import re
import traceback
from typing import Any

from msgspec import inspect

from gpuwatch.core.model.causes import CAUSES
from gpuwatch.core.model.comparison import Comparison
from gpuwatch.core.model.diagnostic_report import Diagnostic
from gpuwatch.core.model.doctor import Doctor
from gpuwatch.core.model.json_codec import DOCUMENTS, Document, NotADocument, from_json
from gpuwatch.core.model.metrics import METRICS
from gpuwatch.core.model.run import Run
from gpuwatch.share.reports.diff_report import diff
from gpuwatch.share.reports.diff_sides import side_of_document
from gpuwatch.share.reports.report_formats import FORMATS, render
from gpuwatch.share.reports.runs_side_by_side import compare

HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff"
    "\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
"""Everything that moves a cursor, hides text or reorders it; newlines are the format's own."""
EVIL = '=cmd|"/c calc"!A1 \x1b[31m\x1b]0;t\x07 \0 \u200b\u202e\u2066\x9b\ufeff\u061c\U000e0041 <script>`|**\r\n@all'
_TEXTS = (
    "", EVIL, f"\t{EVIL}", "GPU:0", "/device:GPU:0", "GPU-9f3c2a10-1111-2222-3333-444455556666", "0", "-1", "+1", "-",
    "2.21.0", "é̂" * 40, "x" * 300, "\n", "9" * 5000, "a/b\\c|d`e", "tensorflow", "torch", "lost", "ok", "٣",
    "नि\u200dक", "👩\u200d💻", *CAUSES,
)  # fmt: skip
_KEYS = (
    "memory.used_bytes", "memory.total_bytes", "gpu_memory_bytes", "largest_batch", "CUDA_VISIBLE_DEVICES",
    "run_seconds", EVIL, "", *(spec.id for spec in METRICS),
)  # fmt: skip
_WHOLE = (0, -1, 1, 2, 7, 2**31, 2**53, 2**63 - 1, -(2**63), 2**64 - 1)
_REAL = (0.0, -1.0, 0.5, 1e308, -1e308, 5e-324, 1e18, 3.0)
_SECONDS = (0.0, 0, 1, 0.25, 61.0, 86400 * 400, 1e9, -1.0, 5e-324)
_TIMES = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00+23:59", "1970-01-01T00:00:00Z", "8999-12-31T23:59:59.999999Z")


def plain(kind: inspect.Type, rng: random.Random, depth: int = 0, name: str = "") -> Any:
    """JSON data of this type, with values that nobody expects."""
    match kind:
        case inspect.AnyType():
            return _anything(rng, depth)
        case inspect.NoneType():
            return None
        case inspect.BoolType():
            return rng.random() < 0.5
        case inspect.IntType() | inspect.FloatType() if name.endswith("seconds"):
            return rng.choice(_SECONDS if isinstance(kind, inspect.FloatType) else (0, 1, 3600))
        case inspect.IntType():
            return rng.choice(_WHOLE)
        case inspect.FloatType():
            return rng.choice((*_REAL, *_WHOLE))
        case inspect.StrType():
            return rng.choice(_TEXTS)
        case inspect.DateTimeType():
            return rng.choice(_TIMES)
        case inspect.LiteralType():
            return rng.choice(kind.values)
        case inspect.UnionType():
            return plain(rng.choice(kind.types), rng, depth, name)
        case inspect.VarTupleType() | inspect.ListType():
            count = rng.choice((0, 1, 2, 3) if depth < 5 else (0, 1))
            return [plain(kind.item_type, rng, depth + 1) for _ in range(count)]
        case inspect.TupleType():
            return [plain(one, rng, depth + 1) for one in kind.item_types]
        case inspect.DictType():
            keys = [plain(kind.key_type, rng) for _ in range(rng.choice((0, 1, 2, 4)))]
            keys = [rng.choice(_KEYS) if isinstance(key, str) and rng.random() < 0.7 else key for key in keys]
            return {str(key): plain(kind.value_type, rng, depth + 1) for key in keys}
        case inspect.StructType():
            made = {kind.tag_field: kind.tag} if kind.tag is not None else {}
            for one in kind.fields:
                if one.required or rng.random() < (0.75 if depth < 4 else 0.4):
                    made[one.encode_name] = plain(one.type, rng, depth + 1, one.name)
            return _referring(kind.cls, made, rng)
    raise TypeError(kind)


def _referring(kind: type, made: dict[Any, Any], rng: random.Random) -> dict[Any, Any]:
    """With what refers to other parts mostly in order: else every document would be refused."""
    if rng.random() < 0.1:
        return made
    if kind is Comparison:
        there = range(len(made["runs"]))
        for name in ("best_run", "worst_run"):
            made[name] = {"steps_per_second": rng.choice(there)} if there else {}
        made["comparable"] = [number for number in there if rng.random() < 0.5]
        made["columns"] = rng.choice((made["columns"], ["config", "verdict", "steps_per_second"]))
        for told in made.get("differences", []):
            told["run"], told["against"] = (rng.choice(there), 0) if there else (0, 0)
        if not there:
            made["differences"] = []
    return made


def _anything(rng: random.Random, depth: int) -> Any:
    kinds = ["text", "whole", "real", "none", "list", "object"][: 6 if depth < 7 else 4]
    match rng.choice(kinds):
        case "text":
            return rng.choice(_TEXTS)
        case "whole":
            return rng.choice(_WHOLE)
        case "real":
            return rng.choice(_REAL)
        case "list":
            return [_anything(rng, depth + 1) for _ in range(2)]
        case "object":
            return {rng.choice(_KEYS): _anything(rng, depth + 1)}
    return None


def made_up(seed: int) -> bytes:
    """A document of any kind as JSON; most of them can be read."""
    rng = random.Random(seed)
    name = rng.choice(sorted(DOCUMENTS))
    return json.dumps(plain(inspect.type_info(DOCUMENTS[name]), rng)).encode()


def examined(raw: bytes) -> bool:
    """Every way out of one document; AssertionError (or what it died of) for what is wrong. False: it is refused."""
    try:
        document = from_json(raw)
    except NotADocument as error:
        message = str(error)
        assert message.isprintable(), message
        assert len(message) < 400, message
        return False
    drawn = {entry.name: entry.render(document) for entry in FORMATS}
    drawn["terminal"] = render(document, "text", width=60)
    drawn["redacted"] = render(document, "json", redact=True)
    together = _compared(document)
    if together is not None:
        drawn["compared"] = render(together, "text")
        drawn["compared as CSV"] = render(together, "csv")
    for name, text in drawn.items():
        _assert_harmless(name, text.replace("नि\u200dक", "").replace("👩\u200d💻", ""))
    assert from_json(drawn["json"].encode()) == document, "JSON loses nothing"
    for row in csv.reader(io.StringIO(drawn["csv"])):
        for cell in row:
            assert not re.match(r"\s*[=+@-](?![\d.e+-]*$)", cell), f"a formula: {cell[:40]!r}"
    return True


def _compared(document: Document) -> Document | None:
    match document:
        case Run():
            return compare([document, document])
        case Comparison():
            return compare(list(document.runs))
        case Diagnostic() | Doctor():
            return diff(*(side_of_document(document, name, with_card_ids=True) for name in ("here", "there")))
    return None


def _assert_harmless(name: str, text: str) -> None:
    found = HIDDEN.search(text)
    assert found is None, f"{name} has {found[0]!r} in {text[max(found.start() - 40, 0) : found.end() + 20]!r}"


def main() -> None:
    """Counts the kinds of errors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, help="one document alone")
    given = parser.parse_args()
    found: dict[str, list[int]] = {}
    read = 0
    for seed in range(given.count) if given.seed is None else [given.seed]:
        try:
            read += examined(made_up(seed))
        except Exception as error:  # noqa: BLE001  (counted)
            last = [one for one in traceback.extract_tb(error.__traceback__) if "/gpuwatch/" in one.filename][-1:]
            where = "".join(f" at {one.filename}:{one.lineno}" for one in last)
            found.setdefault(f"{type(error).__name__}: {str(error)[:150]}{where}", []).append(seed)
    for what, seeds in found.items():
        print(f"{len(seeds)} x {what}; seeds {seeds[:5]}")
    print(f"{read} documents were read without an error, {sum(map(len, found.values()))} ended in one")


if __name__ == "__main__":
    main()
