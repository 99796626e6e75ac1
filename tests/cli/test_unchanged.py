"""``run`` and ``run --placement`` change no program: its exit code, output, errors and files, on busy cores too.

Thirty kinds of program, each alone and under both. GPUWATCH_ROUNDS repeats them (1), GPUWATCH_LOAD is how many
processes keep the cores busy meanwhile (4).
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

# A framework that costs nothing, so that the watcher begins.
_QUICK = {
    "exit code": "import sys; sys.exit(7)",
    "exit with a message": "import sys; sys.exit('bad config')",
    "exception": "def f(): raise ValueError('x')\nf()",
    "exception of an exception": "try:\n    1 / 0\nexcept ArithmeticError as error:\n    raise KeyError from error",
    "os._exit": "import os, sys; print('last', flush=True); os._exit(3)",
    "killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "terminated": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "segmentation fault": "import ctypes; ctypes.string_at(0)",
    "abort": "import os; os.abort()",
    "own handlers": """
        import signal, os
        signal.signal(signal.SIGTERM, lambda number, frame: print("handled", number))
        os.kill(os.getpid(), signal.SIGTERM)
        print(signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGPIPE))
    """,
    "at exit": "import atexit; atexit.register(print, 'first'); atexit.register(print, 'second')",
    "daemon thread": """
        import threading, time
        threading.Thread(target=lambda: [time.sleep(0.001) for _ in iter(int, 1)], daemon=True).start()
        print(threading.active_count(), [one.name for one in threading.enumerate()])
    """,
    "error of a thread": "import threading; threading.Thread(target=lambda: 1 / 0, name='worker').start()",
    "fork": "import os\npid = os.fork()\nif pid == 0:\n    os._exit(5)\nprint(os.waitpid(pid, 0)[1])",
    "multiprocessing": """
        import multiprocessing
        def square(n): return n * n
        if __name__ == "__main__":
            for way in ("fork", "spawn", "forkserver"):
                with multiprocessing.get_context(way).Pool(2) as pool:
                    print(pool.map(square, range(4)))
    """,
    "executor": """
        from concurrent.futures import ProcessPoolExecutor
        def work(n): return 10 // n
        if __name__ == "__main__":
            with ProcessPoolExecutor(2) as pool:
                try:
                    print(list(pool.map(work, [1, 0])))
                except ZeroDivisionError as error:
                    print(error)
    """,
    "children": """
        import subprocess, sys
        print(subprocess.run([sys.executable, "-c", "import sys; print(sys.argv); sys.exit(4)", "a"]).returncode)
        print(subprocess.check_output("echo shell; exit 0", shell=True))
    """,
    "input": "import sys; print(sys.stdin.read().upper(), sys.stdin.isatty())",
    "much output": "for number in range(20000): print(number, 'x' * 40)",
    "bytes and no newline": "import sys; sys.stdout.buffer.write(bytes(range(256)) * 50); sys.stderr.write('end')",
    "warnings": "import warnings; warnings.warn('old', DeprecationWarning); warnings.warn('mine')",
    "asyncio": """
        import asyncio
        async def main():
            process = await asyncio.create_subprocess_exec("true")
            print(await process.wait(), await asyncio.to_thread(sum, [1, 2]))
        asyncio.run(main())
    """,
    "environment and modules": """
        import os, sys
        print(sorted(name for name in sys.modules if "gpuwatch" in name), sys.argv, sys.path[0] != "", __name__)
        print(sys.flags.dont_write_bytecode, sys.dont_write_bytecode, len(sys.path) == len(set(sys.path)))
    """,
    "files": "import json, random; random.seed(1); json.dump([random.random()] * 9, open('out.json', 'w'))",
    "recursion": "def f(n): return f(n + 1)\ntry:\n    f(0)\nexcept RecursionError as error:\n    print(error)",
}
_TENSORFLOW = {
    "training": """
        tf.keras.utils.set_random_seed(1)
        model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(2)])
        model.compile("adam", "mse", jit_compile=False)
        told = model.fit(tf.random.normal([64, 4]), tf.zeros([64, 2]), epochs=2, verbose=0)
        print(told.history)
        model.save_weights("w.weights.h5")
    """,
    "function, dataset and device": """
        @tf.function
        def step(a):
            with tf.device("/CPU:0"):
                return tf.strings.length(tf.as_string(a[0, 0])), a @ a
        for number in tf.data.Dataset.range(5).map(lambda n: n * 2).batch(2):
            print(number.numpy(), step(tf.fill([2, 2], tf.cast(number[0], tf.float32))))
        print(tf.data.Dataset.range(3).reduce(tf.constant(0, tf.int64), lambda a, b: a + b))
    """,
    "error of an op": "tf.ones([2, 3]) @ tf.ones([2, 3])",
    "error within a function": """
        @tf.function
        def f(a):
            tf.debugging.assert_less(a, 1.0, message="too large")
            return a
        f(tf.constant(2.0))
    """,
    "session, saved model and a late setting": """
        v1 = tf.compat.v1
        with tf.Graph().as_default(), v1.Session() as session:
            print(session.run(tf.ones([2]) * 3))
        made = tf.Module()
        made.f = tf.function(lambda a: a + 1, input_signature=[tf.TensorSpec([])])
        tf.saved_model.save(made, "saved")
        print(tf.saved_model.load("saved").f(tf.constant(1.0)))
        try:
            tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], [])
        except (RuntimeError, ValueError) as error:
            print(error)
    """,
}
_CHANGING = re.compile(
    rb"(?m)(?<=^[IWEF]\d{4}) [\d:.]+ +\d+ |\d{4}-\d\d-\d\d [\d:.]+|\d{6,}\.\d+|0x[0-9a-f]+|pid[ =]\d+"
)
"""Times, addresses, process and thread numbers."""


@contextlib.contextmanager
def _load() -> Iterator[None]:
    busy = [
        subprocess.Popen(["nice", sys.executable, "-c", "while True: pass"])
        for _ in range(int(os.environ.get("GPUWATCH_LOAD", "4")))
    ]
    try:
        yield
    finally:
        for one in busy:
            one.kill()
            one.wait()


def _outcome(folder: Path, name: str, code: str, *before: str) -> tuple[int, bytes, list[bytes], dict[str, int]]:
    """Exit code as a shell has it, output, errors without what changes from run to run, and files with their sizes."""
    folder.mkdir(parents=True)
    (folder / "train.py").write_text(code)
    if name in _QUICK:
        (folder / "jax.py").write_text("")  # its name is all that begins the watch
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "1", "PYTHONHASHSEED": "0", "CUDA_VISIBLE_DEVICES": "-1"}
    done = subprocess.run(
        [*before, sys.executable, "train.py", "an argument"],
        cwd=folder,
        env=environment,
        input=b"some words",
        capture_output=True,
        timeout=550,
        check=False,
    )
    files = {str(one.relative_to(folder)): one.stat().st_size for one in folder.rglob("*") if one.is_file()}
    files.pop("saved/fingerprint.pb", None)  # it holds a random number
    code_of_shell = done.returncode if done.returncode >= 0 else 128 - done.returncode
    errors = sorted(_CHANGING.sub(b"N", done.stderr.replace(os.fsencode(folder), b"FOLDER")).splitlines())
    return code_of_shell, done.stdout, errors, files


@pytest.mark.parametrize("name", [*_QUICK, *(pytest.param(one, marks=pytest.mark.tensorflow) for one in _TENSORFLOW)])
def test_a_program_is_the_same(name: str, tmp_path: Path) -> None:
    code = textwrap.dedent({**_QUICK, **_TENSORFLOW}[name])
    code = f"import jax\n{code}" if name in _QUICK else f"import tensorflow as tf\n{code}"
    run = (sys.executable, "-m", "gpuwatch", "run", "-q", "--no-save")
    with _load():
        for number in range(int(os.environ.get("GPUWATCH_ROUNDS", "1"))):
            alone = _outcome(tmp_path / f"alone{number}", name, code)
            for folder, option in (("plain", ()), ("place", ("--placement",))):  # of one length, as paths are in files
                watched = _outcome(tmp_path / f"{folder}{number}", name, code, *run, *option, "--")
                assert watched == alone, (number, option)
