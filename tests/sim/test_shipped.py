"""Simulated GPUs that came compiled with the wheel: used without a compiler, and only where they fit."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import gpuwatch
from gpuwatch.core.errors import GpuwatchError
from gpuwatch.sim import library_cache, shipped_libraries
from gpuwatch.sim.libraries import ALIASES, PLUGIN_LIBRARY, PLUGIN_SHARES

CHECKOUT = Path(gpuwatch.__file__).parents[1]
SOURCES = Path(shipped_libraries.__file__).parent / "csrc"


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as a wheel has it, no compiler, and an empty cache."""
    folder = tmp_path / "shipped"
    folder.mkdir()
    for tier, names in (("driver", shipped_libraries.driver_files()), ("plugin", shipped_libraries.plugin_files())):
        made = library_cache.ensure_built(tier)  # type: ignore[arg-type]
        for name in names:
            shutil.copy(made / name, folder / name)
    (folder / shipped_libraries.FINGERPRINT_FILE).write_text(shipped_libraries.fingerprint(SOURCES))
    monkeypatch.setattr(shipped_libraries, "shipped_folder", lambda: folder)
    monkeypatch.setattr(
        library_cache, "_cpu_flags", lambda: frozenset({"avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"})
    )
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("CC", "CXX", shipped_libraries.ENV_COMPILE):
        monkeypatch.delenv(name, raising=False)
    return folder


def test_without_a_compiler_both_tiers_are_copied_with_their_links(wheel: Path) -> None:
    announced: list[None] = []
    with library_cache.announced_builds(lambda: announced.append(None)):
        driver, plugin = library_cache.ensure_built("driver"), library_cache.ensure_built("plugin")
    assert announced == [], "a copy takes no time"
    assert library_cache.compiler_obstacle() is None
    assert shipped_libraries.driver_files() | set(ALIASES) < {path.name for path in driver.iterdir()}
    assert shipped_libraries.plugin_files() | set(PLUGIN_SHARES) == {path.name for path in plugin.iterdir()}
    assert all(path.exists() for folder in (driver, plugin) for path in folder.iterdir())
    assert {path.stat().st_mode & 0o777 for path in driver.iterdir() if not path.is_symlink()} == {0o600}
    assert library_cache.ensure_built("plugin") == plugin


def test_conda_s_variables_do_not_make_it_compile(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "/conda/bin/x86_64-conda-linux-gnu-cc")
    assert library_cache.ensure_built().is_dir()


@pytest.mark.parametrize("why", ["asked", "sources", "none"])
def test_else_it_is_compiled(wheel: Path, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if why == "asked":
        monkeypatch.setenv(shipped_libraries.ENV_COMPILE, "1")
    elif why == "sources":
        (wheel / shipped_libraries.FINGERPRINT_FILE).write_text("other sources")
    else:
        (wheel / shipped_libraries.FINGERPRINT_FILE).unlink()
    with pytest.raises(GpuwatchError, match=r"^simulated GPUs need a C compiler, and none was found"):
        library_cache.ensure_built()
    obstacle = library_cache.compiler_obstacle()
    assert obstacle is not None
    assert "C++ compiler" in obstacle.message


def test_a_cpu_that_is_too_old_is_told_in_one_line(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not shipped_libraries.lacking_cpu_features(frozenset()):
        pytest.skip("the libraries need nothing special of this machine")
    monkeypatch.setattr(library_cache, "_cpu_flags", lambda: frozenset({"avx2", "fma", "movbe", "f16c"}))
    with pytest.raises(GpuwatchError) as error:
        library_cache.ensure_built()
    assert error.value.message.startswith("the simulated GPUs that come with gpuwatch need a CPU with bmi1, bmi2: ")
    assert "\n" not in error.value.message


def test_the_plugin_exports_nothing_of_the_cxx_runtime() -> None:
    assert _exported(library_cache.ensure_built("plugin") / PLUGIN_LIBRARY) == {
        "SE_InitPlugin",
        "TF_InitKernel",
        "gpuwatch_plugin_lay_out",
        "gpuwatch_plugin_recount",
        "gpuwatch_plugin_visible",
    }


def _exported(library: Path) -> set[str]:
    told = subprocess.run(["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True)
    return {line.split()[-1] for line in told.stdout.splitlines()}


@pytest.mark.long
def test_a_release_wheel_twice_the_same_and_used_without_a_compiler(tmp_path: Path) -> None:
    """Needs the package index: ziglang comes from there."""
    wheels = [_made(tmp_path / str(number)) for number in (1, 2)]
    contents = [_libraries(wheel) for wheel in wheels]
    assert contents[0] == contents[1]
    assert len(contents[0]) == len(shipped_libraries.driver_files() | shipped_libraries.plugin_files()) + 2
    home = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    subprocess.run([str(home / "bin/pip"), "install", "-q", str(wheels[0])], check=True)
    environment = {"PATH": str(home / "bin"), "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    snapshot = [str(home / "bin/gpuwatch"), "snapshot", "--csv", "--sim", "2x8GiB"]
    done = subprocess.run(snapshot, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.count("Simulated GPU 8GiB") >= 2
    (folder,) = (home / "lib").glob("python*/site-packages/gpuwatch/sim/shipped/*")
    for library in folder.glob("*.so*"):
        told = subprocess.run(["objdump", "-T", str(library)], capture_output=True, text=True, check=True).stdout
        versions = [tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_([0-9.]+)", told)]
        assert max(versions, default=(0,)) <= (2, 17), library.name
        assert "GLIBCXX" not in told, "the C++ runtime is linked in"


def _made(folder: Path) -> Path:
    command = [sys.executable, "-m", "build", "--wheel", "-o", str(folder), str(CHECKOUT)]
    environment = {**os.environ, "GPUWATCH_WHEEL": "x86_64", "SOURCE_DATE_EPOCH": "1700000000"}
    subprocess.run(command, env=environment, check=True, capture_output=True)
    (wheel,) = folder.glob("*manylinux_2_17_x86_64.whl")
    return wheel


def _libraries(wheel: Path) -> dict[str, str]:
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if "/shipped/" in name]
        return {name: hashlib.sha256(archive.read(name)).hexdigest() for name in names}
