"""Compiles the simulated libraries on first use into the cache folder, and finds them there later.

The folder's name is a hash of all that decides the result: sources, flags, the compiler and the CPU model
(the matrix multiplication is compiled for this very CPU). A build happens in a temporary folder beside it
that is renamed when it is complete, so two processes that build at once do no harm.

Code is loaded from there, so the folder is this user's alone (:mod:`gpuwatch.ownership`).

The plug-in tier has a folder of its own, built only when it is asked for: the plug-in for TensorFlow, the
library that keeps it apart from CUDA kernels, and of the driver tier NVML alone.
"""

from __future__ import annotations

import fcntl
import hashlib
import mmap
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
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final, Literal

import platformdirs

from gpuwatch import ownership
from gpuwatch.errors import GpuwatchError

FAILURE_LOG: Final = "failed-build.log"
"""In the cache folder: what the compiler said when it failed the last time."""
_HOUR, _DAY = 3600.0, 86_400.0
_UNUSED = 30 * _DAY
_MOST_BUILDS = 24
"""Every change of the sources makes one, so developers would collect them."""

# How frameworks get at the GPUs: NVIDIA's libraries, or a plug-in for TensorFlow that computes.
Tier = Literal["driver", "plugin"]

CONTROL_LIBRARY: Final = "libgpuwatchsim.so"
PLUGIN_LIBRARY: Final = "libgpuwatchplugin.so"
RENAME_LIBRARY: Final = "libgpuwatchrename.so"
PROC_LIBRARY: Final = "libgpuwatchproc.so"
"""Preloaded on the driver tier: it shows /proc/driver/nvidia/version, and gives PyTorch the simulated runtime."""
_DRIVER_LIBRARY: Final = "libcuda.so.1"
DRIVER_FILE: Final = "libcuda.so.580.00"
"""The file behind its name, whose end TensorFlow compares with the kernel module's version (versions.h)."""
_TENSORFLOW_LIBRARY: Final = "libtensorflow_framework.so.2"
_RENAMED_SYMBOL: Final = "_ZN10tensorflow16KernelDefBuilder6DeviceEPKc"
_FLAGS: Final = ("-std=gnu11", "-O2", "-fPIC", "-Wall", "-Wextra", "-pthread")
# -march=native: the multiplication uses the widest vectors that this CPU has.
_FAST: Final = ("-O3", "-march=native")
# -Wno-psabi: it warns that vectors as arguments depend on -march; they are not passed between libraries.
_PLUGIN_FLAGS: Final = ("-fvisibility=hidden", "-Wno-psabi")
_CXX_FLAGS: Final = (
    *("-std=c++17", *_FAST, "-fPIC", "-Wall", "-Wextra", "-pthread", *_PLUGIN_FLAGS),
    # So that loops with roots, rounding and sums become vectors.
    *("-fno-math-errno", "-fno-trapping-math", "-fopenmp-simd"),
)


RUNTIMES: Final = (12, 13)
"""The major versions of CUDA whose runtime PyTorch finds on simulated GPUs."""


@dataclass(frozen=True, slots=True)
class Library:
    """One shared library: its file name (and soname), its sources, and what it is linked against."""

    name: str
    sources: tuple[str, ...]
    needs: tuple[str, ...] = ()
    macros: tuple[str, ...] = ()
    versioned: bool = False
    """Its symbols carry its soname as their version, as NVIDIA's do: programs linked against those look for it."""


LIBRARIES: Final = (
    Library(CONTROL_LIBRARY, ("state.c", "state_script.c", "visible.c")),
    Library(
        "libnvidia-ml.so.1",
        ("nvml.c", "nvml_events.c", "nvml_gpm.c", "nvml_links.c", "nvml_mig.c"),
        (CONTROL_LIBRARY,),
    ),
    Library("libcuda.so.1", ("cuda.c", "cuda_memory.c"), (CONTROL_LIBRARY,)),
    *(
        Library(
            f"{name}.so.{major}",
            sources,
            ("libcuda.so.1", CONTROL_LIBRARY),
            macros=(f"-DCUDART_MAJOR={major}",),
            versioned=True,
        )
        for name, sources in (
            ("libcudart", ("cudart.c", "cudart_kernel.c", "cudart_memory.c")),
            ("libcublas", ("cublas.c", "gemm.c")),
        )
        for major in RUNTIMES
    ),
    Library("libcublasLt.so.12", ("cublaslt.c",)),
    Library("libcudnn.so.9", ("cudnn.c",)),
    Library("libgpuwatchsim-empty.so", ("empty.c",)),
    Library(PROC_LIBRARY, ("procfs.c", "load_cudart.c")),
)
PLUGIN_LIBRARIES: Final = (
    Library(
        PLUGIN_LIBRARY,
        (
            "plugin_device.cc",
            "plugin_elementwise.cc",
            "plugin_host.c",
            "plugin_kernel.cc",
            "plugin_linear.cc",
            "plugin_move.cc",
            "plugin_network.cc",
            "plugin_random.cc",
            "plugin_reduce.cc",
            "plugin_unary.cc",
            "gemm.c",
        ),
        (_TENSORFLOW_LIBRARY, CONTROL_LIBRARY),
    ),
    Library(RENAME_LIBRARY, ("plugin_rename.c",)),
)
# What the plug-in tier shares with the driver tier. Not libcuda: TensorFlow must not find two kinds of GPUs.
_PLUGIN_SHARES: Final = (CONTROL_LIBRARY, "libnvidia-ml.so.1", "libnvidia-ml.so")
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


_announce: Callable[[], None] | None = None


@contextmanager
def announced(say: Callable[[], None]) -> Iterator[None]:
    """While this lasts ``say`` is called before anything is compiled, which takes seconds, and not otherwise."""
    global _announce
    before, _announce = _announce, say
    try:
        yield
    finally:
        _announce = before


def ensure_built(tier: Tier = "driver") -> Path:
    """Return the folder that holds a tier's libraries, compiling them if this is the first use.

    Raises:
        GpuwatchError: no C compiler (the plug-in tier needs one for C++ too), it failed, or there is no folder that
            this user can write to and others cannot.
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


def plugin_obstacle(tensorflow: Path, *, cuda_build: bool) -> str | None:
    """Why the plug-in tier cannot work with a TensorFlow (the package's folder), or None.

    In a build for CUDA the wheel's own GPU kernels must be renamed, through a symbol that came with 2.16.
    """
    if not cuda_build:
        return None
    library = tensorflow / _TENSORFLOW_LIBRARY
    try:
        with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            found = content.find(_RENAMED_SYMBOL.encode() + b"\0") >= 0
    except (OSError, ValueError) as error:
        return f"{library} cannot be read: {error}"
    if found:
        return None
    return "the CUDA kernels of this TensorFlow cannot be renamed (2.16 and later ones can) and would collide"


def runtime_obstacle(cuda_version: str | None) -> str | None:
    """Why a build of PyTorch for this version of CUDA has no simulated GPUs, or None."""
    major = (cuda_version or "").partition(".")[0]
    if not major.isdigit() or int(major) in RUNTIMES:
        return None
    return f"the simulated driver lacks the runtime of CUDA {major}: it has those of {' and '.join(map(str, RUNTIMES))}"


def cache_folder() -> Path:
    """Where all builds live, one folder for each, as long as it is safe (:func:`ensure_built`)."""
    return platformdirs.user_cache_path("gpuwatch") / "sim"


def _own_cache() -> Path:
    folder = cache_folder()
    try:
        return ownership.own_folder(folder, "XDG_CACHE_HOME", "sim")
    except OSError as error:
        raise _unkept(folder, error) from error


def _unkept(folder: Path, error: OSError) -> GpuwatchError:
    return GpuwatchError(
        f"the simulated GPUs cannot be kept in {folder}: {error.strerror or error}",
        hint="set XDG_CACHE_HOME to a folder that can be written",
    )


def _ensure(folder: Path, fill: Callable[[Path], None]) -> None:
    """Makes a build that is not there, and again one with a file in it that somebody else can have written."""
    if is_foreign(folder):
        discard(folder)
    if not folder.is_dir():
        _make(folder, fill)


def discard(folder: Path) -> None:
    """Removes a build, or what stands in its place."""
    try:
        folder.unlink() if folder.is_symlink() else shutil.rmtree(folder)
    except OSError as error:
        raise _unkept(folder, error) from error


def is_foreign(folder: Path) -> bool:
    """Whether a build holds what others can have put there, while its folder was open to them."""
    try:
        return folder.is_dir() and any(
            ownership.file_distrust(path) or _leads_out(path) for path in (folder, *folder.iterdir())
        )
    except OSError:
        return True


def _leads_out(path: Path) -> bool:
    """Whether a link leads elsewhere than to this build and its neighbours, which are looked at by themselves."""
    if not path.is_symlink():
        return False
    target = path.resolve()
    return target.parent.parent != path.parent.parent.resolve() or bool(ownership.file_distrust(target))


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


def find_cxx_compiler() -> list[str]:
    """The C++ compiler as a command: $CXX, else c++, g++ or clang++ from PATH."""
    wanted = shlex.split(os.environ.get("CXX", ""))
    if wanted:
        found = shutil.which(wanted[0])
        if found:
            return [found, *wanted[1:]]
        raise GpuwatchError(
            f"the C++ compiler that CXX names is not there: {wanted[0]}",
            hint="unset CXX, or set it to a C++ compiler (g++ or clang++)",
        )
    for name in ("c++", "g++", "clang++"):
        found = shutil.which(name)
        if found:
            return [found]
    raise GpuwatchError(
        "simulated GPUs that compute need a C++ compiler, and none was found (looked for c++, g++, clang++ in PATH)",
        hint="install one: apt install g++, dnf install gcc-c++, apk add g++; or name yours in CXX; "
        "the driver tier needs only a C compiler",
    )


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
    for part in (base, *compiler, _identity(compiler[0]), *_CXX_FLAGS, repr((PLUGIN_LIBRARIES, _PLUGIN_SHARES))):
        digest.update(part.encode() + b"\0")
    for source in sorted(sources.glob("plugin*")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()[:20] + "-plugin"


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


def _make(folder: Path, fill: Callable[[Path], None]) -> None:
    """Let `fill` build in a temporary folder, and make it `folder` when it is complete."""
    if _announce is not None:
        _announce()
    with _one_at_a_time(folder.parent):
        if not folder.is_dir():  # else another process built it while this one waited
            _build(folder, fill)


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Processes that need the same build do not compile it all at once.

    Where the folder cannot be locked (some network file systems) they do, and no harm comes of it.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        yield  # what is wrong with it is said by who builds
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
            if not folder.is_dir():  # else another process was faster, and its build is the same
                raise
        (folder.parent / FAILURE_LOG).unlink(missing_ok=True)
    except _CompilerFailedError as failed:
        raise _explained(failed, folder.parent) from failed
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _fill(work: Path, compiler: list[str], sources: Path) -> None:
    _compile_all(LIBRARIES, work, sources, lambda name: [*compiler, *_c_flags(name)])
    for library in LIBRARIES:  # in order: each may need those before it
        _link(compiler, work, library, "-Wl,--no-undefined")
    (work / _DRIVER_LIBRARY).rename(work / DRIVER_FILE)
    (work / _DRIVER_LIBRARY).symlink_to(DRIVER_FILE)
    for alias, target in ALIASES.items():
        (work / alias).symlink_to(target)
    _remove_objects(work)


def _fill_plugin(work: Path, compiler: list[str], cxx: list[str], sources: Path, base: Path) -> None:
    for name in _PLUGIN_SHARES:
        (work / name).symlink_to(Path("..") / base.name / name)

    def command(name: str) -> list[str]:
        return [*cxx, *_CXX_FLAGS] if name.endswith(".cc") else [*compiler, *_c_flags(name), *_PLUGIN_FLAGS]

    _compile_all(PLUGIN_LIBRARIES, work, sources, command)
    # TensorFlow's names are resolved by this entry alone, in versions that do not load their library for all.
    _call([*compiler, "-shared", f"-Wl,-soname,{_TENSORFLOW_LIBRARY}", "-o", str(work / _TENSORFLOW_LIBRARY)])
    for library in PLUGIN_LIBRARIES:
        linker = cxx if any(name.endswith(".cc") for name in library.sources) else compiler
        _link(linker, work, library, "-Wl,--no-as-needed")
    (work / _TENSORFLOW_LIBRARY).unlink()  # or it would be found instead of the real one
    _remove_objects(work)


def _c_flags(name: str) -> tuple[str, ...]:
    return (*_FLAGS, *_FAST) if name in _FAST_SOURCES else _FLAGS


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
    return () if source in _FAST_SOURCES else library.macros  # arithmetic knows no version of CUDA


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
            "-Wl,-rpath,$ORIGIN",  # they find each other wherever the cache is
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
    """The compiler's command line and all that it said."""

    def __init__(self, command: list[str], output: str, code: int) -> None:
        super().__init__(output)
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        first = next((line for line in lines if "error" in line.lower()), lines[0] if lines else "")
        self.message = first or f"{command[0]} ended with code {code}"
        self.log = f"{shlex.join(command)}\n{output}"


def _call(command: list[str]) -> None:
    result = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", umask=0o077
    )
    if result.returncode:
        raise _CompilerFailedError(command, result.stdout + result.stderr, result.returncode)


def _explained(failed: _CompilerFailedError, folder: Path) -> GpuwatchError:
    """One file for all failures, the last one in it, so that they do not pile up."""
    log = folder / FAILURE_LOG
    try:
        ownership.write_private(log, failed.log)
        hint = f"the compiler's whole output is in {log}"
    except OSError as error:
        hint = f"the compiler's whole output could not be kept in {log}: {error.strerror}"
    return GpuwatchError(f"the simulated GPUs could not be compiled: {failed.message}", hint=hint)


def note_use(folder: Path) -> None:
    """A build that is used is kept (:func:`_sweep`); its folder's time says when it was, to the hour."""
    try:
        if time.time() - folder.stat().st_mtime > _HOUR:
            os.utime(folder)
    except OSError:
        return  # another user's, or a read-only one: it will be built again when it is gone


def _sweep(folder: Path) -> None:
    """Remove what builds that were killed left behind, and builds that nobody has used for long."""
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
