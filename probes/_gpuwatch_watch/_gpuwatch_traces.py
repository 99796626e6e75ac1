"""Counts the traces of each tf.function, and notes which argument differed from the trace before.

TensorFlow tells its detector of frequent tracing about each call that was traced, when the call is over: that method
is observed, so that calls without tracing cost nothing and no traceback changes. Of an argument, only its shape, type
and, for numbers, its value are kept. Standard library only, Python 3.7 or newer.
"""

import sys
import weakref

_FUNCTION_MODULE = "tensorflow.python.eager.polymorphic_function.polymorphic_function"
_MIN_REPORTED_TRACES = 5
"""Traces from which on a function is reported."""
_MOST_FUNCTIONS = 200
_MAX_LEAVES = 30
_MAX_EXAMPLES = 4


class Traces:
    """Observes TensorFlow's module of tf.function after its import (see sitecustomize.py)."""

    def __init__(self, watcher):
        self.watcher = watcher
        self.lines = watcher.lines
        self.actions = {_FUNCTION_MODULE: self._functions}
        self.reset()

    def reset(self):
        """Starts over in a forked process."""
        self.known = {}
        self.eager = {}
        """By name of a tf.function that ran eagerly (tf.config.run_functions_eagerly): its calls eagerly, and since
        then as a graph."""

    def failed(self, name, error):
        self.watcher.once("traces", "note", text="traces of tf.functions are not counted (%s)" % error)

    def _functions(self, module):
        manager = module._FrequentTracingDetectorManager
        original = manager.called_with_tracing

        def called_with_tracing(manager_instance, key, *arguments):
            try:
                self._traced(manager_instance, key, sys._getframe(1))
            except Exception as error:  # another version of TensorFlow
                self.failed("tf.function", error)
            return original(manager_instance, key, *arguments)

        manager.called_with_tracing = called_with_tracing
        eagerly = getattr(getattr(module, "Function", None), "_run_functions_eagerly", None)
        if isinstance(eagerly, property):  # TensorFlow asks it at the begin of each call
            module.Function._run_functions_eagerly = property(
                lambda function: self._called(function, eagerly.fget(function))
            )

    def _called(self, function, eagerly):
        name = getattr(function, "_name", None)
        if eagerly and name not in self.eager and len(self.eager) < _MOST_FUNCTIONS:
            self.eager[name] = [0, 0]
        if name in self.eager:
            self.eager[name][0 if eagerly else 1] += 1
        return eagerly

    def _traced(self, manager, code, frame):
        entry = self.known.get(code)
        if entry is None:
            if len(self.known) >= _MOST_FUNCTIONS or not hasattr(code, "co_varnames"):
                return
            entry = self.known[code] = _Function(code, self.lines)
        entry.traced(frame, _calls_since_trace(manager._detectors.get(code)))

    def tell(self, emit):
        """Sends every tf.function that was traced more than a few times, if that has changed."""
        manager = getattr(sys.modules.get(_FUNCTION_MODULE), "_frequent_tracing_detector_manager", None)
        known = (
            [entry_pair for entry_pair in list(self.known.items()) if entry_pair[1].traces >= _MIN_REPORTED_TRACES]
            if manager is not None
            else ()
        )
        reports = [
            entry.report(entry.calls + _calls_since_trace(manager._detectors.get(code))) for code, entry in known
        ]
        if reports:
            self.watcher.changed("retraced", "retraced", functions=reports)
        eager = {
            name: {"eager": entry_pair[0], "graph": entry_pair[1]} for name, entry_pair in list(self.eager.items())
        }
        if eager:
            self.watcher.changed("eager functions", "result", name="eager_functions", value=eager)

    def traces_and_calls(self, code, detector):
        """Traces and calls of a function so far; no trace, and what TensorFlow counts, for one that was not seen."""
        entry = self.known.get(code)
        return (
            (entry.traces, entry.calls + _calls_since_trace(detector))
            if entry is not None
            else (0, detector._call_count)
        )


def _calls_since_trace(detector):
    """Calls since the last trace, with that one."""
    counts = detector._calls_per_tracings if detector is not None else ()
    return counts[-1] if counts else 0


class _Function:
    """What is known of one Python function: every tf.function made of it counts."""

    def __init__(self, code, lines):
        """``lines``: the module _gpuwatch_program_lines."""
        self.code = code
        self.lines = lines
        self.traces = 0
        self.calls = 0
        """Up to the last trace, without it."""
        self.function_count = 0
        """tf.functions that were made of it, each traced for a first time."""
        self.latest = weakref.WeakKeyDictionary()
        """By tf.function, the arguments of its last trace."""
        self.changes = {}
        """By argument and what differed: how often, and the latest examples."""
        self.caller = ""

    def traced(self, frame, calls):
        frame_locals = frame.f_locals
        arguments = _arguments(self.code, frame_locals["args"], frame_locals["kwds"])
        self.traces += 1
        self.calls += calls
        before = self.latest.get(frame_locals["self"])
        if before is None:
            self.function_count += 1
            self.caller = self.lines.innermost_place(frame)
        else:
            self._compare(before, arguments)
        self.latest[frame_locals["self"]] = arguments

    def _compare(self, before, arguments):
        for name in dict.fromkeys([*before, *arguments]):
            then, now = before.get(name), arguments.get(name)
            if then is None or now is None:
                self._changed(name, "structure", "")
            elif then[0] != now[0]:
                self._changed(name, "type", "%s, %s" % (then[0], now[0]))
            elif _values_differ(then, now):
                self._changed(name, now[0], now[1])

    def _changed(self, name, kind, example):
        entry = self.changes.setdefault((name, kind), [0, []])
        entry[0] += 1
        if example and example not in entry[1]:
            entry[1] = (entry[1] + [example])[-_MAX_EXAMPLES:]

    def report(self, calls):
        order = sorted(self.changes.copy().items(), key=lambda one: -one[1][0])
        name = self.code.co_filename
        return {
            "name": self.code.co_name,
            "place": self.lines.place(name, self.code.co_firstlineno),
            "caller": self.caller if self.lines.is_library(name) else "",
            "traces": self.traces,
            "calls": calls,
            "made": self.function_count,
            "changes": [
                {"argument": key[0], "kind": key[1], "times": entry[0], "examples": list(entry[1])}
                for key, entry in order[:_MAX_EXAMPLES]
            ],
        }


def _arguments(code, args, kwds):
    """By name: the kind of each argument, what tells it apart, and a weak reference to an object."""
    names = list(code.co_varnames[: code.co_argcount])
    if names[:1] == ["self"]:
        names = names[1:]
    descriptions = {}
    for number, value in enumerate(args):
        _describe(names[number] if number < len(names) else "argument %d" % (number + 1), value, descriptions, 0)
    for name, value in kwds.items():
        _describe(name, value, descriptions, 0)
    return descriptions


def _describe(name, value, descriptions, depth):
    if len(descriptions) >= _MAX_LEAVES:
        return
    if isinstance(value, (tuple, list)) and depth < 3 and not hasattr(value, "shape"):
        descriptions[name] = ("length", str(len(value)), None)
        for number, element in enumerate(value):
            _describe("%s[%d]" % (name, number), element, descriptions, depth + 1)
    elif isinstance(value, dict) and depth < 3:
        descriptions[name] = ("length", str(len(value)), None)
        for key, element in value.items():
            _describe("%s[%.40r]" % (name, key), element, descriptions, depth + 1)
    elif value is None or isinstance(value, (bool, int, float)):
        descriptions[name] = ("Python %s" % type(value).__name__, "%.20r" % (value,), None)
    elif isinstance(value, (str, bytes)):
        descriptions[name] = ("Python %s" % type(value).__name__, "", hash(value))  # it may be a secret
    elif hasattr(value, "shape") and hasattr(value, "dtype"):
        dtype = getattr(value.dtype, "name", None) or str(value.dtype)
        descriptions[name] = ("shape", "%s %s" % (str(value.shape).replace("TensorShape", ""), dtype), None)
    else:
        try:
            element = weakref.ref(value)
        except TypeError:
            element = id(value)
        descriptions[name] = ("object", type(value).__name__, element)


def _values_differ(then, now):
    if then[1] != now[1]:
        return True
    if isinstance(then[2], weakref.ref) and isinstance(now[2], weakref.ref):
        return then[2]() is None or then[2]() is not now[2]()
    return then[2] != now[2]
