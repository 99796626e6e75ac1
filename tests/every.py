"""One test for many cases: as ``pytest.mark.parametrize``, without what pytest does for each test, in each worker."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
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
