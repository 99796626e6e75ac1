from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from gpuwatch.core.errors import GpuwatchError
from gpuwatch.sim import compiler, libraries, library_cache
from tests.sim.conftest import REPOSITORY


def in_process(code: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def quick_compiler(folder: Path, before: str = "") -> str:
    """A compiler that does not optimise, for tests of when it is called and not of what it makes."""
    cc = folder / "cc"
    cc.write_text(f'#!/bin/sh\n{before}\nexec gcc "$@" -O0\n')
    cc.chmod(0o755)
    return str(cc)


def test_first_builds_at_once_are_announced_and_compile_each_library_once(tmp_path: Path) -> None:
    count, cache = tmp_path / "count", tmp_path / "cache"
    cc = quick_compiler(tmp_path, f"echo x >> {count}")
    code = """
    from gpuwatch.sim import library_cache
    with library_cache.announced_builds(lambda: print("compiling")):
        print(library_cache.ensure_built())
        print(library_cache.ensure_built())
    """
    some = [in_process(code, XDG_CACHE_HOME=str(cache), CC=cc) for _ in range(3)]
    results = [process.communicate(timeout=120) for process in some]
    assert [process.returncode for process in some] == [0, 0, 0], results
    told = [out.removeprefix("compiling\n") for out, _ in results]
    assert [out.startswith("compiling\n") for out, _ in results].count(True) >= 1  # one that came later found it there
    (folder,) = {Path(line) for lines in told for line in lines.splitlines()}
    assert cache in folder.parents
    objects = {
        (name, compiler._macros(library, name)) for library in libraries.DRIVER_LIBRARIES for name in library.sources
    }
    assert len(count.read_text().splitlines()) == len(objects) + len(libraries.DRIVER_LIBRARIES)
    names = {library.name for library in libraries.DRIVER_LIBRARIES} | set(libraries.ALIASES) | {libraries.DRIVER_FILE}
    assert {path.name for path in folder.iterdir()} == names
    assert (folder / "libcublas.so.12").stat().st_size > 0
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]  # nothing is left lying about
    assert in_process(code, XDG_CACHE_HOME=str(cache), CC=cc).communicate(timeout=60)[0] == f"{folder}\n" * 2


def test_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(GpuwatchError, match="need a C compiler") as caught:
        library_cache.ensure_built()
    assert "apt install gcc" in caught.value.hint


def test_a_compiler_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-cc -m64")
    with pytest.raises(GpuwatchError, match="no-such-cc") as caught:
        library_cache.ensure_built()
    assert "CC" in caught.value.hint


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gpuwatch").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(GpuwatchError, match="cannot write") as caught:
        library_cache.ensure_built()
    assert "XDG_CACHE_HOME" in caught.value.hint


def test_a_compiler_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "cc"
    lines = ("state.c:1: note: something", "state.c:2: error: no such luck")
    broken.write_text("#!/bin/sh\n" + "".join(f"echo '{line}' >&2\n" for line in lines) + "exit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(GpuwatchError, match=r"state\.c:2: error: no such luck") as caught:
        library_cache.ensure_built()
    log = Path(caught.value.hint.rsplit(" ", 1)[1])
    assert "something" in log.read_text()
    with pytest.raises(GpuwatchError):
        library_cache.ensure_built()
    assert list((tmp_path / "cache" / "gpuwatch" / "sim").iterdir()) == [log], "one log, however often it fails"


def test_builds_that_nobody_uses_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    day = 86_400

    def made(name: str, days: float) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "x.so").touch()
        os.utime(folder, (time.time() - days * day,) * 2)
        return folder

    old, used, killed = made("old", 31), made("used", 31), made("tmp-killed", 1)
    recent = [made(f"recent-{number}", 2 + number / 10) for number in range(library_cache._MAX_BUILDS + 3)]
    fresh = [made(f"fresh-{number}", 0.5) for number in range(4)]
    library_cache.mark_as_used(used)
    library_cache._remove_old_builds(tmp_path)
    left = set(tmp_path.iterdir())
    assert not {old, killed} & left
    assert {used, *fresh} <= left
    assert len(left) == library_cache._MAX_BUILDS, "the last used ones"
    assert recent[-1] not in left


def test_the_key_follows_compiler_and_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "one", tmp_path / "two"
    for command, text in ((first, "a"), (second, "bb")):
        command.write_text(text)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "x.c").write_text("int x;")
    keys = {
        library_cache._build_key([str(first)], tmp_path / "src"),
        library_cache._build_key([str(second)], tmp_path / "src"),
    }
    (tmp_path / "src" / "x.c").write_text("int y;")
    keys.add(library_cache._build_key([str(first)], tmp_path / "src"))
    monkeypatch.setattr(library_cache, "_cpu_model", lambda: "another")
    keys.add(library_cache._build_key([str(first)], tmp_path / "src"))
    assert len(keys) == 4


def test_the_sources_are_warning_free() -> None:
    sources = REPOSITORY / "gpuwatch" / "sim" / "csrc"
    for library in libraries.DRIVER_LIBRARIES:
        for source in library.sources:
            assert (sources / source).is_file()
            flags = [*compiler._FLAGS, "-Werror", "-Wno-psabi", "-fsyntax-only"]
            subprocess.run([*library_cache.find_compiler(), *flags, str(sources / source)], check=True)
