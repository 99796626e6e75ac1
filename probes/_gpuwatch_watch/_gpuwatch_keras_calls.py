"""Calls of Keras's fit(), predict() and evaluate(): how many, of how many batches, and how long outside of batches.

Each such call has its own CallbackList, whose methods are seen where they are called: none is replaced by a function of
ours, so tracebacks stay the program's. Standard library only, Python 3.7 or newer.
"""

import collections
import functools
import os
import sys
import time

_KINDS = {"train": "fit", "predict": "predict", "test": "evaluate"}
_OWN = ("keras", "tf_keras", "tensorflow", "contextlib")
_LATEST = 1000


class _Call:
    def __init__(self):
        self.count = self.batches = 0
        self.line = ""
        self.times = collections.deque(maxlen=_LATEST)
        """Of the latest calls but the first, which compiles: seconds, and those in batches."""


class KerasCalls:
    """An observer of imports (see sitecustomize.py). It keeps no reference to what the program makes."""

    def __init__(self, watcher):
        self.watcher = watcher
        self.actions = {"keras.src.callbacks.callback_list": self._watch, "tf_keras.src.callbacks": self._watch}
        self.actions["keras.src.trainers.epoch_iterator"] = self._prepares
        self.reset()

    def reset(self):
        self.known = {}
        self.prepared = None
        """When Keras 3 began to make the data set of the next call: the first thing that it does."""
        self.first = self.last = None
        """When the first call began and the last one ended."""
        self.open = None
        """The id of the list of the call that goes on, its kind, begin, seconds in batches, and its batch's begin."""

    def failed(self, name, error):
        """A version with other names: its calls are not counted."""

    def _watch(self, module):
        made = module.CallbackList
        for kind in _KINDS:
            for event in ("begin", "batch_begin", "batch_end", "end"):
                name = "on_%s_%s" % (kind, event)
                observe = functools.partial(getattr(self, "_" + event), kind)
                setattr(made, name, self.watcher.descriptors.Method(vars(made)[name], observe))

    def _prepares(self, module):
        made = module.EpochIterator
        made.__init__ = self.watcher.descriptors.Method(vars(made)["__init__"], self._prepare)

    def _prepare(self, iterator):
        if self.open is None:
            self.prepared = time.perf_counter()

    def _begin(self, kind, calls):
        if self.open is not None and self.open[0] == id(calls):
            return  # the validation of a fit()
        known = self.known.setdefault(kind, _Call())
        known.count += 1
        if known.count == 1:
            known.line = _line(sys._getframe(2))
        self.open = [id(calls), kind, self.prepared or time.perf_counter(), 0.0, None]
        self.prepared = None
        self.first = self.first or self.open[2]

    def _batch_begin(self, kind, calls):
        if self.open is not None and self.open[:2] == [id(calls), kind]:
            self.open[4] = time.perf_counter()

    def _batch_end(self, kind, calls):
        if self.open is not None and self.open[:2] == [id(calls), kind] and self.open[4] is not None:
            self.known[kind].batches += 1
            self.open[3] += time.perf_counter() - self.open[4]
            self.open[4] = None

    def _end(self, kind, calls):
        if self.open is None or self.open[:2] != [id(calls), kind]:
            return
        _, _, began, inside, _ = self.open
        self.open, known, self.last = None, self.known[kind], time.perf_counter()
        if known.count > 1:
            known.times.append((self.last - began, inside))

    def tell(self, emit):
        found = {}
        for kind, known in list(self.known.items()):
            times = list(known.times)
            if times:
                whole, inside = (sorted(part)[len(times) // 2] for part in zip(*times))  # noqa: B905
                found[_KINDS[kind]] = [known.count, known.batches, known.line, round(whole, 6), round(inside, 6)]
        if found:
            found = {"calls": found, "seconds": round(self.last - self.first, 6)}
            self.watcher.changed("keras calls", "result", name="keras_calls", value=found)


def _line(frame):
    """The innermost line that is not of Keras or TensorFlow."""
    while frame is not None:
        name = frame.f_globals.get("__name__") or ""
        if name.partition(".")[0] not in _OWN and "_gpuwatch_" not in name:
            return "%s:%d" % (os.path.basename(frame.f_code.co_filename), frame.f_lineno)
        frame = frame.f_back
    return ""
