"""Adapts a program to GPUs that gpuwatch simulates as a PluggableDevice, which are not CUDA devices.

Its memory and device settings are translated (_gpuwatch_simulated_settings.py). What would fail without NVIDIA's
libraries uses TensorFlow's and Keras's alternatives:

- XLA: Keras compiles a model by default (``jit_compile="auto"``) if a function says that it can; here it says no. An
  explicit ``jit_compile=True`` is reported: Keras ignores it then, and a tf.function fails on such a GPU.
- cuDNN: Keras's LSTM and GRU layers use it if a function says that they can; here it says no.
- NCCL: a MirroredStrategy without cross_device_ops, or with NCCL, reduces on one device.

Not loaded on real GPUs. Python 3.7 or newer.
"""

import atexit
import functools
import sys

_NO_COMPILER = ("No JIT device registered", "no compiler registered", "XLA_GPU_JIT")
_NO_PYTORCH = "the simulated driver lacks support for PyTorch on this tier: its GPUs work only with TensorFlow"
_PYTORCH_CUDA = ("12", "13")
"""CUDA versions whose runtime the driver tier has for PyTorch (gpuwatch/sim/libraries.py)."""
_NO_XLA = "simulated GPUs have no XLA: Keras does not compile models by default"
_NO_XLA_KERAS = "simulated GPUs have no XLA: jit_compile=True is not honored, Keras does not compile the model"
_NO_XLA_FUNCTION = "simulated GPUs have no XLA: a tf.function with jit_compile=True failed on a GPU"
_NO_CUDNN = "simulated GPUs have no cuDNN: Keras computes LSTM and GRU layers without it"
_NO_NCCL = "simulated GPUs have no NCCL: MirroredStrategy reduces on one device (ReductionToOneDevice)"


class Simulation:
    """Changes modules of TensorFlow and Keras after their import (see sitecustomize.py)."""

    def __init__(self, settings, say=None):
        """``settings``: the module _gpuwatch_simulated_settings. ``say`` is called with a line for each change."""
        self.say = say
        self.changes = []
        """Settings that differ from what the program requested: name, asked, effective and note, oldest first."""
        self.limits = []
        """Notes of settings that the simulation cannot honor."""
        self.actions = {
            "keras.src.trainers.trainer": self.trainer,
            "keras.src.backend.tensorflow.rnn": self.recurrent,
            "tensorflow.python.distribute.mirrored_strategy": self.mirrored,
            "tensorflow.python.eager.polymorphic_function.polymorphic_function": self.functions,
            "torch": self.torch,
        }
        self.settings = settings.Settings(self.refuse)
        self.actions.update(self.settings.actions)

    def failed(self, name, error):
        text = "%s: %s" % (type(error).__name__, error)
        self.refuse(name, "simulated", False, "%s could not be adapted to simulated GPUs (%s)" % (name, text))

    def change(self, name, asked, effective, note):
        """Reports a changed setting, once."""
        change = {"name": name, "asked": asked, "effective": effective, "note": note}
        if change in self.changes:
            return
        self.changes.append(change)
        if self.say is not None:
            self.say("gpuwatch: %s" % note)

    def refuse(self, name, asked, effective, note):
        """Reports a setting that simulated GPUs cannot honor."""
        if note not in self.limits:
            self.limits.append(note)
        self.change(name, asked, effective, note)

    def torch(self, module):
        """Reports that PyTorch has no simulated GPUs: a CUDA build would complain about a missing or old driver."""
        cuda = getattr(getattr(module, "version", None), "cuda", None)
        if cuda:
            other = " (use --sim-tier driver for PyTorch)" if str(cuda).split(".")[0] in _PYTORCH_CUDA else ""
            self.change("PyTorch", "simulated GPUs", "none", _NO_PYTORCH + other)

    def trainer(self, module):
        """Replaces Keras's ``model_supports_jit``."""
        if hasattr(module, "model_supports_jit"):
            module.model_supports_jit = self.supports

    def supports(self, model):
        """Keras's ``model_supports_jit``: always False."""
        if _explicit(sys._getframe(1)):
            self.refuse("jit_compile", True, False, _NO_XLA_KERAS)
        else:
            self.change("jit_compile", "auto", False, _NO_XLA)
        return False

    def functions(self, module):
        """Reports a tf.function that failed for want of XLA, also if the program catches the error.

        Every call of a tf.function is within this context manager, so tracebacks do not change.
        """
        refuse = self.refuse

        class OptionalXlaContext(module.OptionalXlaContext):
            def __exit__(self, kind, error, traceback):
                if error is not None and _lacks_compiler(error):
                    refuse("jit_compile (tf.function)", True, "failed", _NO_XLA_FUNCTION)
                return super().__exit__(kind, error, traceback)

        module.OptionalXlaContext = OptionalXlaContext

    def recurrent(self, module):
        """Makes Keras's ``cudnn_ok`` return False; the original is still called, because it starts the devices."""
        original = module.cudnn_ok

        @functools.wraps(original)
        def cudnn_ok(*arguments, **keywords):
            if original(*arguments, **keywords):
                self.change("use_cudnn", "auto", False, _NO_CUDNN)
            return False

        module.cudnn_ok = cudnn_ok

    def mirrored(self, module):
        """Changes a strategy's reduction when its devices are known."""
        ops = module.cross_device_ops_lib
        original = module.MirroredExtended._initialize_strategy

        @functools.wraps(original)
        def _initialize_strategy(strategy, devices, *arguments, **keywords):
            requested_ops = strategy._cross_device_ops
            with_nccl = requested_ops is None or isinstance(requested_ops, ops.NcclAllReduce)
            if with_nccl and any("GPU" in str(device).upper() for device in devices):
                name = type(requested_ops).__name__ if requested_ops is not None else None
                self.change("cross_device_ops", name, "ReductionToOneDevice", _NO_NCCL)
                strategy._cross_device_ops = ops.ReductionToOneDevice()
            return original(strategy, devices, *arguments, **keywords)

        module.MirroredExtended._initialize_strategy = _initialize_strategy


def speak(line):
    """Writes a line to stderr, unless the program has closed it."""
    try:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):
        pass


def _explicit(frame):
    """Whether Keras asks because an attribute ``jit_compile`` is set to True; TensorFlow's ``__setattr__`` reads it."""
    for _ in range(8):
        if frame is None:
            return False
        function_name, frame_locals = frame.f_code.co_name, frame.f_locals
        is_jit_compile = function_name == "jit_compile" or (
            function_name == "__setattr__" and frame_locals.get("name") == "jit_compile"
        )
        if is_jit_compile and frame_locals.get("value") is True:
            return True
        frame = frame.f_back
    return False


def _lacks_compiler(error):
    return any(sign in str(error) for sign in _NO_COMPILER)


def explain_at_exit():
    """Explains TensorFlow's error at exit if the program requested XLA."""

    def last_words():
        error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        if error is not None and _lacks_compiler(error):
            speak("gpuwatch: simulated GPUs have no XLA: remove jit_compile=True from tf.function, or set it to False")

    atexit.register(last_words)
