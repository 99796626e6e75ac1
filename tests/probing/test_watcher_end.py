"""The end of a watched program: the watcher's thread is out of TensorFlow's C++ before the interpreter ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import gpuwatch.experiment.probing.watch_program

_FOLDER = Path(gpuwatch.experiment.probing.watch_program.__file__).parents[3] / "probes/_gpuwatch_watch"

# Each fork ends while the thread reads TensorFlow's kernels, a native call that gives up the interpreter's lock.
_FORKS = """
import gc, importlib.util, json, os, socket, sys, time

folder, forks = sys.argv[1], int(sys.argv[2])
import tensorflow
from tensorflow.python.framework import kernels

address = "gpuwatch-end-%d" % os.getpid()
listener = socket.socket(socket.AF_UNIX)
listener.bind("\\0" + address)
listener.listen(forks)

def load(name):
    spec = importlib.util.spec_from_file_location(name, os.path.join(folder, name + ".py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

watcher = load("_gpuwatch_watcher")

def busy(self):
    until = time.monotonic() + 0.2
    while time.monotonic() < until:
        kernels.get_registered_kernels_for_op("MatMul")

watcher.Watcher.simulated = busy

gc.freeze()
ends = []
for number in range(forks):
    child = os.fork()
    if child == 0:
        watcher.begin(address, load)
        time.sleep(0.02 + 0.013 * number)
        sys.exit(7)
    ends.append(os.waitpid(child, 0)[1])
print(json.dumps([os.waitstatus_to_exitcode(status) for status in ends]))
"""


@pytest.mark.tensorflow
def test_a_native_call_of_the_watcher_at_the_end_does_not_abort_the_program() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FORKS, str(_FOLDER), "8"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout) == [7] * 8
