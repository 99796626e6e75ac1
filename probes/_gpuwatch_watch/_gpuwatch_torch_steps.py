"""Counts steps of PyTorch's optimizers: called, compiled by torch.compile, and replayed in CUDA graphs.

Part of the watcher (_gpuwatch_watcher.py). Standard library only, Python 3.7 or newer.
"""

import _thread
import sys
import threading
import weakref

_THREADS = getattr(threading, "_active", {})
"""Python's threads, by their numbers."""
_NOT_STARTED = tuple(getattr(threading, name, ()) for name in ("_MainThread", "_DummyThread"))
"""Classes of those that ``threading`` did not start."""


def _nothing():
    """A weak reference to what is no more."""


class _Loop:
    """The optimizers of a training loop."""

    def __init__(self):
        self.counted = _nothing
        """A weak reference to the optimizer that is counted."""
        self.others = set()
        """The ids of the others that made a step since."""


class OptimizerSteps:
    """Counts one step per iteration, however many optimizers it calls; an observer of imports (see sitecustomize.py).

    Of several optimizers (a GAN's; Muon with AdamW), one is counted: another one takes its place once that has made two
    steps since the last that was counted, or at once if the counted one is gone (that of the last fold). Threads that
    the program started train in loops of their own, whose steps come in any order: they are all counted.
    """

    def __init__(self, counters, descriptors):
        """``counters``: :class:`_gpuwatch_steps.Counters`. ``descriptors``: the module _gpuwatch_descriptors."""
        self.counters = counters
        self.descriptors = descriptors
        self.main_loop = _Loop()
        self.register = self.hook = None
        self.actions = {
            "torch.optim.optimizer": self._hook,
            "torch._dynamo": self._hook_compiled,
            "torch.cuda.graphs": self._count_replays,
        }

    def failed(self, name, error):
        """A version without the name: the steps of this kind are not counted."""

    def stepped(self, optimizer):
        """Called after each step of an optimizer."""
        key, loop = id(optimizer), self._loop()
        counted = loop.counted()
        if counted is None or counted is optimizer or key in loop.others:
            if counted is not optimizer:
                loop.counted = weakref.ref(optimizer)
            loop.others.clear()
            self.counters.optimizer.step(device=_device(optimizer))
        else:
            loop.others.add(key)

    def _loop(self):
        """This thread's loop; the main thread's in those of autograd, in which hooks of gradients may make steps."""
        thread = _THREADS.get(_thread.get_ident())
        if thread is None or isinstance(thread, _NOT_STARTED):
            return self.main_loop
        return thread.__dict__.setdefault("_gpuwatch_loop", _Loop())

    def _hook(self, module):
        self.register = module.register_optimizer_step_post_hook
        self.hook = self.register(lambda optimizer, args, keywords: self.stepped(optimizer))

    def _hook_compiled(self, dynamo):
        """Replaces the hook by one that Dynamo can trace, before it compiles anything.

        Dynamo imports the module of each global that it meets, and ours cannot be imported: so the hook has only
        closure variables, and calls nothing where that would break a graph that is whole without it. The steps of most
        of PyTorch's optimizers break it themselves, right before the hook.
        """
        optim = vars(sys.modules["torch.optim"]).values()
        breaking = frozenset(kind for kind in optim if isinstance(kind, type) and _breaks_graph(kind))
        is_compiling = dynamo.is_compiling
        stepped = dynamo.disable(lambda optimizer: self.stepped(optimizer))

        def count(optimizer, args, keywords):
            if not is_compiling() or optimizer.__class__ in breaking:
                stepped(optimizer)

        self.hook.remove()
        self.hook = self.register(count)

    def _count_replays(self, module):
        """A CUDA graph's replay makes the steps that were captured in it, without a call of any hook."""
        kind, method = module.CUDAGraph, self.descriptors.Method
        kind.capture_end = method(vars(kind)["capture_end"], self._captured)
        kind.replay = method(vars(kind)["replay"], self._replayed)

    def _captured(self, graph):
        captured = [(steps, steps.captured) for steps in self.counters.timed_by_events() if steps.captured]
        graph.__dict__["_gpuwatch_captured"] = captured
        for steps, _ in captured:
            steps.captured = 0

    def _replayed(self, graph):
        for steps, count in graph.__dict__.get("_gpuwatch_captured", ()):
            steps.step(count)


def _device(optimizer):
    """Where an optimizer works: the device of its first parameter; None without one."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            return parameter.device
    return None


def _breaks_graph(kind):
    """Whether Dynamo breaks the graph at the steps of a class of PyTorch's (``_use_grad_for_differentiable``)."""
    function = getattr(kind, "step", None)
    while function is not None and "graph_break" not in getattr(getattr(function, "__code__", None), "co_names", ()):
        function = getattr(function, "__wrapped__", None)
    return function is not None
