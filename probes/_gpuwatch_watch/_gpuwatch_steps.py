"""Counts the steps of Keras and PyTorch and the calls of tf.functions, with their times.

Part of the watcher (_gpuwatch_watcher.py). Standard library only, Python 3.7 or newer.
"""

import _thread
import collections
import os
import sys
import time

_WARM_UP = 5
_LATEST = 4000
_WINDOWS = 240
_SHORT, _LONG = 0.1, 0.5
"""Seconds of calls that give a rate, at first and later."""
MARKS = 1000
"""Latest steps of which it is kept when they were made."""
_MOST_FUNCTIONS = 200
_HISTORY = (
    "keras.src.callbacks.history",
    "keras.src.callbacks",
    "tf_keras.src.callbacks",
    "keras.callbacks",
    "tensorflow.python.keras.callbacks",
)
_FUNCTIONS = (
    "tensorflow.python.eager.polymorphic_function.polymorphic_function",
    "tensorflow.python.eager.def_function",
)


class Steps:
    """Counts steps, and keeps the latest step times."""

    def __init__(self):
        self.pending = None
        """Under ``gpuwatch try``: a deque of step times to send."""
        self.reset()

    def reset(self):
        self.count = 0
        self.thread = None
        self.last = 0.0
        self.gaps = collections.deque(maxlen=_LATEST)
        self.marks = _marks()

    def step(self, steps=1):
        now = time.perf_counter()
        if self.thread is None:
            self.thread = _thread.get_ident()
        if self.count >= _WARM_UP and steps > 0:
            self.gaps.append((now - self.last) / steps)
            if self.pending is not None:
                self.pending.append((now - self.last) / steps)
        if self.count and steps > 0:
            self.marks.append((now, now - self.last, self.count + steps, steps))
        self.last = now
        self.count += steps

    def speed(self):
        return _speed(self.count, _WARM_UP, sorted(self.gaps)) if len(self.gaps) >= 10 else None


class Calls:
    """Call rates of tf.functions, from TensorFlow's own counters."""

    def __init__(self):
        self.known = {}
        self.marks = {}
        """By function, the times between two looks."""
        self.pending = None
        """Under ``gpuwatch try``: by function, step times to send."""

    def look(self, detectors, now, last=False):
        for reference, detector in detectors.items():
            code, count, latest = reference(), detector._call_count, (detector._calls_per_tracings or [0])[-1]
            if code is None:
                continue
            entry = self.known.get(code)
            if entry is None:
                if len(self.known) < _MOST_FUNCTIONS:
                    self.known[code] = [count, now, count, collections.deque(maxlen=_WINDOWS), 0, latest]
                continue
            before, since, total, windows, warm_up, in_trace = entry
            more = count - before
            if more != latest - in_trace:
                # Traced again: TensorFlow drops old calls then, so these cannot be counted.
                entry[0], entry[1], entry[2], entry[5] = count, now, total + max(more, 0), latest
                continue
            if not more:
                if windows and now - since > 10 + 10 * max(windows):
                    entry[1] = now  # a pause, not a slow step
                continue
            if now - since < (_LONG if len(windows) > 20 else _SHORT):
                if last:
                    entry[2] = total + more  # too short for a rate
                continue
            if total + more <= 2 or not warm_up:
                entry[4] = total + more  # includes tracing and the first calls
            else:
                windows.append((now - since) / more)
                self.marks.setdefault(code, _marks()).append((now, now - since, total + more, more))
                if self.pending is not None:
                    self.pending.setdefault(code, collections.deque(maxlen=_LATEST)).append(windows[-1])
            entry[0], entry[1], entry[2], entry[5] = count, now, total + more, latest

    def busiest(self):
        """Name, speed and latest calls of the most-called function; None if unknown."""
        code = max(self.known, key=lambda one: self.known[one][2], default=None)
        if code is None or len(self.known[code][3]) < 2:
            return None
        entry = self.known[code]
        return self.describe(code), _speed(entry[2], entry[4], sorted(entry[3])), self.marks[code]

    def describe(self, code):
        name = getattr(code, "co_name", "a function")
        place = "%s:%s" % (os.path.basename(getattr(code, "co_filename", "?")), getattr(code, "co_firstlineno", "?"))
        return "calls of the tf.function %s (%s)" % (name, place)


def _marks():
    """End, seconds, number of the last step and number of steps, of the latest steps."""
    return collections.deque(maxlen=MARKS)


def _speed(steps, warm_up, times):
    median = times[len(times) // 2]
    return {
        "steps": steps,
        "warmup_steps": warm_up,
        "median_step_seconds": median,
        "p10_step_seconds": times[len(times) // 10],
        "p90_step_seconds": times[len(times) * 9 // 10],
        "steps_per_second": 1.0 / median if median else 0.0,
    }


def _count_batches(history, steps):
    """Adds the batch callback to Keras's History, which every training has and which does not define it."""
    if "on_train_batch_end" in vars(history):
        return

    def on_train_batch_end(self, batch, logs=None):
        # With steps_per_execution, the batch number grows by more than one.
        last = self.__dict__.get("_gpuwatch_last")
        self.__dict__["_gpuwatch_last"] = batch
        steps.step(batch - last if last is not None and batch > last else 1)

    history.on_train_batch_end = on_train_batch_end


def install(watcher):
    """Installs the counters as soon as the frameworks are imported."""
    hooked = watcher.hooked
    for name in _HISTORY:  # TensorFlow contains an old Keras, besides the one that is used
        if name not in hooked:
            history = getattr(sys.modules.get(name), "History", None)
            if history is not None:
                hooked.add(name)
                _count_batches(history, watcher.batches)
    if "torch" not in hooked:
        offered = getattr(sys.modules.get("torch.optim.optimizer"), "register_optimizer_step_post_hook", None)
        if offered is not None:
            hooked.add("torch")
            steps = watcher.optimizer
            offered(lambda optimizer, args, keywords: steps.step())


def detectors():
    """TensorFlow's counters of calls, by function; empty before its import."""
    for name in _FUNCTIONS:
        manager = getattr(sys.modules.get(name), "_frequent_tracing_detector_manager", None)
        if manager is not None:
            # An atomic copy without TensorFlow's lock, which a fork might catch us holding.
            return manager._detectors.data.copy()
    return {}
