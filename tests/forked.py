"""Programs in forks of a process that has imported what they use: TensorFlow costs seconds of CPU, gpuwatch a quarter.

A fork has its own environment, arguments, files and devices: importing TensorFlow opens no driver and no device. The
plug-in of simulated GPUs is loaded by the fork, as TensorFlow's import does it. What is about the import itself, or
about the interpreter (hooks, variables that it reads as it starts), wants a process of its own. gpuwatch's own commands
are forked with all but the modules of the command line imported: what they start themselves is started.
pytest's workers share these processes: what one has imported, the others fork.
"""

from __future__ import annotations

import atexit
import errno
import functools
import hashlib
import json
import os
import pkgutil
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gpuwatch
from gpuwatch.experiment.probing.probe_runner import LOG_ENVIRONMENT
from gpuwatch.sim.environment import ENV_PLUGIN, simulated_environment_of
from gpuwatch.sim.libraries import Tier
from gpuwatch.sim.library_cache import ensure_built


class Result(NamedTuple):
    """How a command line ended."""

    code: int
    out: str
    err: str


_SERVER = """
import gc, importlib, json, os, runpy, select, signal, socket, struct, sys, tempfile, traceback, types

def run(order):
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["folder"])
    sys.argv = order["arguments"]
    plugin = os.environ.get(PLUGIN)
    if plugin and order["plugin"]:
        from tensorflow.python.framework import load_library
        load_library.load_pluggable_device_library(plugin)
    if order["code"] is not None:
        exec(compile(order["code"], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.path.insert(0, os.path.dirname(sys.argv[0]))
        runpy.run_path(sys.argv[0], run_name="__main__")

def child(order, files):
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in (0, 1, 2):
            os.dup2(files[number], number)
        os.closerange(3, 64)
        run(order)
        code = 0
    except SystemExit as ending:
        if isinstance(ending.code, str):
            print(ending.code, file=sys.stderr)
        code = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

def keeper(order, files):
    # Tells the pid and, when it has ended, the status.
    os.setsid()
    pid = os.fork()
    if pid == 0:
        child(order, files)
    for file in files[:3]:
        os.close(file)
    os.write(files[3], b"%d\\n" % pid)
    _, status = os.waitpid(pid, 0)
    os.write(files[3], b"%d\\n" % status)
    os._exit(0)

if os.fork():  # a child of none of those who share it
    os._exit(0)
listener, PLUGIN = socket.socket(fileno=int(sys.argv[1])), sys.argv[2]
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
signal.signal(signal.SIGINT, signal.SIG_IGN)
# What a program that asks for it is told of this interpreter, see forked_python.py.
server = sys.modules["forked_server"] = types.ModuleType("forked_server")
given = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
server.path = [entry for entry in sys.path[1:] if entry not in given]
server.meta_path = list(sys.meta_path)
server.settings = {name: os.environ.get(name) for name in sys.argv[4:]}
with tempfile.TemporaryFile() as log:
    error = os.dup(2)
    os.dup2(log.fileno(), 2)
    try:
        for name in sys.argv[3].split():
            importlib.import_module(name)
    finally:
        sys.stderr.flush()
        os.dup2(error, 2)
        os.close(error)
        log.seek(0)
        server.import_log = log.read()
        os.write(2, server.import_log)
server.modules = dict(sys.modules)
gc.collect()
gc.freeze()
clients = set()
while True:
    ready, _, _ = select.select([listener, *clients], [], [])
    for control in ready:
        if control is listener:
            client, _ = listener.accept()
            _, user, _ = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            if user == os.getuid():
                client.send(b"ready")
                clients.add(client)
            else:
                client.close()
            continue
        try:
            data, files, _, _ = socket.recv_fds(control, 1 << 20, 4)
        except ConnectionResetError:
            data, files = b"", []
        if not data:
            control.close()
            clients.remove(control)
            if not clients:
                os._exit(0)
            continue
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for other in (listener, *clients):
                other.close()
            keeper(json.loads(data), files)
        for file in files:
            os.close(file)
"""
GPUWATCH = str(Path(__file__).with_name("forked_python.py"))
READ_AT_IMPORT = ("LD_LIBRARY_PATH", "LD_PRELOAD", "TF_CPP_MIN_LOG_LEVEL", "TF_CPP_VMODULE")
_OF_THE_PROGRAM = ("GPUWATCH_SIM", "GPUWATCH_SIM_STATE", ENV_PLUGIN, "CUDA_VISIBLE_DEVICES")


TENSORFLOW = ("tensorflow", "keras")


class Server:
    """An interpreter that has imported ``modules`` with ``environment``.

    Workers of one run of pytest that ask for the same share it; it ends when the last of them has closed it.
    """

    def __init__(self, python: str, environment: Mapping[str, str], modules: Sequence[str]) -> None:
        self._started = False
        self._ready = False
        self._lock = threading.Lock()
        self._again = functools.partial(self._open, python, environment, modules)
        self._control = self._again()

    def _open(self, python: str, environment: Mapping[str, str], modules: Sequence[str]) -> socket.socket:
        """A connection to the one that is there; it is started by whoever takes its address first."""
        settings = [environment.get(name) for name in (*READ_AT_IMPORT, "PYTHONPATH")]
        key = (os.environ.get("PYTEST_XDIST_TESTRUNUID") or os.getpid(), python, settings, *modules)
        address = f"\0gpuwatch-forks-{hashlib.sha256(repr(key).encode()).hexdigest()}"
        control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            try:
                listener.bind(address)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                listener.listen(64)
                self._started = True
                subprocess.run(
                    [python, "-c", _SERVER, str(listener.fileno()), ENV_PLUGIN, " ".join(modules), *READ_AT_IMPORT],
                    stdin=subprocess.DEVNULL,
                    env={name: value for name, value in environment.items() if name not in _OF_THE_PROGRAM},
                    pass_fds=(listener.fileno(),),
                    check=True,
                )
            while True:
                try:
                    control.connect(address)
                except ConnectionRefusedError:  # it was taken, and nobody listens yet
                    time.sleep(0.01)
                else:
                    return control

    def _wait(self) -> None:
        """Until the modules are imported; another worker's may have ended meanwhile."""
        while not self._is_ready():
            assert not self._started, "the modules could not be imported"
            self._control.close()
            self._control = self._again()
        self._ready = True

    def _is_ready(self) -> bool:
        try:
            return self._control.recv(100) == b"ready"
        except ConnectionResetError:
            return False

    def start(self, order: Mapping[str, Any], files: Sequence[int]) -> None:
        with self._lock:
            if not self._ready:
                self._wait()
        socket.send_fds(self._control, [json.dumps(order).encode()], list(files))

    def close(self) -> None:
        self._control.close()


class Forked(subprocess.Popen[str]):
    """A program in a fork of a server: ``arguments`` as for ``python``, from ``-c CODE`` or a script on."""

    def __init__(
        self,
        server: Server,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        folder: str | Path | None = None,
        **pipes: Any,
    ) -> None:
        self._server = server
        code = arguments[1] if arguments[0] == "-c" else None
        argv = ["-c", *arguments[2:]] if code is not None else list(arguments)
        self._order = {
            "code": code,
            "arguments": argv,
            "environment": dict(environment),
            "folder": os.path.abspath(folder or Path.cwd()),
            "plugin": arguments[0] != GPUWATCH and code != _COMMAND,  # which leave that to what they start
        }
        pipe = subprocess.PIPE
        super().__init__(list(arguments), **(pipes or {"stdin": pipe, "stdout": pipe, "stderr": pipe, "text": True}))

    def _execute_child(self, *arguments: Any) -> None:
        """What of :class:`subprocess.Popen` starts the process: the ends of its pipes are the arguments."""
        stdin, _, _, stdout, _, stderr = pipes = arguments[10:16]
        status, theirs = os.pipe()
        ends = [end if end >= 0 else number for number, end in enumerate((stdin, stdout, stderr))]
        self._server.start(self._order, (*ends, theirs))
        os.close(theirs)
        self._status = os.fdopen(status)
        self.pid = int(self._status.readline())
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _try_wait(self, flags: int) -> tuple[int, int]:
        """As :func:`os.waitpid`: 0 as the process where it has not ended."""
        if flags and not select.select([self._status], [], [], 0)[0]:
            return 0, 0
        return self.pid, int(self._status.readline())

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        if self.returncode is None:
            pid, status = self._try_wait(os.WNOHANG)
            if pid:
                self._handle_exitstatus(status)  # type: ignore[attr-defined]
                self._status.close()
        return self.returncode


def gpuwatch_forked(
    *arguments: str, environment: Mapping[str, str], timeout: float = 120, tier: Tier | None = None
) -> Result:
    """:func:`start_gpuwatch_forked` to its end."""
    return _ended(start_gpuwatch_forked(*arguments, environment=environment, tier=tier), timeout)


def start_gpuwatch_forked(*arguments: str, environment: Mapping[str, str], tier: Tier | None = None) -> Forked:
    """The command line in a fork, and so each Python that it starts: see forked_python.py, also for what differs.

    ``tier`` is that of the machine which ``--sim`` opens: what is started there finds its libraries.
    """
    # Read as TensorFlow is imported: probes and the doctor change them, and their log has to have every line.
    settings = LOG_ENVIRONMENT if arguments[0] in ("doctor", "probe", "report") else {}
    around = {**environment, **settings}
    if tier is not None:
        around = simulated_environment_of(around, "", ensure_built("driver"), Path(), tier=tier)
    return forked([GPUWATCH, *arguments], environment, imported_with=around)


_COMMAND = """
import atexit, os, runpy, sys, threading, time
time.tzset()
path = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
sys.path[:] = [os.getcwd(), *path, *sys.modules["forked_server"].path]
sys.orig_argv = [sys.executable, "-m", "gpuwatch", *sys.argv[1:]]
try:
    runpy.run_module("gpuwatch", run_name="__main__", alter_sys=True)
finally:
    threading._shutdown()
    atexit._run_exitfuncs()
"""
_FRESH = ("gpuwatch.cli", "gpuwatch.ui", "gpuwatch.share.assistant", "gpuwatch.share.exports.parquet_writer")
"""What a command imports by itself: its own module, and what only few want."""
_READ_AT_START = ("PYTHON", "LC_", "LANG")


def start_gpuwatch(*arguments: str, **keywords: Any) -> subprocess.Popen[Any]:
    """``gpuwatch ARGUMENTS``, with the keywords of :class:`subprocess.Popen`, in a fork that has imported it.

    It is started, though, where a fork would be another, and the first one with other libraries always.
    """
    environment = keywords.get("env") or os.environ
    server = _with_gpuwatch(environment)
    if server is None or not keywords.keys() <= {"env", "cwd", "stdin", "stdout", "stderr", "text"}:
        return subprocess.Popen([sys.executable, "-m", "gpuwatch", *arguments], **keywords)
    pipes = {"text": False, **{name: value for name, value in keywords.items() if name not in ("env", "cwd")}}
    return Forked(server, ["-c", _COMMAND, *arguments], environment, keywords.get("cwd"), **pipes)


def run_gpuwatch(
    *arguments: str, input: Any = None, timeout: float | None = 120, capture_output: bool = True, **keywords: Any
) -> subprocess.CompletedProcess[Any]:
    """:func:`start_gpuwatch` to its end, as :func:`subprocess.run`; without ``input`` there is nothing to read."""
    keywords["stdin"] = subprocess.DEVNULL if input is None else subprocess.PIPE
    if capture_output:
        keywords |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with start_gpuwatch(*arguments, **keywords) as process:
        try:
            out, err = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def _with_gpuwatch(environment: Mapping[str, str]) -> Server | None:
    """The server of commands with these libraries, from the second one on; None if a fork would not be as a start."""
    key = ("gpuwatch", *_of(environment, "LD_"))
    with _LOCK:
        if _of(environment, *_READ_AT_START) != _of(os.environ, *_READ_AT_START) or key not in _asked:
            _asked.add(key)
            return None
        if any((Path(entry) / "sitecustomize.py").exists() for entry in environment.get("PYTHONPATH", "").split(":")):
            return None
        if key not in _servers:
            around = {name: value for name, value in environment.items() if name != "PYTHONPATH"}
            _servers[key] = Server(sys.executable, around, _modules())
            atexit.register(_servers[key].close)
        return _servers[key]


@functools.cache
def _modules() -> list[str]:
    """gpuwatch's modules, but for those that a command imports by itself."""
    found = (module.name for module in pkgutil.walk_packages(gpuwatch.__path__, "gpuwatch."))
    return [name for name in found if not name.startswith(_FRESH) and not name.endswith("__main__")]


def _of(environment: Mapping[str, str], *names: str) -> list[str]:
    """The variables whose names begin like one of ``names``, but for the path, which a fork sets."""
    return sorted(
        f"{name}={value}" for name, value in environment.items() if name.startswith(names) and name != "PYTHONPATH"
    )


def python_forked(
    *arguments: str, environment: Mapping[str, str], imported_with: Mapping[str, str], timeout: float = 120
) -> Result:
    """``python ARGUMENTS`` in a fork that runs what Python runs as it starts: a sitecustomize sees TensorFlow imported.

    ``imported_with`` has none of the PYTHONPATH that is meant for the program alone.
    """
    return _ended(forked([GPUWATCH, "--python", *arguments], environment, imported_with=imported_with), timeout)


def _ended(started: Forked, timeout: float) -> Result:
    with started as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return Result(process.returncode, out, err)


_LOCK = threading.Lock()
_servers: dict[tuple[str, ...], Server] = {}
_asked: set[tuple[str, ...]] = set()
"""With which libraries a command of gpuwatch has been started."""


def forked(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    python: str = sys.executable,
    folder: Path | None = None,
    imported_with: Mapping[str, str] | None = None,
) -> Forked:
    """Starts ``python ARGUMENTS`` in a fork of an interpreter whose TensorFlow was imported with the same libraries.

    ``imported_with`` is the environment of that import, where it is not ``environment``.
    """
    around = environment if imported_with is None else imported_with
    key = (python, *(around.get(name, "") for name in (*READ_AT_IMPORT, "PYTHONPATH")))
    with _LOCK:
        if key not in _servers:
            _servers[key] = Server(python, around, [*TENSORFLOW, *(_modules() if python == sys.executable else ())])
            atexit.register(_servers[key].close)
    return Forked(_servers[key], arguments, environment, folder)
