"""Observes TensorFlow, Keras, PyTorch and JAX inside a program that ``gpuwatch run`` watches, without changing them.

A thread reads allocators, devices, and how often each tf.function was called (TensorFlow counts that). Keras's batches
are counted by adding a method that its History callback lacks, PyTorch's steps by its optimizer hook: neither wraps the
program's code, so tracebacks and timings do not change. Nothing here imports a framework, starts a device or changes a
setting (``--placement`` uses TensorFlow's own switch). Standard library only, Python 3.7 or newer.
"""

import _thread
import atexit
import contextlib
import json
import os
import socket
import sys
import time

_IMPORT_POLL_SECONDS = 0.05
"""Seconds between reads while a framework is being imported, so that no early step is missed."""
_EARLY_SECONDS = 30.0
_POLL_SECONDS = 0.5
_REPORT_SECONDS = 2.0
_MAX_LAST_LOOK_SECONDS = 10.0
"""Seconds that the program's end waits at most for a look that has begun."""
_ENVIRONMENT = ("CUDA", "GPUWATCH_SIM", "JAX_", "LD_LIBRARY_PATH", "NCCL_", "NVIDIA_", "PYTORCH_", "TF_", "XLA_")
_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"


class Watcher:
    def __init__(self, address, load, simulation):
        self.address = address
        self.load = load
        self.simulation = simulation
        self.counting = load("_gpuwatch_steps")
        self.descriptors = load("_gpuwatch_descriptors")
        self.lines = load("_gpuwatch_program_lines")
        self.counters = self.counting.Counters(self.descriptors, self.lines)
        self.devices = load("_gpuwatch_devices").Devices(self)
        self.keras_calls = load("_gpuwatch_keras_calls").KerasCalls(self)
        self.settings = None
        self.ops = None
        """With ``--placement``: :class:`_gpuwatch_placement.Ops`."""
        self.poll_seconds = _POLL_SECONDS
        self.trial = None
        """Under ``gpuwatch try``: :class:`_gpuwatch_trial_setting.Trial`."""
        self.memory = None
        """With ``--memory``: :class:`_gpuwatch_memory.Recorder`."""
        self.reporters = []
        """Others that tell something now and then, such as :class:`_gpuwatch_thread_stacks.Threads`."""
        self.traces_and_calls = lambda code, detector: (0, detector._call_count)
        """Traces and calls of a tf.function (_gpuwatch_traces.py)."""
        self.failures = None
        """:class:`_gpuwatch_failure_counts.Failures`."""
        self.follows_forks = False
        self.reset(forked=False)

    def reset(self, forked):
        """Starts over, as in a process forked by multiprocessing."""
        self.pid = os.getpid()
        self.forked = forked
        self.started_before_fork = forked and self.context() is not None
        self.socket = None
        self.broken = False
        self.lock = _thread.allocate_lock()
        self.ended_lock = _thread.allocate_lock()
        """Held until the program ends; the loop waits on it between looks."""
        self.ended_lock.acquire()
        self.loop_lock = _thread.allocate_lock()
        """Held by the loop as long as it runs."""
        self.sent = set()
        self.latest = {}
        self.sent_at = self.steps_sent_at = 0.0
        self.forks_after_start = 0
        """Processes that multiprocessing forked when TensorFlow had GPUs."""
        self.counters.reset()
        self.step_reports = self.counting.StepReports(self)
        self.devices.reset()
        if self.trial is not None:
            self.trial.reset()
        if self.memory is not None:
            self.memory.reset()
        for observer in self.reporters:
            observer.reset()
        for observer in (self.failures, self.ops):
            if observer is not None:
                observer.reset()

    # Sending

    def connect(self):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(1.0)
        self.socket.connect("\0" + self.address)
        self.write("start", config="run", pid=self.pid, options={}, command=" ".join(_arguments())[:400])
        self.write("environment", variables=self.environment(), places=self.places())
        limit = self.address_limit()
        if limit is not None:  # native code that is refused memory ends the program without last words
            self.write("result", name="address_limit_bytes", value=limit)

    def environment(self):
        """The current GPU-related variables; CUDA_VISIBLE_DEVICES as the devices use it."""
        variables = {name: value[:2000] for name, value in os.environ.items() if name.startswith(_ENVIRONMENT)}
        visible_in_use = getattr(getattr(os.environ, "_data", None), "used", None)
        if visible_in_use is not None and visible_in_use[0] is not None:
            variables[_VISIBLE_DEVICES] = os.fsdecode(visible_in_use[0])[:2000]
        elif visible_in_use is not None:
            variables.pop(_VISIBLE_DEVICES, None)
        return variables

    def places(self):
        """The lines that set variables in os.environ (sitecustomize.py), by name."""
        return dict(getattr(getattr(os.environ, "_data", None), "places", {}))

    def write(self, kind, **data):
        line = {"t": time.monotonic(), "kind": kind, "data": data}
        # Without SIGPIPE, which the program may have restored to its default.
        self.socket.sendall((json.dumps(line, default=str) + "\n").encode(), socket.MSG_NOSIGNAL)

    def emit(self, kind, **data):
        if self.broken or os.getpid() != self.pid:
            return  # a plain fork has our memory but is another process
        with self.lock:
            try:
                if self.socket is None:
                    self.connect()
                self.write(kind, **data)
            except OSError:
                self.broken = True  # gpuwatch has ended, or does not read

    def once(self, key, kind, **data):
        if key not in self.sent:
            self.sent.add(key)
            self.emit(kind, **data)

    def changed(self, key, kind, **data):
        """Sends ``data`` if it has changed."""
        if self.latest.get(key) != data:
            self.latest[key] = data
            self.emit(kind, **data)

    # The loop

    def loop(self):
        with self.loop_lock:
            self.look_again()

    def look_again(self):
        pid = self.pid
        over = self.ended_lock
        until = time.monotonic() + _EARLY_SECONDS
        try:
            while not self.broken and os.getpid() == pid:
                looks = (
                    *(self.devices.tensorflow, self.devices.torch, self.devices.jax, self.simulated),
                    *(self.functions, self.record, self.threads, self.tried, self.report),
                )
                for look in looks:
                    self.attempt(look)
                if over.acquire(True, _IMPORT_POLL_SECONDS if time.monotonic() < until else self.poll_seconds):
                    return
        except BaseException:
            self.broken = True  # the interpreter is shutting down

    def attempt(self, look, *arguments):
        """Takes one look; an error costs that look alone."""
        try:
            look(*arguments)
        except Exception as error:
            text = "%s: %s: %s" % (look.__qualname__, type(error).__name__, error)
            self.once(text, "note", text=text)

    def end(self):
        """At the program's end: ends the loop, then reports what is known last.

        A thread that is inside a native call of TensorFlow when the interpreter ends is ended there by Python (up to
        3.13, ``pthread_exit``), which C++ that catches everything turns into an abort of the whole program.
        """
        if os.getpid() != self.pid:
            return
        if self.ended_lock.locked():
            self.ended_lock.release()
        if not self.loop_lock.acquire(True, _MAX_LAST_LOOK_SECONDS):
            self.emit(
                "note", text="the program's last moments were not read: reading took over %d s" % _MAX_LAST_LOOK_SECONDS
            )
        elif not self.broken:
            # A signal meanwhile: the program has ended, and Python would print this as an error that it ignores.
            with contextlib.suppress(KeyboardInterrupt):
                self.last_words()

    def last_words(self):
        """The program's final memory, its last steps, and its exception."""
        looks = [
            *(self.devices.tensorflow, self.devices.last_torch, self.devices.jax, self.simulated, self.last_functions),
            *(self.last_tried, self.last_report, self.late_settings, self.exception),
        ]
        if self.trial is not None:
            looks.insert(0, self.counters.finish)
        if self.memory is not None:
            looks.insert(0, self.memory.end)
        interrupted = type(self.last_exception()) is KeyboardInterrupt and hasattr(sys, "addaudithook")
        interrupt = self.load("_gpuwatch_exception").PendingInterrupt() if interrupted else None
        for look in looks:
            self.attempt(look)
        if self.socket is not None:
            try:
                exhausted, other = self.failures.total(jax="jax devices" in self.latest)
            except Exception:  # the GPU stopped with an error, which the program got, too: they are not counted
                exhausted = other = None
            self.emit("end", ok=True, exhausted=exhausted, failures=other, forks=self.failures.uncounted_forks)
        if interrupt is not None:
            interrupt.restore()

    def late_settings(self):
        """Reports variables that came after the devices (sitecustomize.py), and a policy that came after the layers."""
        self.settings.policy(self.emit)
        data = getattr(os.environ, "_data", None)
        for key, (_, value) in getattr(data, "too_late", {}).items():
            name, note = os.fsdecode(key), "too late: TensorFlow had its devices already"
            source = self.places().get(name, "")
            self.emit("setting", name=name, asked=os.fsdecode(value), effective=None, note=note, source=source)
        if getattr(data, "late", None) is not None:
            used = "all GPUs" if data.used[0] is None else repr(os.fsdecode(data.used[0]))
            note = "too late: the devices were there already, with %s" % used
            source = self.places().get(_VISIBLE_DEVICES, "")
            self.emit(
                "setting", name=_VISIBLE_DEVICES, asked=os.fsdecode(data.late), effective=None, note=note, source=source
            )

    def exception(self):
        """Reports the exception that Python has just printed."""
        error = self.last_exception()
        if error is not None:
            self.load("_gpuwatch_exception").tell(self, error)

    def last_exception(self):
        """The exception that Python has just printed; None if there is none."""
        return getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)

    def address_limit(self):
        """The limit of the address space in bytes (RLIMIT_AS); None without one. "resource" may be the program's."""
        try:
            with open("/proc/self/limits") as limits:
                limit = next((line.split()[3] for line in limits if line.startswith("Max address space")), "")
        except OSError:
            return None
        return int(limit) if limit.isdigit() else None

    def tried(self, last=False):
        if self.trial is not None:
            self.trial.tell(self.emit, last)

    def last_tried(self):
        self.tried(last=True)

    # Reading

    def context(self):
        """TensorFlow's eager context, if it is initialized; querying it before would initialize it."""
        context = getattr(sys.modules.get("tensorflow.python.eager.context"), "_context", None)
        return context if context is not None and getattr(context, "_initialized", False) else None

    def logical(self):
        """TensorFlow's logical devices; none before it has initialized them."""
        return getattr(self.context(), "_logical_devices", None) or ()

    def simulated(self):
        """Tells what simulated GPUs have changed, and what they cannot do."""
        for change in self.simulation.changes if self.simulation is not None else ():
            self.once("simulation: " + change["note"], "setting", **change)
        for limit in self.simulation.limits if self.simulation is not None else ():
            self.once("limit: " + limit, "limit", text=limit)

    def functions(self, last=False):
        self.counters.calls.look(self.counting.detectors(), self.traces_and_calls, time.perf_counter(), last)

    def last_functions(self):
        self.attempt(self.functions, True)
        if self.forks_after_start:
            self.emit("result", name="forks_after_start", value=self.forks_after_start)
        for look in (self.placements, self.graphs_and_loops, self.left_out):
            self.attempt(look)

    def graphs_and_loops(self):
        """Sends whether a session's graph grew, and how many eager ops a loop of steps ran."""
        if self.counters.sessions.growing() is not None:
            self.emit("result", name="graph_growth", value=self.counters.sessions.growing())
        steps, ops = self.counters.tapes.count, self.counters.at_tapes
        if len(ops) > 1:
            self.emit("result", name="eager_loop", value={"ops": ops[1] - ops[0], "steps": steps - 1})
        elif self.ops is not None and len(self.ops.eager_at) > 1:
            began, last = self.ops.eager_at
            eager_loop = {"ops": self.ops.eager_ops, "steps": 0, "seconds": round(last - began, 6)}
            self.emit("result", name="eager_loop", value=eager_loop)

    def left_out(self):
        for text in self.ops.left_out() if self.ops is not None else ():
            self.once(text, "note", text=text)

    def record(self):
        if self.memory is not None:
            self.memory.look()

    def threads(self):
        self.reporters[0].look()

    def steps(self):
        """Steps counted so far, of whatever kind most were counted."""
        return max(self.counters.counts())

    def progress(self):
        """Grows with every step and call that is counted: those of validations too."""
        return sum(self.counters.counts())

    def stepping_thread(self):
        """The thread that makes the steps; the main one where only calls of tf.functions are counted."""
        return self.counters.thread() or sys.modules["threading"].main_thread().ident

    def placements(self):
        if self.ops is not None:
            self.ops.tell(self.emit)

    def report(self):
        now = time.monotonic()
        if now - self.sent_at >= _REPORT_SECONDS:
            self.sent_at = self.steps_sent_at = now
            self.report_all()
            self.placements()
        elif self.trial is not None and now - self.steps_sent_at >= self.trial.interval:
            self.steps_sent_at = now
            self.step_reports.tell()

    def last_report(self):
        self.report_all(last=True)

    def report_all(self, last=False):
        self.attempt(self.step_reports.tell, last)
        for observer in self.reporters:
            self.attempt(observer.tell, self.emit)


def _arguments():
    """``sys.argv``; of ``python -m pkg.module``, whose module is not in it before it is found, ``pkg.module`` …"""
    arguments = list(getattr(sys, "argv", ()))
    if arguments[:1] == ["-m"]:
        with contextlib.suppress(OSError, IndexError), open("/proc/self/cmdline", "rb") as file:
            words = os.fsdecode(file.read()).rstrip("\0").split("\0")
            module = words[-len(arguments)]
            arguments[0] = module.partition("m")[2] if module.startswith("-") else module  # -mpkg.module
    return arguments


def begin(address, load, simulation=None):
    """Starts observing; returns the observers of imports (see sitecustomize.py).

    ``load``: loads a module of this folder. ``simulation``: of GPUs (_gpuwatch_simulated_gpus.py); None on real ones.
    """
    watcher = Watcher(address, load, simulation)
    watcher.settings = load("_gpuwatch_tensorflow_settings").Settings(watcher.descriptors)
    watcher.failures = load("_gpuwatch_failure_counts").Failures()
    optimizer_steps = load("_gpuwatch_torch_steps").OptimizerSteps(watcher.counters, watcher.descriptors)
    observers = [watcher.settings, watcher.failures, watcher.counters, optimizer_steps]
    if os.environ.get("GPUWATCH_WATCH_PLACEMENT"):
        placement = load("_gpuwatch_placement")
        watcher.ops = placement.Ops(load)
        watcher.counters.eager_ops = lambda: watcher.ops.eager_ops
        observers.append(placement.PlacementStart(watcher))
    traces = load("_gpuwatch_traces").Traces(watcher)
    watcher.traces_and_calls = traces.traces_and_calls
    pipelines = load("_gpuwatch_pipelines").Pipelines(watcher)
    observers += [traces, pipelines, watcher.keras_calls]
    watcher.reporters += [load("_gpuwatch_thread_stacks").Threads(watcher), traces, pipelines, watcher.keras_calls]
    if "GPUWATCH_TRIAL" in os.environ:
        watcher.trial = load("_gpuwatch_trial_setting").Trial(json.loads(os.environ["GPUWATCH_TRIAL"]), watcher)
        watcher.poll_seconds = watcher.trial.interval
        observers.append(watcher.trial)
    if os.environ.get("GPUWATCH_WATCH_MEMORY"):
        watcher.memory = load("_gpuwatch_memory").Recorder(watcher, os.environ["GPUWATCH_WATCH_MEMORY"])
        observers.append(watcher.memory)
    load("_gpuwatch_forks").follow(watcher)
    _thread.start_new_thread(watcher.loop, ())
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        sys.modules["multiprocessing.util"].Finalize(None, watcher.end, exitpriority=0)
    else:
        atexit.register(watcher.end)
    return observers
