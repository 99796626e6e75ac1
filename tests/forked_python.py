"""gpuwatch in a fork of an interpreter that has imported TensorFlow, and each Python that it starts in another fork.

A script for :func:`tests.forked.forked`; its arguments are gpuwatch's, or after ``--python`` those of Python. Where
gpuwatch would start ``sys.executable``, this process forks instead: parents, process groups, descriptors, signals,
environment and arguments are as after a start, and modules are forgotten. What wants another environment for the import
of TensorFlow is started, though, and so is another program. Whoever waits for the import of TensorFlow (gpuwatch's own
hook does) sees it happen, in a moment and with the same output. Only /proc shows the difference: command line and
environment of such a process are those of the server.
"""

from __future__ import annotations

import atexit
import builtins
import gc
import importlib
import importlib.abc
import importlib.machinery
import os
import runpy
import signal
import subprocess
import sys
import threading
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

ENV_PLUGIN = "TF_PLUGGABLE_DEVICE_LIBRARY_PATH"
SERVER = sys.modules["forked_server"]
"""What :mod:`tests.forked` has noted: its modules, its path, and what the import of TensorFlow wrote."""
PYTHON = "--python"
"""As the first argument: what follows is for Python itself, which is started as :func:`become` does it."""
FRAMEWORKS = ("tensorflow", "keras")
HOOKED = (
    "tensorflow.python.pywrap_tfe",
    "tensorflow.python.client.pywrap_tf_session",
    "tensorflow.python.client.session",
    "tensorflow.python.client._pywrap_device_lib",
    "tensorflow.python.eager.context",
    "tensorflow.python.framework.errors_impl",
    "tensorflow.python.distribute.mirrored_strategy",
    "tensorflow.python.eager.polymorphic_function.polymorphic_function",
    "tensorflow.python.profiler.internal._pywrap_profiler",
)
HOOKED_OF_KERAS = (
    "keras.src.backend.tensorflow.rnn",
    "keras.src.callbacks.callback_list",
    "keras.src.callbacks.history",
    "keras.src.trainers.trainer",
)
"""Modules that gpuwatch's hook wants to see when they are imported."""
_start, _become = subprocess._fork_exec, os.execvp  # type: ignore[attr-defined]
_kept: list[object] = []
"""Objects of what this process was before: their ends would close descriptors that have another meaning now."""


class Imported(importlib.abc.Loader):
    """Finds and loads, as if for the first time, modules that are imported already."""

    def __init__(self) -> None:
        self.modules = {name: sys.modules.pop(name) for name in (*FRAMEWORKS, *HOOKED, *HOOKED_OF_KERAS)}

    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if name not in self.modules:
            return None
        module = self.modules[name]
        spec = importlib.machinery.ModuleSpec(
            name, self, origin=module.__file__, is_package=hasattr(module, "__path__")
        )
        if hasattr(module, "__path__"):
            spec.submodule_search_locations = list(module.__path__)
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return self.modules[spec.name]

    def exec_module(self, module: types.ModuleType) -> None:
        if module.__name__ == "tensorflow":
            os.write(2, SERVER.import_log)
            for name in HOOKED:
                importlib.import_module(name)
            importlib.import_module("keras")
            plugin = os.environ.get(ENV_PLUGIN)
            if plugin:  # at the end of its import
                load_library = importlib.import_module("tensorflow.python.framework.load_library")
                load_library.load_pluggable_device_library(plugin)
        elif module.__name__ == "keras":
            importlib.import_module("tensorflow")
            for name in HOOKED_OF_KERAS:
                importlib.import_module(name)


def start(*given: Any) -> int:
    """As the function of :mod:`subprocess` that starts a process, whose arguments these are."""
    command = [os.fsdecode(part) for part in given[0]]
    kept, folder = given[3], given[4]
    environment = os.environ if given[5] is None else dict(_pair(entry) for entry in given[5])
    if command[0] != sys.executable or not as_imported(environment):
        pid: int = _start(*given)
        return pid
    pid = os.fork()
    if pid:
        return pid
    try:
        for number, descriptor in enumerate((given[6], given[9], given[11])):  # the program's ends of three pipes
            if descriptor >= 0:
                os.dup2(descriptor, number)
        for descriptor in kept:
            os.set_inheritable(descriptor, descriptor != given[13])  # to its parent, one that closes means: started
        if folder is not None:
            os.chdir(folder)
        if given[15]:
            os.setsid()
        become(command, environment)
    finally:
        os._exit(127)


def _pair(entry: bytes) -> tuple[str, str]:
    name, _, value = os.fsdecode(entry).partition("=")
    return name, value


def as_imported(environment: Mapping[str, str]) -> bool:
    """Whether TensorFlow was imported with what is read at that time, and never again."""
    return all(environment.get(name) == value for name, value in SERVER.settings.items())


def execvp(file: str, command: Sequence[str]) -> NoReturn:
    if file != sys.executable or not as_imported(os.environ):
        _become(file, command)
    become(command, os.environ)


def become(command: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Goes on as ``python`` with these arguments, as after an exec. Not for a process with other threads."""
    gc.freeze()
    _kept.extend(
        [*sys.modules.values(), sys.stdin, sys.stdout, sys.stderr, *map(signal.getsignal, signal.valid_signals())]
    )
    _forget()
    variables = dict(environment)
    os.environ.clear()
    os.environ.update(variables)
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        try:
            if not os.get_inheritable(descriptor):
                os.close(descriptor)
        except OSError:
            continue  # the one that listed them
    _open_streams("-u" in command or "PYTHONUNBUFFERED" in os.environ)
    _end(_run(list(command[1:])))


def _open_streams(unbuffered: bool) -> None:
    for name, number, mode, errors, by_line in (
        ("stdin", 0, "r", "surrogateescape", False),
        ("stdout", 1, "w", "surrogateescape", unbuffered or os.isatty(1)),
        ("stderr", 2, "w", "backslashreplace", True),
    ):
        buffering = 1 if by_line else -1
        file = open(number, mode, buffering, encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115
        setattr(sys, name, file)


def _forget() -> None:
    """Signals, modules and finders as a new interpreter has them."""
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    atexit._clear()
    for name in [name for name in sys.modules if name not in SERVER.modules]:
        del sys.modules[name]
    sys.modules.update({name: module for name, module in SERVER.modules.items() if name not in sys.modules})
    sys.meta_path[:] = SERVER.meta_path
    importlib.invalidate_caches()
    subprocess._fork_exec, os.execvp = start, execvp  # type: ignore[attr-defined]


def _run(arguments: list[str]) -> int:
    """The program; its exit code."""
    isolated = path_unsafe = False
    while arguments[0].startswith("-") and arguments[0] not in ("-c", "-m"):
        option = arguments.pop(0)
        assert option in ("-I", "-S", "-P", "-u", "-E", "-B"), option
        isolated |= option == "-I"
        path_unsafe |= option in ("-I", "-P")
    if arguments[:2] != ["-m", "gpuwatch"] and (isolated or not path_unsafe):  # no part of gpuwatch
        for name in [name for name in sys.modules if name.partition(".")[0] == "gpuwatch"]:
            del sys.modules[name]
    sys.path[:] = SERVER.path
    if not isolated:
        sys.path[:0] = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
        sys.modules.pop("sitecustomize", None)
        sys.meta_path.insert(0, Imported())
        try:
            importlib.import_module("sitecustomize")
        except ImportError as error:
            if error.name != "sitecustomize":
                raise
    first = "" if arguments[0] in ("-c", "-m") else os.path.dirname(os.path.realpath(arguments[0]))
    if not path_unsafe:
        sys.path.insert(0, first or os.getcwd())
    try:
        if arguments[0] == "-m":
            sys.argv = arguments[1:]
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            _run_main(arguments)
    except SystemExit as ending:
        if isinstance(ending.code, str):
            print(ending.code, file=sys.stderr)
        return ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except BaseException as error:  # noqa: BLE001 - told as Python tells it
        while error.__traceback__ is not None and error.__traceback__.tb_frame.f_code.co_filename == __file__:
            error.__traceback__ = error.__traceback__.tb_next
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    return 0


def _run_main(arguments: list[str]) -> None:
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    if arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        code = compile(arguments[1], "<string>", "exec")
    else:
        sys.argv = arguments
        main.__file__ = arguments[0]
        code = compile(Path(arguments[0]).read_bytes(), arguments[0], "exec")
    if os.path.basename(arguments[0]) != "guard_process.py":  # gpuwatch's own, which starts the program
        subprocess._fork_exec, os.execvp = _start, _become  # type: ignore[attr-defined]
    sys.modules["__main__"] = main
    exec(code, main.__dict__)


def _end(code: int) -> NoReturn:
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    become([sys.executable, *(arguments[1:] if arguments[0] == PYTHON else ["-m", "gpuwatch", *arguments])], os.environ)
