"""Compiles the simulated libraries into the cache folder on first use.

The name of a build's folder is a hash of everything that determines the result: sources, flags, compiler and CPU
model (matrix multiplication is compiled for this CPU). It is built in a temporary folder that is renamed when
complete, so that concurrent builds do no harm. Code is loaded from it, so only this user may write to it
(:mod:`gpuwatch.ownership`).

The plug-in tier has its own folder, built only when it is needed: the plug-in for TensorFlow, the library that
renames CUDA kernels, and from the driver tier only NVML.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final, Literal

import platformdirs

from gpuwatch import ownership
from gpuwatch.errors import GpuwatchError
from gpuwatch.sim.libraries import (
    ALIASES,
    DRIVER_FILE,
    DRIVER_LIBRARY,
    FAST_SOURCES,
    LIBRARIES,
    PLUGIN_LIBRARIES,
    PLUGIN_SHARES,
    TENSORFLOW_LIBRARY,
    Library,
)

FAILURE_LOG: Final = "failed-build.log"
"""In the cache folder: the compiler's output of the last failed build."""
_HOUR, _DAY = 3600.0, 86_400.0
_UNUSED = 30 * _DAY
_MOST_BUILDS = 24
"""Builds kept: every change of the sources makes a new one."""

# How frameworks reach the GPUs: through NVIDIA's libraries, or a plug-in for TensorFlow that computes.
Tier = Literal["driver", "plugin"]

_FLAGS: Final = ("-std=gnu11", "-O2", "-fPIC", "-Wall", "-Wextra", "-pthread")
# -march=native: use this CPU's widest vectors for matrix multiplication.
_FAST: Final = ("-O3", "-march=native")
# -Wno-psabi: vector arguments depend on -march, but are not passed between libraries.
_PLUGIN_FLAGS: Final = ("-fvisibility=hidden", "-Wno-psabi")
_CXX_FLAGS: Final = (
    *("-std=c++17", *_FAST, "-fPIC", "-Wall", "-Wextra", "-pthread", *_PLUGIN_FLAGS),
    # Lets loops with roots, rounding and sums be vectorised.
    *("-fno-math-errno", "-fno-trapping-math", "-fopenmp-simd"),
)

_announce: Callable[[], None] | None = None


@contextmanager
def announced(say: Callable[[], None]) -> Iterator[None]:
    """Within this context, ``say`` is called before anything is compiled, which takes seconds."""
    global _announce
    before, _announce = _announce, say
    try:
        yield
    finally:
        _announce = before


def ensure_built(tier: Tier = "driver") -> Path:
    """The folder with a tier's libraries, compiled on first use.

    Raises:
        GpuwatchError: there is no C compiler (or C++ compiler, for the plug-in tier), it failed, or there is no folder
            to which only this user can write.
    """
    compiler = find_compiler()
    cache = _own_cache()
    with as_file(files("gpuwatch.sim") / "csrc") as sources:
        folder = cache / _key(compiler, sources)
        _ensure(folder, lambda work: _fill(work, compiler, sources))
        if tier == "plugin":
            base, cxx = folder, find_cxx_compiler()
            folder = cache / _plugin_key(base.name, cxx, sources)
            note_use(base)
            _ensure(folder, lambda work: _fill_plugin(work, compiler, cxx, sources, base))
    note_use(folder)
    return folder


def cache_folder() -> Path:
    """The folder of all builds, if it is safe to use (:func:`ensure_built`)."""
    return platformdirs.user_cache_path("gpuwatch") / "sim"


def _own_cache() -> Path:
    folder = cache_folder()
    try:
        return ownership.own_folder(folder, "XDG_CACHE_HOME", "sim")
    except OSError as error:
        raise _unkept(folder, error) from error


def _unkept(folder: Path, error: OSError) -> GpuwatchError:
    return GpuwatchError(
        f"cannot write the simulated GPUs' libraries to {folder}: {error.strerror or error}",
        hint="set XDG_CACHE_HOME to a writable folder",
    )


def _ensure(folder: Path, fill: Callable[[Path], None]) -> None:
    """Builds what is missing, and rebuilds a folder that somebody else may have written to."""
    if is_foreign(folder):
        discard(folder)
    if not folder.is_dir():
        _make(folder, fill)


def discard(folder: Path) -> None:
    """Removes a build's folder, or a link in its place."""
    try:
        folder.unlink() if folder.is_symlink() else shutil.rmtree(folder)
    except OSError as error:
        raise _unkept(folder, error) from error


def is_foreign(folder: Path) -> bool:
    """Whether somebody else may have written to a build."""
    try:
        return folder.is_dir() and any(
            ownership.file_distrust(path) or _leads_out(path) for path in (folder, *folder.iterdir())
        )
    except OSError:
        return True


def _leads_out(path: Path) -> bool:
    """Whether a link leads out of this build and its neighbours, which are checked by themselves."""
    if not path.is_symlink():
        return False
    target = path.resolve()
    return target.parent.parent != path.parent.parent.resolve() or bool(ownership.file_distrust(target))


def find_compiler() -> list[str]:
    """The C compiler as a command: $CC (which may carry flags), else cc, gcc or clang from PATH."""
    return _find_compiler(
        "CC",
        ("cc", "gcc", "clang"),
        "simulated GPUs need a C compiler",
        "install one: apt install gcc libc6-dev, dnf install gcc, apk add gcc musl-dev; or set CC to yours",
    )


def find_cxx_compiler() -> list[str]:
    """The C++ compiler as a command: $CXX, else c++, g++ or clang++ from PATH."""
    return _find_compiler(
        "CXX",
        ("c++", "g++", "clang++"),
        "simulated GPUs that compute need a C++ compiler",
        "install one: apt install g++, dnf install gcc-c++, apk add g++; or set CXX to yours; "
        "the driver tier needs only a C compiler",
    )


def _find_compiler(variable: str, names: tuple[str, ...], need: str, hint: str) -> list[str]:
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
    raise GpuwatchError(f"{need}, and none was found (looked for {', '.join(names)} in PATH)", hint=hint)


def _key(compiler: list[str], sources: Path) -> str:
    digest = hashlib.sha256()
    for part in (*compiler, _identity(compiler[0]), _cpu_model(), *_FLAGS, *_FAST):
        digest.update(part.encode() + b"\0")
    digest.update(repr((LIBRARIES, ALIASES, DRIVER_FILE)).encode())
    for source in sorted(sources.iterdir()):
        if source.suffix in {".c", ".h", ".cc"} and not source.name.startswith("plugin"):
            digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()[:20]


def _plugin_key(base: str, compiler: list[str], sources: Path) -> str:
    digest = hashlib.sha256()
    for part in (base, *compiler, _identity(compiler[0]), *_CXX_FLAGS, repr((PLUGIN_LIBRARIES, PLUGIN_SHARES))):
        digest.update(part.encode() + b"\0")
    for source in sorted(sources.glob("plugin*")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()[:20] + "-plugin"


def _identity(compiler: str) -> str:
    """Changes whenever the compiler does. Asking for its --version would cost a process at every start."""
    real = Path(compiler).resolve()
    status = real.stat()
    return f"{real} {status.st_size} {status.st_mtime_ns}"


def _cpu_model() -> str:
    """The CPU's name and features: a cache in a shared home folder serves different hosts."""
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


def _make(folder: Path, fill: Callable[[Path], None]) -> None:
    """Lets ``fill`` build in a temporary folder, which is renamed to ``folder`` when it is complete."""
    if _announce is not None:
        _announce()
    with _one_at_a_time(folder.parent):
        if not folder.is_dir():  # otherwise another process built it while this one waited
            _build(folder, fill)


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Keeps processes that need the same build from all compiling it; does nothing if the folder cannot be locked."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        yield  # the build will report what is wrong
        return
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _build(folder: Path, fill: Callable[[Path], None]) -> None:
    try:
        _sweep(folder.parent)
        work = Path(tempfile.mkdtemp(prefix="tmp-", dir=folder.parent))
        work.chmod(0o700)
    except OSError as error:
        raise _unkept(folder.parent, error) from error
    try:
        fill(work)
        try:
            work.rename(folder)
        except OSError:
            if not folder.is_dir():  # otherwise another process was faster, with the same build
                raise
        (folder.parent / FAILURE_LOG).unlink(missing_ok=True)
    except _CompilerFailedError as failed:
        raise _explained(failed, folder.parent) from failed
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _fill(work: Path, compiler: list[str], sources: Path) -> None:
    _compile_all(LIBRARIES, work, sources, lambda name: [*compiler, *_c_flags(name)])
    for library in LIBRARIES:  # in order: each may need earlier ones
        _link(compiler, work, library, "-Wl,--no-undefined")
    (work / DRIVER_LIBRARY).rename(work / DRIVER_FILE)
    (work / DRIVER_LIBRARY).symlink_to(DRIVER_FILE)
    for alias, target in ALIASES.items():
        (work / alias).symlink_to(target)
    _remove_objects(work)


def _fill_plugin(work: Path, compiler: list[str], cxx: list[str], sources: Path, base: Path) -> None:
    for name in PLUGIN_SHARES:
        (work / name).symlink_to(Path("..") / base.name / name)

    def command(name: str) -> list[str]:
        return [*cxx, *_CXX_FLAGS] if name.endswith(".cc") else [*compiler, *_c_flags(name), *_PLUGIN_FLAGS]

    _compile_all(PLUGIN_LIBRARIES, work, sources, command)
    # Some versions do not load their library globally: then TensorFlow's symbols are found through this dependency.
    _call([*compiler, "-shared", f"-Wl,-soname,{TENSORFLOW_LIBRARY}", "-o", str(work / TENSORFLOW_LIBRARY)])
    for library in PLUGIN_LIBRARIES:
        linker = cxx if any(name.endswith(".cc") for name in library.sources) else compiler
        _link(linker, work, library, "-Wl,--no-as-needed")
    (work / TENSORFLOW_LIBRARY).unlink()  # so that the real one is found
    _remove_objects(work)


def _c_flags(name: str) -> tuple[str, ...]:
    return (*_FLAGS, *_FAST) if name in FAST_SOURCES else _FLAGS


def _compile_all(
    libraries: tuple[Library, ...], work: Path, sources: Path, command: Callable[[str], list[str]]
) -> None:
    wanted = sorted({(source, _macros(library, source)) for library in libraries for source in library.sources})
    with ThreadPoolExecutor(max(2, os.cpu_count() or 1)) as pool:
        jobs = [
            pool.submit(
                _call, [*command(name), *macros, "-c", str(sources / name), "-o", str(_object(work, name, macros))]
            )
            for name, macros in wanted
        ]
        for job in jobs:
            job.result()


def _macros(library: Library, source: str) -> tuple[str, ...]:
    return () if source in FAST_SOURCES else library.macros  # arithmetic does not depend on the version of CUDA


def _object(work: Path, source: str, macros: tuple[str, ...]) -> Path:
    return work / f"{source}{''.join(macros)}.o"


def _remove_objects(work: Path) -> None:
    for path in work.glob("*.o"):
        path.unlink()


def _link(compiler: list[str], work: Path, library: Library, *options: str) -> None:
    inputs = [str(_object(work, name, _macros(library, name))) for name in library.sources]
    inputs += [str(work / name) for name in library.needs]
    script = work / f"{library.name}.map"
    if library.versioned:
        script.write_text(f"{library.name} {{ *; }};\n", encoding="ascii")
        options = (*options, f"-Wl,--version-script={script}")
    _call(
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


class _CompilerFailedError(Exception):
    """The compiler's command line and its output."""

    def __init__(self, command: list[str], output: str, code: int) -> None:
        super().__init__(output)
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        first = next((line for line in lines if "error" in line.lower()), lines[0] if lines else "")
        self.message = first or f"{command[0]} exited with code {code}"
        self.log = f"{shlex.join(command)}\n{output}"


def _call(command: list[str]) -> None:
    result = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", umask=0o077
    )
    if result.returncode:
        raise _CompilerFailedError(command, result.stdout + result.stderr, result.returncode)


def _explained(failed: _CompilerFailedError, folder: Path) -> GpuwatchError:
    """The error for the user; the log file is overwritten by each failure."""
    log = folder / FAILURE_LOG
    try:
        ownership.write_private(log, failed.log)
        hint = f"the compiler's full output is in {log}"
    except OSError as error:
        hint = f"the compiler's full output could not be written to {log}: {error.strerror}"
    return GpuwatchError(f"the simulated GPUs' libraries could not be compiled: {failed.message}", hint=hint)


def note_use(folder: Path) -> None:
    """Records in the folder's time, to the hour, when a build was last used; :func:`_sweep` removes unused ones."""
    try:
        if time.time() - folder.stat().st_mtime > _HOUR:
            os.utime(folder)
    except OSError:
        return  # not ours, or read-only: it will be built again when it is gone


def _sweep(folder: Path) -> None:
    """Removes leftovers of builds that were killed, and builds that have not been used for long."""
    now = time.time()
    used: list[tuple[float, Path]] = []
    for entry in folder.iterdir():
        try:
            age = now - entry.stat().st_mtime
        except OSError:
            continue  # another process removed it first
        if entry.name.startswith("tmp-"):
            if age > _HOUR:
                shutil.rmtree(entry, ignore_errors=True)
        elif entry.is_dir():
            used.append((age, entry))
    used.sort()
    for place, (age, entry) in enumerate(used):
        if age > _UNUSED or (place >= _MOST_BUILDS and age > _DAY):
            shutil.rmtree(entry, ignore_errors=True)
