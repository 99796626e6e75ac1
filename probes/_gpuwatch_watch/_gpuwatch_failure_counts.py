"""Counts failed requests for memory, so that a log's line about one can be told from one that the program only printed.

TensorFlow makes an exception of each op that fails, PyTorch's allocator counts. Children are noted that live long
enough to load a framework, and processes of which nobody else knows. Standard library only, Python 3.7 or newer.
"""

import sys

_ERRORS = "tensorflow.python.framework.errors_impl"
_RESOURCE_EXHAUSTED = 8
_PROGRAM_ERROR_CODES = frozenset([1, 3, 5, 6, 11])
"""Codes that no state of a GPU causes: CANCELLED, INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS, OUT_OF_RANGE."""
_FAILED_COPY_MESSAGE = "Dst tensor is not initialized"
"""An INTERNAL error: a copy to the GPU that did not fit."""


class Failures:
    """Observes TensorFlow's exceptions after their import (see sitecustomize.py)."""

    def __init__(self):
        self.actions = {_ERRORS: self._errors}
        self.reset()

    def reset(self):
        """Starts over in a forked process."""
        self.failed_allocations = self.other_failures = 0
        self.is_counting = _ERRORS in sys.modules and _ERRORS not in self.actions
        self.uncounted_forks = 0
        """Processes started without subprocess and multiprocessing, which are followed by nobody."""

    def failed(self, name, error):
        self.is_counting = False

    def _errors(self, module):
        original = module.OpError.__init__

        def noted(this, node_def, op, message, error_code, *args):
            if error_code == _RESOURCE_EXHAUSTED or _FAILED_COPY_MESSAGE in str(message):
                self.failed_allocations += 1
            elif error_code not in _PROGRAM_ERROR_CODES:
                self.other_failures += 1
            original(this, node_def, op, message, error_code, *args)

        module.OpError.__init__ = noted
        self.is_counting = True

    def total(self, jax=False):
        """Failed requests for memory, and other failures of ops; None for what is not counted.

        ``jax``: it had devices, which it forgets before the program's end.
        """
        if jax or ("tensorflow" in sys.modules and not self.is_counting):
            return None, None
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        if cuda is None:
            return self.failed_allocations, self.other_failures
        started = range(cuda.device_count()) if cuda.is_initialized() else ()
        torch_ooms = sum(int(cuda.memory_stats(number).get("num_ooms", 0)) for number in started)
        return self.failed_allocations + torch_ooms, None
