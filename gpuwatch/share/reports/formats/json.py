"""JSON: the document itself, as its published schema says."""

from __future__ import annotations

from gpuwatch.core.model.json_codec import Document, to_json


def render(document: Document) -> str:
    """The document, indented."""
    return to_json(document)
