"""Applies a setting inside a program that ``gpuwatch try`` runs.

A setting is made when TensorFlow first uses a device, not when it is imported: earlier, it would break programs that
set CUDA_VISIBLE_DEVICES after the import, or fork. What the program sets itself stays, and is reported with its line.
The settings are those of the probe scripts: their ``configure()`` is called. No public function of TensorFlow is
wrapped, so tracebacks do not change; a version that lacks a private name that is needed here runs without the setting,
and that is reported. Standard library only, Python 3.7 or newer.
"""

import _thread
import importlib.util
import os
import sys
import types

_CONTEXT = "tensorflow.python.eager.context"
_EXECUTION = "tensorflow.python.pywrap_tfe"
_SESSIONS = "tensorflow.python.client.pywrap_tf_session"
_DEVICE_LIB = "tensorflow.python.client.device_lib"
_KERAS_STATE = "keras.src.backend.common.global_state"
_MIXED_PRECISION, _FRACTION = "mixed-float16", "fraction"
_POLICY = "mixed_float16"
_SOURCE = "gpuwatch try"
_MEMORY_SETTINGS = ("memory growth", "memory_limit", "logical devices")
_AMOUNT_SETTINGS = ("per_process_gpu_memory_fraction", "memory_limit")


class Trial:
    """Applies one setting, and observes modules of the frameworks after their import (see sitecustomize.py)."""

    def __init__(self, asked, watcher):
        """``asked``: the contents of GPUWATCH_TRIAL. ``watcher``: the Watcher, with its Settings."""
        self.probe = asked.get("probe")
        self.options = asked.get("options") or {}
        self.no_retry = bool(asked.get("no_retry"))
        self.interval = float(asked.get("interval") or 0.2)
        self.settings = watcher.settings
        self.watcher = watcher
        self.answer = None
        """What became of the setting: the data of the ``applied`` event."""
        self.sent_answer = None
        self.applying = False
        self.in_context = False
        """Whether TensorFlow 2's context has the setting, or will never have it."""
        self._has_context = True
        self.policy_set = False
        self.policy_watched = False
        self.by_session = None
        """GPUOptions to merge into the configurations of sessions."""
        self.actions = {}
        if self.probe == _MIXED_PRECISION:
            self.actions.update({"keras": self._keras, "tf_keras": self._keras, _KERAS_STATE: self._policies})
        elif self.probe == _FRACTION:
            self.actions["torch"] = self._torch
        if self.probe not in (None, _MIXED_PRECISION):
            self.actions[_CONTEXT] = self._context
        if self.no_retry:
            self.actions[_EXECUTION] = self._execution
        if self.no_retry or self.probe not in (None, _MIXED_PRECISION):
            self.actions[_SESSIONS] = self._sessions
            self.actions[_DEVICE_LIB] = self._listed
        self.reset()
        self.renew()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.renew)

    def renew(self):
        """A new lock in a forked process: the old one may be held by a thread that it does not have."""
        self.lock = _thread.RLock()

    def reset(self):
        """Starts over, as in a process forked by multiprocessing."""
        self.sent_answer = None

    def failed(self, name, error):
        if name != _EXECUTION:  # without it an OOM takes ten seconds
            self.not_tried("not possible in this version: %s (%s: %s)" % (name, type(error).__name__, error))

    # What became of the setting

    def applied(self, effective):
        self._answer(True, effective=effective)

    def overridden(self, place):
        self._answer(False, overridden=place)

    def not_tried(self, reason):
        self._answer(False, reason=reason)

    def _answer(self, applied, overridden="", reason="", effective=None):
        self.answer = {
            "name": self.probe,
            "applied": applied,
            "overridden": overridden,
            "reason": reason,
            "effective": effective or {},
        }

    def tell(self, emit, last=False):
        """Sends what became of the setting, if that has changed."""
        if last and self.answer is None and self.probe is not None:
            self.not_tried(
                "the program has no Keras model" if self.probe == _MIXED_PRECISION else "the program used no GPU"
            )
        if self.probe is not None and self.answer is not None and self.answer is not self.sent_answer:
            self.sent_answer = self.answer
            emit("applied", **self.answer)

    # At TensorFlow's first use of a device

    def _context(self, module):
        """Context: its lock is read where it starts the devices."""
        context = module.Context
        if "_initialize_lock" not in context.ensure_initialized.__code__.co_names:
            raise AttributeError("Context.ensure_initialized has no _initialize_lock")
        context._initialize_lock = self.watcher.descriptors.Attribute(
            "_initialize_lock", lambda frame, context: self._start(), within="ensure_initialized"
        )

    def _start(self, session=False):
        """Makes the setting at the first use of a device: by a ``session``, or by TensorFlow 2's context."""
        with self.lock:
            made = self.by_session is not None if session else self.in_context
            if made or self.applying or self.probe is None or (self.answer is not None and not self.answer["applied"]):
                return
            self.applying = True
            try:
                self._apply(session)
            except Exception as error:  # our errors must not disturb the program
                self.not_tried("%s: %s" % (type(error).__name__, error))
            finally:
                self.applying = False

    def _apply(self, session):
        place = self._set_by_program()
        if self.by_session is not None:
            self.in_context = True
            if place or not self._has_context:
                return  # a session has started the devices with our setting
        elif place:
            self.overridden(place)
            return
        tf = sys.modules["tensorflow"]
        if not tf.config.list_physical_devices("GPU"):
            self.not_tried("TensorFlow has no GPU")
            return
        context = sys.modules[_CONTEXT].context()
        context_maps = [(name, dict(getattr(context, name))) for name in ("_memory_growth_map", "_virtual_device_map")]
        settings_before = dict(self.settings.asked)
        reason = "interrupted"
        self.settings.by = _SOURCE
        try:
            reason, effective, config = self._configure(tf)
            self._has_context = config is None
            if not reason and config is not None and not session:
                reason = "only TensorFlow 1 sessions have this setting: use limit"
            if not reason:
                self.by_session = context.config.gpu_options if config is None else config.gpu_options
        finally:
            self.settings.by = ""
            if reason or session:
                # A program may still use tf.config after a session.
                for name, value in context_maps:
                    setattr(context, name, value)
            if reason:
                self.settings.asked = settings_before
        if reason:
            self.not_tried(reason)
            return
        self.in_context = not session
        self.applied(effective)

    def _set_by_program(self):
        """The line where the program has made such a setting with tf.config; empty if it has not."""
        for name in _MEMORY_SETTINGS if self._amounts() else ():
            entry = self.settings.asked.get(name, {})
            if "by device" in entry and entry["source"] != _SOURCE:
                return entry["source"] or "the program"
        return ""

    def _set_by_session(self):
        """The line where the program's session has its own amount of memory."""
        places = [self.settings.asked.get(name, {}).get("source") for name in _AMOUNT_SETTINGS]
        return next(filter(None, places), "the program's session")

    def _amounts(self):
        """Whether the setting is about the amount of memory that TensorFlow takes."""
        return self.probe != "async-allocator"

    def _configure(self, tf):
        """Calls the probe's configure(); returns why it is not tried, the effective settings, and a ConfigProto."""
        folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        before = set(sys.modules)
        finder = _Finder(folder)
        written, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        sys.meta_path.insert(0, finder)
        try:
            import _gpuwatch_probe

            name = self.probe.replace("-", "_")
            spec = importlib.util.spec_from_file_location("_gpuwatch_setting", os.path.join(folder, name + ".py"))
            script = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(script)
            probe = _adapter(_gpuwatch_probe.Probe, script.CONFIG, self.options)
            try:
                script.configure(tf, probe)
            except _gpuwatch_probe.Skipped as reason:
                return str(reason), {}, None
            return "; ".join(probe.errors), probe.effective, probe.session_config
        finally:
            sys.meta_path.remove(finder)
            sys.dont_write_bytecode = written
            for name in set(sys.modules) - before:
                if name.startswith("_gpuwatch_"):
                    del sys.modules[name]

    # In TensorFlow's sessions and options

    def _sessions(self, module):
        original = module.TF_NewSessionOptions

        def TF_NewSessionOptions(target=None, config=None):  # noqa: N802 - TensorFlow's own name
            if target:
                if self.answer is None:
                    self.not_tried("a server starts the devices, not the session")
                return original(target=target, config=config)
            return original(target=target, config=self._merged(config))

        module.TF_NewSessionOptions = TF_NewSessionOptions

    def _listed(self, module):
        """device_lib: its list (also tf.test.gpu_device_name()) starts the devices with a configuration of its own."""
        library = module._pywrap_device_lib

        def list_devices(serialized=None):
            from tensorflow.core.protobuf import config_pb2

            config = self._merged(config_pb2.ConfigProto.FromString(serialized or b""))
            return library.list_devices(config.SerializeToString())

        module._pywrap_device_lib = types.SimpleNamespace(list_devices=list_devices)

    def _merged(self, config):
        """A session's configuration, with the setting where the program left it open."""
        if (
            self.answer is None
            and self.probe is not None
            and self._amounts()
            and _memory_amount(getattr(config, "gpu_options", None))
        ):
            self.overridden(self._set_by_session())
        self._start(session=True)
        if config is None or (self.by_session is None and not self.no_retry):
            return config
        try:
            merged = type(config)()
            merged.CopyFrom(config)
            if self.by_session is not None:
                self._merge(merged)
            if self.no_retry:
                _no_retry(merged)
            return merged
        except Exception as error:  # another version of TensorFlow
            self.not_tried("%s: %s" % (type(error).__name__, error))
            return config

    def _merge(self, config):
        ours, theirs = self.by_session, config.gpu_options
        if _memory_amount(theirs):
            return  # made by tf.config, or too late: the GPUs have their memory
        for options in (theirs, *_pluggable(config)):
            options.allow_growth = options.allow_growth or ours.allow_growth
            options.per_process_gpu_memory_fraction = ours.per_process_gpu_memory_fraction
        parts = list(ours.experimental.virtual_devices)
        if theirs.visible_device_list:
            parts = parts[: len(theirs.visible_device_list.split(","))]
        theirs.experimental.virtual_devices.extend(parts)

    def _execution(self, module):
        original = module.TFE_ContextOptionsSetConfig

        def TFE_ContextOptionsSetConfig(options, serialized):  # noqa: N802 - TensorFlow's own name
            from tensorflow.core.protobuf import config_pb2

            config = config_pb2.ConfigProto.FromString(serialized)
            _no_retry(config)
            return original(options, config.SerializeToString())

        module.TFE_ContextOptionsSetConfig = TFE_ContextOptionsSetConfig

    # Keras and PyTorch

    def _keras(self, module):
        """Keras, completely imported: sets its dtype policy."""
        if "GPUWATCH_SIM_STATE" in os.environ:
            self.not_tried("simulated GPUs do not compute in mixed precision as real ones do")
            return
        self.applying = True
        try:
            module.mixed_precision.set_global_policy(_POLICY)
        finally:
            self.applying = False
        self.policy_set = True
        if not self.policy_watched:
            self._policy_used()

    def _policy_used(self):
        """TensorFlow imports Keras whether or not the program uses it: called once a layer has been made."""
        if self.policy_set and self.answer is None:
            self.applied({"dtype policy": _POLICY})

    def _policies(self, module):
        """Keras's global state: sees names of layers, and a dtype policy that the program sets."""
        original = module.set_global_attribute
        self.policy_watched = True

        def set_global_attribute(name, value):
            if name == "object_name_uids":
                self._policy_used()
            elif name == "dtype_policy" and self.policy_set and not self.applying:
                self.overridden(self.settings.program_line(sys._getframe(1)) or "the program")
            return original(name, value)

        module.set_global_attribute = set_global_attribute

    def _torch(self, module):
        """PyTorch: its first use of CUDA runs queued calls."""
        if module.version.cuda is None:
            self.not_tried("this PyTorch is a CPU build")
            return
        original = module._C._cuda_setMemoryFraction

        def _cuda_setMemoryFraction(*arguments):  # noqa: N802 - PyTorch's own name
            if not self.applying:
                self.overridden(self.settings.program_line(sys._getframe(1)) or "the program")
            return original(*arguments)

        def start():
            self.applying = True
            try:
                fraction = float(self.options["fraction"])
                for number in range(module.cuda.device_count()):
                    module.cuda.set_per_process_memory_fraction(fraction, number)
                self.applied({"per_process_memory_fraction": fraction})
            except Exception as error:  # our errors must not disturb the program
                self.not_tried("%s: %s" % (type(error).__name__, error))
            finally:
                self.applying = False

        module.cuda._lazy_call(start)
        module._C._cuda_setMemoryFraction = _cuda_setMemoryFraction


class _Finder:
    """Finds the modules of the probes' folder, which is never on the program's sys.path."""

    def __init__(self, folder):
        self.folder = folder

    def find_spec(self, name, path=None, target=None):
        file = os.path.join(self.folder, name + ".py")
        if not name.startswith("_gpuwatch_") or not os.path.isfile(file):
            return None
        return importlib.util.spec_from_file_location(name, file)


def _adapter(base, config, options):
    """A Probe that keeps what configure() reports."""

    class Adapter(base):
        def __init__(self):
            base.__init__(self, config, options, fd=-1)
            self.effective = {}
            self.errors = []

        def emit(self, kind, **data):
            if kind == "setting":
                self.effective[data["name"]] = data["effective"]
            elif kind == "error":
                self.errors.append("%s: %s" % (data["type"], data["message"]))

    return Adapter()


def _memory_amount(options):
    """What GPUOptions say about the amount of memory; empty if nothing."""
    return options is not None and (
        options.per_process_gpu_memory_fraction or list(options.experimental.virtual_devices)
    )


def _no_retry(config):
    """TensorFlow then fails at once where memory runs out, instead of trying again for ten seconds.

    Not on a PluggableDevice: its allocator (pluggable_device_bfc_allocator.cc) reads of the options only whether memory
    may grow, and always tries again.
    """
    config.gpu_options.experimental.disallow_retry_on_allocation_failure = True


def _pluggable(config):
    """The separate options of PluggableDevices, which 2.16 does not have."""
    return (config.pluggable_device_options,) if "pluggable_device_options" in config.DESCRIPTOR.fields_by_name else ()
