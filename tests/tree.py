"""``python -m tests.tree [PART ...]``: packages, modules, data and C sources of gpuwatch and the probes, each with the
first line that says what it contains, and what packages say on adding something; PART limits it to paths with it.
"""

from __future__ import annotations

import ast
import itertools
import re
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
_OTHER_FOLDERS = ("gpuwatch/sim/csrc", "probes", "probes/_gpuwatch_watch")
_LANGUAGES_WITH_BLOCK_COMMENTS = (".c", ".cc", ".h")
_SUFFIXES = (".py", ".txt", *_LANGUAGES_WITH_BLOCK_COMMENTS)


def first_line(path: Path) -> str:
    """What a file says of itself: the first line of its docstring, the first sentence of its first comment."""
    text = path.read_text("utf-8")
    if path.suffix == ".py":
        return (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
    if path.suffix in _LANGUAGES_WITH_BLOCK_COMMENTS:
        comment = text.partition("/*")[2].partition("*/")[0]
        words = " ".join(line.strip(" *") for line in comment.partition("\n *\n")[0].splitlines())
    else:
        words = "".join(line[1:] for line in itertools.takewhile(lambda line: line.startswith("#"), text.splitlines()))
    return re.split(r"(?<=\.) (?=[A-Z])", words.strip())[0]


def lines(parts: list[str]) -> list[str]:
    """One line a file, below its package's text."""
    packages = {path.parent for path in (REPOSITORY / "gpuwatch").rglob("__init__.py")}
    found = []
    for folder in sorted(packages | {REPOSITORY / name for name in _OTHER_FOLDERS}):
        name = folder.relative_to(REPOSITORY).as_posix() + "/"
        package = folder / "__init__.py"
        text = ((ast.get_docstring(ast.parse(package.read_text())) or "") if package.exists() else "").splitlines()
        files = sorted(path for path in folder.iterdir() if path.suffix in _SUFFIXES and path != package)
        rows = [(path.name, first_line(path)) for path in files]
        shown = [f"    {file:<34} {first}" for file, first in rows if not parts or any(p in name + file for p in parts)]
        if shown or any(p in name for p in parts):
            found += ["", f"{name}  {text[0] if text else ''}".rstrip()]
            found += [*(f"  {line}" for line in text[1:] if line), *shown]
    return found[1:]


if __name__ == "__main__":
    print("\n".join(lines(sys.argv[1:])))
