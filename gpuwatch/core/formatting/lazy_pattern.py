"""Regular expressions that are compiled when they are first used.

Compiling those of logs and secrets takes longer than most commands do otherwise, and most commands use few of them.
"""

from __future__ import annotations

import re
from typing import Any, cast

_METHODS = ("search", "match", "fullmatch", "finditer", "findall", "sub", "subn", "split")


class _LazyPattern:
    """Has the attributes of :class:`re.Pattern`; its methods are the pattern's own after the first use."""

    def __init__(self, source: str, flags: int) -> None:
        self._source_and_flags = source, flags

    def __getattr__(self, name: str) -> Any:
        compiled = re.compile(*self._source_and_flags)
        for method in _METHODS:
            setattr(self, method, getattr(compiled, method))
        return getattr(compiled, name)


def lazy(source: str, flags: int = 0) -> re.Pattern[str]:
    """Like :func:`re.compile`; an error in ``source`` shows at the first use."""
    return cast("re.Pattern[str]", _LazyPattern(source, int(flags)))
