"""Reports child processes that a crash or SIGKILL ended: their parent may ignore that and exit with 0.

The parent learns how a child ended when it waits for it; subprocess and multiprocessing then set ``returncode``, which
is observed. Signals that are requests (SIGTERM, SIGINT) are not reported, nor what the parent ended by ``kill()``. A
child that lived long enough to load a framework is named with its exit code: it need not have a watcher of its own.
Standard library only, Python 3.7 or newer.
"""

import _socket
import time

_REPORTED_SIGNALS = frozenset([4, 6, 7, 8, 9, 11])
"""SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGKILL, SIGSEGV."""
_MAX_REPORTS = 100
_MIN_LOAD_SECONDS = 1.0
"""Seconds that a child lives at least if it loads a framework."""


def watch(module, descriptors, address, started):
    """Observes how the children end that ``module`` starts, and reports that to gpuwatch at ``address``.

    ``module``: subprocess or multiprocessing.popen_fork, of which the other ways to start derive theirs.
    ``descriptors``: the module _gpuwatch_descriptors. ``started`` is called when a child starts.
    """
    killed = []
    ended = []

    def note_kill(popen):
        popen.__dict__["_gpuwatch_kill_called"] = True

    def set_returncode(frame, popen):
        code = popen.__dict__["returncode"]
        if code is None:
            popen.__dict__["_gpuwatch_started_at"] = time.monotonic()
            started()
        elif type(code) is int:
            report(popen, code)

    def report(popen, code):
        started_at = popen.__dict__.get("_gpuwatch_started_at")
        if started_at is not None and time.monotonic() - started_at >= _MIN_LOAD_SECONDS and len(ended) < _MAX_REPORTS:
            ended.append(popen.pid)
            _send(address, "child", pid=popen.pid, code=code)
        requested = popen.__dict__.get("_gpuwatch_kill_called")
        if -code in _REPORTED_SIGNALS and not requested and len(killed) < _MAX_REPORTS:
            killed.append(popen.pid)
            _send(address, "child_killed", pid=popen.pid, signal=-code, started_by=module.__name__.partition(".")[0])

    module.Popen.kill = descriptors.Method(module.Popen.kill, note_kill)
    module.Popen.returncode = descriptors.Attribute("returncode", written=set_returncode)


def _send(address, kind, **data):
    """One event on a connection of its own: this process need not have a watcher.

    By ``_socket``: that ``socket`` is imported shows that the program itself may talk to others.
    """
    # Without "json", which may be a file of the program. The values are numbers and names of modules.
    shown = {key: '"%s"' % value if isinstance(value, str) else value for key, value in data.items()}
    values = ", ".join('"%s": %s' % item for item in shown.items())
    line = '{"t": %r, "kind": "%s", "data": {%s}}\n' % (time.monotonic(), kind, values)
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        connection.settimeout(1.0)
        connection.connect("\0" + address)
        connection.sendall(line.encode(), _socket.MSG_NOSIGNAL)
    except OSError:  # gpuwatch has ended, or does not read
        pass
    finally:
        connection.close()
