"""Python 3.12 and later warn of forks beside threads; the watcher's thread alone is no reason to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuwatch.experiment.probing.probe_scripts import probe_folder

_FORKS = """
import os, sys, threading, time
import keras
def fork():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
print(len(os.listdir("/proc/self/task")), flush=True)
fork()
sys.stderr.write("beside a thread of its own\\n")
threading.Thread(target=time.sleep, args=(5,), daemon=True).start()
fork()
sys.stderr.write("end\\n")
os._exit(0)
"""


@pytest.mark.skipif(sys.version_info < (3, 12), reason="older ones do not warn")
def test_only_a_program_that_has_threads_itself_is_warned(tmp_path: Path) -> None:
    (tmp_path / "keras.py").write_text("")
    hook = probe_folder() / "_gpuwatch_watch"
    environment = {**os.environ, "PYTHONPATH": f"{hook}{os.pathsep}{tmp_path}", "GPUWATCH_WATCH": "nobody-listens"}
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", _FORKS], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == "2\n", "the program, and who watches it"
    before, _, after = done.stderr.partition("beside a thread of its own\n")
    assert before == ""
    assert "multi-threaded, use of fork()" in after
    assert after.endswith("end\n")
