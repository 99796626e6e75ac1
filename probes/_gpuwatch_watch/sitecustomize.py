"""Loaded by Python at its start in every Python process of a program that ``gpuwatch run`` watches.

gpuwatch puts this folder first on PYTHONPATH. At the start, the folder is removed from sys.path again, the user's own
sitecustomize is run, and an entry in sys.meta_path waits for the import of TensorFlow, Keras or PyTorch. A program that
imports none of them only says so at its end. Under ``gpuwatch sim`` it is loaded for simulated GPUs: see
_gpuwatch_simulated_gpus.py. Every version of Python must be able to compile this file.

The program's own folder is before the standard library on sys.path: a file ``resource.py`` in it is what ``import
resource`` finds. So whatever runs in a program that may not have imported a module itself uses built-in modules, and
:func:`_standard_module`.
"""

import os
import sys

_FRAMEWORKS = frozenset(["tensorflow", "torch", "keras", "jax"])
if "GPUWATCH_TRIAL" in os.environ:
    _FRAMEWORKS |= frozenset(["tf_keras", "gpuwatch"])
_WATCHED = "GPUWATCH_WATCH" in os.environ
# GPUs that gpuwatch simulates as a PluggableDevice.
_SIMULATED = "GPUWATCH_SIM_STATE" in os.environ and "TF_PLUGGABLE_DEVICE_LIBRARY_PATH" in os.environ


def _hand_over():
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != folder]
    this = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if getattr(error, "name", "sitecustomize") != "sitecustomize":
            raise
    # Python is still importing this name and expects to find it.
    sys.modules.setdefault("sitecustomize", this)
    return folder


class _Noted(dict):
    """The data of os.environ, which notes the line that sets a variable of GPUs: no traceback passes here."""

    def __init__(self, data):
        dict.__init__(self, data)
        self.places = {}
        self.too_late = {}
        """By name, what TensorFlow read when it made its devices, and what was set later, unless for a child."""
        self.late = self.used = None
        """CUDA_VISIBLE_DEVICES as it was set once the devices were there, unless for a child; as these use it, in a
        tuple."""

    def __setitem__(self, key, value):
        before = self.get(key)
        dict.__setitem__(self, key, value)
        try:
            if key == _VISIBLE and _devices_are_there():
                self.used = self.used or (before,)
                self.late = value if value != self.used[0] else None
            context = getattr(sys.modules.get("tensorflow.python.eager.context"), "_context", None)
            if key in _READ_AT_DEVICE_START and getattr(context, "_initialized", False):
                used = self.too_late.pop(key, (before,))[0]
                if value != used:
                    self.too_late[key] = (used, value)
            if key.startswith(_VARIABLES):
                frame = sys._getframe(1)
                while os.path.basename(frame.f_code.co_filename) in _OS_FILES:
                    frame = frame.f_back
                name = frame.f_code.co_filename
                name = os.path.basename(name) if os.path.isabs(name) else name
                self.places[os.fsdecode(key)] = "%s:%d" % (name, frame.f_lineno)
        except Exception:  # our errors must not disturb the program
            return


def _devices_are_there():
    """Whether a framework has asked the driver for its devices: CUDA reads CUDA_VISIBLE_DEVICES once, before that.

    TensorFlow lists those of a plug-in when it is imported; simulated ones are listed again at the first use.
    """
    if _waiter.simulation is not None and not _waiter.simulation.settings.counted:
        return False
    context = getattr(sys.modules.get("tensorflow.python.eager.context"), "_context", None)
    cuda = sys.modules.get("torch.cuda")
    return getattr(context, "_physical_devices", None) is not None or (cuda is not None and cuda.is_initialized())


_VISIBLE = b"CUDA_VISIBLE_DEVICES"
_READ_AT_DEVICE_START = frozenset([b"TF_FORCE_GPU_ALLOW_GROWTH", b"TF_GPU_ALLOCATOR"])
_VARIABLES = (b"CUDA", b"NVIDIA_", b"PYTORCH_", b"TF_", b"XLA_")
_OS_FILES = frozenset(["os.py", "_collections_abc.py", "<frozen os>", "<frozen _collections_abc>"])


def _note_environment():
    data = getattr(os.environ, "_data", None)
    if type(data) is dict:
        os.environ._data = _Noted(data)
        if getattr(getattr(os, "environb", None), "_data", None) is data:
            os.environb._data = os.environ._data


class _Waiter(object):
    """An entry of sys.meta_path that runs actions after imports; the import itself is left to Python.

    An observer has ``actions``, functions by the name of the module that they are called with, and ``failed(name,
    error)``.
    """

    def __init__(self, folder):
        self.folder = folder
        self.observers = []
        self.begun = False
        self.simulation = None
        self.searching = set()

    def find_spec(self, name, path=None, target=None):
        if not self.begun and name in _FRAMEWORKS:
            self.begun = True
            try:
                self.begin()
            except Exception:  # our errors must not disturb the program
                return None
        observers = [observer for observer in reversed(self.observers) if name in observer.actions]
        if not observers or name in self.searching:
            return None
        import _frozen_importlib  # "importlib" may be a file of the program

        self.searching.add(name)
        try:
            spec = _frozen_importlib._find_spec(name, path)
        finally:
            self.searching.discard(name)
        if spec is None or not hasattr(spec.loader, "exec_module"):
            return spec
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            for observer in observers:
                act = observer.actions.pop(name, None)  # only now: a program may search for a module without loading it
                try:
                    if act is not None:
                        act(module)
                except Exception as error:  # an unknown version of the framework: the program continues without us
                    observer.failed(name, error)

        spec.loader.exec_module = exec_module
        return spec

    def begin(self):
        if _SIMULATED:
            simulated = self.load("_gpuwatch_simulated_gpus")
            self.simulation = simulated.Simulation(self.load("_gpuwatch_simulated_settings"), simulated.speak)
            self.observers.append(self.simulation)
            if not _WATCHED:  # otherwise gpuwatch explains the error
                simulated.explain_at_exit()
        if _WATCHED:
            watcher = self.load("_gpuwatch_watcher")
            self.observers += watcher.begin(os.environ["GPUWATCH_WATCH"], self.load, self.simulation)

    def load(self, name):
        import _frozen_importlib
        import _frozen_importlib_external

        loader = _frozen_importlib_external.SourceFileLoader(name, os.path.join(self.folder, name + ".py"))
        loader.set_data = lambda *_, **__: None  # no bytecode is written, and no switch of the interpreter is touched
        module = _frozen_importlib.module_from_spec(_frozen_importlib.spec_from_loader(name, loader))
        loader.exec_module(module)
        return module


class _Children(object):
    """Observes the modules that start processes (_gpuwatch_child_exits.py)."""

    def __init__(self, waiter):
        self.waiter = waiter
        self.actions = dict.fromkeys(("subprocess", "multiprocessing.popen_fork"), self.watch)

    def watch(self, module):
        load = self.waiter.load
        address = os.environ["GPUWATCH_WATCH"]
        load("_gpuwatch_child_exits").watch(module, load("_gpuwatch_descriptors"), address, self.started)

    def started(self):
        os.environ._data.late = None
        os.environ._data.too_late.clear()

    def failed(self, name, error):
        return None  # another version of Python: how its children end is not told


_LARGE = 100 << 10
"""KiB of memory of a child that may have loaded a framework."""
_USES_GPUS = ("libcuda", "libnvidia", "libnccl")


def _standard_module(name):
    """A module of the standard library that needs no other, which the program does not get to see."""
    import _frozen_importlib
    import _frozen_importlib_external

    folder = os.path.dirname(os.path.abspath(os.__file__))
    spec = _frozen_importlib.BuiltinImporter.find_spec(name)
    if spec is None:
        folders = [folder, os.path.join(folder, "lib-dynload")]
        spec = _frozen_importlib_external.PathFinder.find_spec(name, folders)
    module = _frozen_importlib.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _say_quiet():
    """At the end: that this process could not use a GPU, nor tell of one elsewhere; what it printed is only text."""
    if _waiter.begun or "socket" in sys.modules:
        return
    resource = _standard_module("resource")
    if resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss > _LARGE:
        return
    with open("/proc/self/maps") as maps:
        if any(name in line for line in maps for name in _USES_GPUS):
            return
    _send("quiet", "{}")


def _say_own_interrupt():
    """At the end of a process without a framework: that its own code raised the KeyboardInterrupt that ended it.

    Python ends such a process by SIGINT, as one that Ctrl+C interrupts.
    """
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if _waiter.begun or type(error) is not KeyboardInterrupt or not hasattr(sys, "addaudithook"):
        return
    text_runs = []

    def note_text_run(event, arguments):
        if event == "exec" and getattr(arguments[0], "co_filename", "") == "<string>":
            text_runs.append(event)

    sys.addaudithook(note_text_run)  # before what the import of our module imports, which runs text
    exceptions = _waiter.load("_gpuwatch_exception")
    if not exceptions.by_signal(error):
        import json

        _send("error", json.dumps({"type": "KeyboardInterrupt", "message": str(error)[:2000], "alone": True}))
    if text_runs:
        exceptions.set_pending_interrupt()


def _send(kind, data):
    import _socket
    import time

    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    connection.settimeout(0.2)
    connection.connect("\0" + os.environ["GPUWATCH_WATCH"])
    text = '{"t": %r, "kind": "%s", "data": %s}\n' % (time.monotonic(), kind, data)
    connection.sendall(text.encode(), _socket.MSG_NOSIGNAL)
    connection.close()


def _at_end():
    for say in (_say_quiet, _say_own_interrupt):
        try:
            say()
        except Exception:  # gpuwatch has ended
            return


_folder = _hand_over()
if (_WATCHED or _SIMULATED) and sys.version_info >= (3, 7):
    _waiter = _Waiter(_folder)
    sys.meta_path.insert(0, _waiter)
    if _WATCHED:
        _waiter.observers.append(_Children(_waiter))
        _note_environment()
        import atexit

        atexit.register(_at_end)
