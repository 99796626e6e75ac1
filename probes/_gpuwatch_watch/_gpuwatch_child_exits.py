"""Tells gpuwatch of a child process that a crash or SIGKILL ended: its parent may ignore that and exit with 0.

The parent learns how a child ended when it waits for it; subprocess and multiprocessing then set ``returncode``, which
is observed. Nothing is told of signals that are requests (SIGTERM, SIGINT), nor of what the parent ended by ``kill()``.
A child that lived long enough to load a framework is named with its exit code: it need not have a watcher of its own.
Standard library only, Python 3.7 or newer.
"""

import _socket
import json
import time

_TOLD = frozenset([4, 6, 7, 8, 9, 11])
"""SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGKILL, SIGSEGV."""
_MOST = 100
_LOADS_IN = 1.0
"""Seconds that a child lives at least if it loads a framework."""


def watch(module, address, started):
    """``module``: subprocess or multiprocessing.popen_fork, of which the other ways to start derive theirs.

    ``started`` is called when a child starts.
    """
    told = []
    lived = []

    def returned(popen, code):
        began = popen.__dict__.get("_gpuwatch_began")
        if began is not None and time.monotonic() - began >= _LOADS_IN and len(lived) < _MOST:
            lived.append(popen.pid)
            _send(address, "child", pid=popen.pid, code=code)
        known = popen.__dict__.get("_gpuwatch_killed")
        if -code in _TOLD and not known and len(told) < _MOST:
            told.append(popen.pid)
            _send(address, "child_killed", pid=popen.pid, signal=-code, started_by=module.__name__.partition(".")[0])

    popen = module.Popen
    popen.kill = _Called(popen.kill)
    popen.returncode = _Returned(started, returned)


class _Called(object):
    """A method that notes that it was called, without a frame of its own in tracebacks."""

    def __init__(self, original):
        self.original = original

    def __get__(self, instance, owner=None):
        if instance is not None:
            instance.__dict__["_gpuwatch_killed"] = True
        return self.original.__get__(instance, owner)


class _Returned(object):
    def __init__(self, started, see):
        self.started = started
        self.see = see

    def __get__(self, instance, owner=None):
        try:
            return instance.__dict__["returncode"]
        except (AttributeError, KeyError):
            raise AttributeError("returncode") from None

    def __set__(self, instance, value):
        instance.__dict__["returncode"] = value
        if type(value) in (int, type(None)):
            try:
                if value is None:
                    instance.__dict__["_gpuwatch_began"] = time.monotonic()
                    self.started()
                else:
                    self.see(instance, value)
            except Exception:  # our errors must not disturb the program
                return

    def __delete__(self, instance):
        instance.__dict__.pop("returncode", None)


def _send(address, kind, **data):
    """One event on a connection of its own: this process need not have a watcher.

    By ``_socket``: that ``socket`` is imported shows that the program itself may talk to others.
    """
    line = {"t": time.monotonic(), "kind": kind, "data": data}
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        connection.settimeout(1.0)
        connection.connect("\0" + address)
        connection.sendall((json.dumps(line) + "\n").encode(), _socket.MSG_NOSIGNAL)
    finally:
        connection.close()
