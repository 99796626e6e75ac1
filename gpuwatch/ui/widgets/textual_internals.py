"""Access to private names of Textual, which another version may not have.

Every use has a public way to fall back to. A test hides each name in turn and checks that the dashboard still
works, so a new use needs nothing but a call of :func:`private_attribute`.
"""

from __future__ import annotations

from typing import TypeVar

Kind = TypeVar("Kind")


def private_attribute(owner: object, name: str, kind: type[Kind]) -> Kind | None:
    """A private attribute of a Textual object; None if this version lacks it, or if it is not a ``kind``."""
    value = getattr(owner, name, None)
    return value if isinstance(value, kind) else None
