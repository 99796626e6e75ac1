"""``gpuwatch run --memory``: records who allocates GPU memory, with the frameworks' own recorders.

TensorFlow: its profiler, from the creation of the devices on (later it would miss the weights). It keeps every event
in host memory until it is stopped, so it records windows: the first lasts until some steps were seen. Where few events
come, later ones follow at once; else they are short, and follow when memory reaches a new peak, or after ever longer
pauses. A program that profiles itself gets the profiler: ours stops first. PyTorch: the history of its allocator,
written at a failure and at the end.

Each file is in a folder of gpuwatch's, which reads it once the program has ended. Standard library only, Python 3.7 or
newer.
"""

import _thread
import gc
import os
import sys
import time
from itertools import chain

_CONTEXT = "tensorflow.python.eager.context"
_SESSIONS = "tensorflow.python.client.pywrap_tf_session"
_PROFILER = "tensorflow.python.profiler.internal._pywrap_profiler"
_LAUNCHERS = "tensorflow.python.distribute.cross_device_utils"
_COLLECTIVES = "TensorFlow's profiler may crash a program whose devices reduce together: this recording ended before it"
"""What ends in another thread than it began (CollectiveExecutor::CompleteParams) is written into freed memory when the
profiler stops (SplitEventTracker in traceme_recorder.cc)."""
_MIN_FIRST_STEPS = 5
_MIN_FIRST_SECONDS = 1.0
_MAX_FIRST_SECONDS = 20.0
"""Seconds after which the first window ends though no steps were counted; the next one follows at once."""
_MIN_LATER_STEPS = 2
_MIN_LATER_SECONDS = 0.3
_MAX_LATER_SECONDS = 10.0
_CHEAP_BYTES_PER_SECOND = 64 << 10
"""Bytes of events a second that may be recorded all the time: about 300 events, 0.2 % of a core."""
_MAX_CHEAP_SECONDS = 20.0
_MAX_RSS_GROWTH = 512 << 20
"""Growth of this process in bytes at which a window ends: its events may be the reason."""
_SMALL_FILE_BYTES = 8 << 20
"""Size of a file, in bytes, below which they were not."""
_MAX_TOTAL_BYTES = 32 << 20
"""Size of all files of a process."""
_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_NEW_PEAK_FACTOR = 1.02
_NEW_PEAK_PAUSE = 0.5
_MAX_VARIABLES = 4000
_MAX_INPUTS = 200
_MAX_READ_ERRORS = 3
_MAX_EVENT_ENTRIES = 200
_ELEMENT_OPS = frozenset(["IteratorGetNext", "IteratorGetNextSync", "OptionalGetValue"])
_LIBRARY_FOLDERS = (
    "/site-packages/",
    "/dist-packages/",
    "/tensorflow/python/",
    "/keras/src/",
    "/_gpuwatch_",
)  # PYTHONPATH, too
_MIN_LINE_BYTES = 64 << 10
"""Bytes of a tensor whose line is worth the time: TensorFlow takes half a millisecond for each."""
_MAX_LINES = 1000
_LINES_SECONDS = 0.3
_MAX_HISTORY_ENTRIES = 20000
"""Allocations and frees that PyTorch keeps; to write them takes it two seconds."""


class _Level(int):
    """A number that is no truth value: TensorFlow 2.21 takes every other number for one, and ignores the option."""

    def __bool__(self):
        raise TypeError


_OPTIONS = {"host_tracer_level": _Level(2), "python_tracer_level": _Level(0), "device_tracer_level": _Level(0)}
"""Allocations are events of level 2 (``kInfo``); no CUPTI, which the program's own tools may use, which slows kernels,
and whose lines the program's log would have."""


class Recorder:
    """Observes modules after their import (see sitecustomize.py), and starts and stops the recorders."""

    def __init__(self, watcher, folder):
        self.watcher = watcher
        self.folder = folder
        self.actions = {
            _CONTEXT: self._context,
            _SESSIONS: self._sessions,
            _PROFILER: self._profiler,
            _LAUNCHERS: self._launchers,
            "torch.cuda": self._torch,
        }
        self.original = None
        """TensorFlow's own ProfilerSession."""
        self.reset()

    def reset(self):
        """Starts over in a forked process: the recording of its parent is not ours."""
        self.lock = _thread.allocate_lock()
        self.pid = os.getpid()
        self.session = None
        self.window_number = 0
        self.total_bytes = 0
        self.stop_reason = ""
        """Why nothing more is recorded."""
        self.window_started_at = 0.0
        self.steps_before = 0
        self.rss_before = 0
        self.rss_limit = _MAX_RSS_GROWTH
        self.next_window_at = 0.0
        self.pause = _PAUSE
        self.stopped_at = 0.0
        self.has_few_events = False
        self.first_steps_recorded = False
        """Whether the first steps were recorded."""
        self.peaks = {}
        self.names_sent_count = 0
        self.snapshots = 0

    def failed(self, name, error):
        self.note("not possible in this version of %s (%s)" % (name.partition(".")[0], error))

    def note(self, text, **more):
        self.watcher.once("memory: " + text, "memory_note", text=text, **more)

    # Where recording begins

    def _context(self, module):
        # The devices are listed right after their creation, before anything is allocated on them.
        module.Context._logical_devices = self.watcher.descriptors.Attribute("_logical_devices", written=self._listed)

    def _sessions(self, module):
        original = module.TF_NewSessionRef

        def TF_NewSessionRef(*arguments):  # noqa: N802 - TensorFlow's own name
            session = original(*arguments)
            self.begin()
            return session

        module.TF_NewSessionRef = TF_NewSessionRef

    def _profiler(self, module):
        self.original = original = module.ProfilerSession
        serve = module.start_server

        def ProfilerSession(*arguments):  # noqa: N802 - TensorFlow's own name
            self.give_way("the program profiles itself: this recording ended where its own began")
            return original(*arguments)

        def start_server(*arguments):
            self.give_way("the program started a profiler server: this recording ended there")
            return serve(*arguments)

        module.ProfilerSession = ProfilerSession
        module.start_server = start_server

    def _launchers(self, module):
        launcher = module.CollectiveReplicaLauncher
        make = launcher.__init__

        def made(instance, group_key, group_size, *arguments, **keywords):
            if group_size > 1:
                self.give_way(_COLLECTIVES, gave_way=False)
            make(instance, group_key, group_size, *arguments, **keywords)

        launcher.__init__ = made

    def _listed(self, frame, context):
        if context._logical_devices:
            self.begin()

    def begin(self):
        """Starts the first window, unless this process has one."""
        if os.getpid() == self.pid and not self.window_number:
            self._start_window()

    def _start_window(self):
        try:
            with self.lock:
                if self.session is None and not self.stop_reason:
                    self._start()
        except Exception as error:
            self.stop_reason = "%s: %s" % (type(error).__name__, error)
            self.note("TensorFlow's profiler could not be started (%s)" % self.stop_reason[:200])

    def _start(self):
        if self.original is None:
            __import__(_PROFILER)
        session = self.original()
        self.window_number += 1
        session.start(self._path(self.window_number), _OPTIONS)
        self.watcher.once("memory_begin", "memory_begin")
        self.window_started_at = time.monotonic()
        self.steps_before = self.watcher.steps()
        self.rss_before = _resident()
        self.session = session  # last: another thread looks how long this window has lasted

    def _path(self, number):
        return os.path.join(self.folder, "%d-%d" % (self.pid, number))

    # Where it ends

    def give_way(self, reason, gave_way=True):
        """Stops for good; ``gave_way``: before the program's own profiler starts."""
        if os.getpid() != self.pid or self.stop_reason:
            return
        self.stop_reason = reason
        self.stop(reason)
        self.note(reason, gave_way=gave_way)

    def stop(self, reason):
        """Ends the window, and tells gpuwatch where its file is."""
        with self.lock:
            session, self.session = self.session, None
            if session is None:
                return
            path, now, steps = self._path(self.window_number), time.monotonic(), self.watcher.steps()
            try:
                session.export_to_tb()
            except Exception as error:
                self.note("a recording could not be written (%s)" % str(error)[:200])
                return
            self.stopped_at = time.monotonic()
            size = 0
            for folder, _, names in os.walk(path):
                for name in names:
                    if name.endswith(".xplane.pb"):
                        file = os.path.join(folder, name)
                        size += os.path.getsize(file)
                        self.watcher.emit(
                            "memory_file",
                            file=file,
                            tool="tensorflow",
                            number=self.window_number,
                            begin=self.window_started_at,
                            end=now,
                            steps_begin=self.steps_before,
                            steps_end=steps,
                            reason=reason,
                        )
            self.total_bytes += size
        self.has_few_events = size < _CHEAP_BYTES_PER_SECOND * (now - self.window_started_at)
        if size < _SMALL_FILE_BYTES and _resident() - self.rss_before > self.rss_limit:
            self.rss_limit *= 2
        if self.total_bytes > _MAX_TOTAL_BYTES and not self.stop_reason:
            self.stop_reason = "size"
            self.note("recording ended after %d MiB of events" % (self.total_bytes >> 20))

    def look(self):
        """Called some times a second: ends a window that has what it needs, starts the next one."""
        if os.getpid() != self.pid:
            return
        if not self.window_number:
            self._late()
            return
        now = time.monotonic()
        if self.session is not None and self._enough(
            now - self.window_started_at, self.watcher.steps() - self.steps_before
        ):
            self.stop("window")
            self.peaks = self._peaks()
            if self.first_steps_recorded:
                self.next_window_at = time.monotonic() + (0.0 if self.has_few_events else self.pause)
                if not self.has_few_events:
                    self.pause = min(2 * self.pause, _LONGEST_PAUSE)
                if not self.names_sent_count:
                    self.names()
        if self.session is None and not self.stop_reason and (now >= self.next_window_at or self._rose(now)):
            self._start_window()

    def _late(self):
        """Starts a recording that the creation of the devices did not start, in an unknown version of TensorFlow."""
        if not self.stop_reason and not self.watcher.started_before_fork and self.watcher.context() is not None:
            self.note("recording began after TensorFlow had made its devices: what was allocated before is missing")
            self.begin()

    def _enough(self, seconds, steps):
        if _resident() - self.rss_before > self.rss_limit:
            return True
        if not self.first_steps_recorded:
            self.first_steps_recorded = steps >= _MIN_FIRST_STEPS and seconds >= _MIN_FIRST_SECONDS
            return self.first_steps_recorded or seconds >= _MAX_FIRST_SECONDS
        if self.has_few_events:
            return seconds >= _MAX_CHEAP_SECONDS
        return (steps >= _MIN_LATER_STEPS and seconds >= _MIN_LATER_SECONDS) or seconds >= _MAX_LATER_SECONDS

    def _peaks(self):
        """Peak of each GPU's allocator, as the watcher has read it last."""
        latest = self.watcher.latest
        return {name: data["peak"] for name, data in list(latest.items()) if "/device:" in str(name)}

    def _rose(self, now):
        if now - self.stopped_at < _NEW_PEAK_PAUSE:
            return False
        return any(peak > _NEW_PEAK_FACTOR * self.peaks.get(name, 0) for name, peak in self._peaks().items())

    def end(self):
        """At the program's end."""
        if os.getpid() != self.pid:
            return
        self.stop("end")
        if self.window_number:
            try:
                self.names(ending=True)
            except Exception as error:
                self.note("variables and inputs have no names (%s: %s)" % (type(error).__name__, str(error)[:200]))
        self._torch_end()
        if self.window_number or self.snapshots:
            self.watcher.emit("memory_end")

    # Names of what lives long

    def names(self, ending=False):
        """Sends shapes and names of variables, and shapes of inputs; at the end also the lines of ops."""
        self.names_sent_count += 1
        variables, inputs = [], []
        reader = _Reader(_program_objects())
        for entry in reader.variables():
            if len(variables) >= _MAX_VARIABLES:
                self.note("only the first %d variables were named" % _MAX_VARIABLES)
                break
            variables.append(entry)
        for entry in reader.inputs():
            if entry not in inputs:
                inputs.append(entry)
            if len(inputs) >= _MAX_INPUTS:
                break
        lines = list(reader.lines()) if ending else []
        if ending and reader.errors:
            self.note("no name for what could not be read: %s" % "; ".join(sorted(reader.errors)))
        for name, entries in (("variables", variables), ("inputs", inputs), ("lines", lines)):
            for start in range(0, len(entries), _MAX_EVENT_ENTRIES):
                self.watcher.emit(
                    "memory_names", what=name, first=start == 0, entries=entries[start : start + _MAX_EVENT_ENTRIES]
                )

    # PyTorch

    def _torch(self, module):
        later = getattr(module, "_lazy_call", None)
        if later is None:
            self.note("this version of PyTorch cannot record its allocator")
            return
        later(self._torch_begin)

    def _torch_begin(self):
        """Called by PyTorch when it has started CUDA."""
        if os.getpid() != self.pid or self.snapshots:
            return
        try:
            memory = sys.modules["torch.cuda.memory"]
            memory._record_memory_history(max_entries=_MAX_HISTORY_ENTRIES, stacks="python")
            self.snapshots = 1
            attach = getattr(sys.modules["torch"]._C, "_cuda_attach_out_of_memory_observer", None)
            if attach is not None:
                attach(self._torch_failed)
        except Exception as error:
            self.note("PyTorch's allocator could not be recorded (%s)" % str(error)[:200])

    def _torch_failed(self, device, requested, allocated, free):
        """PyTorch's observer of failed allocations, called before the exception; keeps the first and the latest."""
        self._torch_write(min(self.snapshots, 2), "out of memory")

    def _torch_end(self):
        if self.snapshots:
            self._torch_write(3, "end")

    def _torch_write(self, number, reason):
        try:
            memory = sys.modules["torch.cuda.memory"]
            path = os.path.join(self.folder, "%d-%d.pickle" % (self.pid, number))
            memory._dump_snapshot(path)
            self.snapshots += 1
            self.watcher.emit("memory_file", file=path, tool="torch", number=number, reason=reason)
        except Exception as error:
            self.note("PyTorch's snapshot could not be written (%s)" % str(error)[:200])


def _resident():
    """Resident bytes of this process."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096
    except (OSError, ValueError, IndexError):
        return 0


_KINDS = {
    "variable": [("tensorflow.python.ops.resource_variable_ops", "BaseResourceVariable")],
    "keras variable": [("keras.src.backend.tensorflow.core", "Variable"), ("tf_keras.src.backend", "Variable")],
    "optimizer": [
        ("keras.src.optimizers.base_optimizer", "BaseOptimizer"),
        ("tf_keras.src.optimizers.optimizer", "_BaseOptimizer"),
    ],
    "graph": [("tensorflow.python.framework.func_graph", "FuncGraph")],
    "model": [("keras.src.models.functional", "Functional")],
}


def _program_objects():
    """The program's objects of these kinds, in one pass over all objects: some 150 ms for a million.

    Each refers to its class, so they are asked for as referrers. A list of all objects (``gc.get_objects``) would for a
    moment also hold a tuple that another thread is building, which then fails with a SystemError (bpo-15108).
    """
    kind_by_class = {}
    for name, bases in _KINDS.items():
        classes = [getattr(sys.modules.get(module), class_, None) for module, class_ in bases]
        while classes:
            class_ = classes.pop()
            if class_ is not None:
                kind_by_class[class_] = name
                classes += class_.__subclasses__()
    objects_by_kind = {name: [] for name in _KINDS}
    for program_object in gc.get_referrers(*kind_by_class):
        name = kind_by_class.get(type(program_object))
        if name is not None:
            objects_by_kind[name].append(program_object)
    return objects_by_kind


def _creation_number(variable):
    """In the order of creation: TensorFlow numbers its variables."""
    number = str(getattr(variable, "_unique_id", "")).rpartition("_")[2]
    return int(number) if number.isdigit() else 0


class _Reader:
    """Reads the program's objects, some of which another thread, or what was interrupted, may have left unfinished."""

    def __init__(self, program_objects):
        self.program_objects = program_objects
        self.errors = set()
        """Why objects could not be read: one costs itself alone."""

    def each(self, name, read):
        """What ``read`` yields for each object of this kind."""
        for program_object in self.program_objects[name]:
            try:
                found = list(read(program_object))
            except Exception as error:
                if len(self.errors) < _MAX_READ_ERRORS:
                    self.errors.add("%s (%s)" % (type(program_object).__name__, str(error)[:200]))
                continue
            yield from found

    def variables(self):
        """Name, shape, type and kind of the program's variables, oldest first; the kind is Keras's, else empty."""
        kinds = dict(self.each("optimizer", _optimizer_kinds))
        for value, kind in self.each("keras variable", _keras_kinds):
            kinds.setdefault(value, kind)
        self.program_objects["variable"].sort(key=_creation_number)
        return self.each("variable", lambda variable: _described_variable(variable, kinds))

    def inputs(self):
        """Shape and type of what the program feeds: elements of datasets, inputs of models and functions; -1 is any."""
        graph_classes = tuple({type(graph) for graph in self.program_objects["graph"]})
        yield from self.each("graph", lambda graph: _graph_inputs(graph, graph_classes))
        yield from self.each("model", lambda model: chain.from_iterable(map(_described_input, model.inputs)))

    def lines(self):
        """Names of ops with a large output, and the program's line that made them, of the graphs that have several."""
        ends_at = time.monotonic() + _LINES_SECONDS
        return self.each("graph", lambda graph: _lines(graph, ends_at))


def _optimizer_kinds(optimizer):
    optimizer_variables = getattr(optimizer, "variables", ())
    for variable in optimizer_variables() if callable(optimizer_variables) else optimizer_variables:
        for value in _replica_variables(getattr(variable, "_value", variable)):
            yield id(value), ("optimizer", getattr(variable, "path", ""))


def _keras_kinds(variable):
    for value in _replica_variables(getattr(variable, "_value", None)):
        yield id(value), ("weight" if variable.trainable else "state", variable.path)


def _described_variable(variable, kinds):
    kind, path = kinds.get(id(variable), ("", ""))
    if variable.shape.is_fully_defined():
        yield [str(path or variable.name)[:200], variable.shape.as_list(), variable.dtype.name, kind]


def _replica_variables(value):
    """The variables of a Keras variable: under a strategy one for each replica."""
    return getattr(value, "_values", None) or (value,)


def _graph_inputs(graph, graph_classes):
    for op in graph.get_operations():
        if op.type in _ELEMENT_OPS:
            for tensor in op.outputs:
                yield from _described_input(tensor, any_length=True)
    if not isinstance(graph.outer_graph, graph_classes):
        captured = {id(tensor_captured) for tensor_captured in graph.internal_captures}
        for tensor in list(graph.inputs):
            if id(tensor) not in captured:
                yield from _described_input(tensor)


def _lines(graph, ends_at):
    lines = {}
    for op in graph.get_operations():
        if time.monotonic() > ends_at or len(lines) >= _MAX_LINES:
            break
        if any(_large(tensor) for tensor in op.outputs):
            line = _program_line(op.traceback)
            if line:
                lines[op.name[:300]] = line
    # Where all were made by the call of fit(), the line says nothing.
    if len(set(lines.values())) > 1:
        for name in lines:
            yield [name, lines[name]]


def _large(tensor):
    if tensor.dtype.name in ("resource", "variant", "string") or tensor.shape.rank is None:
        return False
    size = tensor.dtype.size
    for part in tensor.shape.as_list():
        size *= _MIN_LINE_BYTES if part is None else part
    return size >= _MIN_LINE_BYTES


def _program_line(frames):
    for frame in reversed(frames):
        name = frame.filename
        if not any(part in name for part in _LIBRARY_FOLDERS) and not name.startswith("<"):
            return "%s:%d in %s" % (os.path.basename(name), frame.lineno, frame.name[:80])
    return ""


def _described_input(tensor, any_length=False):
    dtype = getattr(tensor.dtype, "name", tensor.dtype)
    shape = tensor.shape.as_list() if hasattr(tensor.shape, "as_list") and tensor.shape.rank else tensor.shape
    if dtype not in ("resource", "variant", "string") and isinstance(shape, (list, tuple)) and shape:
        shape = [-1 if part is None else int(part) for part in shape]
        yield [[-1, *shape[1:]] if any_length else shape, dtype]
