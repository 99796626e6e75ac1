"""One test for many cases, without what pytest does for each test in each worker; and waits beside each other."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest


def every(cases: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """A test of one parameter for each of ``cases``, or of several for each tuple; it tells all cases that fail.

    For cases that take milliseconds and share nothing: there are no fixtures, and a case cannot be run by itself.
    """

    def decorate(test: Callable[..., None]) -> Callable[[], None]:
        several = len(inspect.signature(test).parameters) > 1

        @functools.wraps(test)
        def tried() -> None:
            failed: dict[str, BaseException] = {}
            number = 0
            for number, case in enumerate(cases, 1):
                try:
                    test(*case) if several else test(case)
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - each is told below
                    failed[f"case {number}, {case!r:.300}: {type(error).__name__}: {error}"] = error
            assert number, "there are no cases"
            if failed:
                told = "\n\n".join([f"{len(failed)} of {number} cases:", *failed])
                raise AssertionError(told) from next(iter(failed.values()))

        tried.__signature__ = inspect.Signature()  # type: ignore[attr-defined]
        return tried

    return decorate


@contextmanager
def begun(request: pytest.FixtureRequest, calls: Mapping[str, Callable[[], Any]]) -> Iterator[dict[str, Future[Any]]]:
    """Calls that wait for long, all begun now, for a fixture of a module; the name of each is that of its test.

    Those of tests that were not chosen are not begun.
    """
    chosen = {item.name for item in request.session.items if item.path == request.path}
    with ThreadPoolExecutor(len(calls)) as pool:
        yield {name: pool.submit(call) for name, call in calls.items() if name in chosen}
