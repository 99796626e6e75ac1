"""The cache folder of simulated libraries: filled on first use with copies of what came with the wheel, else compiled.

The name of a build's folder is a hash of everything that determines the result: sources, flags, compiler and CPU
model (matrix multiplication is compiled for this CPU). It is built in a temporary folder that is renamed when
complete, so that concurrent builds do no harm. Code is loaded from it, so only this user may write to it
(:mod:`gpuwatch.core.private_folders`).

The plug-in tier has its own folder, built only when it is needed: the plug-in for TensorFlow, the library that
renames CUDA kernels, and from the driver tier only NVML.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final

from gpuwatch.core import private_folders, user_folders
from gpuwatch.core.errors import GpuwatchError
from gpuwatch.sim import shipped_libraries
from gpuwatch.sim.compiler import (
    DRIVER_RECIPE,
    PLUGIN_RECIPE,
    CompilerFailedError,
    compile_driver,
    compile_plugin,
    find_compiler,
    find_cxx_compiler,
    link_aliases,
    link_shared_libraries,
)
from gpuwatch.sim.libraries import Tier

FAILURE_LOG: Final = "failed-build.log"
"""In the cache folder: the compiler's output of the last failed build."""
_HOUR, _DAY = 3600.0, 86_400.0
_MAX_UNUSED_SECONDS = 30 * _DAY
_MAX_BUILDS = 24
"""Builds kept: every change of the sources makes a new one."""

_before_build: Callable[[], None] | None = None


@contextmanager
def announced_builds(notify_build: Callable[[], None]) -> Iterator[None]:
    """Within this context, ``notify_build`` is called before anything is compiled, which takes seconds."""
    global _before_build
    before, _before_build = _before_build, notify_build
    try:
        yield
    finally:
        _before_build = before


def ensure_built(tier: Tier = "driver") -> Path:
    """The folder with a tier's libraries, copied from the wheel or compiled on first use.

    Raises:
        GpuwatchError: they are to be compiled and there is no C compiler (or C++ compiler, for the plug-in tier), it
            failed, or there is no folder to which only this user can write.
    """
    if (found := shipped_libraries.usable_libraries(_cpu_flags())) is not None:
        return _copy_from_wheel(found, tier)
    compiler = _required_compiler(find_compiler)
    cache = _own_cache()
    with as_file(files("gpuwatch.sim") / "csrc") as sources:
        folder = cache / _build_key(compiler, sources)
        _build_if_missing(folder, lambda work: compile_driver(work, compiler, sources))
        if tier == "plugin":
            base, cxx = folder, _required_compiler(find_cxx_compiler)
            folder = cache / f"{_build_key(cxx, sources, base.name)}-plugin"
            mark_as_used(base)
            _build_if_missing(folder, lambda work: compile_plugin(work, compiler, cxx, sources, base))
    mark_as_used(folder)
    return folder


def compiler_obstacle() -> GpuwatchError | None:
    """Why the plug-in tier cannot be made here; None if it can, with libraries of the wheel or a C++ compiler."""
    try:
        if shipped_libraries.usable_libraries(_cpu_flags()) is None:
            _required_compiler(find_cxx_compiler)
    except GpuwatchError as error:
        return error
    return None


def _required_compiler(find: Callable[[], list[str]]) -> list[str]:
    """A compiler; where there is none, the error also says why the wheel's libraries do not serve."""
    try:
        return find()
    except GpuwatchError as error:
        lacking = shipped_libraries.lacking_cpu_features(_cpu_flags())
        if not lacking or not shipped_libraries.shipped_folder().is_dir():
            raise
        raise GpuwatchError(
            f"the simulated GPUs that come with gpuwatch need a CPU with {', '.join(lacking)}: {error.message}",
            hint=error.hint,
        ) from error


def _copy_from_wheel(found: Path, tier: Tier) -> Path:
    """The cache's copy of the wheel's libraries: with links, and only ours to write to."""
    stamp = hashlib.sha256(f"{found} {found.stat().st_mtime_ns}".encode())  # another wheel may have the same sources
    stamp.update((found / shipped_libraries.FINGERPRINT_FILE).read_bytes())
    base = _own_cache() / stamp.hexdigest()[:20]

    def copy(names: set[str], work: Path) -> None:
        for name in names:
            shutil.copyfile(found / name, work / name)
            (work / name).chmod(0o600)  # whatever the umask

    def driver(work: Path) -> None:
        copy(shipped_libraries.driver_files(), work)
        link_aliases(work)

    def plugin(work: Path) -> None:
        copy(shipped_libraries.plugin_files(), work)
        link_shared_libraries(work, base)

    _build_if_missing(base, driver, quick=True)
    mark_as_used(base)
    if tier == "driver":
        return base
    folder = base.with_name(f"{base.name}-plugin")
    _build_if_missing(folder, plugin, quick=True)
    mark_as_used(folder)
    return folder


def cache_folder() -> Path:
    """The folder of all builds, if it is safe to use (:func:`ensure_built`)."""
    return user_folders.cache_folder() / "sim"


def _own_cache() -> Path:
    folder = cache_folder()
    try:
        return private_folders.private_folder(folder, "XDG_CACHE_HOME", "sim")
    except OSError as error:
        raise _cache_error(folder, error) from error


def _cache_error(folder: Path, error: OSError) -> GpuwatchError:
    return GpuwatchError(
        f"cannot write the simulated GPUs' libraries to {folder}: {error.strerror or error}",
        hint="set XDG_CACHE_HOME to a writable folder",
    )


def _build_if_missing(folder: Path, fill: Callable[[Path], None], *, quick: bool = False) -> None:
    """Builds what is missing, and rebuilds a folder that somebody else may have written to."""
    if may_be_foreign(folder):
        remove_build(folder)
    if not folder.is_dir():
        if _before_build is not None and not quick:
            _before_build()
        with _build_lock(folder.parent):
            if not folder.is_dir():  # otherwise another process built it while this one waited
                _build(folder, fill)


def remove_build(folder: Path) -> None:
    """Removes a build's folder, or a link in its place."""
    try:
        folder.unlink() if folder.is_symlink() else shutil.rmtree(folder)
    except OSError as error:
        raise _cache_error(folder, error) from error


def may_be_foreign(folder: Path) -> bool:
    """Whether somebody else may have written to a build."""
    try:
        return folder.is_dir() and any(
            private_folders.why_file_untrusted(path) or _links_outside(path) for path in (folder, *folder.iterdir())
        )
    except OSError:
        return True


def _links_outside(path: Path) -> bool:
    """Whether a link leads out of this build and its neighbors, which are checked by themselves."""
    if not path.is_symlink():
        return False
    target = path.resolve()
    return target.parent.parent != path.parent.parent.resolve() or bool(private_folders.why_file_untrusted(target))


def _build_key(compiler: list[str], sources: Path, base: str = "") -> str:
    """Hash of all that determines a build. ``base``: of the plug-in tier, the name of the driver tier's folder."""
    digest = hashlib.sha256()
    recipe = PLUGIN_RECIPE if base else DRIVER_RECIPE
    for part in (*compiler, _compiler_identity(compiler[0]), _cpu_model(), recipe, base):
        digest.update(part.encode() + b"\0")
    for source in sorted(sources.iterdir()):
        if source.suffix in {".c", ".h", ".cc"} and source.name.startswith("plugin") == bool(base):
            digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()[:20]


def _compiler_identity(compiler: str) -> str:
    """Changes whenever the compiler does. Asking for its --version would cost a process at every start."""
    real = Path(compiler).resolve()
    status = real.stat()
    return f"{real} {status.st_size} {status.st_mtime_ns}"


def _cpu_model() -> str:
    """The CPU's name and features: a cache in a shared home folder serves different hosts."""
    return f"{platform.machine()} {sorted(_cpu_facts().items())}"


def _cpu_flags() -> frozenset[str]:
    return frozenset(_cpu_facts().get("flags", "").split())


def _cpu_facts() -> dict[str, str]:
    """Model and features of the first CPU in /proc/cpuinfo; empty if it cannot be read."""
    wanted = ("model name", "flags", "CPU part", "Features")
    found: dict[str, str] = {}
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                name, _, value = line.partition(":")
                if name.strip() in wanted:
                    found.setdefault(name.strip(), value.strip())
                elif not line.strip() and found:
                    break
    except OSError:
        return {}
    return found


@contextmanager
def _build_lock(folder: Path) -> Iterator[None]:
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
    """Lets ``fill`` build in a temporary folder, which is renamed to ``folder`` when it is complete."""
    try:
        _remove_old_builds(folder.parent)
        work = Path(tempfile.mkdtemp(prefix="tmp-", dir=folder.parent))
        work.chmod(0o700)
    except OSError as error:
        raise _cache_error(folder.parent, error) from error
    try:
        fill(work)
        try:
            work.rename(folder)
        except OSError:
            if not folder.is_dir():  # otherwise another process was faster, with the same build
                raise
        (folder.parent / FAILURE_LOG).unlink(missing_ok=True)
    except CompilerFailedError as failed:
        raise _build_error(failed, folder.parent) from failed
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _build_error(failed: CompilerFailedError, folder: Path) -> GpuwatchError:
    """The error for the user; the log file is overwritten by each failure."""
    log = folder / FAILURE_LOG
    try:
        private_folders.write_private_file(log, failed.log)
        hint = f"the compiler's full output is in {log}"
    except OSError as error:
        hint = f"the compiler's full output could not be written to {log}: {error.strerror}"
    return GpuwatchError(f"the simulated GPUs' libraries could not be compiled: {failed.message}", hint=hint)


def mark_as_used(folder: Path) -> None:
    """Records in the folder's time, to the hour, when a build was last used (for :func:`_remove_old_builds`)."""
    try:
        if time.time() - folder.stat().st_mtime > _HOUR:
            os.utime(folder)
    except OSError:
        return  # not ours, or read-only: it will be built again when it is gone


def _remove_old_builds(folder: Path) -> None:
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
        if age > _MAX_UNUSED_SECONDS or (place >= _MAX_BUILDS and age > _DAY):
            shutil.rmtree(entry, ignore_errors=True)
