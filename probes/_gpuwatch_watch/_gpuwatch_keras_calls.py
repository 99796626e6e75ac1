"""Calls of Keras's fit(), predict() and evaluate(): how many, of how many batches, how long outside of them.

Each such call has its own CallbackList, whose methods are seen where they are called: none is replaced by a function of
ours, so tracebacks stay the program's. Standard library only, Python 3.7 or newer.
"""

import collections
import functools
import os
import sys
import time

_CALLBACK_MODULES = (
    "keras.src.callbacks.callback_list",
    "tf_keras.src.callbacks",
    "keras.callbacks",
    "tensorflow.python.keras.callbacks",
)
_EPOCH_MODULE = "keras.src.trainers.epoch_iterator"
_METHOD_BY_KIND = {"train": "fit", "predict": "predict", "test": "evaluate"}
_FRAMEWORK_PACKAGES = ("keras", "tf_keras", "tensorflow", "contextlib")
_MAX_TIMES = 1000


class _Call:
    def __init__(self):
        self.count = self.batches = 0
        self.line = ""
        self.times = collections.deque(maxlen=_MAX_TIMES)
        """Of the latest calls but the first, which compiles: seconds, and those in batches."""


class KerasCalls:
    """An observer of imports (see sitecustomize.py). It keeps no reference to what the program makes."""

    def __init__(self, watcher):
        self.watcher = watcher
        self.actions = {**dict.fromkeys(_CALLBACK_MODULES, self._watch), _EPOCH_MODULE: self._prepares}
        self.validations = None
        """Validations that have begun, those of fit() and calls of evaluate(); None in a version with other names."""
        self.reset()

    def reset(self):
        """Starts over in a forked process."""
        self.validations = self.validations and 0
        self.calls_by_kind = {}
        self.prepared_at = None
        """When Keras 3 began to make the data set of the next call: the first thing that it does."""
        self.first_start = self.last_end = None
        """When the first call began and the last one ended."""
        self.current_call = None
        """The id of the list of the call that goes on, its kind, begin, seconds in batches, and its batch's begin."""

    def failed(self, name, error):
        """A version with other names: its calls are not counted."""

    def _watch(self, module):
        callback_list, method = module.CallbackList, self.watcher.descriptors.Method
        if isinstance(vars(callback_list)["on_test_begin"], method):
            return  # another name of the same class
        for kind in _METHOD_BY_KIND:
            for event in ("begin", "batch_begin", "batch_end", "end"):
                name = "on_%s_%s" % (kind, event)
                observe = functools.partial(getattr(self, "_" + event), kind)
                setattr(callback_list, name, method(vars(callback_list)[name], observe))
        self.validations = self.validations or 0

    def _prepares(self, module):
        epoch_iterator = module.EpochIterator
        epoch_iterator.__init__ = self.watcher.descriptors.Method(vars(epoch_iterator)["__init__"], self._prepare)

    def _prepare(self, iterator):
        if self.current_call is None:
            self.prepared_at = time.perf_counter()

    def _begin(self, kind, callbacks):
        self.validations += kind == "test"
        if self.current_call is not None and self.current_call[0] == id(callbacks):
            return  # the validation of a fit()
        calls_of_kind = self.calls_by_kind.setdefault(kind, _Call())
        calls_of_kind.count += 1
        if calls_of_kind.count == 1:
            calls_of_kind.line = _program_line(sys._getframe(2))
        self.current_call = [id(callbacks), kind, self.prepared_at or time.perf_counter(), 0.0, None]
        self.prepared_at = None
        self.first_start = self.first_start or self.current_call[2]

    def _batch_begin(self, kind, callbacks):
        if self.current_call is not None and self.current_call[:2] == [id(callbacks), kind]:
            self.current_call[4] = time.perf_counter()

    def _batch_end(self, kind, callbacks):
        if (
            self.current_call is not None
            and self.current_call[:2] == [id(callbacks), kind]
            and self.current_call[4] is not None
        ):
            self.calls_by_kind[kind].batches += 1
            self.current_call[3] += time.perf_counter() - self.current_call[4]
            self.current_call[4] = None

    def _end(self, kind, callbacks):
        if self.current_call is None or self.current_call[:2] != [id(callbacks), kind]:
            return
        _, _, started_at, in_batches, _ = self.current_call
        self.current_call, calls_of_kind, self.last_end = None, self.calls_by_kind[kind], time.perf_counter()
        if calls_of_kind.count > 1:
            calls_of_kind.times.append((self.last_end - started_at, in_batches))

    def tell(self, emit):
        report = {}
        for kind, calls in list(self.calls_by_kind.items()):
            times = list(calls.times)
            if times:
                total, in_batches = (sorted(part)[len(times) // 2] for part in zip(*times))  # noqa: B905
                report[_METHOD_BY_KIND[kind]] = [
                    calls.count,
                    calls.batches,
                    calls.line,
                    round(total, 6),
                    round(in_batches, 6),
                ]
        if report:
            report = {"calls": report, "seconds": round(self.last_end - self.first_start, 6)}
            self.watcher.changed("keras calls", "result", name="keras_calls", value=report)


def _program_line(frame):
    """The innermost line that is not of Keras or TensorFlow."""
    while frame is not None:
        name = frame.f_globals.get("__name__") or ""
        if name.partition(".")[0] not in _FRAMEWORK_PACKAGES and "_gpuwatch_" not in name:
            return "%s:%d" % (os.path.basename(frame.f_code.co_filename), frame.f_lineno)
        frame = frame.f_back
    return ""
