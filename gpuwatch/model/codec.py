"""To and from JSON: the one place that knows how documents look on disk."""

from __future__ import annotations

import codecs
from typing import Any

import msgspec

from gpuwatch.model.catalogue import ProbeList, RecipeList
from gpuwatch.model.causes import CauseList, CausePage
from gpuwatch.model.contrast import Contrast
from gpuwatch.model.diagnostic import Diagnostic
from gpuwatch.model.doctor import Doctor
from gpuwatch.model.explanation import Explanation
from gpuwatch.model.run import Comparison, Run
from gpuwatch.model.snapshot import Snapshot

Document = Snapshot | Run | Comparison | Explanation | Doctor | Diagnostic | Contrast

DOCUMENTS: dict[str, type[msgspec.Struct]] = {
    "snapshot": Snapshot,
    "run": Run,
    "comparison": Comparison,
    "explanation": Explanation,
    "doctor": Doctor,
    "diagnostic": Diagnostic,
    "contrast": Contrast,
}
PRINTED: dict[str, type[msgspec.Struct]] = {
    "cause": CausePage,
    "causes": CauseList,
    "probes": ProbeList,
    "recipes": RecipeList,
}
"""What is printed as JSON and never read back."""


_decoder: msgspec.json.Decoder[Document] = msgspec.json.Decoder(Document)


_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class _Tagged(msgspec.Struct):
    schema: str


class NotADocument(ValueError):
    """The bytes are no document of ours; the message says why in one line."""


def to_json(document: msgspec.Struct, *, indent: int = 2) -> str:
    """The document as JSON text, ending in a newline; ``indent=0`` gives one line."""
    try:
        raw = msgspec.json.encode(document)
    except UnicodeEncodeError:
        raw = msgspec.json.encode(_as_text(msgspec.to_builtins(document)))
    if indent:
        raw = msgspec.json.format(raw, indent=indent)
    return raw.decode() + "\n"


def _as_text(value: Any) -> Any:
    """``value`` with every byte that is no text (of file names and command lines, PEP 383) as ``\\xff``."""
    if isinstance(value, str):
        if value.isascii():
            return value
        try:
            return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        except UnicodeEncodeError:
            return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_as_text(name): _as_text(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_text(item) for item in value]
    return value


def from_json(raw: bytes) -> Document:
    """A document of any of our schemas; :class:`NotADocument` for anything else."""
    for mark, encoding in _MARKS:
        if raw.startswith(mark):  # editors and shells of Windows write them
            raw = raw[len(mark) :].decode(encoding, "replace").encode()
    if not raw.strip():
        raise NotADocument("it is empty")
    try:
        return _decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise NotADocument(_newer(raw) or str(error)) from error


def _newer(raw: bytes) -> str:
    """What to say of a document of a version that we do not know; empty for any other."""
    try:
        tag = msgspec.json.decode(raw, type=_Tagged).schema
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""
    name, _, version = tag.partition("/")
    known = name.removeprefix("gpuwatch.")
    if not name.startswith("gpuwatch.") or not version.isdigit() or int(version) < 2:
        return ""
    if known in DOCUMENTS:
        return f"{tag} was written by a newer gpuwatch: update this one"
    return ""


def schema_of(name: str) -> dict[str, object]:
    """JSON Schema of one of :data:`DOCUMENTS` or :data:`PRINTED`; KeyError for another name."""
    return msgspec.json.schema((DOCUMENTS | PRINTED)[name])
