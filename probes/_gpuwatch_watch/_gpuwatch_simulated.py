"""What a program on GPUs that gpuwatch simulates as a PluggableDevice needs, since such are no CUDA devices.

Its settings of memory and devices are carried over (_gpuwatch_simulated_settings.py). What needs a library of
NVIDIA's, and would end the program, goes the other way that TensorFlow and Keras have for it:

- XLA: Keras compiles a model where nobody says otherwise (``jit_compile="auto"``), and asks one function whether it
  can be compiled; here that answers no.
- cuDNN: Keras's LSTM and GRU ask one function whether they may use it; here that answers no.
- NCCL: a MirroredStrategy without cross_device_ops, or with NCCL's, reduces on one device.

On real GPUs nothing of this file is loaded. Python 3.7 or newer.
"""

import atexit
import functools
import sys

_NO_COMPILER = ("No JIT device registered", "no compiler registered", "XLA_GPU_JIT")
_NO_PYTORCH = "the simulated driver lacks a way in for PyTorch on this tier: its GPUs are devices of TensorFlow alone"
_PYTORCH_CUDA = ("12", "13")
"""The versions of CUDA whose runtime the driver tier has for PyTorch (gpuwatch/sim/build.py)."""
_NO_XLA = "simulated GPUs have no XLA: models that leave it to Keras are not compiled"
_NO_CUDNN = "simulated GPUs have no cuDNN: Keras computes LSTM and GRU layers without it"
_NO_NCCL = "simulated GPUs have no NCCL: MirroredStrategy reduces on one device (ReductionToOneDevice)"


class Simulation:
    """Acts on modules of TensorFlow and Keras when they have been imported: a finder for sys.meta_path."""

    def __init__(self, settings, say=None):
        """``settings``: the module _gpuwatch_simulated_settings. ``say`` gets each change in one line."""
        self.say = say
        self.changes = []
        """What is not as the program asked for: dictionaries of name, asked, effective and note, oldest first."""
        self.limits = []
        """The notes of those that the simulation should honour and cannot."""
        self.actions = {
            "keras.src.trainers.trainer": self.trainer,
            "keras.src.backend.tensorflow.rnn": self.recurrent,
            "tensorflow.python.distribute.mirrored_strategy": self.mirrored,
            "torch": self.torch,
        }
        self.actions.update(settings.Settings(self.refuse).actions)

    def find_spec(self, name, path=None, target=None):
        if name not in self.actions:
            return None
        act = self.actions.pop(name)
        import importlib.util

        spec = importlib.util.find_spec(name)
        if spec is None or not hasattr(spec.loader, "exec_module"):
            return spec
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            try:
                act(module)
            except Exception as error:  # of a version that nobody has tried: it goes on as it is
                text = "%s: %s" % (type(error).__name__, error)
                self.refuse(name, "simulated", False, "%s is not adapted to simulated GPUs (%s)" % (name, text))

        spec.loader.exec_module = exec_module
        return spec

    def change(self, name, asked, effective, note):
        """Something is not as the program asked for, told once."""
        change = {"name": name, "asked": asked, "effective": effective, "note": note}
        if change in self.changes:
            return
        self.changes.append(change)
        if self.say is not None:
            self.say("gpuwatch: %s" % note)

    def refuse(self, name, asked, effective, note):
        """Something that simulated GPUs cannot do."""
        if note not in self.limits:
            self.limits.append(note)
        self.change(name, asked, effective, note)

    def torch(self, module):
        """A CUDA build would say that there is no driver, or an old one, of a machine that has none of its own."""
        cuda = getattr(getattr(module, "version", None), "cuda", None)
        if cuda:
            other = " (--sim-tier driver has some for PyTorch)" if str(cuda).split(".")[0] in _PYTORCH_CUDA else ""
            self.change("PyTorch", "simulated GPUs", "none", _NO_PYTORCH + other)

    def trainer(self, module):
        """Keras's own ``model_supports_jit`` says no."""
        if hasattr(module, "model_supports_jit"):
            module.model_supports_jit = self.supports

    def supports(self, model):
        """In place of Keras's own ``model_supports_jit``."""
        self.change("jit_compile", "auto", False, _NO_XLA)
        return False

    def recurrent(self, module):
        """Keras's ``cudnn_ok`` says no; asking it starts the devices, as it does otherwise."""
        original = module.cudnn_ok

        @functools.wraps(original)
        def cudnn_ok(*given, **named):
            if original(*given, **named):
                self.change("use_cudnn", "auto", False, _NO_CUDNN)
            return False

        module.cudnn_ok = cudnn_ok

    def mirrored(self, module):
        """The strategy's devices are known here, and how they reduce is not yet."""
        ops = module.cross_device_ops_lib
        original = module.MirroredExtended._initialize_strategy

        @functools.wraps(original)
        def _initialize_strategy(strategy, devices, *given, **named):
            asked = strategy._cross_device_ops
            with_nccl = asked is None or isinstance(asked, ops.NcclAllReduce)
            if with_nccl and any("GPU" in str(device).upper() for device in devices):
                name = type(asked).__name__ if asked is not None else None
                self.change("cross_device_ops", name, "ReductionToOneDevice", _NO_NCCL)
                strategy._cross_device_ops = ops.ReductionToOneDevice()
            return original(strategy, devices, *given, **named)

        module.MirroredExtended._initialize_strategy = _initialize_strategy


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
