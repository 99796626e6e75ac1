"""JSON: the document itself, as its published schema says."""

from __future__ import annotations

import re

from gpuwatch.model.codec import Document, to_json

# Legal in JSON strings as they are, but they steer a terminal; escaped they are the same data.
_STEERING = re.compile("[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


def render(document: Document) -> str:
    """The document, indented."""
    return _STEERING.sub(lambda match: f"\\u{ord(match[0]):04x}", to_json(document))
