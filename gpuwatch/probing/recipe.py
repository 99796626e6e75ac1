"""A configuration's settings as code that a user can paste into a program of their own.

The script is taken apart with :mod:`ast`, never run: what it sets in the environment, the import,
and the statements of ``configure`` and ``work`` without those that only talk to gpuwatch.
"""

from __future__ import annotations

import ast
from typing import Any

from gpuwatch.probing.locate import ProbeScript

_IMPORTS = {"tensorflow": "import tensorflow as tf", "torch": "import torch"}


def recipe(script: ProbeScript, options: dict[str, Any] | None = None) -> str:
    """The settings of ``script`` as Python source; ``options`` replace its defaults."""
    source = script.path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    values = {**script.options, **(options or {})}
    lines = [f"# {script.title}"]
    if script.environment:
        lines += ["import os", ""]
        lines += [f"os.environ[{name!r}] = {value!r}" for name, value in script.environment.items()]
        lines.append("")
    lines.append(_IMPORTS[script.framework])
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    helpers: list[ast.FunctionDef] = []
    for name in ("configure", "work"):
        if name not in functions:
            continue
        body = _body(functions[name], values)
        if not body:
            continue
        helpers += [node for node in _called(body, functions) if node not in helpers]
        lines += ["", *(_shown(statement, source) for statement in body)]
    for helper in helpers:
        lines += ["", "", ast.unparse(helper)]
    return "\n".join(lines).rstrip() + "\n"


def _body(function: ast.FunctionDef, values: dict[str, Any]) -> list[ast.stmt]:
    filled = _FillOptions(values).visit(function)
    assert isinstance(filled, ast.FunctionDef)
    kept = [node for node in _without_probe(filled.body) if not _is_text(node)]
    return _without_leftovers(kept)


def _without_leftovers(statements: list[ast.stmt]) -> list[ast.stmt]:
    """Assignments to names that nothing reads any more: they were for gpuwatch's ears."""
    while True:
        read = {
            part.id
            for statement in statements
            for part in ast.walk(statement)
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)
        }
        kept = [node for node in statements if not (_names(node) and not _names(node) & read)]
        if len(kept) == len(statements):
            return kept
        statements = kept


def _names(node: ast.stmt) -> set[str]:
    """Names that a plain assignment sets; empty for any other statement."""
    if not isinstance(node, ast.Assign):
        return set()
    return {target.id for target in node.targets if isinstance(target, ast.Name)}


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _mentions_probe(node: ast.AST) -> bool:
    return any(isinstance(part, ast.Name) and part.id == "probe" for part in ast.walk(node))


def _without_probe(statements: list[ast.stmt]) -> list[ast.stmt]:
    """The statements without those that talk to gpuwatch; a block that empties keeps ``...``."""
    kept: list[ast.stmt] = []
    for statement in statements:
        if not _mentions_probe(statement):
            kept.append(statement)
            continue
        if isinstance(statement, ast.With | ast.For | ast.If | ast.Try):
            if any(_mentions_probe(part) for part in _heads(statement)):
                continue
            for field in ("body", "orelse", "finalbody"):
                inner = getattr(statement, field, None)
                if inner:
                    setattr(statement, field, _without_probe(inner) or ([_ellipsis()] if field == "body" else []))
            if isinstance(statement, ast.Try):
                for handler in statement.handlers:
                    handler.body = _without_probe(handler.body) or [_raise()]
            ast.fix_missing_locations(statement)
            kept.append(statement)
    return kept


def _heads(statement: ast.With | ast.For | ast.If | ast.Try) -> list[ast.AST]:
    match statement:
        case ast.With(items=items):
            return list(items)
        case ast.For(target=target, iter=iterated):
            return [target, iterated]
        case ast.If(test=test):
            return [test]
        case _:
            return []


def _ellipsis() -> ast.stmt:
    return ast.Expr(ast.Constant(...))


def _raise() -> ast.stmt:
    return ast.Raise()


class _FillOptions(ast.NodeTransformer):
    """``probe.options["memory_limit"]`` becomes its value, so that the code stands alone."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if ast.unparse(node.value) == "probe.options" and isinstance(node.slice, ast.Constant):
            name = node.slice.value
            if name in self._values:
                filled = ast.Constant(self._values[name])
                filled.kind = None
                return ast.copy_location(filled, node)
        return self.generic_visit(node)


def _called(body: list[ast.stmt], functions: dict[str, ast.FunctionDef]) -> list[ast.FunctionDef]:
    names = {part.id for statement in body for part in ast.walk(statement) if isinstance(part, ast.Name)}
    return [node for name, node in functions.items() if name in names and not _mentions_probe(node)]


def _shown(statement: ast.stmt, source: str) -> str:
    """As it was written where nothing was filled in, so that the author's comments stay."""
    written = ast.get_source_segment(source, statement, padded=True)
    if written is not None:
        import textwrap

        dedented = textwrap.dedent(written)
        try:
            if ast.dump(ast.parse(dedented)) == ast.dump(ast.Module([statement], [])):
                return dedented
        except SyntaxError:
            pass
    return ast.unparse(statement)
