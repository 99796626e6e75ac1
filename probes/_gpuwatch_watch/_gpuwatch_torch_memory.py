"""The history of PyTorch's allocator, recorded by PyTorch itself and written at a failure and at the program's end.

Part of ``gpuwatch run --memory`` (_gpuwatch_memory.py). Standard library only, Python 3.7 or newer.
"""

import _thread
import os
import sys

_MAX_HISTORY_ENTRIES = 20000
"""Allocations and frees that PyTorch keeps; to write them takes it two seconds."""


class AllocatorHistory:
    """Observes torch.cuda after its import (see sitecustomize.py)."""

    def __init__(self, recorder):
        """``recorder``: :class:`_gpuwatch_memory.Recorder`."""
        self.recorder = recorder
        self.reset()

    def reset(self):
        """Starts over in a forked process."""
        self.is_recorded = False
        self.written = 0

    def observe(self, module):
        later = getattr(module, "_lazy_call", None)
        if later is None:
            self.recorder.note("this version of PyTorch cannot record its allocator")
            return
        later(self._begin)

    def _begin(self):
        """Called by PyTorch when it has started CUDA."""
        if os.getpid() != self.recorder.pid or self.is_recorded:
            return
        try:
            memory = sys.modules["torch.cuda.memory"]
            memory._record_memory_history(max_entries=_MAX_HISTORY_ENTRIES, stacks="python")
            self.is_recorded = True
            attach = getattr(sys.modules["torch"]._C, "_cuda_attach_out_of_memory_observer", None)
            if attach is not None:
                attach(self._failed)
        except Exception as error:
            self.recorder.note("PyTorch's allocator could not be recorded (%s)" % str(error)[:200])

    def _failed(self, device, requested, allocated, free):
        """PyTorch's observer of failed allocations, called before the exception; keeps the first and the latest."""
        self._write(min(self.written + 1, 2), "out of memory")

    def end(self):
        """At the program's end."""
        if self.is_recorded:
            self._write(3, "end")

    def _write(self, number, reason):
        try:
            memory = sys.modules["torch.cuda.memory"]
            path = os.path.join(self.recorder.folder, "%d-%d.pickle" % (self.recorder.pid, number))
            _without_inductor(memory._dump_snapshot, path)
            self.written += 1
            self.recorder.watcher.emit("memory_file", file=path, tool="torch", number=number, reason=reason)
        except Exception as error:
            self.recorder.note("PyTorch's snapshot could not be written (%s)" % str(error)[:200])


class _LazyModules(set):
    """``torch._lazy_modules``, the submodules that are imported when they are first used as an attribute."""

    def __init__(self, names):
        set.__init__(self, names)
        self.threads_without_inductor = set()

    def __contains__(self, name):
        return set.__contains__(self, name) and not (
            name == "_inductor" and _thread.get_ident() in self.threads_without_inductor
        )


def _without_inductor(function, *arguments):
    """Calls ``function``, in which this thread's question whether ``torch`` has ``_inductor`` does not import it.

    PyTorch asks so for names of lines that it has compiled (torch/csrc/profiler/python/combined_traceback.cpp). The
    import takes nearly a second, and may warn in the program's output; where nothing was compiled, it is for nothing.
    """
    torch = sys.modules["torch"]
    names = getattr(torch, "_lazy_modules", None)
    if type(names) is set:
        names = torch._lazy_modules = _LazyModules(names)
    if type(names) is not _LazyModules:  # a version that imports it by itself, or does not know it
        return function(*arguments)
    names.threads_without_inductor.add(_thread.get_ident())
    try:
        return function(*arguments)
    finally:
        names.threads_without_inductor.discard(_thread.get_ident())
