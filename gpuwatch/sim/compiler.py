"""Compiles the simulated libraries into a folder, with a C and a C++ compiler of this machine.

Also used where a wheel is made, in an environment that has nothing else: this imports only the standard library and
what gpuwatch has without dependencies.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from gpuwatch.core.errors import GpuwatchError
from gpuwatch.sim.libraries import (
    ALIASES,
    DRIVER_FILE,
    DRIVER_LIBRARIES,
    DRIVER_LIBRARY,
    PLUGIN_LIBRARIES,
    PLUGIN_SHARES,
    TENSORFLOW_LIBRARY,
    Library,
)

NATIVE: Final = ("-march=native",)
"""This CPU's widest vectors, for what computes."""
_FAST: Final = "-O3"
_FAST_SOURCES: Final = frozenset({"gemm.c"})
"""Sources that are compiled with -O3 and for the CPU."""
# -Wno-unused-parameter: the parameters are NVIDIA's, and a simulated call does not need all of them.
_FLAGS: Final = ("-std=gnu11", "-O2", "-fPIC", "-Wall", "-Wextra", "-Wno-unused-parameter", "-pthread")
# -Wno-psabi: vector arguments depend on -march, but are not passed between libraries.
_PLUGIN_FLAGS: Final = ("-fvisibility=hidden", "-Wno-psabi")
_CXX_FLAGS: Final = (
    *("-std=c++17", _FAST, "-fPIC", "-Wall", "-Wextra", "-pthread", *_PLUGIN_FLAGS),
    # Lets loops with roots, rounding and sums be vectorized.
    *("-fno-math-errno", "-fno-trapping-math", "-fopenmp-simd"),
)
DRIVER_RECIPE: Final = repr((_FLAGS, _FAST, DRIVER_LIBRARIES, ALIASES, DRIVER_FILE))
PLUGIN_RECIPE: Final = repr((_CXX_FLAGS, PLUGIN_LIBRARIES, PLUGIN_SHARES))
"""What determines a build besides sources, compiler and CPU."""


_ZIG_COMMANDS: Final = {"CC": "cc", "CXX": "c++"}


def find_compiler() -> list[str]:
    """The C compiler as a command: $CC (which may carry flags), cc, gcc or clang from PATH, or the package ziglang."""
    return _find_compiler(
        "CC",
        ("cc", "gcc", "clang"),
        "simulated GPUs need a C compiler",
        "install one: apt install gcc libc6-dev, dnf install gcc, apk add gcc musl-dev, or pip install ziglang; "
        "or set CC to yours",
    )


def find_cxx_compiler() -> list[str]:
    """The C++ compiler as a command: $CXX, c++, g++ or clang++ from PATH, or the package ziglang."""
    return _find_compiler(
        "CXX",
        ("c++", "g++", "clang++"),
        "simulated GPUs that compute need a C++ compiler",
        "install one: apt install g++, dnf install gcc-c++, apk add g++, or pip install ziglang; or set CXX to yours; "
        "the driver tier needs only a C compiler",
    )


def _find_compiler(variable: str, names: tuple[str, ...], purpose: str, hint: str) -> list[str]:
    wanted = shlex.split(os.environ.get(variable, ""))
    if wanted:
        found = shutil.which(wanted[0])
        if found:
            return [found, *wanted[1:]]
        raise GpuwatchError(
            f"{variable} names a compiler that does not exist: {wanted[0]}",
            hint=f"unset {variable}, or set it to a compiler ({' or '.join(names[1:])})",
        )
    for name in names:
        if found := shutil.which(name):
            return [found]
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", _ZIG_COMMANDS[variable]]
    raise GpuwatchError(f"{purpose}, and none was found (looked for {', '.join(names)} in PATH)", hint=hint)


def compile_driver(work: Path, compiler: list[str], sources: Path, cpu: tuple[str, ...] = NATIVE) -> None:
    """Compiles the driver tier's libraries into the empty folder ``work``, and links to them.

    ``cpu``: the compiler's flags for what computes.

    Raises:
        CompilerFailedError: with the compiler's output.
    """
    _compile_all(DRIVER_LIBRARIES, work, sources, lambda name: [*compiler, *_c_flags(name, cpu)])
    for library in DRIVER_LIBRARIES:  # in order: each may need earlier ones
        _link(compiler, work, library, "-Wl,--no-undefined")
    (work / DRIVER_LIBRARY).rename(work / DRIVER_FILE)
    _remove_objects(work)
    link_aliases(work)


def link_aliases(work: Path) -> None:
    """The other names of the driver tier's libraries."""
    (work / DRIVER_LIBRARY).symlink_to(DRIVER_FILE)
    for alias, target in ALIASES.items():
        (work / alias).symlink_to(target)


def compile_plugin(
    work: Path, compiler: list[str], cxx: list[str], sources: Path, base: Path, cpu: tuple[str, ...] = NATIVE
) -> None:
    """As :func:`compile_driver`, for the plug-in tier; ``base``: the folder of the driver tier, a neighbor of this."""
    link_shared_libraries(work, base)

    def command(name: str) -> list[str]:
        if name.endswith(".cc"):
            return [*cxx, *_CXX_FLAGS, *cpu]
        return [*compiler, *_c_flags(name, cpu), *_PLUGIN_FLAGS]

    _compile_all(PLUGIN_LIBRARIES, work, sources, command)
    # Some versions do not load their library globally: then TensorFlow's symbols are found through this dependency.
    stand_in = [f"-Wl,-soname,{TENSORFLOW_LIBRARY}", "-o", str(work / TENSORFLOW_LIBRARY), str(sources / "empty.c")]
    _run_compiler([*compiler, "-shared", "-fPIC", *stand_in])  # zig links nothing without a source
    for library in PLUGIN_LIBRARIES:
        linker = cxx if any(name.endswith(".cc") for name in library.sources) else compiler
        _link(linker, work, library, "-Wl,--no-as-needed")
    (work / TENSORFLOW_LIBRARY).unlink()  # so that the real one is found
    _remove_objects(work)


def link_shared_libraries(work: Path, base: Path) -> None:
    """Links from a plug-in build to the libraries that it has from the driver tier's ``base``."""
    for name in PLUGIN_SHARES:
        (work / name).symlink_to(Path("..") / base.name / name)


def _c_flags(name: str, cpu: tuple[str, ...]) -> tuple[str, ...]:
    return (*_FLAGS, _FAST, *cpu) if name in _FAST_SOURCES else _FLAGS


def _compile_all(
    libraries: tuple[Library, ...], work: Path, sources: Path, command: Callable[[str], list[str]]
) -> None:
    wanted = sorted({(source, _macros(library, source)) for library in libraries for source in library.sources})
    with ThreadPoolExecutor(max(2, os.cpu_count() or 1)) as pool:
        jobs = [
            pool.submit(
                _run_compiler,
                [*command(name), *macros, "-c", str(sources / name), "-o", str(_object_path(work, name, macros))],
            )
            for name, macros in wanted
        ]
        for job in jobs:
            job.result()


def _macros(library: Library, source: str) -> tuple[str, ...]:
    return () if source in _FAST_SOURCES else library.macros  # arithmetic does not depend on the version of CUDA


def _object_path(work: Path, source: str, macros: tuple[str, ...]) -> Path:
    return work / f"{source}{''.join(macros)}.o"


def _remove_objects(work: Path) -> None:
    for path in work.glob("*.o"):
        path.unlink()


def _link(compiler: list[str], work: Path, library: Library, *options: str) -> None:
    inputs = [str(_object_path(work, name, _macros(library, name))) for name in library.sources]
    inputs += [str(work / name) for name in library.needs]
    script = work / f"{library.name}.map"
    if library.versioned or library.exports:
        names = f"global: {'; '.join(library.exports)}; local: *;" if library.exports else "*;"
        script.write_text(f"{library.name if library.versioned else ''} {{ {names} }};\n", encoding="ascii")
        options = (*options, f"-Wl,--version-script={script}")
    _run_compiler(
        [
            *compiler,
            "-shared",
            "-pthread",
            f"-Wl,-soname,{library.name}",
            "-Wl,-rpath,$ORIGIN",  # so that they find each other wherever the cache is
            *options,
            "-o",
            str(work / library.name),
            *inputs,
            "-lm",
            "-ldl",
        ]
    )
    script.unlink(missing_ok=True)


class CompilerFailedError(Exception):
    """The compiler's command line and its output."""

    def __init__(self, command: list[str], output: str, code: int) -> None:
        super().__init__(output)
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        first = next((line for line in lines if "error" in line.lower()), lines[0] if lines else "")
        self.message = first or f"{command[0]} exited with code {code}"
        self.log = f"{shlex.join(command)}\n{output}"


def _run_compiler(command: list[str]) -> None:
    result = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", umask=0o077
    )
    if result.returncode:
        raise CompilerFailedError(command, result.stdout + result.stderr, result.returncode)
