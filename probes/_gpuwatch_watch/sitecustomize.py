"""Loaded by Python itself into every Python of a program that ``gpuwatch run`` watches; changes nothing.

gpuwatch puts this folder first on PYTHONPATH. All that happens at the start is this: the folder is taken
off sys.path again, the sitecustomize that it stood in front of runs, and one entry in sys.meta_path waits,
finding nothing itself, for TensorFlow, Keras or PyTorch to be imported. A program that imports none of
them pays for nothing else. This file must be readable to any Python, however old.
"""

import os
import sys

_FRAMEWORKS = frozenset(["tensorflow", "torch", "keras"])


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
        self.finder = None
        self.begun = False

    def find_spec(self, name, path=None, target=None):
        if name not in _FRAMEWORKS:
            return None
        if not self.begun:
            self.begun = True
            try:
                self.finder = self.begin()
            except Exception:  # the program comes first, whatever is wrong with us
                return None
        return None if self.finder is None else self.finder.find_spec(name, path, target)

    def begin(self):
        import importlib.util

        path = os.path.join(self.folder, "_gpuwatch_watcher.py")
        spec = importlib.util.spec_from_file_location("_gpuwatch_watcher", path)
        module = importlib.util.module_from_spec(spec)
        written, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        try:
            spec.loader.exec_module(module)
        finally:
            sys.dont_write_bytecode = written
        return module.begin(os.environ["GPUWATCH_WATCH"])


_folder = _hand_over()
if "GPUWATCH_WATCH" in os.environ and sys.version_info >= (3, 7):
    sys.meta_path.insert(0, _Waiter(_folder))
