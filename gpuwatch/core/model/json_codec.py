"""Documents to and from JSON, and what is checked of them beyond their field types: limits, and references."""

from __future__ import annotations

import codecs
import datetime
import re
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, get_args

import msgspec
from msgspec import inspect
from msgspec.structs import replace

from gpuwatch.core import input_size_limits
from gpuwatch.core.model.alert import Alert
from gpuwatch.core.model.causes import CauseList, CausePage
from gpuwatch.core.model.comparison import Comparison
from gpuwatch.core.model.diagnostic_report import Diagnostic
from gpuwatch.core.model.doctor import Doctor
from gpuwatch.core.model.explanation import Explanation
from gpuwatch.core.model.gpu_time_usage import Usage
from gpuwatch.core.model.machine_diff import Diff
from gpuwatch.core.model.pick_result import HostPick, Pick
from gpuwatch.core.model.probes import ProbeList, RecipeList
from gpuwatch.core.model.reading import Value
from gpuwatch.core.model.recorded_period import Period
from gpuwatch.core.model.recording import EventLine, FindingLine, MeansLine, RecordingCheck, RecordingInfo
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.snapshot import IDLE_SECONDS, IDLE_SINCE, RUN_SECONDS, Process, Snapshot
from gpuwatch.core.model.try_results import Experiment
from gpuwatch.core.safe_text import escape_in_json, printable

Document = Snapshot | Run | Comparison | Explanation | Doctor | Diagnostic | Experiment | Usage | Diff | Period


def _by_document_name(*kinds: type[msgspec.Struct]) -> dict[str, type[msgspec.Struct]]:
    """By the name in the tag: ``try`` of ``gpuwatch.try/1``."""
    return {str(kind.__struct_config__.tag).removeprefix("gpuwatch.").partition("/")[0]: kind for kind in kinds}


DOCUMENTS = _by_document_name(*get_args(Document))
WRITE_ONLY_DOCUMENTS = _by_document_name(
    *(CausePage, CauseList, ProbeList, RecipeList, EventLine, FindingLine, MeansLine, RecordingInfo, RecordingCheck),
    *(Alert, Pick, HostPick),
)
"""Documents that are printed but never read."""


_decoder: msgspec.json.Decoder[Document] = msgspec.json.Decoder(Document)
EMBED_BEGIN, EMBED_END = '<script type="application/json" id="gpuwatch-document">', "</script>"
"""Around the document in an HTML report. No ``<`` is inside, and the page escapes its own, so each is there once."""
_LONG_NUMBER = re.compile(rb"[0-9]{19}")
_HTML_START = b"<!doctype html"
_MAX_QUOTED_CHARS = 300
"""Characters shown of a decoder's message, which may quote the document."""

_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


MAX_VALUES = 2_000_000
"""Maximum number of values and commas: memory use grows with them."""
MAX_TEXT_CHARS = 1 << 20
"""Maximum characters of one text."""
_YEARS = range(1970, 9000)
_MIN_INTEGER, _MAX_INTEGER = -(2**63), 2**64
"""Range of NVML's and the frameworks' integers; msgspec reads larger ones but cannot write them."""
_MAX_SECONDS = 1e10
"""Three hundred years; longer spans overflow."""


class _Tagged(msgspec.Struct):
    schema: str


_tagged = msgspec.json.Decoder(_Tagged)


class Inconsistent(ValueError):
    """The document contradicts itself or exceeds a limit; the message says how."""


class NotADocument(ValueError):
    """The bytes are not a gpuwatch document; the message says why in one line."""

    def __init__(self, message: str, *, is_text: bool = False) -> None:
        super().__init__(message)
        self.is_text = is_text
        """Whether it is text but not a JSON object, such as a log."""


def to_json(document: msgspec.Struct, *, indent: int = 2) -> str:
    """The document as JSON text with a final newline; ``indent=0`` gives one line.

    Terminal control characters are escaped, which does not change the data.
    """
    if isinstance(document, (Snapshot, Diagnostic, Comparison)):
        document = _with_snapshot(document, _with_run_times)
    try:
        raw = msgspec.json.encode(document)
    except UnicodeEncodeError:
        raw = msgspec.json.encode(_with_valid_text(msgspec.to_builtins(document)))
    if indent:
        raw = msgspec.json.format(raw, indent=indent)
    return escape_in_json(raw.decode()) + "\n"


def embedded_in_html(document: Document) -> str:
    """The document as an element of HTML that no browser runs, on one line."""
    text = to_json(document, indent=0).strip().replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return EMBED_BEGIN + text + EMBED_END


def _embedded_document(page: bytes) -> bytes:
    """The document in an HTML report; :class:`NotADocument` for another page. Nothing else of it is looked at."""
    _, *rest = page.split(EMBED_BEGIN.encode(), 2)
    inside, end, _ = rest[0].partition(EMBED_END.encode()) if len(rest) == 1 else (b"", b"", b"")
    if not end or b"<" in inside:
        raise NotADocument("it is an HTML page that gpuwatch did not write")
    return inside


def runs_in(document: object) -> tuple[Run, ...]:
    """The runs that a document is or has, in its order."""
    if isinstance(document, Run):
        return (document,)
    if isinstance(document, Comparison):
        return document.runs
    if isinstance(document, Experiment):
        return tuple(trial.run for trial in document.trials if trial.run is not None)
    if isinstance(document, Diagnostic):
        return (*document.programs, *runs_in(document.probes))
    return ()


def _with_snapshot(document: Document, change: Callable[[Snapshot], Snapshot]) -> Document:
    """The document with its snapshot changed, if it has or is one."""
    if isinstance(document, Snapshot):
        return change(document)
    if isinstance(document, Diagnostic) and document.snapshot is not None:
        return replace(document, snapshot=change(document.snapshot))
    if isinstance(document, Comparison) and document.nodes:
        nodes = (replace(node, snapshot=change(node.snapshot)) if node.snapshot else node for node in document.nodes)
        return replace(document, nodes=tuple(nodes))
    return document


def _with_changed_rows(snapshot: Snapshot, change: Callable[[Process], Process]) -> Snapshot:
    rows = {name: tuple(map(change, getattr(snapshot, name))) for name in ("processes", "bystanders")}
    return replace(snapshot, **rows)


def _with_run_times(snapshot: Snapshot) -> Snapshot:
    """Adds each process's run time, and for how long it is idle instead of since when: readers need not compute it."""
    at = snapshot.taken_at.timestamp()

    def written(row: Process) -> Process:
        times = {RUN_SECONDS: row.run_seconds(at), IDLE_SECONDS: row.idle_seconds(at)}
        known = {name: seconds for name, seconds in times.items() if seconds is not None}
        return replace(row, readings=_without_reading(row.readings, IDLE_SINCE) | known) if known else row

    return _with_changed_rows(snapshot, written)


def _without_run_times(snapshot: Snapshot) -> Snapshot:
    """The opposite: removes run times that follow from the start of a process."""
    at = snapshot.taken_at.timestamp()

    def read(row: Process) -> Process:
        idle = row.readings.get(IDLE_SECONDS)
        if type(idle) in (int, float):
            since = round(at - idle) if idle else 0  # type: ignore[operator]
            row = replace(row, readings=_without_reading(row.readings, IDLE_SECONDS) | {IDLE_SINCE: since})
        if row.create_time is None or RUN_SECONDS not in row.readings:
            return row
        return replace(row, readings=_without_reading(row.readings, RUN_SECONDS))

    return _with_changed_rows(snapshot, read)


def _without_reading(readings: dict[str, Value], name: str) -> dict[str, Value]:
    return {text: value for text, value in readings.items() if text != name}


def _with_valid_text(value: Any) -> Any:
    """``value`` with bytes that are not valid text (file names and command lines, PEP 383) as ``\\xff``."""
    if isinstance(value, str):
        if value.isascii():
            return value
        try:
            return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        except UnicodeEncodeError:
            return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_with_valid_text(name): _with_valid_text(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_valid_text(item) for item in value]
    return value


def read(path: Path) -> Document:
    """The document in a file or pipe; :class:`NotADocument` for anything else, OSError if it cannot be read."""
    with path.open("rb") as file:
        return from_json(file.read(input_size_limits.DOCUMENT.bytes + 1))


def from_json(raw: bytes) -> Document:
    """A document of any of our schemas, within the limits; :class:`NotADocument` for anything else."""
    if len(raw) > input_size_limits.DOCUMENT.bytes:
        raise NotADocument(input_size_limits.DOCUMENT.too_large)
    for mark, encoding in _BYTE_ORDER_MARKS:
        if raw.startswith(mark):  # written by editors and shells on Windows
            raw = raw[len(mark) :].decode(encoding, "replace").encode()
    if raw[:200].lstrip()[: len(_HTML_START)].lower() == _HTML_START:
        raw = _embedded_document(raw)
    start = raw[:200].strip()
    if not start and not raw.strip():
        raise NotADocument("it is empty")
    if start and not start.startswith(b"{") and b"\0" not in raw:
        raise NotADocument("it is some other text", is_text=True)
    if raw.count(b",") + raw.count(b"[") + raw.count(b"{") > MAX_VALUES:
        raise NotADocument(f"it has more than {MAX_VALUES:,} values")
    try:
        document = _decoder.decode(raw)
        _check(document, 1, _LONG_NUMBER.search(raw) is not None)
    except RecursionError:
        raise NotADocument(input_size_limits.DOCUMENT.too_deep) from None
    except (msgspec.MsgspecError, UnicodeDecodeError, Inconsistent) as error:
        raise NotADocument(_newer_version_message(raw) or printable(str(error)[:_MAX_QUOTED_CHARS])) from error
    return _with_snapshot(document, _without_run_times)


def _check(value: Any, depth: int, numbers: bool) -> None:
    """Raises :class:`Inconsistent` unless depth, texts, times, numbers and references are valid.

    Without ``numbers``, numbers are not checked: all are known to have 64 bits.
    """
    if isinstance(value, str):
        if len(value) > MAX_TEXT_CHARS:
            raise Inconsistent(f"it has a string of more than {MAX_TEXT_CHARS:,} characters")
        return
    if isinstance(value, datetime.datetime):
        if value.tzinfo is None or value.year not in _YEARS:
            years = f"{_YEARS[0]} to {_YEARS[-1]}"
            raise Inconsistent(f"{value.isoformat()} is not a time with a zone in the years {years}")
        return
    if isinstance(value, (int, float)):
        if not _MIN_INTEGER <= value < _MAX_INTEGER and not isinstance(value, float):
            raise Inconsistent("it has a whole number of more than 64 bits")
        return
    if value is None or value is msgspec.UNSET:
        return
    if depth > input_size_limits.DOCUMENT.depth:
        raise Inconsistent(input_size_limits.DOCUMENT.too_deep)
    if isinstance(value, msgspec.Struct):
        fields, times = _checked_fields(type(value), numbers)
        for name in times:
            seconds = getattr(value, name)
            if isinstance(seconds, (int, float)) and abs(seconds) > _MAX_SECONDS:
                raise Inconsistent(f"{name} is {seconds:g}: not a valid time span")
        for name in fields:
            _check(getattr(value, name), depth + 1, numbers)
        if isinstance(value, Comparison):
            _check_references(value)
        return
    if isinstance(value, dict):
        for name in value:
            _check(name, depth, numbers)
        value = value.values()
    for item in value:
        _check(item, depth + 1, numbers)


@cache
def _checked_fields(kind: type[msgspec.Struct], numbers: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The fields of a type to check, and those that are time spans."""
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    checked = tuple(field.name for field in info.fields if numbers or not _is_number(field.type))
    return checked, tuple(field.name for field in info.fields if re.search(r"seconds$|(^|_)hours(_|$)", field.name))


def _is_number(kind: inspect.Type) -> bool:
    if isinstance(kind, inspect.UnionType):
        return all(map(_is_number, kind.types))
    return isinstance(kind, (inspect.IntType, inspect.FloatType, inspect.BoolType, inspect.NoneType))


def _check_references(document: Comparison) -> None:
    named: list[Iterable[int]] = [document.comparable, document.best_run.values(), document.worst_run.values()]
    named += [(difference.run, difference.against) for difference in document.differences]
    for numbers in named:
        for number in numbers:
            if not 0 <= number < len(document.runs):
                raise Inconsistent(f"it refers to run {number} but has {len(document.runs)}, counted from 0")


def _newer_version_message(raw: bytes) -> str:
    """The message for a document of a newer version; empty for any other."""
    try:
        tag = _tagged.decode(raw).schema
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
    name, _, version = tag.partition("/")
    known = name.removeprefix("gpuwatch.")
    if not name.startswith("gpuwatch.") or version in ("", "0", "1") or not version.isdigit():
        return ""
    if known in DOCUMENTS:
        return f"{tag[:40]} was written by a newer gpuwatch: update this one"
    return ""


@cache
def enumerated_values() -> dict[str, frozenset[str]]:
    """The allowed words of each enumerated field, by field name over all documents."""
    found: dict[str, set[str]] = {}

    def collect(value: object) -> None:
        if isinstance(value, dict):
            for name, entry in value.get("properties", {}).items():
                for kind in (entry, *entry.get("anyOf", ())):
                    found.setdefault(name, set()).update(word for word in kind.get("enum", ()) if isinstance(word, str))
            value = list(value.values())
        for item in value if isinstance(value, list) else ():
            collect(item)

    for kind in DOCUMENTS.values():
        collect(msgspec.json.schema(kind))
    return {name: frozenset(words) for name, words in found.items() if words}


def schema_of(name: str) -> dict[str, Any]:
    """JSON Schema of one of :data:`DOCUMENTS` or :data:`WRITE_ONLY_DOCUMENTS`; KeyError for another name."""
    from gpuwatch.core.model.json_schemas import json_schema  # reads the sources of the documents' classes

    return json_schema((DOCUMENTS | WRITE_ONLY_DOCUMENTS)[name])
