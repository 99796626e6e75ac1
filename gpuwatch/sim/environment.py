"""What makes a program see simulated GPUs: environment variables, library folders, and the folder in place of /sys."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gpuwatch.sim import libraries
from gpuwatch.sim.libraries import Tier

ENV_SHAPE: Final = "GPUWATCH_SIM"
ENV_STATE: Final = "GPUWATCH_SIM_STATE"
ENV_PLUGIN: Final = "TF_PLUGGABLE_DEVICE_LIBRARY_PATH"
# TensorFlow fills a table of 8 bytes for each 256 bytes of a pool (tsl/framework/bfc_allocator.h): 700 MiB for a GPU
# of 24 GiB, which costs a third of the time in huge pages. Only glibc reads it, from 2.35; others ignore it.
ENV_TUNABLES: Final = "GLIBC_TUNABLES"
_HUGE_PAGES: Final = "glibc.malloc.hugetlb=1"


def simulated_environment_of(
    base: Mapping[str, str], shape: str, library_dir: Path, state_path: Path, *, tier: Tier
) -> dict[str, str]:
    """``base`` for a program on the machine in ``state_path``; see :meth:`.SimMachine.environment`."""
    folder, preloaded = library_dir, libraries.PROC_LIBRARY
    if tier == "plugin":
        from gpuwatch.sim import library_cache

        folder, preloaded = library_cache.ensure_built("plugin"), libraries.RENAME_LIBRARY
    env = real_environment_of(base, library_dir)
    for name, path in (("LD_LIBRARY_PATH", folder), ("LD_PRELOAD", folder / preloaded)):
        env[name] = ":".join(filter(None, (str(path), env.get(name))))
    if tier == "plugin":
        env[ENV_PLUGIN] = str(folder / libraries.PLUGIN_LIBRARY)  # TensorFlow loads only one
    env[ENV_SHAPE] = shape
    env[ENV_STATE] = str(state_path)
    tunables = env.get(ENV_TUNABLES, "")
    if _HUGE_PAGES.partition("=")[0] not in tunables:
        env[ENV_TUNABLES] = f"{tunables}:{_HUGE_PAGES}".removeprefix(":")
    return env


def real_environment_of(base: Mapping[str, str], library_dir: Path) -> dict[str, str]:
    """``base`` without what :func:`simulated_environment_of` adds."""
    env = {name: value for name, value in base.items() if name not in (ENV_SHAPE, ENV_STATE)}
    for name in ("LD_LIBRARY_PATH", "LD_PRELOAD", ENV_PLUGIN):
        paths = re.split("[: ]" if name == "LD_PRELOAD" else ":", env.pop(name, ""))
        if remaining := [path for path in paths if path and not _is_ours(path, library_dir)]:
            env[name] = ":".join(remaining)
    tunables = env.pop(ENV_TUNABLES, "").split(":")
    if remaining := [tunable for tunable in tunables if tunable and tunable != _HUGE_PAGES]:
        env[ENV_TUNABLES] = ":".join(remaining)
    return env


def _is_ours(path: str, library_dir: Path) -> bool:
    return Path(path) == library_dir or library_dir.parent in (Path(path).parent, Path(path).parent.parent)


def sysfs_root() -> Path:
    """``/sys``, or the folder that replaces it if the environment names a simulated machine."""
    state = os.environ.get(ENV_STATE)
    return sysfs_folder(Path(state)) if state else Path("/sys")


def sysfs_folder(state: Path) -> Path:
    """The folder of the machine with this state file; it exists only if it has content."""
    return state.with_suffix(".sys")


def power_folder(sysfs_root: Path, pci_bus_id: str) -> Path:
    """The folder of a device's runtime power management."""
    return sysfs_root / "bus" / "pci" / "devices" / pci_bus_id / "power"
