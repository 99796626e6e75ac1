"""Simulated libraries that came compiled with a wheel, so that whoever installs it needs no compiler.

A release wheel holds both tiers for one machine (``.github/hatch_build.py``): plain files, since a wheel cannot hold
links, and a fingerprint of what they were made from. :mod:`gpuwatch.sim.library_cache` copies them into the
user's cache.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
from pathlib import Path
from typing import Final

from gpuwatch.core.errors import GpuwatchError
from gpuwatch.sim.compiler import DRIVER_RECIPE, PLUGIN_RECIPE, CompilerFailedError, compile_driver, compile_plugin
from gpuwatch.sim.libraries import DRIVER_FILE, DRIVER_LIBRARIES, DRIVER_LIBRARY, PLUGIN_LIBRARIES

SHIPPED_FOLDER: Final = "shipped"
"""In a wheel, beside this file."""
ENV_COMPILE: Final = "GPUWATCH_SIM_COMPILE"
"""Set to anything: compile, whatever the wheel has. $CC alone does not mean that: conda sets it."""
FINGERPRINT_FILE: Final = "made-from"
_NOTICE: Final = """\
libgpuwatchplugin.so holds parts of LLVM's libc++, libc++abi, libunwind and compiler-rt, linked in by Zig
(Apache-2.0 WITH LLVM-exception, https://llvm.org/LICENSE.txt). Everything else here is gpuwatch's own, see LICENSE.
"""
CPU_OF_MACHINE: Final = {"x86_64": "x86_64_v3", "aarch64": "generic"}
"""By machine, what zig calls the CPU that the libraries need."""
# What x86_64_v3 adds, by its names in /proc/cpuinfo.
_NEEDED_CPU_FEATURES: Final = {"x86_64": ("avx2", "bmi1", "bmi2", "f16c", "fma", "movbe")}


def usable_libraries(flags: frozenset[str]) -> Path | None:
    """The libraries for this machine; None if they are to be compiled.

    None where the wheel has none, the CPU (``flags`` as in /proc/cpuinfo) lacks what they need, or the sources are not
    those that they were made from.
    """
    folder = shipped_folder()
    if os.environ.get(ENV_COMPILE) or lacking_cpu_features(flags):
        return None
    try:
        made_from = (folder / FINGERPRINT_FILE).read_text(encoding="ascii")
    except OSError:
        return None
    return folder if made_from == fingerprint(Path(__file__).parent / "csrc") else None


def shipped_folder() -> Path:
    """Where the libraries for this machine would be."""
    return Path(__file__).parent / SHIPPED_FOLDER / platform.machine()


def lacking_cpu_features(flags: frozenset[str]) -> tuple[str, ...]:
    """What this CPU lacks for the libraries."""
    return tuple(name for name in _NEEDED_CPU_FEATURES.get(platform.machine(), ()) if name not in flags)


def fingerprint(sources: Path) -> str:
    """Hash of everything that determines the libraries, except the compiler, which is pinned in wheel builds."""
    digest = hashlib.sha256((DRIVER_RECIPE + PLUGIN_RECIPE).encode())
    for source in sorted(sources.iterdir()):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()


def driver_files() -> set[str]:
    """The files of the driver tier."""
    return {library.name for library in DRIVER_LIBRARIES} - {DRIVER_LIBRARY} | {DRIVER_FILE}


def plugin_files() -> set[str]:
    """The files of the plug-in tier, without those of the driver tier."""
    return {library.name for library in PLUGIN_LIBRARIES}


def compile_for_wheel(folder: Path, sources: Path, compiler: list[str], cxx: list[str], cpu: tuple[str, ...]) -> None:
    """Compiles both tiers into the new ``folder``, for a wheel. Raises GpuwatchError with the compiler's output."""
    driver, plugin = folder / "driver", folder / "plugin"
    driver.mkdir(parents=True)
    plugin.mkdir()
    try:
        compile_driver(driver, compiler, sources, cpu)
        compile_plugin(plugin, compiler, cxx, sources, driver, cpu)
    except CompilerFailedError as failed:
        raise GpuwatchError(
            f"the simulated GPUs' libraries could not be compiled: {failed.message}\n{failed.log}"
        ) from failed
    for names, build_folder in ((driver_files(), driver), (plugin_files(), plugin)):
        for name in names:
            (build_folder / name).rename(folder / name)
        shutil.rmtree(build_folder)
    (folder / "NOTICE").write_text(_NOTICE, encoding="ascii")
    (folder / FINGERPRINT_FILE).write_text(fingerprint(sources), encoding="ascii")
