"""Loaded by Python itself into every Python of a program that ``gpuwatch run`` watches; changes nothing.

gpuwatch puts this folder first on PYTHONPATH. All that happens at the start is this: the folder is taken
off sys.path again, the sitecustomize that it stood in front of runs, and one entry in sys.meta_path waits,
finding nothing itself, for TensorFlow, Keras or PyTorch to be imported. A program that imports none of
them pays for nothing else. Under ``gpuwatch sim`` it is loaded too, for simulated GPUs alone: see
_gpuwatch_simulated.py. This file must be readable to any Python, however old.
"""

import os
import sys

_FRAMEWORKS = frozenset(["tensorflow", "torch", "keras"])
_WATCHED = "GPUWATCH_WATCH" in os.environ
# GPUs that gpuwatch simulates as a PluggableDevice.
_SIMULATED = "GPUWATCH_SIM_STATE" in os.environ and "TF_PLUGGABLE_DEVICE_LIBRARY_PATH" in os.environ


def _hand_over():
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    this = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if getattr(error, "name", "sitecustomize") != "sitecustomize":
            raise
    # Python is still importing the name, and wants to find it.
    sys.modules.setdefault("sitecustomize", this)
    return here


class _Waiter(object):
    """Notices that a framework is about to be imported."""

    def __init__(self, folder):
        self.folder = folder
        self.finders = []
        self.begun = False

    def find_spec(self, name, path=None, target=None):
        if not self.begun and name in _FRAMEWORKS:
            self.begun = True
            try:
                self.begin()
            except Exception:  # the program comes first, whatever is wrong with us
                return None
        for finder in self.finders:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                return spec
        return None

    def begin(self):
        simulation = None
        if _SIMULATED:
            simulated = self.load("_gpuwatch_simulated")
            simulation = simulated.Simulation(self.load("_gpuwatch_simulated_settings"), simulated.speak)
            self.finders.append(simulation)
            if not _WATCHED:  # gpuwatch tells what the error means otherwise
                simulated.explain_at_exit()
        if _WATCHED:
            self.finders += self.load("_gpuwatch_watcher").begin(os.environ["GPUWATCH_WATCH"], self.load, simulation)

    def load(self, name):
        import importlib.util

        spec = importlib.util.spec_from_file_location(name, os.path.join(self.folder, name + ".py"))
        module = importlib.util.module_from_spec(spec)
        written, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        try:
            spec.loader.exec_module(module)
        finally:
            sys.dont_write_bytecode = written
        return module


_folder = _hand_over()
if (_WATCHED or _SIMULATED) and sys.version_info >= (3, 7):
    sys.meta_path.insert(0, _Waiter(_folder))
