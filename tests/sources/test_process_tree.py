"""Who started whom, from a made-up /proc and from the real one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from gpuwatch.machine.sources.process_table import ProcessTable
from gpuwatch.machine.sources.process_tree import POLL_SECONDS, ProcessTree


def put(proc: Path, pid: int, parent: int, command: str = "python") -> None:
    folder = proc / str(pid)
    folder.mkdir(exist_ok=True)
    rest = " ".join(["0"] * 17)
    (folder / "stat").write_text(f"{pid} (a) b) S {parent} {rest} 4711 0 100 0\n")
    (folder / "cmdline").write_bytes(command.replace(" ", "\0").encode() + b"\0")


def family(tmp_path: Path) -> ProcessTree:
    put(tmp_path, 1, 0, "/sbin/init")
    put(tmp_path, 10, 1, "bash -l")
    put(tmp_path, 20, 10, "torchrun train.py --token verysecret")
    for pid in (31, 32):
        put(tmp_path, pid, 20)
    put(tmp_path, 40, 31)
    put(tmp_path, 50, 1)
    return ProcessTree(ProcessTable(proc=str(tmp_path)), proc=str(tmp_path))


def test_parents_up_to_the_first_process(tmp_path: Path) -> None:
    tree = family(tmp_path)
    tree.update(0.0, [31, 32, 40, 50, 999])
    assert tree.parents == {31: 20, 32: 20, 20: 10, 40: 31}
    assert [(one.pid, one.command) for one in tree.ancestors] == [
        (10, "bash -l"),
        (20, "torchrun train.py --token verysecret"),
    ]
    assert tree.pids == {10, 20}


def test_what_has_not_changed_stays_the_same_object(tmp_path: Path) -> None:
    tree = family(tmp_path)
    tree.update(0.0, [31])
    before = (tree.parents, tree.ancestors)
    tree.update(1.0, [31])
    tree.update(POLL_SECONDS + 1, [31])
    assert tree.parents is before[0]
    assert tree.ancestors is before[1]


def test_a_new_one_is_looked_up_at_once_and_an_adopted_one_after_a_while(tmp_path: Path) -> None:
    tree = family(tmp_path)
    tree.update(0.0, [31])
    tree.update(1.0, [31, 50, 40])
    assert tree.parents[40] == 31
    shutil.rmtree(tmp_path / "20")  # only then do children get another parent
    put(tmp_path, 31, 1)
    tree.update(2.0, [31, 50, 40])
    assert tree.parents[31] == 20
    tree.update(POLL_SECONDS + 2, [31, 50, 40])
    assert 31 not in tree.parents
    assert tree.ancestors == ()


def test_a_circle_of_parents_ends(tmp_path: Path) -> None:
    put(tmp_path, 5, 6)
    put(tmp_path, 6, 5)
    tree = ProcessTree(ProcessTable(proc=str(tmp_path)), proc=str(tmp_path))
    tree.update(0.0, [5])
    assert tree.parents == {5: 6, 6: 5}


def test_a_real_child() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        tree = ProcessTree(ProcessTable())
        tree.update(time.monotonic(), [child.pid])
        assert tree.parents[child.pid] == os.getpid()
        ours = next(one for one in tree.ancestors if one.pid == os.getpid())
        written = Path("/proc/self/cmdline").read_bytes().split(b"\0")[0].decode()
        assert (ours.command or "").startswith(written)
    finally:
        child.communicate(b"\n")
