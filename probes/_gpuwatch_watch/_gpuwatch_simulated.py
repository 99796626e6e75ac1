"""Keras and XLA on GPUs that gpuwatch simulates as a PluggableDevice: TensorFlow has no compiler for such.

Keras compiles a model with XLA where nobody says otherwise (``jit_compile="auto"``), and training would then
end in "No JIT device registered for GPU". Keras asks one function whether a model can be compiled; on
simulated GPUs it answers no. On real GPUs nothing of this file is loaded. Python 3.7 or newer.
"""

import atexit
import sys

TRAINER = "keras.src.trainers.trainer"
_NO_COMPILER = ("No JIT device registered", "no compiler registered", "XLA_GPU_JIT")


class Switch:
    """Finds Keras's trainer, and switches the compiler off in it as soon as it is there."""

    note = "simulated GPUs have no XLA: models that leave it to Keras are not compiled"

    def __init__(self):
        self.done = False
        self.asked = False
        """Whether Keras has asked, for a model of this process."""
        self.say = None
        """Called with one line when Keras asks for the first time."""

    def find_spec(self, name, path=None, target=None):
        if name != TRAINER or self.done:
            return None
        self.done = True
        import importlib.util

        spec = importlib.util.find_spec(name)
        if spec is None or not hasattr(spec.loader, "exec_module"):
            return spec
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            if hasattr(module, "model_supports_jit"):
                module.model_supports_jit = self.supports

        spec.loader.exec_module = exec_module
        return spec

    def supports(self, model):
        """In place of Keras's own ``model_supports_jit``."""
        if not self.asked:
            self.asked = True
            if self.say is not None:
                self.say("gpuwatch: %s" % self.note)
        return False


def speak(line):
    """One line on stderr; a program that has closed it goes without."""
    try:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):
        pass


def explain_at_exit():
    """After a traceback that TensorFlow leaves where somebody asked for the compiler: what it means here."""

    def last_words():
        error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        if error is not None and any(sign in str(error) for sign in _NO_COMPILER):
            speak("gpuwatch: simulated GPUs have no XLA: leave jit_compile=True out of tf.function, or give it False")

    atexit.register(last_words)
