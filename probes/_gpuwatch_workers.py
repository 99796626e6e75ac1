"""Several processes in one probe: the script forks workers, gives them orders and reports their results.

The script itself touches no device: a CUDA context does not survive a fork, and TensorFlow would take memory twice.
Each worker sends events on its own pipe; its log is printed when it has ended, so that lines of two workers do not mix.
A worker is killed with the script, and when its time is over.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import sys
import tempfile
import time

import _gpuwatch_probe as gpuwatch_probe

_END = "end"
_EXHAUSTED = re.compile(
    r"Resource_?Exhausted|(?<!host )out[ _]?of[ _]?memory|OOM when|unable to allocate|MemoryAllocation", re.IGNORECASE
)
"""In the words of TensorFlow, PyTorch, the CUDA driver and its runtime."""


class Worker:
    """A process that runs ``task(framework, probe, next_order)``; ``next_order()`` returns None at the end."""

    def __init__(self, framework, probe, name, task, setting="", environment=None, seconds=None):
        self.name = name
        self.setting = setting
        self.events = []
        if seconds is None:
            # A worker measures several times, alone and together with others.
            seconds = max(90.0, 60.0 + 10.0 * float(probe.options["seconds"]))
        self.deadline = time.monotonic() + seconds
        self._probe = probe
        self._unfinished_line = b""
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed in finish()
        events, events_write = os.pipe()
        orders_read, self._orders = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(events)
                os.close(self._orders)
                _become_worker(probe, self._log.fileno(), seconds, parent)
                os.environ.update(environment or {})
                _work(framework, probe, task, events_write, os.fdopen(orders_read))
            finally:
                os._exit(3)  # never return to the script's code
        os.close(events_write)
        os.close(orders_read)
        self._events = events

    # -- orders ---------------------------------------------------------------------------------

    def order(self, text):
        """Sends a line to the worker; False if it has ended."""
        if self.pid is None:
            return False
        try:
            os.write(self._orders, (text + "\n").encode())
        except BrokenPipeError:
            return False
        return True

    def wait(self, kind, name=None):
        """Waits for an event of this ``kind`` (and ``name``); returns its data, or None if the worker ended before."""
        seen = len(self.events)
        while True:
            for event in self.events[seen:]:
                if event["kind"] == kind and (name is None or event["data"].get("name") == name):
                    return event["data"]
            seen = len(self.events)
            if not self._read():
                return None

    def _read(self):
        remaining = self.deadline - time.monotonic()
        if remaining <= 0 or not select.select([self._events], [], [], remaining)[0]:
            return False
        chunk = os.read(self._events, 1 << 16)
        *lines, self._unfinished_line = (self._unfinished_line + chunk).split(b"\n")
        self.events += [json.loads(line) for line in lines if line]
        return bool(chunk)

    # -- the end --------------------------------------------------------------------------------

    def finish(self):
        """Ends the worker, by force if necessary, and prints its log; returns itself."""
        if self.pid is None:
            return self
        # Closing the pipe is not enough: a worker that was forked later has this end open too.
        self.order(_END)
        os.close(self._orders)
        while self._read():
            pass
        os.close(self._events)
        self.status = self._reap()
        self._log.seek(0)
        sys.stderr.flush()
        text = self._log.read()
        while text:
            text = text[os.write(2, text) :]
        self._log.close()
        self.last_pid, self.pid = self.pid, None
        return self

    def _reap(self):
        """Exit status of the process, which is killed if it does not exit in time."""
        ends_at = time.monotonic() + 2.0
        while time.monotonic() < ends_at:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return status
            time.sleep(0.005)
        os.kill(self.pid, signal.SIGKILL)
        return os.waitpid(self.pid, 0)[1]

    # -- results --------------------------------------------------------------------------------

    def data(self, kind, name=None):
        """Data of every event of a kind."""
        matching = [event["data"] for event in self.events if event["kind"] == kind]
        return [data for data in matching if name is None or data.get("name") == name]

    @property
    def failure(self):
        """``(type, message)`` of what went wrong, or None."""
        errors = self.data("error")
        if errors:
            return errors[0]["type"], errors[0]["message"]
        if not self.data("end"):
            status = getattr(self, "status", 0)
            if os.WIFSIGNALED(status):
                return "Killed", "it was killed by signal %d" % os.WTERMSIG(status)
            return "Ended", "it exited early, with exit code %d" % os.WEXITSTATUS(status)
        return None

    @property
    def verdict(self):
        """``ok``, ``oom``, ``error``, ``timeout`` or ``skipped``."""
        if self.data("skip"):
            return "skipped"
        if self.failure is None:
            return "ok"
        kind, message = self.failure
        if _EXHAUSTED.search(kind + " " + message):
            return "oom"
        if kind == "Killed" and time.monotonic() > self.deadline:
            return "timeout"
        return "error"

    def report(self, together=None, alone=None):
        """Emits the ``worker`` event of a finished worker."""
        failure = self.failure
        granted = self.data("result", "granted_bytes")
        self._probe.emit(
            "worker",
            name=self.name,
            setting=self.setting,
            pid=self.pid or getattr(self, "last_pid", None),
            verdict=self.verdict,
            detail="" if failure is None else "%s: %s" % (failure[0], telling_line(failure[1])),
            granted_bytes=granted[0]["value"] if granted else None,
            throughput=together,
            alone=alone,
        )

    def report_failure(self, expected=False):
        """Emits the ``error`` event of a worker that failed, with the framework's type and message."""
        kind, message = self.failure
        message = "%s process (%s): %s" % (self.name, self.setting, message)
        self._probe.emit("error", type=kind, message=message, expected=expected)
        if not expected:
            self._probe.failed = True


def exhausted(error):
    """Whether an exception means out of memory."""
    return _EXHAUSTED.search("%s %s" % (type(error).__name__, error)) is not None


def telling_line(text):
    """The line of a message about memory, otherwise the first line."""
    lines = text.strip().splitlines() or ["no message"]
    return next((line for line in lines if _EXHAUSTED.search(line)), lines[0])[:300]


def finish_all(workers):
    """Ends every worker."""
    for worker in workers:
        worker.finish()


def _become_worker(probe, log, seconds, parent):
    gpuwatch_probe.die_with_parent(parent)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(int(seconds) + 5)
    os.dup2(log, 1)
    os.dup2(log, 2)
    probe.close_events()  # otherwise a worker that hangs would keep the script's event pipe open


def _work(framework, probe, task, events, orders):
    worker = gpuwatch_probe.Probe(probe.config, probe.options, fd=events)

    def next_order():
        order = orders.readline().strip()
        return None if order in ("", _END) else order

    try:
        task(framework, worker, next_order)
    except gpuwatch_probe.Skipped as reason:
        worker.emit("skip", reason=str(reason))
    except Exception as error:
        worker.error(error)
        # As an uncaught exception would appear in the log.
        print("%s: %s" % (type(error).__name__, error), file=sys.stderr)
    worker.emit("end", ok=not worker.failed)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1 if worker.failed else 0)
