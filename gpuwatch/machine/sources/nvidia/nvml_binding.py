"""NVIDIA's bindings: checks that the module ``pynvml`` is that of nvidia-ml-py and recent enough, and guards its calls.

The packages ``pynvml`` (up to 11) and ``nvidia-ml-py3`` install an older module of the same name, and any file
``pynvml.py`` on Python's path hides it. That is a problem of this Python, never of the driver.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

from gpuwatch.core.model.snapshot import FAILED_ITSELF, Problem
from gpuwatch.machine.sources import driver_call_tracking
from gpuwatch.machine.sources.nvidia.nvml_errors import OwnCode, own_error

PACKAGE = "nvidia-ml-py"
OLDEST = "12.570.86"
"""The first version with all of :data:`_NEEDED`; the dependency in pyproject.toml names the same."""
_NEEDED = (
    "NVMLError",
    "nvmlInit",
    "nvmlLib",
    "_nvmlGetFunctionPointer",
    "c_nvmlProcessInfo_v2_t",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlMemory_v2",
    "nvmlGpmMetricsGet",
    "nvmlDeviceGetMarginTemperature",
    "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION",
)


def why_unusable(module: Any, error: Exception | None) -> Problem | None:
    """Why ``pynvml`` cannot be used; None if it is NVIDIA's.

    ``module`` is the imported module, None if the import raised ``error``.
    """
    if module is not None and all(hasattr(module, name) for name in _NEEDED):
        return None
    origin = _origin(module)
    pip = f"{sys.executable} -m pip"
    install = f"{pip} install --force-reinstall '{PACKAGE}>={OLDEST}'"
    if origin is None:
        detail, hint = f"{PACKAGE} is not installed in this Python: it has no module pynvml", install
        return Problem(source="nvml", reason=FAILED_ITSELF, detail=detail, hint=hint)
    owners = _owners(origin)
    foreign = [name for name in owners if name != PACKAGE]
    of = " and ".join(f"{name} {version}" for name, version in owners.items()) or "no installed package"
    what = f"the module pynvml ({origin}) belongs to {of}"
    if error is not None:
        what += f" and cannot be imported ({type(error).__name__}: {' '.join(str(error).split())[:120]})"
    if foreign:
        hint = f"{pip} uninstall {' '.join(foreign)}; then {install}"
    elif owners:
        hint = install
    else:
        hint = "rename that file, or remove its folder from PYTHONPATH: it hides NVIDIA's module"
    detail = f"{what}; gpuwatch needs the one of {PACKAGE} {OLDEST} or later to read the driver"
    return Problem(source="nvml", reason=FAILED_ITSELF, detail=detail, hint=hint)


def _origin(module: Any) -> str | None:
    """The module's file, or the folder of a namespace package."""
    try:
        spec = importlib.util.find_spec("pynvml")
    except (ImportError, ValueError):
        spec = None
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    origin = spec.origin if spec is not None else getattr(module, "__file__", None)
    return origin or (places[0] if places else None)


def _owners(origin: str) -> dict[str, str]:
    """The installed packages that own the file: name to version."""
    import importlib.metadata  # slow to import, and only needed when something is wrong

    member = {}
    for name in dict.fromkeys(importlib.metadata.packages_distributions().get("pynvml", ())):
        distribution = importlib.metadata.distribution(name)
        files = distribution.files or ()
        if any(file.name == Path(origin).name and Path(str(file.locate())) == Path(origin) for file in files):
            member[name] = distribution.version
    return member


class GuardedLibrary:
    """The module ``pynvml`` with every call guarded: it answers, or it raises ``NVMLError`` with the reason.

    The bindings raise other exceptions too, such as ``UnicodeDecodeError`` for a name with a bad byte. One query that
    fails so must not take the others along.
    """

    def __init__(self, lib: Any) -> None:
        """``lib``: the module ``pynvml``, or None if it cannot be used."""
        self._lib = lib
        self._guarded: dict[str, tuple[Any, Callable[..., Any]]] = {}

    def count(self, name: str, most: int, *arguments: Any) -> int:
        """The answer of a function that counts. ``NVMLError`` too if it is no number, or more than ``most``."""
        answer = getattr(self, name)(*arguments)
        if isinstance(answer, int) and 0 <= answer <= most:
            return answer
        raise own_error(self._lib, f"implausible: it answered {answer}")

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._lib, name)
        if not name.startswith("nvml") or not isinstance(member, FunctionType):
            return member
        guarded = self._guarded.get(name)
        if guarded is None or guarded[0] is not member:
            guarded = self._guarded[name] = (member, self._guard(name, member))
        return guarded[1]

    def _nvmlGetFunctionPointer(self, symbol: str) -> Callable[..., int]:  # noqa: N802  # as in pynvml
        """A function of the library itself, which returns NVML's code."""
        function = self._lib._nvmlGetFunctionPointer(symbol)
        encoded_name = symbol.encode()

        def call(*arguments: Any) -> int:
            why = driver_call_tracking.why_left_out(symbol)
            if why:
                return OwnCode(why)
            driver_call_tracking.begin(encoded_name)
            code: int = function(*arguments)
            driver_call_tracking.end()
            return code

        return call

    def _guard(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        encoded_name, known = name.encode(), self._lib.NVMLError

        def call(*arguments: Any) -> Any:
            why = driver_call_tracking.why_left_out(name)
            if why:
                raise own_error(self._lib, why)
            driver_call_tracking.begin(encoded_name)
            try:
                return function(*arguments)
            except known:
                raise
            except UnicodeDecodeError as error:
                return error.object.decode("utf-8", "replace")
            except Exception as error:
                why = f"its answer cannot be read ({type(error).__name__}: {error})"
                raise own_error(self._lib, why) from error
            finally:
                driver_call_tracking.end()

        return call
