"""Reports the exception that has ended a watched program, and what it says of an op's devices and kernels.

Also keeps how Python ends after a KeyboardInterrupt.

Loaded only by a program that such an exception ends. Standard library only, Python 3.7 or newer.
"""

import os
import re
import sys

_LIBRARY_FRAME = re.compile(r'^\s*File "[^"\n]*(?:site|dist)-packages[^"\n]*", line \d+, in [^\n]*\n', re.MULTILINE)
_PLUGIN = frozenset(["GPUWATCH_SIM_STATE", "TF_PLUGGABLE_DEVICE_LIBRARY_PATH"])
"""Variables of a program whose GPUs are simulated as a plug-in of TensorFlow."""


def tell(watcher, error):
    """Reports the exception that Python has just printed."""
    text = str(error)
    # Keras's stack of a node would leave no room for what was wrong.
    message = _LIBRARY_FRAME.sub("", text)[:2000]
    alone = error.__cause__ is None and error.__context__ is None
    interrupted = isinstance(error, KeyboardInterrupt) and by_signal(error)
    watcher.emit("error", type=type(error).__name__, message=message, alone=alone, by_signal=interrupted)
    _kernels(watcher, text)
    _refused(watcher, text)
    _address_space(watcher)


def by_signal(error):
    """Whether a signal raised a KeyboardInterrupt: in Python's own handler, which has no frame, or in the program's."""
    import opcode
    import signal

    raise_code = bytes([opcode.opmap["RAISE_VARARGS"]])
    handlers = (signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM))
    handler_code = {getattr(handler, "__code__", None) for handler in handlers} - {None}
    while isinstance(error, KeyboardInterrupt):
        raised_in, at = None, error.__traceback__
        while at is not None:
            if at.tb_frame.f_code in handler_code:
                return True
            raised_in, at = at, at.tb_next
        if raised_in is None or raised_in.tb_frame.f_code.co_code[raised_in.tb_lasti :][:1] != raise_code:
            return True
        error = error.__cause__ or error.__context__
    return False


class PendingInterrupt:
    """How Python will end after the KeyboardInterrupt that it has printed: killed by SIGINT, as a shell expects.

    It notes that inside, and forgets it when any text is run (by ``eval``, ``namedtuple``, ``dataclass``): then it
    exits with 1. What is run to report the program's end must not change that.
    """

    def __init__(self):
        self.forgotten = False
        sys.addaudithook(self.note_text_run)

    def note_text_run(self, event, arguments):
        if event == "exec" and getattr(arguments[0], "co_filename", "") == "<string>":
            self.forgotten = True

    def restore(self):
        if self.forgotten:
            set_pending_interrupt()


def set_pending_interrupt():
    """Makes Python end as after a KeyboardInterrupt that it has printed."""
    try:
        exec("raise KeyboardInterrupt")  # noqa: S102 - the interpreter notes it of text alone
    except KeyboardInterrupt:
        return


def _address_space(watcher):
    """Reports the peak of this process's address space in bytes, if it has a limit (RLIMIT_AS)."""
    limit = watcher.address_limit()
    if limit is None:
        return
    with open("/proc/self/status") as status:
        peak = re.search(r"^VmPeak:\s+(\d+) kB", status.read(), re.MULTILINE)
    if peak is not None:
        watcher.emit("result", name="address_limit_bytes", value=limit)
        watcher.emit("result", name="address_peak_bytes", value=int(peak.group(1)) * 1024)


def _refused(watcher, text):
    """Reports an eager op without a kernel on the requested device, under the names that probes use.

    Its type is unknown: TensorFlow removes its own frames from the traceback.
    """
    op = re.search(r"\[Op:(\w+)\]", text)
    asked = re.search(r"device specification '([^']+)'[^\0]{0,200}Supported device types \[", text)
    if op is None or asked is None:
        return
    watcher.emit("result", name="op", value=op.group(1))
    watcher.emit("result", name="requested", value=asked.group(1))


def _kernels(watcher, text):
    """Reports the types for which CUDA has a kernel of an eager op without one, on GPUs simulated as a plug-in."""
    named = re.search(r"Supported device types \[[^\]]*\].{0,2000}\[Op:(\w+)\]", text, re.DOTALL)
    if named is None or not os.environ.keys() >= _PLUGIN:
        return
    registry = watcher.load("_gpuwatch_kernels").Registry()
    watcher.emit("result", name="kernels", value={"op": named.group(1), "cuda": registry.cuda_types(named.group(1))})
