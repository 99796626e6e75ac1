"""Counts a program's steps with their times: of Keras and PyTorch, calls of tf.functions, own loops, TF1 sessions.

Part of the watcher (_gpuwatch_watcher.py). No public function is wrapped, so tracebacks do not change. Standard library
only, Python 3.7 or newer.
"""

import _thread
import collections
import contextlib
import functools
import os
import sys
import time
import weakref

_WARM_UP = 5
"""First steps, which count for no rate: tracing, autotuning, buffers that fill."""
_MIN_TIMED, _MIN_RATES = 10, 2
"""Times of steps, and rates of calls, from which on a speed is known."""
_SHORT, _LONG = 0.1, 0.5
"""Seconds of calls that give a rate, at first and later."""
MOST_UNSENT = 2000
"""Latest steps whose times wait to be sent; older ones are only counted."""
_MOST_FUNCTIONS = 200
_IDLE = 2.0
"""Seconds without a call after which another tf.function may be the one that is counted."""
_MOST_QUEUED = 4000
"""Steps that may wait for the GPU; more are timed together with the next."""
_RELAXED = 2
"""``CU_STREAM_CAPTURE_MODE_RELAXED``."""
_LAST_WAIT = 3.0
"""Seconds that ``gpuwatch try`` waits at the program's end for the GPU to do the last steps."""
BATCHES = "batches of Keras"
_HISTORY = (
    "keras.src.callbacks.history",
    "keras.src.callbacks",
    "tf_keras.src.callbacks",
    "keras.callbacks",
    "tensorflow.python.keras.callbacks",
)
_TAPES = "tensorflow.python.eager.backprop"
_SESSION_CLASS = "tensorflow.python.client.session"
_FEW = 3
"""Runs of a session before they count as steps: its variables are initialized by one, too."""
GROWN = 20
"""Runs before which a session's graph grew, from which on it is worth telling."""
_FUNCTIONS = (
    "tensorflow.python.eager.polymorphic_function.polymorphic_function",
    "tensorflow.python.eager.def_function",
)


class Steps:
    """Counts steps, and keeps the latest step times.

    PyTorch queues its work and goes on: twenty steps of 80 ms are queued in 40 ms. So steps that use a GPU are timed
    there, from one CUDA event to the next; the time of each is known once the GPU has done it. CUDA tells the time only
    between events of one GPU, that of the first such step: steps made elsewhere are only counted from then on.
    """

    warm_up = _WARM_UP
    speed_needs = "%d timed ones after the first %d" % (_MIN_TIMED, _WARM_UP)

    def __init__(self, name):
        """``name``: what counts as a step."""
        self.name = name
        self.queued = collections.deque()
        """Events that the GPU has perhaps not reached, with the count of steps at each."""
        self.abandoned = []
        """Those of the parent, in a forked process: freeing them would call CUDA, which does not work there."""
        self.done = None
        """The latest event that the GPU reached, and the count of steps at it."""
        self.reset()

    def reset(self):
        self.count = 0
        self.captured = 0
        """Steps in the CUDA graph that is being captured: they are made when it is replayed."""
        self.thread = None
        self.last = 0.0
        self.timed = 0
        """Times of steps, without warm-up."""
        self.unsent = collections.deque(maxlen=MOST_UNSENT)
        """End, seconds, number of the last step and number of steps of each time that is not sent yet."""
        self.abandoned += [self.queued, self.done]
        self.queued = collections.deque()
        self.done = None
        self.origin, self.on_gpu = float("inf"), 0.0
        """When the GPU was at the first event, on this process's clock, and seconds from it to the latest."""
        self.gpu = None
        """PyTorch's number of the GPU that has the events; None before the first step on a GPU."""

    def step(self, steps=1, device=None):
        """``device``: PyTorch's, on which the steps were made; None: its current GPU, if the program uses one."""
        now = time.perf_counter()
        if self.thread is None:
            self.thread = _thread.get_ident()
        cuda = _cuda_in_use(device)
        if cuda is not None:
            with contextlib.suppress(Exception):  # the GPU stopped with an error, which the program gets, too
                self._step_on_gpu(steps, cuda, device)
        else:
            self.count += steps
            if self.gpu is None:
                self._add_time(now, now - self.last, self.count, steps)
        self.last = now

    def _step_on_gpu(self, steps, cuda, device):
        """Counts steps, and records an event in what PyTorch queues for their GPU."""
        gpu = self.gpu if device is None else device.index
        with cuda.device(gpu if gpu is not None else cuda.current_device()):
            if cuda.is_current_stream_capturing():  # the event would become a part of the CUDA graph
                self.captured += steps
                return
            self.count += steps
            if self.gpu is None:
                self.gpu = cuda.current_device()
            if gpu in (None, self.gpu) and len(self.queued) < _MOST_QUEUED:
                event = cuda.Event(enable_timing=True)
                event.record()
                self.queued.append((event, self.count))

    def _add_time(self, end, seconds, count, steps):
        if steps <= 0:
            return
        self.timed += count - steps >= _WARM_UP
        if count > steps:
            self.unsent.append((end, seconds, count, steps))

    def look(self):
        """Times the steps that the GPU has done by now. Not called by a thread that goes on to use it: a query that
        finds the GPU busy resets that thread's last CUDA error."""
        if not self.queued:
            return
        timed = []
        try:
            with _queries_allowed():
                while self.queued and self.queued[0][0].query():
                    event, count = self.queued.popleft()
                    before = self.done or (event, count)
                    seconds = before[0].elapsed_time(event) / 1000
                    if seconds < 0:
                        continue  # of another stream, which got there first: its step is timed with the next
                    self.done = event, count
                    self.on_gpu += seconds
                    timed.append((self.on_gpu, seconds, count, count - before[1]))
        except Exception:  # the GPU stopped with an error, which the program gets, too
            self.queued.clear()
        if self.done is not None:  # work that is done is noticed late, never early
            self.origin = min(self.origin, time.perf_counter() - self.on_gpu)
        for end, seconds, count, steps in timed:
            self._add_time(self.origin + end, seconds, count, steps)

    def finish(self):
        """Waits until the GPU has done the queued steps, but not for long."""
        until = time.monotonic() + _LAST_WAIT
        self.look()
        while self.queued and time.monotonic() < until:
            time.sleep(0.01)
            self.look()

    def has_speed(self):
        return self.timed >= _MIN_TIMED


class _FunctionCalls:
    """The calls of one tf.function."""

    speed_needs = "%d looks, %g s or more apart, that find new calls" % (_MIN_RATES, _SHORT)

    def __init__(self, code, count, now, traces):
        place = "%s:%s" % (os.path.basename(getattr(code, "co_filename", "?")), getattr(code, "co_firstlineno", "?"))
        self.name = "calls of the tf.function %s (%s)" % (getattr(code, "co_name", "a function"), place)
        self.count, self.traces = count, traces
        self.seen_at = now
        """When a look last found new calls."""
        self.warm_up = 0
        """Calls up to the first look that found some: tracing is among them."""
        self.timed = 0
        """Looks that gave a rate."""
        self.longest = 0.0
        """The longest of their mean times of a call, in seconds."""
        self.unsent = collections.deque(maxlen=MOST_UNSENT)

    def has_speed(self):
        return self.timed >= _MIN_RATES


class Calls:
    """Call rates of tf.functions, from TensorFlow's own counters."""

    def __init__(self):
        self.functions = {}
        """A :class:`_FunctionCalls` by code object."""
        self.counted = None
        """The function whose calls count as steps."""

    def look(self, detectors, traces_and_calls, now, last=False):
        """``traces_and_calls``: those of a function (_gpuwatch_traces.py), in which TensorFlow drops old calls."""
        for reference, detector in detectors.items():
            code = reference()
            if code is None:
                continue
            traces, count = traces_and_calls(code, detector)
            function = self.functions.get(code)
            if function is None:
                if len(self.functions) < _MOST_FUNCTIONS:
                    self.functions[code] = _FunctionCalls(code, count, now, traces)
                continue
            new_calls, seconds = count - function.count, now - function.seen_at
            if traces != function.traces or new_calls < 0:
                function.count, function.seen_at, function.traces = count, now, traces  # tracing is no step
                continue
            if not new_calls:
                if function.timed and seconds > 10 + 10 * function.longest:
                    function.seen_at = now  # a pause, not a slow step
                continue
            if seconds < (_LONG if function.timed > 20 else _SHORT):
                if last:
                    function.count = count  # too short for a rate
                continue
            if count <= 2 or not function.warm_up:
                function.warm_up = count
            else:
                function.timed += 1
                function.longest = max(function.longest, seconds / new_calls)
                function.unsent.append((now, seconds, count, new_calls))
            function.count, function.seen_at = count, now

    def busiest(self):
        """The function that is counted: the most called, until it is called no more while another one is."""
        timed = {code: function for code, function in self.functions.items() if function.timed}
        best = max(timed, key=lambda code: timed[code].count, default=None)
        idle_since = time.perf_counter() - _IDLE
        if self.counted is None or timed[self.counted].seen_at < idle_since < timed[best].seen_at:
            self.counted = best
        return self.counted

    def most_called(self):
        """The function that was called most, of those without a rate, too; None if there is none."""
        # TensorFlow lists a function after those that it calls while it is traced.
        called = reversed([function for function in list(self.functions.values()) if function.count > 0])
        return max(called, key=lambda function: function.count, default=None)


class Sessions:
    """Counts the runs of TF1 sessions, by what they fetch: a training step and a summary are different."""

    def __init__(self, descriptors, lines):
        """``descriptors``, ``lines``: the modules _gpuwatch_descriptors and _gpuwatch_program_lines."""
        self.descriptors = descriptors
        self.lines = lines
        self.known = {}
        """By the numbers of fetches and targets."""
        self.graphs = weakref.WeakKeyDictionary()
        """By graph: its runs, before how many of them it grew, its nodes at first and now, a line that adds some."""

    def count(self, module):
        """BaseSession: its handle is read at the start of each run."""
        session = module.BaseSession
        if "_session" not in session._call_tf_sessionrun.__code__.co_names:
            raise AttributeError("BaseSession._call_tf_sessionrun has no _session")
        session._session = self.descriptors.Attribute("_session", self._ran, within="_call_tf_sessionrun")

    def _ran(self, frame, session):
        frame_locals = frame.f_locals
        run_key = len(frame_locals.get("fetch_list") or ()), len(frame_locals.get("target_list") or ())
        if run_key in self.known or len(self.known) < _MOST_FUNCTIONS:
            name = "runs of the session (fetches: %d, operations: %d)" % run_key
            self.known.setdefault(run_key, Steps(name)).step()
        with contextlib.suppress(Exception):  # another version: its graphs are not looked at
            self._grew(session.graph)

    def _grew(self, graph):
        nodes = graph.version
        growth = self.graphs.setdefault(graph, [0, 0, nodes, nodes, ""])
        growth[0] += 1
        if nodes > growth[3]:
            before, growth[3] = growth[3], nodes
            growth[1] += 1
            if growth[1] == GROWN:
                frame = self.lines.maker(graph.get_operations()[before].traceback)
                growth[4] = self.lines.place(frame.filename, frame.lineno) if frame is not None else ""

    def growing(self):
        """Of the graph that grew most often, what is known of it; None if none did again and again."""
        most = max(list(self.graphs.values()), key=lambda seen: seen[1], default=None)
        return most if most is not None and most[1] >= GROWN else None

    def busiest(self):
        """The most frequent runs, as what is counted; None if there are few."""
        best = max(list(self.known.values()), key=lambda steps: steps.count, default=None)
        return best if best is not None and best.count >= _FEW else None


class Counters:
    """Everything that may be a program's steps; an observer of imports (see sitecustomize.py)."""

    def __init__(self, descriptors, lines):
        self.descriptors = descriptors
        self.own, self.batches = Steps("calls of gpuwatch.step()"), Steps(BATCHES)
        self.optimizer, self.tapes = Steps("steps of the optimizer"), Steps("gradients of a GradientTape")
        """Of PyTorch's optimizers; of tapes, those that are taken outside of every tf.function."""
        self.sessions = Sessions(descriptors, lines)
        self.eager_ops = None
        """With ``--placement``: gives the number of eager ops so far."""
        self.actions = {
            "gpuwatch": self._count_calls,
            "torch._dynamo": self._count_calls,
            **dict.fromkeys(_HISTORY, lambda module: _count_batches(module.History, self.batches)),
            _SESSION_CLASS: self.sessions.count,
            _TAPES: self._gradients,
        }
        self.reset()

    def reset(self):
        """Starts over, as in a process forked by multiprocessing."""
        self.sessions.known.clear()
        for steps in self._all_steps():
            steps.reset()
        self.sessions.graphs.clear()
        self.calls = Calls()
        self.by_tape = False
        self.at_tapes = []
        """The number of eager ops at the first and at the latest of :attr:`tapes`."""

    def failed(self, name, error):
        """A version without the private name: the steps of this kind are not counted."""

    def _count_calls(self, _):
        """Counts calls of gpuwatch.step(): not in what Dynamo compiles, since it cannot import this module."""
        package, dynamo = sys.modules.get("gpuwatch"), sys.modules.get("torch._dynamo")
        if package is not None and dynamo is None:
            package._count_step = self.own.step
        elif package is not None:
            is_compiling, step = dynamo.is_compiling, dynamo.disable(self.own.step)
            package._count_step = lambda: None if is_compiling() else step()

    def _gradients(self, module):
        """Counts the gradients that a training loop takes without a tf.function, which nothing else counts."""
        tape, eager = module.GradientTape, module.context.executing_eagerly

        def took(instance):
            if eager():
                self.tapes.step()
                if self.eager_ops is not None:
                    self.at_tapes[1:] = [self.eager_ops()]

        tape.gradient = self.descriptors.Method(vars(tape)["gradient"], took)

    def kinds(self):
        """What is counted, :class:`Steps` or :class:`_FunctionCalls`, the best kind first."""
        for steps in self.timed_by_events():
            if steps.count:
                steps.look()
                yield steps
        code = self.calls.busiest()
        called = self.calls.functions[code].count if code is not None else 0
        # Once they are what is counted, that stays: counts of functions come late, and overtake one another.
        self.by_tape = self.by_tape or self.tapes.count > 2 * called
        if self.by_tape:
            yield self.tapes
        elif code is not None:
            yield self.calls.functions[code]
        runs = self.sessions.busiest()
        if runs is not None:
            yield runs

    def timed_by_events(self):
        """The steps that may be made on a GPU by PyTorch."""
        return self.own, self.batches, self.optimizer

    def finish(self):
        """At the program's end: times the steps that are still queued."""
        for steps in self.timed_by_events():
            steps.finish()

    def _all_steps(self):
        return [self.own, self.batches, self.optimizer, self.tapes, *list(self.sessions.known.values())]

    def counts(self):
        """The number of steps of each kind, and of calls of each function."""
        return [counted.count for counted in (*self._all_steps(), *list(self.calls.functions.values()))]

    def thread(self):
        """The thread that makes the steps; None where only calls of tf.functions are counted."""
        return next((steps.thread for steps in self._all_steps() if steps.thread is not None), None)


class StepReports:
    """Sends the steps that the program has done, with their times."""

    def __init__(self, watcher):
        self.watcher = watcher
        self.latest = None
        """What was last sent: what is counted, its count, and the number of validations."""

    def tell(self, last=False):
        """Under ``gpuwatch try``, what is counted changes only to something better; else it is what has a speed.

        ``last``: at the program's end, which too few calls of a tf.function are counted at, for lack of others.
        """
        kinds, trial = list(self.watcher.counters.kinds()), self.watcher.trial
        if last and not kinds and trial is None:
            kinds = [function for function in [self.watcher.counters.calls.most_called()] if function is not None]
        if not kinds:
            return
        timed = next((kind for kind in kinds if kind.has_speed()), kinds[0])
        kind = timed if trial is None else kinds[0]
        # A program with steps of another kind may validate in another way, too.
        validations = self.watcher.keras_calls.validations if kind.name == BATCHES else None
        if (kind.name, kind.count, validations) == self.latest and not kind.unsent:
            return
        self.latest = kind.name, kind.count, validations
        ahead = time.monotonic() - time.perf_counter()  # of the clock that all events have
        times = []
        while kind.unsent and len(times) < MOST_UNSENT:  # another thread appends to it
            end, seconds, number, steps = kind.unsent.popleft()
            times.append((round(end + ahead, 6), round(seconds, 9), number, steps))
        self.watcher.emit(
            "steps",
            counted=kind.name,
            count=kind.count,
            warm_up=kind.warm_up,
            has_speed=kind.has_speed(),
            speed_needs=kind.speed_needs,
            times=times,
            validations=validations,
        )


def _cuda_in_use(device):
    """``torch.cuda``; None where ``device`` is no GPU, or the program has not used CUDA (yet)."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or (device is not None and device.type != "cuda") or not cuda.is_initialized():
        return None
    return cuda


@functools.lru_cache(maxsize=None)
def _exchange_capture_mode():
    """The driver's ``cuThreadExchangeStreamCaptureMode``; None without it."""
    import ctypes

    try:
        return ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode
    except (AttributeError, OSError):
        return None


@contextlib.contextmanager
def _queries_allowed():
    """Lets this thread query events while another one captures a CUDA graph.

    In CUDA's default mode ("global"), the query of any thread makes the capture fail, and with it the program.
    """
    import ctypes

    exchange, mode = _exchange_capture_mode(), ctypes.c_int(_RELAXED)
    if exchange is not None:
        exchange(ctypes.byref(mode))
    try:
        yield
    finally:
        if exchange is not None:
            exchange(ctypes.byref(mode))


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


def detectors():
    """TensorFlow's counters of calls, by function; empty before its import."""
    for name in _FUNCTIONS:
        manager = getattr(sys.modules.get(name), "_frequent_tracing_detector_manager", None)
        if manager is not None:
            # An atomic copy without TensorFlow's lock, which a fork might catch us holding.
            return manager._detectors.data.copy()
    return {}
