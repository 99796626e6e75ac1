"""Loaded by Python itself into a program that ``gpuwatch run`` watches; changes nothing it does.

gpuwatch puts this folder first on PYTHONPATH. The module waits for the program to import TensorFlow
or PyTorch, then reads what the allocator holds, now and then, from a thread of its own, and counts the
steps that Keras reports. It never imports a framework, never starts a device, and changes no setting.
Standard library only; any error here is said as an event and otherwise ignored, because the program
comes first.
"""

import atexit
import contextlib
import json
import os
import sys
import threading
import time

_EVERY = 0.5
_SPEED_EVERY = 10.0


def _hand_over():
    """Takes this folder off the path again and runs the sitecustomize that it stood in front of."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    kept = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry and entry != here]
    if kept:
        os.environ["PYTHONPATH"] = os.pathsep.join(kept)
    else:
        os.environ.pop("PYTHONPATH", None)
    this = sys.modules.pop("sitecustomize")
    with contextlib.suppress(ImportError):
        import sitecustomize  # noqa: F401
    # Python is still importing the name, and wants to find it.
    sys.modules.setdefault("sitecustomize", this)


class _Watcher:
    def __init__(self, descriptor):
        self.descriptor = descriptor
        self.sequence = 0
        self.lock = threading.Lock()
        self.pid = os.getpid()
        self.said = set()
        self.steps = 0
        self.told = 0.0
        self.step_times = []

    def emit(self, kind, **data):
        if os.getpid() != self.pid:
            return  # a fork has the descriptor too, but is not the program
        with self.lock:
            line = {"v": 1, "seq": self.sequence, "t": time.monotonic(), "kind": kind, "data": data}
            self.sequence += 1
            try:
                os.write(self.descriptor, (json.dumps(line, default=str) + "\n").encode())
            except OSError:
                self.descriptor = -1  # gpuwatch is gone

    def once(self, key, kind, **data):
        if key not in self.said:
            self.said.add(key)
            self.emit(kind, **data)

    def loop(self):
        while self.descriptor >= 0:
            time.sleep(_EVERY)
            for look in (self.tensorflow, self.keras, self.torch):
                try:
                    look()
                except Exception as error:
                    name = "%s: %s: %s" % (look.__name__, type(error).__name__, error)
                    self.once(name, "note", text=name)

    def tensorflow(self):
        module = sys.modules.get("tensorflow")
        if module is None or not hasattr(module, "config"):
            return  # not imported, or not yet to its end
        self.once(
            "tensorflow",
            "framework",
            name="tensorflow",
            version=module.__version__,
            gpu_build=bool(module.test.is_built_with_cuda()),
            interpreter=sys.executable,
            python_version=sys.version.split()[0],
        )
        context = getattr(sys.modules.get("tensorflow.python.eager.context"), "_context", None)
        # Asking a context that has not started would start it, with the settings of this moment.
        if context is None or not getattr(context, "_initialized", False):
            return
        logical = [device.name for device in context.list_logical_devices()]
        self.once(
            "devices",
            "devices",
            physical=[device.name for device in context.list_physical_devices()],
            visible=[device.name for device in context.get_visible_devices()],
            virtual=[],
            logical=logical,
        )
        for name in logical:
            if ":GPU:" in name:
                info = context.get_memory_info(name.replace("/device:", ""))
                self.emit("memory", device=name, current=info["current"], peak=info["peak"])

    def keras(self):
        module = sys.modules.get("keras.src.callbacks.callback_list")
        cls = getattr(module, "CallbackList", None)
        if cls is not None and "keras" not in self.said:
            self.said.add("keras")
            self._count(cls, "on_train_batch_end")
        if self.steps and time.monotonic() - self.told > _SPEED_EVERY:
            self.told = time.monotonic()
            self._speed()

    def _count(self, cls, name):
        """Notes the moment of every training step; the step itself is Keras's own."""
        original = getattr(cls, name)

        def on_train_batch_end(this, batch, logs=None):
            self.steps += 1
            if len(self.step_times) < 100000:
                self.step_times.append(time.perf_counter())
            return original(this, batch, logs)

        setattr(cls, name, on_train_batch_end)

    def _speed(self):
        times = self.step_times
        gaps = sorted(times[number + 1] - times[number] for number in range(5, len(times) - 1))
        if len(gaps) < 10:
            return
        median = gaps[len(gaps) // 2]
        self.emit(
            "throughput",
            steps=self.steps,
            warmup_steps=5,
            median_step_seconds=median,
            p10_step_seconds=gaps[len(gaps) // 10],
            p90_step_seconds=gaps[len(gaps) * 9 // 10],
            steps_per_second=1.0 / median if median else 0.0,
        )

    def last_words(self):
        """At the end of the program: what it held at last, and its speed."""
        for look in (self.tensorflow, self.torch, self._speed):
            try:
                look()
            except Exception as error:
                self.once(look.__name__, "note", text="%s: %s" % (type(error).__name__, error))
        self.emit("end", ok=True)

    def torch(self):
        module = sys.modules.get("torch")
        cuda = getattr(module, "cuda", None)
        if cuda is None or not hasattr(module, "__version__"):
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
        if not cuda.is_initialized():
            return
        for number in range(cuda.device_count()):
            held = cuda.memory_allocated(number)
            if held or cuda.max_memory_allocated(number):
                self.emit("memory", device="cuda:%d" % number, current=held, peak=cuda.max_memory_allocated(number))


def _placement(watcher):
    """``--placement``: TensorFlow's own switch, thrown when the program has imported it."""
    import importlib.abc

    class Finder(importlib.abc.MetaPathFinder):
        def find_spec(self, name, path, target=None):
            if name != "tensorflow":
                return None
            sys.meta_path.remove(self)
            import importlib.util

            spec = importlib.util.find_spec(name)
            if spec is None or spec.loader is None:
                return spec
            load = spec.loader.exec_module

            def exec_module(module):
                load(module)
                module.debugging.set_log_device_placement(True)
                watcher.emit("setting", name="placement logging", asked=True, effective=True)

            spec.loader.exec_module = exec_module
            return spec

    sys.meta_path.insert(0, Finder())


def _begin():
    descriptor = os.environ.get("GPUWATCH_WATCH_FD")
    if not descriptor:
        return
    # A Python that the program starts is another program: it inherits neither of these.
    del os.environ["GPUWATCH_WATCH_FD"]
    number = int(descriptor)
    try:
        os.set_inheritable(number, False)
    except OSError:
        return
    watcher = _Watcher(number)
    watcher.emit("start", config="run", pid=os.getpid(), options={})
    if os.environ.pop("GPUWATCH_WATCH_PLACEMENT", ""):
        _placement(watcher)
    threading.Thread(target=watcher.loop, name="gpuwatch", daemon=True).start()
    atexit.register(watcher.last_words)


_hand_over()
_begin()
