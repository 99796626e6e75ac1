"""Which tests are fast: those from which no line that starts a process, a compiler or a dashboard can be reached.

A function reaches what it names: functions and classes of gpuwatch and of the tests, with all of their methods.
That is more than is really called, so some quick tests are left out. What is missed (a call through a variable)
stops the test: see :func:`forbid_processes`.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest

STARTS = {
    "subprocess",
    "multiprocessing",
    "fork",
    "forkpty",
    "posix_spawn",
    "execv",
    "execve",
    "execvpe",
    "stdio_client",
}
PILOTS = {"run_test"}
FRAMEWORKS = {"tensorflow", "torch"}
EVENTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system", "pty.spawn"}
_OURS = ("gpuwatch", "tests")


def fast_ones(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Those of the collected tests that start neither a process nor a dashboard, and are not thorough."""
    starts = {
        item: list(_roots(item))
        for item in items
        if isinstance(item, pytest.Function) and not item.get_closest_marker("thorough")
    }
    seen: set[int] = set()
    callers: dict[int, list[int]] = {}
    waiting = [root for roots in starts.values() for root in roots]
    reaching: list[int] = []
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        names = set(_names(node))
        named = [value for value in _values(node, names) if _is_ours(value)]
        if names & (STARTS | PILOTS | FRAMEWORKS):
            reaching.append(id(node))
        for value in named:
            callers.setdefault(id(value), []).append(id(node))
        waiting += named
    slow: set[int] = set()
    while reaching:
        number = reaching.pop()
        if number not in slow:
            slow.add(number)
            reaching += callers.get(number, [])
    return [
        item
        for item, roots in starts.items()
        if not item.get_closest_marker("tensorflow")
        and "snap_compare" not in item.fixturenames
        and not any(id(root) in slow for root in roots)
    ]


def _roots(item: pytest.Function) -> Iterator[object]:
    """The test and its fixtures, and the functions among its parameters."""
    yield _bare(item.function)
    for definitions in item._fixtureinfo.name2fixturedefs.values():
        yield _bare(definitions[-1].func)
    for value in getattr(getattr(item, "callspec", None), "params", {}).values():
        value = _bare(value)
        if _is_ours(value):
            yield value


def _bare(value: Any) -> Any:
    """A function without its decorators."""
    while True:
        inner = getattr(getattr(value, "hypothesis", None), "inner_test", None) or getattr(value, "__wrapped__", None)
        if inner is None and isinstance(value, functools.partial):
            inner = value.func
        if inner is None:
            return value
        value = inner


def _is_ours(value: object) -> bool:
    return isinstance(value, FunctionType | type) and (value.__module__ or "").partition(".")[0] in _OURS


def _codes(node: object) -> Iterator[CodeType]:
    if isinstance(node, FunctionType):
        waiting: list[object] = [node.__code__]
        while waiting:
            code = waiting.pop()
            if isinstance(code, CodeType):
                yield code
                waiting += code.co_consts


def _names(node: object) -> Iterator[str]:
    for code in _codes(node):
        yield from code.co_names


def _values(node: object, names: Iterable[str]) -> Iterator[object]:
    if isinstance(node, type):
        for member in vars(node).values():
            yield _bare(getattr(member, "fget", None) or getattr(member, "__func__", member))
        yield from node.__bases__
    elif isinstance(node, FunctionType):
        for name in names:
            value = node.__globals__.get(name)
            if isinstance(value, ModuleType):  # what it names of a module is among the names as well
                yield from (_bare(vars(value).get(other)) for other in names)
            else:
                yield _bare(value)
        for cell in node.__closure__ or ():
            try:
                yield _bare(cell.cell_contents)
            except ValueError:
                continue


_started: list[str] | None = None
"""What the running test started though it is called fast; None where anything may be started."""
_hooked = False


def _watch(event: str, arguments: tuple[object, ...]) -> None:
    if _started is not None and event in EVENTS:
        _started.append(f"{event} {arguments[:2]}")
        pytest.fail(f"a fast test starts a process: {_started[-1]}")


@contextmanager
def forbid_processes() -> Iterator[None]:
    """A test that starts a process meanwhile fails, also where that is caught or happens in a thread."""
    global _started, _hooked
    if not _hooked:
        sys.addaudithook(_watch)
        _hooked = True
    started: list[str] = []
    _started = started
    try:
        yield
    finally:
        _started = None
    if started:
        pytest.fail(f"a fast test started processes: {started}")
