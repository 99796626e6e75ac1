"""Makes a program see simulated GPUs: environment variables and library folders."""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from gpuwatch.core.errors import GpuwatchError
from gpuwatch.sim import install_libraries, libraries
from gpuwatch.sim.sysfs import ENV_STATE

ENV_SHAPE: Final = "GPUWATCH_SIM"
ENV_PLUGIN: Final = "TF_PLUGGABLE_DEVICE_LIBRARY_PATH"
# TensorFlow fills a table of 8 bytes for each 256 bytes of a pool (tsl/framework/bfc_allocator.h): 700 MiB for a GPU
# of 24 GiB, which costs a third of the time in huge pages. Only glibc reads it, from 2.35; others ignore it.
ENV_TUNABLES: Final = "GLIBC_TUNABLES"
_HUGE_PAGES: Final = "glibc.malloc.hugetlb=1"


def simulated_environment_of(
    base: Mapping[str, str],
    shape: str,
    library_dir: Path,
    state_path: Path,
    *,
    tier: install_libraries.Tier,
    without: Collection[str] = (),
) -> dict[str, str]:
    """``base`` for a program on the machine in ``state_path``; see :meth:`.machine.SimMachine.environment`."""
    folder = install_libraries.ensure_built("plugin") if tier == "plugin" else library_dir
    if without:
        folder = _partial_folder(folder, without)
    env = dict(base)
    for name in ("LD_LIBRARY_PATH", "LD_PRELOAD", ENV_PLUGIN):
        paths = re.split("[: ]" if name == "LD_PRELOAD" else ":", env.pop(name, ""))
        kept = [path for path in paths if path and not _is_ours(path, library_dir)]
        if name == "LD_LIBRARY_PATH":
            kept.insert(0, str(folder))
        elif name == "LD_PRELOAD":
            library = libraries.RENAME_LIBRARY if tier == "plugin" else libraries.PROC_LIBRARY
            if library not in without:
                kept.insert(0, str(folder / library))
        elif name == ENV_PLUGIN and tier == "plugin":
            kept = [str(folder / libraries.PLUGIN_LIBRARY)]  # TensorFlow loads only one
        if kept:
            env[name] = ":".join(kept)
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
        kept = [path for path in re.split("[: ]", env.pop(name, "")) if path and not _is_ours(path, library_dir)]
        if kept:
            env[name] = ":".join(kept)
    kept = [tunable for tunable in env.pop(ENV_TUNABLES, "").split(":") if tunable and tunable != _HUGE_PAGES]
    if kept:
        env[ENV_TUNABLES] = ":".join(kept)
    return env


def _is_ours(path: str, library_dir: Path) -> bool:
    ours = library_dir.parent
    return Path(path) == library_dir or ours in (Path(path).parent, Path(path).parent.parent)


def _partial_folder(whole: Path, without: Collection[str]) -> Path:
    """A folder of links to all libraries except ``without``, next to the real one."""
    names = {path.name for path in whole.iterdir()}
    if unknown := sorted(set(without) - names):
        raise GpuwatchError(f"no such simulated library: {', '.join(unknown)}")
    tag = hashlib.sha256("\0".join(sorted(without)).encode()).hexdigest()[:12]
    folder = whole.with_name(f"{whole.name}-without-{tag}")
    if install_libraries.is_foreign(folder):
        install_libraries.discard(folder)
    if folder.is_dir():
        install_libraries.note_use(folder)
        return folder
    work = Path(tempfile.mkdtemp(prefix="tmp-", dir=whole.parent))
    for name in names - set(without):
        (work / name).symlink_to(whole / name)
    try:
        work.rename(folder)
    except OSError:
        shutil.rmtree(work)
        if not folder.is_dir():  # otherwise another process made the same one
            raise
    return folder
