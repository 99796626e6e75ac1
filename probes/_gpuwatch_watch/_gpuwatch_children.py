"""Tells gpuwatch of a child process that a crash or SIGKILL ended: its parent may ignore that and exit with 0.

The parent learns how a child ended when it waits for it; subprocess and multiprocessing then set ``returncode``, which
is observed. Nothing is told of signals that are requests (SIGTERM, SIGINT), nor of what the parent ended by ``kill()``.
Standard library only, Python 3.7 or newer.
"""

import json
import socket
import time

_TOLD = frozenset([4, 6, 7, 8, 9, 11])
"""SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGKILL, SIGSEGV."""
_MOST = 100


def watch(module, address):
    """``module``: subprocess or multiprocessing.popen_fork, of which the other ways to start derive theirs."""
    told = []

    def returned(popen, code):
        known = popen.__dict__.get("_gpuwatch_killed")
        if -code in _TOLD and not known and len(told) < _MOST:
            told.append(popen.pid)
            _send(address, pid=popen.pid, signal=-code, started_by=module.__name__.partition(".")[0])

    popen = module.Popen
    popen.kill = _Called(popen.kill)
    popen.returncode = _Returned(returned)


class _Called(object):
    """A method that notes that it was called, without a frame of its own in tracebacks."""

    def __init__(self, original):
        self.original = original

    def __get__(self, instance, owner=None):
        if instance is not None:
            instance.__dict__["_gpuwatch_killed"] = True
        return self.original.__get__(instance, owner)


class _Returned(object):
    def __init__(self, see):
        self.see = see

    def __get__(self, instance, owner=None):
        try:
            return instance.__dict__["returncode"]
        except (AttributeError, KeyError):
            raise AttributeError("returncode") from None

    def __set__(self, instance, value):
        instance.__dict__["returncode"] = value
        if type(value) is int and value < 0:
            try:
                self.see(instance, value)
            except Exception:  # our errors must not disturb the program
                return

    def __delete__(self, instance):
        instance.__dict__.pop("returncode", None)


def _send(address, **data):
    """One event on a connection of its own: this process need not have a watcher."""
    line = {"v": 1, "seq": 0, "t": time.monotonic(), "kind": "child_killed", "data": data}
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(1.0)
        connection.connect("\0" + address)
        connection.sendall((json.dumps(line) + "\n").encode(), socket.MSG_NOSIGNAL)
