"""A configuration's settings as a short program that a user can paste and run.

The script is taken apart with :mod:`ast`, never run. Where it says nothing else, the program is what
``ENVIRONMENT``, ``configure`` and ``work`` do without the statements that only talk to gpuwatch, as
they are written, comments included. Where that would not teach, the script has an ``EXAMPLE``: a
program whose fields (``$memory_limit``) stand for the values of its options, as Python literals.
"""

from __future__ import annotations

import ast
import builtins
import json
import string
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from gpuwatch.probing.locate import ProbeScript

_FRAMEWORKS = {"tensorflow": ("tensorflow", "tf"), "torch": ("torch", "torch")}
_SHARED = "_gpuwatch_probe"
_WIDTH = 98

_USE = """\
a = tf.random.uniform([$size, $size])
print(tf.matmul(a, a).device)"""
_USE_ON = """\
with tf.device($device):
    a = tf.random.uniform([$size, $size])
    product = tf.matmul(a, a)
print(product.device)"""
"""What stands for the measured work: the least that uses a device, and tells which."""


def recipe(script: ProbeScript, options: dict[str, Any] | None = None) -> str:
    """The settings of ``script`` as a Python program; ``options`` replace its defaults."""
    source = script.path.read_text(encoding="utf-8")
    values = {**_literal(script.path.with_name(_SHARED + ".py"), "DEFAULT_OPTIONS"), **script.options}
    values.update(options or {})
    environment = dict(script.environment)
    if "CUDA_VISIBLE_DEVICES" in environment and "visible" in script.options:
        if values["visible"] == script.options["visible"]:
            values["visible"] = environment["CUDA_VISIBLE_DEVICES"]
        environment["CUDA_VISIBLE_DEVICES"] = values["visible"]
    example = _literal(script.path, "EXAMPLE")
    if example:
        return f"# {script.title}\n{_filled(example, values).rstrip()}\n"

    extract = _Extract(_with_options(source, values), values)
    program = _settled([*extract.function("configure"), "", *extract.function("work")], extract.names)
    lines = [f"# {extract.subject}", "#"]
    lines += textwrap.wrap(script.summary, _WIDTH, initial_indent="# ", subsequent_indent="# ")
    module, name = _FRAMEWORKS[script.framework]
    imports = extract.imports_of(program)
    if environment:
        lines += ["import os", ""]
        lines += [f"os.environ[{_python(name)}] = {_python(value)}" for name, value in environment.items()]
        lines.append("")
    lines += [line for line in imports if line not in lines]
    lines.append(f"import {module}" + (f" as {name}" if name != module else ""))
    return "\n".join([*lines, "", *program]).rstrip() + "\n"


def _filled(template: str, values: dict[str, Any]) -> str:
    return string.Template(template).substitute({name: _python(value) for name, value in values.items()})


def _python(value: object) -> str:
    """A literal, texts in double quotes."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _literal(path: Path, name: str) -> Any:
    """What the module at ``path`` assigns to ``name``; an empty dict when it does not."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
            return ast.literal_eval(node.value)
    return {}


def _with_options(source: str, values: dict[str, Any]) -> str:
    """``probe.options["memory_limit"]`` becomes its value, so that the code stands alone."""
    lines = [line.encode() for line in source.splitlines()]
    found = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Subscript)
        and ast.unparse(node.value) == "probe.options"
        and isinstance(node.slice, ast.Constant)
        and node.slice.value in values
        and node.lineno == node.end_lineno
    ]
    # From the back, so that the columns of those before stay true.
    for node in sorted(found, key=lambda node: (node.lineno, node.col_offset), reverse=True):
        assert isinstance(node.slice, ast.Constant)
        line = lines[node.lineno - 1]
        value = _python(values[str(node.slice.value)]).encode()
        lines[node.lineno - 1] = line[: node.col_offset] + value + line[node.end_col_offset :]
    return b"\n".join(lines).decode()


class _Extract:
    """The lines of a script without those that talk to gpuwatch."""

    def __init__(self, source: str, values: dict[str, Any]) -> None:
        self._lines = source.splitlines()
        self._values = values
        self._tree = ast.parse(source)
        self.subject = (ast.get_docstring(self._tree) or "").partition("\n")[0]
        imported = [node for node in self._tree.body if isinstance(node, ast.Import)]
        bound = {(alias.asname or alias.name): alias.name for node in imported for alias in node.names}
        self._ours = {"probe", *(name for name, module in bound.items() if module.startswith("_gpuwatch"))}
        self._imports = [name for name in bound if name not in self._ours]
        self.names = {*self._imports, "tf", "torch"}
        """What a program may use without assigning it."""

    def function(self, name: str) -> list[str]:
        """The body of a function of the script."""
        for node in self._tree.body:
            if isinstance(node, ast.FunctionDef) and node.name == name:
                block = self._block(node.body, node.lineno)
                return textwrap.dedent("\n".join(block)).splitlines()
        return []

    def imports_of(self, program: Sequence[str]) -> list[str]:
        """Imports of the standard library that the program needs."""
        loaded = _loaded(ast.parse("\n".join(program)))
        return [f"import {name}" for name in self._imports if name in loaded]

    def _block(self, statements: Sequence[ast.stmt], above: int) -> list[str]:
        """The statements that stay, each with the blank lines and comments above it; ``above`` is the line before."""
        shown: list[str] = []
        for statement in statements:
            lines = self._statement(statement)
            gap = self._lines[above : statement.lineno - 1]
            shown += [*gap, *lines] if lines else [""] if "" in gap else []
            above = statement.end_lineno or statement.lineno
        return shown if any(shown) else []

    def _statement(self, node: ast.stmt) -> list[str]:
        if isinstance(node, ast.Expr):
            if isinstance(node.value, ast.Constant):
                return []
            if isinstance(node.value, ast.Call):
                translated = self._translated(node.value)
                if translated:
                    return textwrap.indent(translated, " " * node.col_offset).splitlines()
        if not self._talks(node):
            return self._lines[node.lineno - 1 : node.end_lineno]
        if isinstance(node, ast.With | ast.For | ast.If | ast.Try):
            return self._compound(node)
        return []

    def _compound(self, node: ast.With | ast.For | ast.If | ast.Try) -> list[str]:
        """A block with what is left in it; nothing when nothing is."""
        head: list[ast.AST]
        parts: list[list[ast.stmt]]
        match node:
            case ast.With():
                head, parts = [*node.items], [node.body]
            case ast.For():
                head, parts = [node.target, node.iter], [node.body, node.orelse]
            case ast.If():
                head, parts = [node.test], [node.body, node.orelse]
            case ast.Try():
                head = []
                parts = [node.body, *(handler.body for handler in node.handlers), node.orelse, node.finalbody]
        if any(self._talks(part) for part in head):
            return []
        shown: list[str] = []
        above = node.lineno - 1
        for part in filter(None, parts):
            first = self._top(part[0])
            inside = self._block(part, first - 1)
            if inside:
                shown += [*self._lines[above : first - 1], *inside]
            elif part is node.body:
                return []
            above = part[-1].end_lineno or part[-1].lineno
        return shown

    def _top(self, first: ast.stmt) -> int:
        """The line where the comments above the first statement of a block begin, or the statement's own."""
        line = first.lineno
        while self._lines[line - 2].lstrip().startswith("#"):
            line -= 1
        return line

    def _translated(self, call: ast.Call) -> str:
        """What a program does itself that a probe asks of gpuwatch; empty for what no program needs."""
        match ast.unparse(call.func), call.args:
            case "probe.run", [_]:
                return _filled(_USE, self._values)
            case "probe.run", [_, device]:
                return string.Template(_USE_ON).substitute(
                    size=self._values["size"],
                    device=_python(device.value) if isinstance(device, ast.Constant) else ast.unparse(device),
                )
            case "probe.error", [error]:
                return f"print({ast.unparse(error)})"
        return ""

    def _talks(self, node: ast.AST) -> bool:
        return not self._ours.isdisjoint(part.id for part in ast.walk(node) if isinstance(part, ast.Name))


def _settled(lines: Iterable[str], known: set[str]) -> list[str]:
    """Without what was left over: values that nothing reads, and what reads values that went."""
    program = _tidy(lines)
    while True:
        tree = ast.parse("\n".join(program))
        loaded = _loaded(tree)
        there = {*known, *dir(builtins), *_bound(tree)}
        for node in tree.body:
            sets = _plain_targets(node)
            if (sets and not sets & loaded) or not _loaded(node) <= there:
                program = _tidy([*program[: node.lineno - 1], *program[node.end_lineno :]])
                break
        else:
            return program


def _loaded(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def _bound(tree: ast.AST) -> set[str]:
    """Every name that a program sets anywhere."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                found.add(name)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.ExceptHandler(name=str(name)):
                found.add(name)
    return found


def _plain_targets(node: ast.stmt) -> set[str]:
    """Names that a plain assignment sets; empty for any other statement."""
    if not isinstance(node, ast.Assign) or not all(isinstance(target, ast.Name) for target in node.targets):
        return set()
    return {target.id for target in node.targets if isinstance(target, ast.Name)}


def _tidy(lines: Iterable[str]) -> list[str]:
    """No blank lines at the start or the end, and one at most between others."""
    tidy: list[str] = []
    for line in lines:
        if line.strip() or (tidy and tidy[-1]):
            tidy.append(line.rstrip())
    while tidy and not tidy[-1]:
        tidy.pop()
    return tidy
