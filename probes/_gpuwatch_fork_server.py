"""The fork server: imports a framework once, and forks a process for each probe.

Importing TensorFlow takes seconds, a probe a fraction of one. This process imports the framework, touches no device,
and waits for orders on a socket: a script, its environment, and three descriptors for events and output. It forks, the
child runs the script, and the exit status is reported back. Standard library only, Python 3.9 or newer. Started by
gpuwatch, not by hand.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import time

_MAX_ORDER_BYTES = 1 << 20


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def open_drivers():
    """The driver's device files that this process has open: forks would share their state."""
    devices = set()
    for entry in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink("/proc/self/fd/" + entry)
        except OSError:
            continue
        if target.startswith("/dev/nvidia"):
            devices.add(target)
    return sorted(devices)


def send_message(control, **message):
    control.send(json.dumps(message).encode())


def run_child(order, descriptors):
    """In the child: runs the probe and never returns."""
    code = 1
    try:
        os.setpgid(0, 0)
        die_with_parent()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        events, out, err = descriptors
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.environ.clear()
        os.environ.update(order["environment"])
        os.environ["GPUWATCH_EVENT_FD"] = str(events)
        os.set_inheritable(events, True)
        os.close(out)
        os.close(err)
        script = order["script"]
        sys.argv = [script]
        sys.path[0] = os.path.dirname(script)
        runpy.run_path(script, run_name="__main__")
        code = 0
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


def receive(control):
    data, descriptors, _, _ = socket.recv_fds(control, _MAX_ORDER_BYTES, 3)
    return data, descriptors


def serve(control):
    """Executes orders until the other end closes; then kills a running child with its group."""
    child = None
    while True:
        # With a child running, poll often: it may end within milliseconds.
        ready, _, _ = select.select([control], [], [], 0.005 if child else None)
        if ready:
            data, descriptors = receive(control)
            if not data:
                if child:
                    os.killpg(child, signal.SIGKILL)
                return
            pid = os.fork()
            if pid == 0:
                control.close()
                run_child(json.loads(data), descriptors)
            child = pid
            with contextlib.suppress(OSError):  # it has ended already
                os.setpgid(pid, pid)  # the child may not have made its own call yet
            for descriptor in descriptors:
                os.close(descriptor)
            send_message(control, kind="started", pid=pid)
        if child:
            ended_pid, status = os.waitpid(child, os.WNOHANG)
            if ended_pid:
                send_message(control, kind="ended", pid=child, code=os.waitstatus_to_exitcode(status))
                child = None


def main():
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is gpuwatch's to handle
    control = socket.socket(fileno=int(sys.argv[2]))
    os.set_inheritable(control.fileno(), False)
    began = time.monotonic()
    try:
        importlib.import_module(sys.argv[1])
    except Exception as error:
        send_message(control, kind="failed", message="%s: %s" % (type(error).__name__, error))
        return
    # Otherwise garbage collection would write to shared pages, which every fork would have to copy.
    gc.collect()
    gc.freeze()
    sys.stdout.flush()
    sys.stderr.flush()
    send_message(control, kind="ready", seconds=time.monotonic() - began, drivers=open_drivers())
    serve(control)


if __name__ == "__main__":
    main()
