"""Compiles the simulated libraries on first use into the cache folder, and finds them there later.

The folder's name is a hash of all that decides the result: sources, flags, the compiler and the CPU model
(the matrix multiplication is compiled for this very CPU). A build happens in a temporary folder beside it
that is renamed when it is complete, so two processes that build at once do no harm.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final, Literal

import platformdirs

from gpuwatch.errors import GpuwatchError

Tier = Literal["driver"]  # how frameworks get at the GPUs; the plug-in tier will stand beside it

CONTROL_LIBRARY: Final = "libgpuwatchsim.so"
_FLAGS: Final = ("-std=gnu11", "-O2", "-fPIC", "-Wall", "-Wextra", "-pthread")
# -march=native: the multiplication uses the widest vectors that this CPU has.
_FAST: Final = ("-O3", "-march=native")


@dataclass(frozen=True, slots=True)
class Library:
    """One shared library: its file name (and soname), its sources, and what it is linked against."""

    name: str
    sources: tuple[str, ...]
    needs: tuple[str, ...] = ()


LIBRARIES: Final = (
    Library(CONTROL_LIBRARY, ("state.c",)),
    Library("libnvidia-ml.so.1", ("nvml.c",), (CONTROL_LIBRARY,)),
    Library("libcuda.so.1", ("cuda.c", "cuda_memory.c"), (CONTROL_LIBRARY,)),
    Library("libcudart.so.12", ("cudart.c",), ("libcuda.so.1", CONTROL_LIBRARY)),
    Library("libcublas.so.12", ("cublas.c", "gemm.c"), ("libcuda.so.1", CONTROL_LIBRARY)),
    Library("libcublasLt.so.12", ("cublaslt.c",)),
    Library("libcudnn.so.9", ("cudnn.c",)),
    Library("libgpuwatchsim-empty.so", ("empty.c",)),
)
_FAST_SOURCES: Final = frozenset({"gemm.c"})
# Further names under which a framework may look for a library: old sonames, and libraries that it only
# needs to find (an empty one does, as long as nothing in it is called).
_EMPTY: Final = "libgpuwatchsim-empty.so"
ALIASES: Final = {
    "libnvidia-ml.so": "libnvidia-ml.so.1",
    "libcuda.so": "libcuda.so.1",
    # TensorFlow 2.15 and later (CUDA 12)
    "libcufft.so.11": _EMPTY,
    "libcusolver.so.11": _EMPTY,
    "libcusparse.so.12": _EMPTY,
    "libcudnn.so.8": "libcudnn.so.9",
    # TensorFlow 2.10 to 2.14 (CUDA 11)
    "libcudart.so.11.0": "libcudart.so.12",
    "libcublas.so.11": "libcublas.so.12",
    "libcublasLt.so.11": "libcublasLt.so.12",
    "libcufft.so.10": _EMPTY,
    "libcurand.so.10": _EMPTY,
    "libcusparse.so.11": _EMPTY,
}


def ensure_built() -> Path:
    """Return the folder that holds the libraries, compiling them if this is the first use.

    Raises:
        GpuwatchError: no C compiler, or it failed.
    """
    compiler = find_compiler()
    with as_file(files("gpuwatch.sim") / "csrc") as sources:
        folder = cache_folder() / _key(compiler, sources)
        if not folder.is_dir():
            _build(compiler, sources, folder)
    return folder


def cache_folder() -> Path:
    """Where all builds live, one folder for each."""
    return platformdirs.user_cache_path("gpuwatch") / "sim"


def find_compiler() -> list[str]:
    """The C compiler as a command: $CC (which may carry flags), else cc, gcc or clang from PATH."""
    wanted = shlex.split(os.environ.get("CC", ""))
    if wanted:
        found = shutil.which(wanted[0])
        if found:
            return [found, *wanted[1:]]
        raise GpuwatchError(
            f"the C compiler that CC names is not there: {wanted[0]}",
            hint="unset CC, or set it to a C compiler (gcc or clang)",
        )
    for name in ("cc", "gcc", "clang"):
        found = shutil.which(name)
        if found:
            return [found]
    raise GpuwatchError(
        "simulated GPUs need a C compiler, and none was found (looked for cc, gcc, clang in PATH)",
        hint="install one: apt install gcc libc6-dev, dnf install gcc, apk add gcc musl-dev; or name yours in CC",
    )


def _key(compiler: list[str], sources: Path) -> str:
    digest = hashlib.sha256()
    for part in (*compiler, _identity(compiler[0]), _cpu_model(), *_FLAGS, *_FAST):
        digest.update(part.encode() + b"\0")
    digest.update(repr((LIBRARIES, ALIASES)).encode())
    for source in sorted(sources.iterdir()):
        if source.suffix in {".c", ".h", ".cc"}:
            digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()[:20]


def _identity(compiler: str) -> str:
    """What changes when the compiler does. Its --version would cost a process with every start."""
    real = Path(compiler).resolve()
    status = real.stat()
    return f"{real} {status.st_size} {status.st_mtime_ns}"


def _cpu_model() -> str:
    """The CPU's name and abilities: a cache on a shared home folder serves hosts that differ."""
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
            wanted = ("model name", "flags", "CPU part", "Features")
            found: dict[str, str] = {}
            for line in lines:
                name, _, value = line.partition(":")
                if name.strip() in wanted:
                    found.setdefault(name.strip(), value.strip())
                elif not line.strip() and found:
                    break
    except OSError:
        found = {}
    return f"{platform.machine()} {sorted(found.items())}"


def _build(compiler: list[str], sources: Path, folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    _sweep_leftovers(folder.parent)
    work = Path(tempfile.mkdtemp(prefix="tmp-", dir=folder.parent))
    try:
        objects = sorted({source for library in LIBRARIES for source in library.sources})
        with ThreadPoolExecutor(max(2, os.cpu_count() or 1)) as pool:
            for done in [pool.submit(_compile, compiler, sources, work, name) for name in objects]:
                done.result()
        for library in LIBRARIES:  # in order: each may need those before it
            _link(compiler, work, library)
        for alias, target in ALIASES.items():
            (work / alias).symlink_to(target)
        for name in objects:
            (work / name).with_suffix(".o").unlink()
        try:
            work.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was faster, and its build is the same
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _compile(compiler: list[str], sources: Path, work: Path, name: str) -> None:
    flags = [*_FLAGS, *(_FAST if name in _FAST_SOURCES else ())]
    output = (work / name).with_suffix(".o")
    _call([*compiler, *flags, "-c", str(sources / name), "-o", str(output)])


def _link(compiler: list[str], work: Path, library: Library) -> None:
    inputs = [str((work / name).with_suffix(".o")) for name in library.sources]
    inputs += [str(work / name) for name in library.needs]
    _call(
        [
            *compiler,
            "-shared",
            "-pthread",
            f"-Wl,-soname,{library.name}",
            "-Wl,-rpath,$ORIGIN",  # they find each other wherever the cache is
            "-Wl,--no-undefined",
            "-o",
            str(work / library.name),
            *inputs,
            "-lm",
            "-ldl",
        ]
    )


def _call(command: list[str]) -> None:
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    if result.returncode == 0:
        return
    output = result.stdout + result.stderr
    descriptor, log = tempfile.mkstemp(prefix="gpuwatch-sim-build-", suffix=".log")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(shlex.join(command) + "\n" + output)
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    first = next((line for line in lines if "error" in line.lower()), lines[0] if lines else "")
    raise GpuwatchError(
        "the simulated GPUs could not be compiled: " + (first or f"{command[0]} ended with code {result.returncode}"),
        hint=f"the compiler's whole output is in {log}",
    )


def _sweep_leftovers(folder: Path) -> None:
    """Remove what builds that were killed left behind more than an hour ago."""
    for left in folder.glob("tmp-*"):
        try:
            if time.time() - left.stat().st_mtime > 3600:
                shutil.rmtree(left, ignore_errors=True)
        except OSError:
            continue  # another process removed it first
