"""NVIDIA's bindings (``pynvml``) with every call guarded: it answers, or it raises ``NVMLError`` with the reason.

The bindings raise other exceptions too, such as ``UnicodeDecodeError`` for a name with a bad byte. One query that fails
so must not take the others along.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from gpuwatch.machine.sources import driver_call_tracking
from gpuwatch.machine.sources.nvidia.nvml_errors import OwnCode, own_error


class Library:
    """The module; its functions are guarded when they are looked up."""

    def __init__(self, lib: Any) -> None:
        """``lib``: the module ``pynvml``, or None if it cannot be used."""
        self._lib = lib
        self._guarded: dict[str, tuple[Any, Callable[..., Any]]] = {}
        self.garbled: set[str] = set()
        """Functions that answered with bytes that are no UTF-8."""

    def count(self, name: str, most: int, *arguments: Any) -> int:
        """The answer of a function that counts. ``NVMLError`` too if it is no number, or more than ``most``."""
        found = getattr(self, name)(*arguments)
        if isinstance(found, int) and 0 <= found <= most:
            return found
        raise own_error(self._lib, f"implausible: it answered {found}")

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._lib, name)
        if not name.startswith("nvml") or not isinstance(found, FunctionType):
            return found
        before = self._guarded.get(name)
        if before is None or before[0] is not found:
            before = self._guarded[name] = (found, self._guard(name, found))
        return before[1]

    def _nvmlGetFunctionPointer(self, symbol: str) -> Callable[..., int]:  # noqa: N802  # as in pynvml
        """A function of the library itself, which returns NVML's code."""
        function = self._lib._nvmlGetFunctionPointer(symbol)
        written = symbol.encode()

        def call(*arguments: Any) -> int:
            why = driver_call_tracking.left_out(symbol)
            if why:
                return OwnCode(why)
            driver_call_tracking.begin(written)
            code: int = function(*arguments)
            driver_call_tracking.end()
            return code

        return call

    def _guard(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        written, known = name.encode(), self._lib.NVMLError

        def call(*arguments: Any) -> Any:
            why = driver_call_tracking.left_out(name)
            if why:
                raise own_error(self._lib, why)
            driver_call_tracking.begin(written)
            try:
                return function(*arguments)
            except known:
                raise
            except UnicodeDecodeError as error:
                self.garbled.add(name)
                return error.object.decode("utf-8", "replace")
            except Exception as error:
                why = f"its answer cannot be read ({type(error).__name__}: {error})"
                raise own_error(self._lib, why) from error
            finally:
                driver_call_tracking.end()

        return call
