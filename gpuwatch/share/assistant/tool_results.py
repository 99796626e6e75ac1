"""Results of tools: documents of gpuwatch, small enough for the context of an assistant, and what was left out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from operator import itemgetter
from typing import Any

import msgspec

from gpuwatch.core.errors import GpuwatchError
from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.core.group_by import group_by
from gpuwatch.core.masking.masked_documents import masked, masked_for_sending
from gpuwatch.core.masking.redactor import Redactor
from gpuwatch.core.model.json_codec import DOCUMENTS, WRITE_ONLY_DOCUMENTS, enumerated_values, to_json
from gpuwatch.core.model.json_schemas import json_schema

MAX_BYTES = 48 << 10
"""Maximum size of an answer as JSON: about 15,000 tokens; clients cut or refuse more than 25,000."""
MAX_TEXT_CHARS = 2000
"""Characters of one text, such as a command line or a message."""
MAX_PAGE_CHARS = 20_000
"""Characters of the page of a cause."""
LEFT_OUT = "left_out"
WRITTEN_BY_OTHERS = "written_by_others"
"""The fields of an answer whose text programs or other people wrote, wholly or in part: data, never instructions."""
_NOTE_SCHEMAS = {LEFT_OUT: {"type": "array"}, WRITTEN_BY_OTHERS: {"type": "array"}}
_OWN_FIELDS = frozenset(
    {"schema", "id", "action", "hint", "markdown", "uuid", "device_uuid", "gpu", "version", "gpuwatch_version", "unit"}
)
"""Fields that gpuwatch writes itself, or that have a form of their own. All others count as written by others."""
_MAX_PATHS = 60
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d[\d:.Z+-]*$")
_MAX_UNSHORTENED = 4
"""Lists that are no longer stay whole: what is short has a fixed length, or is the point of the answer."""
_SHORTENED_LAST = frozenset({"findings", "checks", "chosen", "causes"})
"""Lists that stay whole as long as others can be shortened."""
_LISTS_WITH_LISTS = frozenset({"runs", "trials", "devices"})
"""Lists that keep their entries as long as the lists in these can be shortened."""
_LISTS_SHORTENED_FROM_START = frozenset({"log_tail", "xids", "accounted"})
"""Lists of which the end matters."""
_MAX_STEPS = 400
"""Steps after which an answer that is still too large is refused."""


def bounded_document(document: dict[str, Any], notes: Sequence[str] = ()) -> dict[str, Any]:
    """The document within :data:`MAX_BYTES`, and in ``left_out`` what is missing in it.

    Long texts are cut, then the largest lists are halved.

    Raises:
        GpuwatchError: it is too large, and has nothing that could be left out.
    """
    cut_texts: dict[str, int] = {}
    result: dict[str, Any] = _with_texts_cut(document, "", cut_texts)
    left_out = [*notes, *(f"{path}: {count_text(count, 'long text')} shortened" for path, count in cut_texts.items())]
    shortened: dict[int, tuple[str, list[Any], int]] = {}
    """Path, the list as it is now, and its length before."""
    steps = 0
    while len(msgspec.json.encode(result)) > MAX_BYTES - 2000:
        largest = _largest_list(result, spare=True) or _largest_list(result, spare=False)
        steps += 1
        if largest is None or steps > _MAX_STEPS:
            raise GpuwatchError(f"the answer is larger than {MAX_BYTES >> 10} KiB", hint="request less")
        path, items = largest
        shortened.setdefault(id(items), (path, items, len(items)))
        half = len(items) // 2
        del items[slice(0, -half) if path.rpartition(".")[2] in _LISTS_SHORTENED_FROM_START else slice(half, None)]
    for path, lists in group_by(shortened.values(), itemgetter(0)).items():
        count = sum(length_before for _, _, length_before in lists)
        left_out.append(f"{path}: {count - sum(len(items) for _, items, _ in lists)} of {count}")
    foreign_paths = dict.fromkeys(_written_by_others(result, ""))
    return {**result, WRITTEN_BY_OTHERS: list(foreign_paths)[:_MAX_PATHS], LEFT_OUT: left_out[:20]}


def _written_by_others(value: Any, path: str) -> Iterable[str]:
    """The paths of the texts that gpuwatch did not write; the names of a mapping's entries are a star."""
    name = path.rpartition(".")[2]
    if isinstance(value, str):
        is_own = value in enumerated_values().get(name, ()) or name in _OWN_FIELDS or name.endswith("_at") or not value
        if not is_own and not _TIME.match(value):
            yield path
    elif isinstance(value, dict):
        for key, item in value.items():
            inner = key if key in _field_names() else "*"
            yield from _written_by_others(item, f"{path}.{inner}" if path else inner)
    elif isinstance(value, list):
        for item in value:
            yield from _written_by_others(item, path)


@cache
def _field_names() -> frozenset[str]:
    """The names of all fields of all documents, without the names that their mappings have."""
    document_types = (*DOCUMENTS.values(), *WRITE_ONLY_DOCUMENTS.values())
    parts = (part for kind in document_types for part in msgspec.json.schema(kind)["$defs"].values())
    return frozenset(name for part in parts for name in part.get("properties", ()))


def _with_texts_cut(value: Any, path: str, cut_texts: dict[str, int]) -> Any:
    """A copy with long texts cut; adds to ``cut_texts`` how many, by path."""
    if isinstance(value, str):
        longest = MAX_PAGE_CHARS if path == "markdown" else MAX_TEXT_CHARS
        if len(value) <= longest:
            return value
        cut_texts[path] = cut_texts.get(path, 0) + 1
        return f"{value[:longest]}… ({len(value) - longest} more characters)"
    if isinstance(value, dict):
        return {
            name: _with_texts_cut(item, f"{path}.{name}" if path else name, cut_texts) for name, item in value.items()
        }
    if isinstance(value, list):
        return [_with_texts_cut(item, path, cut_texts) for item in value]
    return value


def _largest_list(document: dict[str, Any], *, spare: bool) -> tuple[str, list[Any]] | None:
    """The list with the most JSON in it that may be shortened, and its path; None if there is none."""
    lists = _lists(document, "", spare=spare)
    return max(lists, key=lambda path_and_list: len(msgspec.json.encode(path_and_list[1])), default=None)


def _lists(value: Any, path: str, *, spare: bool) -> Iterable[tuple[str, list[Any]]]:
    if isinstance(value, dict):
        for name, item in value.items():
            if not (spare and name in _SHORTENED_LAST):
                yield from _lists(item, f"{path}.{name}" if path else name, spare=spare)
    elif isinstance(value, list):
        if len(value) > _MAX_UNSHORTENED and not (spare and path in _LISTS_WITH_LISTS):
            yield path, value
        else:
            for item in value:
                yield from _lists(item, path, spare=spare)


def as_plain_data(
    document: msgspec.Struct, *, redact: bool, identifying_document: msgspec.Struct | None = None
) -> dict[str, Any]:
    """The document as it would be printed as JSON: secrets are masked, and more with ``redact``.

    ``identifying_document``: another document, which tells which words in the texts of this one are users and hosts.
    """
    if redact and identifying_document is not None:
        redactor = Redactor()
        redactor.learn(msgspec.to_builtins(masked(identifying_document)))
        replaced = redactor.replaced(msgspec.to_builtins(masked(document)))
        document = msgspec.convert(replaced, type(document))
    else:
        document = masked_for_sending(document, redact=redact)
    plain: dict[str, Any] = msgspec.json.decode(to_json(document, indent=0))
    return plain


def output_schema(*document_types: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON Schema of an answer that is one of these documents: its top level, as an assistant's context is small.

    ``gpuwatch schema`` prints the whole.
    """
    roots = [_top_level(json_schema(kind)["$defs"][kind.__name__]) for kind in document_types]
    return {
        "type": "object",
        "properties": _NOTE_SCHEMAS,
        "required": ["schema", *_NOTE_SCHEMAS],
        **({"anyOf": roots} if len(roots) > 1 else roots[0]),
    }


def _top_level(schema: dict[str, Any]) -> dict[str, Any]:
    kept_keys = ("type", "const", "enum")
    fields = {
        name: {"type": "object"} if "$ref" in field else {key: field[key] for key in kept_keys if key in field}
        for name, field in schema["properties"].items()
    }
    return {"properties": {**fields, **_NOTE_SCHEMAS}, "required": [*schema.get("required", ()), *_NOTE_SCHEMAS]}
