"""``python -m tests.tree [PART ...]``: every package and module of gpuwatch with the first line that says what it
contains, and what packages say on adding something; PART limits it to paths that contain it.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1] / "gpuwatch"


def lines(parts: list[str]) -> list[str]:
    """One line a module, below its package's text."""
    found = []
    for package in sorted(path.parent for path in ROOT.rglob("__init__.py")):
        name = package.relative_to(ROOT.parent).as_posix() + "/"
        text = (ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or "").splitlines()
        modules = sorted(path for path in package.glob("*.py") if path.stem != "__init__")
        rows = [
            (path.name, (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0]) for path in modules
        ]
        shown = [
            f"    {module:<34} {first}" for module, first in rows if not parts or any(p in name + module for p in parts)
        ]
        if shown or any(p in name for p in parts):
            found += ["", f"{name}  {text[0]}", *(f"  {line}" for line in text[1:] if line), *shown]
    return found[1:]


if __name__ == "__main__":
    print("\n".join(lines(sys.argv[1:])))
