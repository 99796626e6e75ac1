"""To and from JSON: the one place that knows how documents look on disk."""

from __future__ import annotations

import msgspec

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


_decoder: msgspec.json.Decoder[Document] = msgspec.json.Decoder(Document)


class NotADocument(ValueError):
    """The bytes are no document of ours; the message says why in one line."""


def to_json(document: msgspec.Struct, *, indent: int = 2) -> str:
    """The document as JSON text, ending in a newline; ``indent=0`` gives one line."""
    raw = msgspec.json.encode(document)
    if indent:
        raw = msgspec.json.format(raw, indent=indent)
    return raw.decode() + "\n"


def from_json(raw: bytes) -> Document:
    """A document of any of our schemas; :class:`NotADocument` for anything else."""
    try:
        return _decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise NotADocument(str(error)) from error


def schema_of(name: str) -> dict[str, object]:
    """JSON Schema of one of :data:`DOCUMENTS`; KeyError for another name."""
    return msgspec.json.schema(DOCUMENTS[name])
