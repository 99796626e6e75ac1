"""Checks that the module ``pynvml`` is NVIDIA's (the package nvidia-ml-py), and recent enough.

The packages ``pynvml`` (up to 11) and ``nvidia-ml-py3`` install an older module of the same name, and any file
``pynvml.py`` on Python's path hides it. That is a problem of this Python, never of the driver.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from gpuwatch.core.model.snapshot import FAILED_ITSELF, Problem

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
    again = f"{pip} install --force-reinstall '{PACKAGE}>={OLDEST}'"
    if origin is None:
        detail, hint = f"{PACKAGE} is not installed in this Python: it has no module pynvml", again
        return Problem(source="nvml", reason=FAILED_ITSELF, detail=detail, hint=hint)
    owners = _owners(origin)
    foreign = [name for name in owners if name != PACKAGE]
    of = " and ".join(f"{name} {version}" for name, version in owners.items()) or "no installed package"
    what = f"the module pynvml ({origin}) belongs to {of}"
    if error is not None:
        what += f" and cannot be imported ({type(error).__name__}: {' '.join(str(error).split())[:120]})"
    if foreign:
        hint = f"{pip} uninstall {' '.join(foreign)}; then {again}"
    elif owners:
        hint = again
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

    found = {}
    for name in dict.fromkeys(importlib.metadata.packages_distributions().get("pynvml", ())):
        distribution = importlib.metadata.distribution(name)
        files = distribution.files or ()
        if any(file.name == Path(origin).name and Path(str(file.locate())) == Path(origin) for file in files):
            found[name] = distribution.version
    return found
