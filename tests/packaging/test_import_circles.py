"""No module of gpuwatch needs, in however many steps, one that needs it."""

from __future__ import annotations

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

import gpuwatch

_ROOT = Path(gpuwatch.__file__).parent


def _by_string(modules: set[str]) -> set[tuple[str, str]]:
    """Modules that another one names in a string, and the packages whose name is put together with a tab's."""
    found = set()
    for path in _ROOT.rglob("*.py"):
        name = ".".join(path.relative_to(_ROOT.parent).with_suffix("").parts).removesuffix(".__init__")
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
                continue
            if not re.fullmatch(r"gpuwatch(\.\w+)+", node.value):
                continue
            if name.startswith(node.value + "."):
                continue  # data of its own package
            named = {one for one in modules if one == node.value or one.startswith(node.value + ".")}
            found |= {(name, one) for one in named}
    return found


@pytest.mark.thorough
def test_no_import_circle_not_even_by_deferred_imports_or_names_in_strings() -> None:
    graph = grimp.build_graph("gpuwatch", exclude_type_checking_imports=True)
    needs = {module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules}
    strings = _by_string(set(graph.modules))
    assert ("gpuwatch.ui.app", "gpuwatch.ui.screens.gpu") in strings, "the search for strings finds nothing"
    for module, named in strings:
        needs[module].add(named)
    TopologicalSorter(needs).prepare()  # CycleError names the circle
