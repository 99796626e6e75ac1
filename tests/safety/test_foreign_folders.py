"""Attacks by another user of the machine: folders, links and files where gpuwatch keeps its own.

They are made for real, with another owner, so they need root; what a user without rights meets is tried in a process
that gave them up.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.core.private_folders import ENV_PRIVATE, private_folder, why_untrusted
from gpuwatch.machine.history.saved_runs import RunStore
from gpuwatch.sim import libraries, library_cache
from gpuwatch.sim.machine_shape import SimShape
from gpuwatch.sim.simulated_machine import SimMachine
from gpuwatch.sim.state_bindings import load_control
from gpuwatch.sim.state_files import state_folder, state_name
from gpuwatch.ui.settings import settings_file
from gpuwatch.ui.settings.preferences import Preferences
from tests.reports.documents import full_run

REPOSITORY = Path(__file__).resolve().parents[2]
ATTACKER, VICTIM = 64001, 64002
"""Numbers that no account has."""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user can reach: those of pytest are for its own user alone."""
    folder = Path(tempfile.mkdtemp(prefix="gpuwatch-test-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def foreign_home(place: Path) -> Path:
    """The home of the attacker, as ``sudo -E`` leaves it in HOME."""
    home = place / "home"
    home.mkdir(mode=0o755)
    os.chown(home, ATTACKER, ATTACKER)
    return home


def python(code: str, home: Path, *, user: int | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    """Runs ``code``; as ``user`` it gives up all rights after the imports that it needs."""
    begin = ["import os, sys, atexit, shutil, tempfile"]
    if user is not None:
        begin += [
            "from gpuwatch.sim import state_files",
            f"os.setgroups([]); os.setresgid({user}, {user}, {user}); os.setresuid({user}, {user}, {user})",
        ]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", ENV_PRIVATE))}
    return subprocess.run(
        [sys.executable, "-c", "\n".join([*begin, textwrap.dedent(code)])],
        env={**kept, "HOME": str(home), "PYTHONPATH": str(REPOSITORY), **more},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def owned(path: Path, user: int, mode: int) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    os.chown(path, user, user)
    path.chmod(mode)
    return path


@needs_root
@pytest.mark.parametrize(
    ("user", "mode", "why"),
    [
        (ATTACKER, 0o755, "belongs to user 64001"),
        (0, 0o777, "can be written by everyone"),
        (0, 0o775, "can be written by the group 64001"),
        (ATTACKER, 0o1777, "belongs to user 64001"),
        (0, 0o755, ""),
        (0, 0o1777, ""),
    ],
)
@pytest.mark.parametrize("below", ["", "cache/gpuwatch"])
def test_who_may_write_above(tmp_path: Path, user: int, mode: int, why: str, below: str) -> None:
    folder = tmp_path / "above"
    folder.mkdir()
    os.chown(folder, user, 64001)
    folder.chmod(mode)
    found = why_untrusted(folder / below)
    assert found == (f"{folder} {why}" if why else "")


@needs_root
def test_the_private_group_of_the_user_may_write(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    os.chown(folder, os.geteuid(), os.getegid())
    folder.chmod(0o770)
    assert why_untrusted(folder) == ""


@needs_root
def test_a_link_of_another_user_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "mine"
    target.mkdir()
    shared = owned(tmp_path / "shared", 0, 0o1777)
    link = shared / "gpuwatch"
    link.symlink_to(target)
    assert why_untrusted(link) == "", "a link of root's own"
    os.chown(link, ATTACKER, ATTACKER, follow_symlinks=False)
    assert why_untrusted(link / "sim") == f"{link} belongs to user {ATTACKER}"
    link.unlink()
    link.symlink_to(Path("..") / "shared" / "gpuwatch")
    assert "symbolic links" in why_untrusted(link)


def test_own_folders_and_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folder = private_folder(tmp_path / "cache" / "gpuwatch" / "sim", "XDG_CACHE_HOME", "sim")
        saved = RunStore(tmp_path / "state" / "gpuwatch" / "runs").save(full_run())
    finally:
        os.umask(before)
    assert folder == tmp_path / "cache" / "gpuwatch" / "sim"
    for made in (folder, folder.parent, saved.parent, saved.parent.parent):
        assert stat.S_IMODE(made.stat().st_mode) == 0o700, made
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    folder.chmod(0o755)
    private_folder(folder, "XDG_CACHE_HOME", "sim")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def planted(folder: Path, mark: Path) -> None:
    """A library that tells when it is loaded, under the name of every simulated one."""
    source = mark.with_suffix(".c")
    source.write_text(
        "#include <fcntl.h>\n__attribute__((constructor)) static void loaded(void) "
        f'{{ open("{mark}", O_CREAT | O_RDWR, 0600); }}\n'
    )
    folder.mkdir(parents=True)
    library = folder / libraries.CONTROL_LIBRARY
    subprocess.run([*library_cache.find_compiler(), "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    for name in (*libraries.ALIASES, *(one.name for one in libraries.DRIVER_LIBRARIES), libraries.DRIVER_FILE):
        if not (folder / name).exists():
            shutil.copy(library, folder / name)


@needs_root
def test_root_loads_no_simulator_from_the_home_of_somebody_else(foreign_home: Path) -> None:
    mark = foreign_home.parent / "loaded"
    sources = REPOSITORY / "gpuwatch" / "sim" / "csrc"
    # Compiling takes long; this one copies what was compiled before.
    compiler = foreign_home.parent / "cc"
    compiler.write_text(
        '#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\n'
        f'cp "{library_cache.ensure_built()}/$(basename "$2")" "$2" 2>/dev/null || : > "$2"\n'
    )
    compiler.chmod(0o755)
    key = library_cache._build_key([str(compiler)], sources)
    cache = foreign_home / ".cache"
    planted(cache / "gpuwatch" / "sim" / key, mark)
    subprocess.run(["chown", "-R", f"{ATTACKER}:{ATTACKER}", str(foreign_home)], check=True)
    runtime = owned(foreign_home / "run", ATTACKER, 0o700)
    inner = "from gpuwatch.sim import library_cache; print(library_cache.ensure_built())"
    code = f"""
    os.umask(0)
    import subprocess
    from gpuwatch.sim.simulated_machine import SimMachine
    from gpuwatch.sim.machine_shape import SimShape
    machine = SimMachine.open(SimShape.parse("1x2GiB"), name="attack")
    print(machine.library_dir, machine.state_path)
    for place in (machine.library_dir.parent.parent, *machine.library_dir.parent.rglob("*")):
        if not place.is_symlink():
            print(oct(place.stat().st_mode & 0o777))
    print("inner", subprocess.run([sys.executable, "-c", {inner!r}], capture_output=True, text=True, check=True))
    machine.remove()
    """
    # TMPDIR is the attacker's, too: what is made there could be replaced.
    ended = python(code, foreign_home, XDG_RUNTIME_DIR=str(runtime), TMPDIR=str(runtime), CC=str(compiler))
    assert ended.returncode == 0, ended.stderr
    assert not mark.exists(), "the attacker's library was loaded"
    places, *modes, told = ended.stdout.splitlines()
    libraries, state = map(Path, places.split())
    assert foreign_home not in libraries.parents
    assert foreign_home not in state.parents
    assert set(modes) <= {"0o700", "0o600"}
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"gpuwatch: not using {cache}/gpuwatch/sim: {foreign_home} belongs to user {ATTACKER}; ")
    assert f"using {libraries.parent} for" in line
    assert f"stdout='{libraries}\\n', stderr=''" in told, "a gpuwatch below uses the same folder and says nothing"
    assert not libraries.parent.exists(), "nothing is left behind"


@needs_root
@pytest.mark.parametrize("library", [libraries.CONTROL_LIBRARY, "libcuda.so.1"])
def test_what_was_planted_while_the_cache_was_open_to_all_is_built_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    fake = tmp_path / "cc"  # makes every file that it is asked for
    fake.write_text('#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\necho built > "$2"\n')
    fake.chmod(0o755)
    monkeypatch.setenv("CC", str(fake))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = library_cache.ensure_built()
    evil = tmp_path / "evil.so"
    evil.write_text("evil")
    os.chown(evil, ATTACKER, ATTACKER)
    (folder / library).unlink()
    if library == libraries.CONTROL_LIBRARY:
        shutil.copy(evil, folder / library)
        os.chown(folder / library, ATTACKER, ATTACKER)
    else:
        (folder / library).symlink_to(evil)
    assert library_cache.ensure_built() == folder
    assert (folder / library).read_text() == "built\n"


@needs_root
def test_a_folder_in_memory_that_somebody_else_made_first(place: Path) -> None:
    base = owned(place / "shm", 0, 0o1777)
    owned(base / f"gpuwatch-sim-{VICTIM}", ATTACKER, 0o777)
    code = "print(state_files.state_folder(), os.environ['GPUWATCH_PRIVATE_FOLDER'])"
    ended = python(code, place, user=VICTIM, XDG_RUNTIME_DIR=str(base))
    assert ended.returncode == 0, ended.stderr
    used, private = map(Path, ended.stdout.split())
    assert used == private / "machines"
    (line,) = ended.stderr.splitlines()
    assert f"not using {base}/gpuwatch-sim-{VICTIM}: " in line
    assert f"belongs to user {ATTACKER}" in line
    assert "set XDG_RUNTIME_DIR" in line, "nobody but its owner can remove it"
    assert not private.exists()


@needs_root
def test_the_runtime_folder_of_another_user_is_passed_over(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(owned(place / "run", ATTACKER, 0o700)))
    assert place not in state_folder().parents


@needs_root
def test_the_state_of_a_machine_that_another_user_wrote(place: Path, foreign_home: Path) -> None:
    shape = SimShape.parse("1x2GiB")
    machine = SimMachine.open(shape, name="victim")
    try:
        state = foreign_home / state_name(shape, "victim", machine.library_dir)
        shutil.copy(machine.state_path, state)
        os.chown(state, ATTACKER, ATTACKER)
        code = f"""
        from gpuwatch.sim.simulated_machine import SimMachine
        SimMachine.from_environment({{"GPUWATCH_SIM": "1x2GiB", "GPUWATCH_SIM_STATE": {str(state)!r}}})
        """
        ended = python(code, place)
        assert ended.returncode == 1
        assert "refusing to use" in ended.stderr.splitlines()[-1]
        library = load_control(machine.library_dir)
        assert not library.gws_open(os.fsencode(state)), "the libraries look themselves: they run in every program"
        os.chown(state, 0, 0)
        handle = library.gws_open(os.fsencode(state))
        assert handle
        library.gws_close(handle)
    finally:
        machine.remove()


@needs_root
def test_a_crash_file_is_written_through_no_link(foreign_home: Path) -> None:
    target = foreign_home.parent / "passwd"
    target.write_text("root")
    code = f"""
    import time
    state = os.path.expanduser("~/.local/state/gpuwatch")
    os.makedirs(state)
    for second in range(-2, 30):
        os.symlink({str(target)!r}, time.strftime(state + "/crash-%Y%m%d-%H%M%S.txt", time.localtime(time.time() + second)))
    for folder, folders, files in os.walk(os.path.expanduser("~")):
        os.chown(folder, {ATTACKER}, {ATTACKER})
    from gpuwatch.core import crash_files
    path = crash_files.save_traceback(ValueError("x"))
    print(path, oct(path.stat().st_mode & 0o777), oct(path.parent.stat().st_mode & 0o777))
    """  # noqa: E501
    ended = python(code, foreign_home)
    assert ended.returncode == 0, ended.stderr
    assert target.read_text() == "root"
    path, *modes = ended.stdout.split()
    assert modes == ["0o600", "0o700"]
    assert "not using" in ended.stderr
    assert "ValueError" in Path(path).read_text(), "it outlives the run: somebody shall read it"
    shutil.rmtree(Path(path).parent.parent)


@needs_root
def test_runs_behind_a_link_are_neither_read_nor_cleared(foreign_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim = foreign_home.parent / "victim"
    written = RunStore(victim).save(full_run())
    for number in range(250):
        (victim / f"20200101T000000.{number:06}-x.json").write_text("precious")
    os.symlink(victim, foreign_home / "runs")
    os.chown(foreign_home / "runs", ATTACKER, ATTACKER, follow_symlinks=False)
    monkeypatch.setattr(os, "environ", os.environ.copy())
    monkeypatch.setenv(ENV_PRIVATE, "")
    store = RunStore(foreign_home / "runs")
    assert store.latest() == []
    assert store.why_untrusted == f"{foreign_home} belongs to user {ATTACKER}"
    path = store.save(full_run())
    assert path.parent.name == "runs"
    assert foreign_home not in path.parents
    assert len(list(victim.iterdir())) == 251
    assert len(store.latest()) == 1, "what this run keeps it finds"
    shutil.rmtree(path.parent.parent)
    assert len(RunStore(victim).latest()) == 1
    os.chown(written, ATTACKER, ATTACKER)
    assert RunStore(victim).latest() == [], "a file of another user in a folder that was open once"


@needs_root
def test_settings_of_another_user_are_not_taken(foreign_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = foreign_home / "gpuwatch" / "settings.toml"
    owned(path.parent, ATTACKER, 0o700)
    path.write_text('filter = "python"\n')
    monkeypatch.delenv("GPUWATCH_CONFIG_FILE")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(foreign_home))
    loaded = settings_file.load_settings(settings_file.default_path())
    assert loaded.preferences == Preferences()
    assert loaded.problems == (f"is not used: {foreign_home} belongs to user {ATTACKER}",)
    monkeypatch.setenv("GPUWATCH_CONFIG_FILE", str(path))
    assert not settings_file.load_settings(settings_file.default_path()).problems, "a file that was named is meant"
