"""Observes TensorFlow, Keras, PyTorch and JAX inside a program that ``gpuwatch run`` watches, without changing them.

A thread reads allocators, devices, and how often each tf.function was called (TensorFlow counts that). Keras's batches
are counted by adding a method that its History callback lacks, PyTorch's steps by its optimizer hook: neither wraps the
program's code, so tracebacks and timings do not change. Nothing here imports a framework, starts a device or changes a
setting (``--placement`` uses TensorFlow's own switch). Standard library only, Python 3.7 or newer.
"""

import _thread
import atexit
import collections
import gc
import json
import os
import re
import socket
import sys
import time

_SOON = 0.05
"""Seconds between reads while a framework is being imported, so that no early step is missed."""
_EARLY = 30.0
_EVERY = 0.5
_TELL_EVERY = 2.0
_LAST_LOOK = 10.0
"""Seconds that the program's end waits at most for a look that has begun."""
_WARM_UP = 5
_LATEST = 4000
_WINDOWS = 240
_MARKS = 1000
"""Latest steps of which it is kept when they were made."""
_MOST_FUNCTIONS = 200
_MOST_SEARCHES = 5
"""Each search goes through all of the program's objects, which takes some ten milliseconds."""
_LIBRARY_FRAME = re.compile(r'^\s*File "[^"\n]*(?:site|dist)-packages[^"\n]*", line \d+, in [^\n]*\n', re.MULTILINE)
_ENVIRONMENT = ("CUDA", "GPUWATCH_SIM", "JAX_", "LD_LIBRARY_PATH", "NCCL_", "NVIDIA_", "PYTORCH_", "TF_", "XLA_")
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_HISTORY = (
    "keras.src.callbacks.history",
    "keras.src.callbacks",
    "tf_keras.src.callbacks",
    "keras.callbacks",
    "tensorflow.python.keras.callbacks",
)
_MIRRORED = "tensorflow.python.distribute.mirrored_strategy"
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
            if now - since < (_EVERY if len(windows) > 20 else 2 * _SOON):
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
    return collections.deque(maxlen=_MARKS)


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


class Watcher:
    def __init__(self, address, load, simulation):
        self.address = address
        self.load = load
        self.simulation = simulation
        self.batches = Steps()
        self.optimizer = Steps()
        self.calls = Calls()
        self.settings = None
        self.ops = None
        """With ``--placement``: :class:`_gpuwatch_placement.Ops`."""
        self.every = _EVERY
        self.trial = None
        """Under ``gpuwatch try``: :class:`_gpuwatch_trial.Trial`."""
        self.memory = None
        """With ``--memory``: :class:`_gpuwatch_memory.Recorder`."""
        self.seen = []
        """Others that tell something now and then: :class:`_gpuwatch_threads.Threads`, ``_gpuwatch_traces.Traces``."""
        self.failures = None
        """:class:`_gpuwatch_failures.Failures`."""
        self.hooked = set()
        self.reset(forked=False)

    def reset(self, forked):
        """Starts over, as in a process forked by multiprocessing."""
        self.pid = os.getpid()
        self.forked = forked
        self.started_before_fork = forked and self.context() is not None
        self.socket = None
        self.broken = False
        self.sequence = 0
        self.lock = _thread.allocate_lock()
        self.over = _thread.allocate_lock()
        """Held until the program ends; the loop waits on it between looks."""
        self.over.acquire()
        self.looking = _thread.allocate_lock()
        """Held by the loop as long as it runs."""
        self.sent = set()
        self.searched = 0
        self.latest = {}
        self.sent_at = 0.0
        self.batches.reset()
        self.optimizer.reset()
        self.calls = Calls()
        if self.trial is not None:
            self.trial.reset()
        if self.memory is not None:
            self.memory.reset()
        for one in self.seen:
            one.reset()
        if self.failures is not None:
            self.failures.reset()

    # Sending

    def connect(self):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(1.0)
        self.socket.connect("\0" + self.address)
        self.write("start", config="run", pid=self.pid, options={}, command=" ".join(getattr(sys, "argv", ()))[:400])
        self.write("environment", variables=self.environment(), places=self.places())
        limit = _address_limit()
        if limit is not None:  # native code that is refused memory ends the program without last words
            self.write("result", name="address_limit_bytes", value=limit)

    def environment(self):
        """The current GPU-related variables; CUDA_VISIBLE_DEVICES as the devices use it."""
        found = {name: value[:2000] for name, value in os.environ.items() if name.startswith(_ENVIRONMENT)}
        used = getattr(getattr(os.environ, "_data", None), "used", None)
        if used is not None and used[0] is not None:
            found[_VISIBLE] = os.fsdecode(used[0])[:2000]
        elif used is not None:
            found.pop(_VISIBLE, None)
        return found

    def places(self):
        """The lines that set variables in os.environ (sitecustomize.py), by name."""
        return dict(getattr(getattr(os.environ, "_data", None), "places", {}))

    def write(self, kind, **data):
        line = {"v": 1, "seq": self.sequence, "t": time.monotonic(), "kind": kind, "data": data}
        self.sequence += 1
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
        with self.looking:
            self.look_again()

    def look_again(self):
        pid = self.pid
        over = self.over
        until = time.monotonic() + _EARLY
        try:
            while not self.broken and os.getpid() == pid:
                looks = (
                    *(self.tensorflow, self.torch, self.jax, self.hooks),
                    *(self.functions, self.record, self.threads, self.speed, self.tried),
                )
                for look in looks:
                    try:
                        look()
                    except Exception as error:
                        self.trouble(look, error)
                if over.acquire(True, _SOON if time.monotonic() < until else self.every):
                    return
        except BaseException:
            self.broken = True  # the interpreter is shutting down

    def trouble(self, look, error):
        text = "%s: %s: %s" % (look.__name__, type(error).__name__, error)
        self.once(text, "note", text=text)

    def end(self):
        """At the program's end: ends the loop, then reports what is known last.

        A thread that is inside a native call of TensorFlow when the interpreter ends is ended there by Python (up to
        3.13, ``pthread_exit``), which C++ that catches everything turns into an abort of the whole program.
        """
        if os.getpid() != self.pid:
            return
        if self.over.locked():
            self.over.release()
        if not self.looking.acquire(True, _LAST_LOOK):
            self.emit("note", text="the program's last moments were not read: reading took over %d s" % _LAST_LOOK)
        elif not self.broken:
            self.last_words()

    def last_words(self):
        """The program's final memory, its speed, and its exception."""
        looks = [
            self.tensorflow,
            self.torch,
            self.jax,
            self.hooks,
            self.last_functions,
            self.last_speed,
            self.last_tried,
            self.late_variable,
            self.exception,
        ]
        if self.memory is not None:
            looks.insert(0, self.memory.end)
        for look in looks:
            try:
                look()
            except Exception as error:
                self.trouble(look, error)
        if self.socket is not None:
            exhausted, other = self.failures.total()
            self.emit("end", ok=True, exhausted=exhausted, failures=other, forks=self.failures.forks)

    def late_variable(self):
        """Reports a CUDA_VISIBLE_DEVICES that came after the devices (sitecustomize.py)."""
        data = getattr(os.environ, "_data", None)
        if getattr(data, "late", None) is not None:
            used = "all GPUs" if data.used[0] is None else repr(os.fsdecode(data.used[0]))
            note = "too late: the devices were there already, with %s" % used
            source = self.places().get(_VISIBLE, "")
            self.emit("setting", name=_VISIBLE, asked=os.fsdecode(data.late), effective=None, note=note, source=source)

    def exception(self):
        """Reports the exception that Python has just printed."""
        error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        if error is not None:
            text = str(error)
            # Keras's stack of a node would leave no room for what was wrong.
            message = _LIBRARY_FRAME.sub("", text)[:2000]
            alone = error.__cause__ is None and error.__context__ is None
            self.emit("error", type=type(error).__name__, message=message, alone=alone)
            self.kernels(text)
            self.refused(text)
            self.address_space()

    def address_space(self):
        """Reports the peak of this process's address space in bytes, if it has a limit (RLIMIT_AS)."""
        limit = _address_limit()
        if limit is None:
            return
        with open("/proc/self/status") as status:
            peak = re.search(r"^VmPeak:\s+(\d+) kB", status.read(), re.MULTILINE)
        if peak is not None:
            self.emit("result", name="address_limit_bytes", value=limit)
            self.emit("result", name="address_peak_bytes", value=int(peak.group(1)) * 1024)

    def refused(self, text):
        """Reports an eager op without a kernel on the requested device, under the names that probes use.

        Its type is unknown: TensorFlow removes its own frames from the traceback.
        """
        op = re.search(r"\[Op:(\w+)\]", text)
        asked = re.search(r"device specification '([^']+)'[^\0]{0,200}Supported device types \[", text)
        if op is None or asked is None:
            return
        self.emit("result", name="op", value=op.group(1))
        self.emit("result", name="requested", value=asked.group(1))

    def kernels(self, text):
        """Reports the types for which CUDA has a kernel of an eager op without one, on GPUs simulated as a plug-in."""
        named = re.search(r"Supported device types \[[^\]]*\].{0,2000}\[Op:(\w+)\]", text, re.DOTALL)
        if named is None or not simulated_plugin():
            return
        registry = self.load("_gpuwatch_kernels").Registry()
        self.emit("result", name="kernels", value={"op": named.group(1), "cuda": registry.cuda_types(named.group(1))})

    def tried(self, last=False):
        if self.trial is not None:
            self.trial.tell(self.emit, last)

    def last_tried(self):
        self.tried(last=True)

    # Reading

    def context(self):
        """TensorFlow's eager context, if it is initialised; querying it before would initialise it."""
        context = getattr(sys.modules.get("tensorflow.python.eager.context"), "_context", None)
        return context if context is not None and getattr(context, "_initialized", False) else None

    def tensorflow(self):
        module = sys.modules.get("tensorflow")
        if not _complete(module) or self.started_before_fork:
            return
        context = self.context()
        if self.forked and context is None:
            return
        if self.settings is not None:
            self.settings.tell(self.emit, context)
        self.once(
            "tensorflow",
            "framework",
            name="tensorflow",
            version=module.__version__,
            gpu_build=bool(module.test.is_built_with_cuda()),
            interpreter=sys.executable,
            python_version=sys.version.split()[0],
        )
        if context is None:
            self.session()
            return
        logical = [device.name for device in context.list_logical_devices()]
        if "devices" not in self.sent:
            self.once(
                "devices",
                "devices",
                physical=[device.name for device in context.list_physical_devices()],
                visible=[device.name for device in context.get_visible_devices()],
                virtual=[],
                logical=logical,
            )
            self.mapping(context, logical)
            self.emit("environment", variables=self.environment(), places=self.places())
        self.replicas(logical)
        for name in logical:
            # In a cluster, names begin with a job, and those of other tasks are listed too.
            if ":GPU:" in name and name.startswith(("/device:", context.host_address_space())):
                info = context.get_memory_info(name[8:] if name.startswith("/device:") else name)
                self.changed(name, "memory", device=name, current=info["current"], peak=info["peak"])

    def session(self):
        """Reports the GPUs of a program that only uses sessions."""
        if self.settings is None or not self.settings.granted or "session" in self.sent:
            return
        self.sent.add("session")
        for name, ordinal, amount in self.settings.mapped():
            self.emit("mapping", framework_device=name, cuda_ordinal=ordinal, granted_bytes=amount)
        self.emit("environment", variables=self.environment(), places=self.places())

    def replicas(self, logical):
        """Reports the devices of a MirroredStrategy, and which do not exist: TensorFlow accepts any name.

        TensorFlow's gauge says that there is a strategy; it is found among the referrers of its class.
        """
        if "replicas" in self.sent:
            return
        lib = sys.modules.get("tensorflow.python.distribute.distribute_lib")
        strategy = getattr(sys.modules.get(_MIRRORED), "MirroredStrategy", None)
        gauge = getattr(lib, "distribution_strategy_gauge", None)
        if strategy is None or gauge is None or gauge.get_cell("V2").value() != "MirroredStrategy":
            return
        self.searched += 1
        if self.searched >= _MOST_SEARCHES:
            self.sent.add("replicas")
        for one in gc.get_referrers(strategy):
            if isinstance(one, strategy) and hasattr(one, "extended"):
                self.sent.add("replicas")
                names = ["/device:" + name.rpartition("/device:")[2] for name in one.extended.worker_devices]
                missing = [name for name in names if name not in logical]
                value = {"devices": names, "missing": missing} if missing else {"devices": names}
                self.emit("result", name="replicas", value=value)
                return

    def mapping(self, context, logical):
        """Reports the logical GPUs, each on a visible one, as the log does unless it is off.

        TensorFlow may list a GPU as physical and visible without creating a device for it.
        """
        amounts = self.amounts(context)
        number = 0
        for device in context.get_visible_devices("GPU"):
            ordinal = int(device.name.rpartition(":")[2])
            details = context.get_device_details(device) or {}
            capability = details.get("compute_capability")
            parts = context.get_logical_device_configuration(device) or [None]
            for _ in parts:
                name = "/device:GPU:%d" % number
                number += 1
                if name not in logical:
                    return
                self.emit(
                    "mapping",
                    framework_device=name,
                    cuda_ordinal=ordinal,
                    name=details.get("device_name"),
                    compute_capability=".".join(map(str, capability)) if capability else None,
                    granted_bytes=amounts.get(name),
                )

    def amounts(self, context):
        """Each device's memory limit, from TensorFlow's list of devices."""
        execution = sys.modules.get("tensorflow.python.pywrap_tfe")
        session = sys.modules.get("tensorflow.python.client.pywrap_tf_session")
        found = {}
        try:
            devices = execution.TFE_ContextListDevices(context._handle)
            for number in range(session.TF_DeviceListCount(devices)):
                name = session.TF_DeviceListName(devices, number)
                found["/device:" + name.rpartition("/device:")[2]] = session.TF_DeviceListMemoryBytes(devices, number)
            session.TF_DeleteDeviceList(devices)
        except (AttributeError, TypeError):
            return {}  # another version of TensorFlow: the log may have it
        return found

    def torch(self):
        module = sys.modules.get("torch")
        cuda = getattr(module, "cuda", None)
        if not _complete(module) or not hasattr(cuda, "is_initialized"):
            return
        started = cuda.is_initialized()  # False in a fork whose parent has started CUDA
        if self.forked and not started:
            return
        self.once(
            "torch",
            "framework",
            name="torch",
            version=str(module.__version__),
            gpu_build=getattr(getattr(module, "version", None), "cuda", None) is not None,
            interpreter=sys.executable,
            python_version=sys.version.split()[0],
        )
        if not started:
            return
        count = cuda.device_count()
        self.once(
            "cuda",
            "devices",
            physical=["cuda:%d" % number for number in range(count)],
            visible=["cuda:%d" % number for number in range(count)],
            virtual=[],
            logical=["cuda:%d" % number for number in range(count)],
        )
        for number in range(count):
            held, peak = cuda.memory_allocated(number), cuda.max_memory_allocated(number)
            if not held and not peak:
                continue
            name = "cuda:%d" % number
            if name not in self.sent:
                self.once(name, "result", name=name, value=self.properties(cuda, number))
            stats = cuda.memory_stats(number)
            self.changed(
                name + " holds", "memory", device=name, current=held, peak=peak, ooms=int(stats.get("num_ooms", 0))
            )

    def properties(self, cuda, number):
        """A GPU's properties, in the form that the torch probes use."""
        found = cuda.get_device_properties(number)
        value = {"name": found.name}
        if hasattr(found, "uuid"):
            value["uuid"] = "GPU-%s" % found.uuid
        if hasattr(found, "pci_bus_id"):
            value["pci_bus_id"] = "%04x:%02x:%02x.0" % (found.pci_domain_id, found.pci_bus_id, found.pci_device_id)
        return value

    def jax(self):
        """Reports JAX, its devices and their memory, once it has started them; before that only that it is there.

        A program may import TensorFlow beside it, for its data.
        """
        module = sys.modules.get("jax")
        if not _complete(module) or not hasattr(module, "__version__"):
            return
        bridge = sys.modules.get("jax._src.xla_bridge")
        clients = dict(getattr(bridge, "_backends", None) or {})
        if not clients and ({"tensorflow", "torch"} & set(sys.modules) or "jax devices" in self.latest):
            return  # perhaps another framework does the work; or JAX has cleaned up, at the end
        factories = set(getattr(bridge, "_backend_factories", ()))
        self.changed(
            "jax",
            "framework",
            name="jax",
            version=str(module.__version__),
            gpu_build=bool(factories & {"cuda", "rocm", "gpu"}) if clients and factories else None,
            interpreter=sys.executable,
            python_version=sys.version.split()[0],
        )
        devices = [device for client in clients.values() for device in client.local_devices()]
        names = [str(device) for device in devices]
        if not names:
            return
        self.changed("jax devices", "devices", physical=names, visible=names, virtual=[], logical=names)
        for device, name in zip(devices, names):  # noqa: B905  (Python 3.7)
            stats = device.memory_stats() if device.platform != "cpu" else None
            if device.platform != "cpu":
                self.once(name, "result", name=name, value={"name": device.device_kind})
            if stats:
                held = stats["bytes_in_use"]
                self.changed(name, "memory", device=name, current=held, peak=stats.get("peak_bytes_in_use", held))

    def hooks(self):
        """Installs the counters as soon as the frameworks are imported."""
        for name in _HISTORY:  # TensorFlow contains an old Keras, besides the one that is used
            if name not in self.hooked:
                history = getattr(sys.modules.get(name), "History", None)
                if history is not None:
                    self.hooked.add(name)
                    _count_batches(history, self.batches)
        for change in self.simulation.changes if self.simulation is not None else ():
            self.once("simulation: " + change["note"], "setting", **change)
        for limit in self.simulation.limits if self.simulation is not None else ():
            self.once("limit: " + limit, "limit", text=limit)
        if "torch" not in self.hooked:
            offered = getattr(sys.modules.get("torch.optim.optimizer"), "register_optimizer_step_post_hook", None)
            if offered is not None:
                self.hooked.add("torch")
                steps = self.optimizer
                offered(lambda optimizer, args, keywords: steps.step())

    def functions(self, last=False):
        for name in _FUNCTIONS:
            manager = getattr(sys.modules.get(name), "_frequent_tracing_detector_manager", None)
            if manager is not None:
                # An atomic copy without TensorFlow's lock, which a fork might catch us holding.
                self.calls.look(manager._detectors.data.copy(), time.perf_counter(), last)
                return

    def last_functions(self):
        self.functions(last=True)
        self.placements()
        for text in self.ops.left_out() if self.ops is not None else ():
            self.once(text, "note", text=text)

    def record(self):
        if self.memory is not None:
            self.memory.look()

    def threads(self):
        self.seen[0].look()

    def steps(self):
        """Steps counted so far, of whatever kind most were counted."""
        return max(self.counts())

    def progress(self):
        """Grows with every step and call that is counted: those of validations too."""
        return sum(self.counts())

    def counts(self):
        called = [entry[2] for entry in list(self.calls.known.values())]
        return [self.batches.count, self.optimizer.count, *called]

    def stepping_thread(self):
        """The thread that makes the steps; the main one where only calls of tf.functions are counted."""
        return self.batches.thread or self.optimizer.thread or sys.modules["threading"].main_thread().ident

    def placements(self):
        if self.ops is not None:
            self.ops.tell(self.emit)

    def speed(self):
        if time.monotonic() - self.sent_at >= _TELL_EVERY:
            self.sent_at = time.monotonic()
            self.last_speed()
            self.placements()

    def last_speed(self):
        counted = [("batches of Keras", self.batches), ("steps of the optimizer", self.optimizer)]
        found = [(name, steps.speed(), steps.marks) for name, steps in counted if steps.count]
        if not any(speed for _, speed, _ in found):
            busiest = self.calls.busiest()
            found = [busiest] if busiest is not None else found
        for name, speed, marks in sorted(found, key=lambda one: one[1] is None)[:1]:
            if speed is not None:
                self.changed("speed", "throughput", counted=name, **speed)
            self.step_times(name, marks)
        for one in self.seen:
            one.tell(self.emit)

    def step_times(self, counted, marks):
        """Sends when the steps since the last call were made, on the clock of all events."""
        ahead = time.monotonic() - time.perf_counter()
        times = []
        while marks and len(times) < _MARKS:
            end, seconds, number, steps = marks.popleft()
            times.append((round(end + ahead, 6), round(seconds, 6), number, steps))
        if times:
            self.emit("step_times", counted=counted, times=times)


def simulated_plugin():
    """Whether the GPUs are simulated by gpuwatch as a plug-in of TensorFlow."""
    return "GPUWATCH_SIM_STATE" in os.environ and "TF_PLUGGABLE_DEVICE_LIBRARY_PATH" in os.environ


def _address_limit():
    """The limit of the address space in bytes (RLIMIT_AS); None without one."""
    import resource

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def _complete(module):
    """Whether a module is completely imported."""
    return module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False)


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


_FOLLOWED = frozenset(["popen_fork.py", "subprocess.py"])
"""Modules whose forks are followed otherwise (_gpuwatch_children.py)."""
_FORK_WARNING = r"This process \(pid=\d+\) is multi-threaded, use of"


def _hush():
    """Python 3.12 and later warn of forks with several threads; suppresses this if the only other one is ours."""
    import warnings

    try:
        threads = len(os.listdir("/proc/self/task"))
    except OSError:
        return
    for entry in list(warnings.filters):
        if getattr(entry[1], "pattern", None) == _FORK_WARNING:
            warnings.filters.remove(entry)
    if threads == 2:
        warnings.filterwarnings("ignore", message=_FORK_WARNING, category=DeprecationWarning)


_STARTERS = ("system", "posix_spawn", "posix_spawnp")
"""Functions of os that start a process without a fork that Python sees."""


def _count_starts(name, started):
    """Has a function of os call ``started`` before; it stays the one that ``os`` has by that name, for pickle too."""
    original = getattr(os, name, None)
    if original is None:
        return

    def start(*args, **options):
        started()
        return original(*args, **options)

    start.__name__ = start.__qualname__ = name
    start.__module__, start.__doc__ = "os", original.__doc__
    setattr(os, name, start)


def _follow_forks(watcher):
    """Watches processes that multiprocessing forks too; others that start without subprocess are only counted."""

    def unfollowed():
        if os.path.basename(sys._getframe(2).f_code.co_filename) in _FOLLOWED:
            return
        watcher.failures.forks += 1
        if hasattr(getattr(os.environ, "_data", None), "late"):
            os.environ._data.late = None  # it may be meant for this child

    for name in _STARTERS:
        _count_starts(name, unfollowed)

    def before():
        unfollowed()
        if sys.version_info >= (3, 12) and not watcher.broken and os.getpid() == watcher.pid:
            _hush()
        util = sys.modules.get("multiprocessing.util")
        if util is not None and "forks" not in watcher.hooked:
            watcher.hooked.add("forks")
            util.register_after_fork(watcher, after)

    def after(this):
        this.reset(forked=True)
        # Such a process does not run atexit functions.
        sys.modules["multiprocessing.util"].Finalize(None, this.end, exitpriority=0)
        _thread.start_new_thread(this.loop, ())

    os.register_at_fork(before=before)


def begin(address, load, simulation=None):
    """Starts observing; returns the observers of imports (see sitecustomize.py).

    ``load``: loads a module of this folder. ``simulation``: the adapter for simulated GPUs (_gpuwatch_simulated.py).
    """
    watcher = Watcher(address, load, simulation)
    watcher.settings = load("_gpuwatch_settings").Settings()
    watcher.failures = load("_gpuwatch_failures").Failures()
    observers = [watcher.settings, watcher.failures]
    if os.environ.get("GPUWATCH_WATCH_PLACEMENT"):
        placement = load("_gpuwatch_placement")
        watcher.ops = placement.Ops(load)
        observers.append(placement.Switches(watcher))
    traces = load("_gpuwatch_traces").Traces(watcher)
    observers.append(traces)
    watcher.seen += [load("_gpuwatch_threads").Threads(watcher), traces]
    if "GPUWATCH_TRIAL" in os.environ:
        watcher.trial = load("_gpuwatch_trial").Trial(json.loads(os.environ["GPUWATCH_TRIAL"]), watcher)
        watcher.every = watcher.trial.interval
        observers.append(watcher.trial)
    if os.environ.get("GPUWATCH_WATCH_MEMORY"):
        watcher.memory = load("_gpuwatch_memory").Recorder(watcher, os.environ["GPUWATCH_WATCH_MEMORY"])
        observers.append(watcher.memory)
    _follow_forks(watcher)
    _thread.start_new_thread(watcher.loop, ())
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        sys.modules["multiprocessing.util"].Finalize(None, watcher.end, exitpriority=0)
    else:
        atexit.register(watcher.end)
    return observers
