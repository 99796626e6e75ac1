"""A watched program's settings of TensorFlow's devices and memory: the line that made them, and the effective values.

No public function of TensorFlow is wrapped, so tracebacks, signatures and warnings do not change. tf.config stores its
settings in attributes of TensorFlow's context, which are replaced by descriptors: a function that reads or writes one
has the setting in its arguments (tensorflow/python/eager/context.py). A session's configuration is seen where it is
passed to the C API, after TensorFlow has checked it. Standard library only, Python 3.7 or newer.
"""

import gc
import os
import sys

_FRAMEWORK_FOLDERS = tuple(os.sep + name + os.sep for name in ("tensorflow", "keras", "tf_keras", "torch"))
_CONTEXT = "tensorflow.python.eager.context"
_SESSIONS = "tensorflow.python.client.pywrap_tf_session"
_FOR_THE_RUNTIME = frozenset(["_compute_device_options", "_compute_gpu_options"])
"""Functions of TensorFlow that hand its settings to the C++ runtime, and refuse growth that differs."""
_DIFFERS = "refused: it cannot differ between GPUs, and was not asked for on %s"
_NOT_GIVEN = "not in effect: the session of %s was made without this ConfigProto"
_GPU_OPTIONS = ("allow_growth", "per_process_gpu_memory_fraction", "visible_device_list", "allocator_type")


class Settings:
    """Observes modules of TensorFlow after their import (see sitecustomize.py)."""

    def __init__(self, descriptors):
        """``descriptors``: the module _gpuwatch_descriptors."""
        self.descriptors = descriptors
        self.asked = {}
        """By name of the setting: the value, by device if necessary, its source, and a note."""
        self.sent = {}
        self.actions = {_CONTEXT: self._context, _SESSIONS: self._sessions}
        self.sessions = 0
        self.granted = None
        """Of the first session with GPUs: the names of its GPUs, each with its memory limit in bytes."""
        self.listed = None
        """Its ``visible_device_list``; None if it has virtual devices."""
        self.by = ""
        """Who makes settings at the moment, if it is not the program."""

    def failed(self, name, error):
        self.note(name, "watched", "", "not possible in this version (%s)" % error)

    # Observing the program's settings

    def _context(self, module):
        context = module.Context
        for attribute in ("_memory_growth_map", "_virtual_device_map"):
            setattr(context, attribute, self.descriptors.Attribute(attribute, self._map, self._map))
        for attribute in ("_visible_device_list", "_soft_device_placement", "_device_policy"):
            setattr(context, attribute, self.descriptors.Attribute(attribute, self._value, self._value))

    def _map(self, frame, context):
        function_name, frame_locals = frame.f_code.co_name, frame.f_locals
        if function_name in _FOR_THE_RUNTIME and "memory growth" in self.asked:
            gpus = [device for device in context._visible_device_list if device.device_type == "GPU"]
            grows = {device: bool(context.__dict__["_memory_growth_map"].get(device)) for device in gpus}
            if len(set(grows.values())) > 1 and not context.__dict__["_virtual_device_map"]:
                self.asked["memory growth"]["note"] = _DIFFERS % ", ".join(
                    device.name for device in gpus if not grows[device]
                )
        elif function_name == "set_memory_growth" and "enable" in frame_locals:
            self._by_device("memory growth", frame_locals.get("dev"), bool(frame_locals["enable"]), frame)
        elif function_name == "set_logical_device_configuration" and frame_locals.get("virtual_devices") is not None:
            parts = list(frame_locals["virtual_devices"])
            limits = [getattr(part, "memory_limit", None) for part in parts]
            if getattr(frame_locals.get("dev"), "device_type", "GPU") == "GPU" and limits:
                self._by_device(
                    "memory_limit", frame_locals.get("dev"), limits[0] if len(limits) == 1 else limits, frame
                )
                if len(limits) > 1:
                    self._by_device("logical devices", frame_locals.get("dev"), len(limits), frame)

    def _value(self, frame, context):
        function_name, frame_locals = frame.f_code.co_name, frame.f_locals
        if function_name == "set_visible_devices" and frame_locals.get("device_type") in (None, "GPU"):
            devices = frame_locals.get("devices")
            devices = devices if isinstance(devices, (list, tuple)) else [devices]
            names = [device.name for device in devices if getattr(device, "device_type", "") == "GPU"]
            self.note("visible devices", names, self.program_line(frame), "")
        elif function_name == "soft_device_placement" and "enable" in frame_locals:
            self.note("soft placement", bool(frame_locals["enable"]), self.program_line(frame), "")
        elif (
            function_name == "device_policy"
            and "policy" in frame_locals
            and _of_the_api(frame)
            and not _called_by_gpuwatch(frame)
        ):
            self.note("device policy", str(frame_locals["policy"]), self.program_line(frame), "")

    def _by_device(self, name, device, value, frame):
        """Notes a setting once if it is the same for all devices, otherwise by device."""
        values_by_device = self.asked.get(name, {}).get("by device", {})
        values_by_device = dict(values_by_device)
        values_by_device[getattr(device, "name", str(device))] = value
        values = list(values_by_device.values())
        self.note(
            name,
            value if all(device_value == value for device_value in values) else values_by_device,
            self.program_line(frame),
            "",
        )
        self.asked[name]["by device"] = values_by_device

    def _sessions(self, module):
        original = getattr(module, "TF_NewSessionOptions", None)
        if original is None:
            return

        def TF_NewSessionOptions(target=None, config=None):  # noqa: N802 - TensorFlow's own name
            try:
                self._session(config, sys._getframe(1))
            except Exception as error:  # another version of TensorFlow
                self.note("session", None, "", "its configuration could not be read (%s)" % error)
            return original(target=target, config=config)

        module.TF_NewSessionOptions = TF_NewSessionOptions
        delete = getattr(module, "TF_DeleteSessionOptions", None)
        if delete is None:
            return

        def TF_DeleteSessionOptions(opts):  # noqa: N802
            # Called when the session was created, or failed: no traceback passes here.
            delete(opts)
            try:
                self._created(module, sys._getframe(1).f_locals["self"])
            except Exception as error:  # another version of TensorFlow
                self.note("session", None, "", "its devices could not be listed (%s)" % error)

        module.TF_DeleteSessionOptions = TF_DeleteSessionOptions

    def _created(self, module, session):
        if self.granted or session._session is None or session._target:
            return
        devices = module.TF_SessionListDevices(session._session)
        gpus = []
        for number in range(module.TF_DeviceListCount(devices)):
            if module.TF_DeviceListType(devices, number) == "GPU":
                name = module.TF_DeviceListName(devices, number)
                amount = module.TF_DeviceListMemoryBytes(devices, number)
                gpus.append(("/device:" + name.rpartition("/device:")[2], amount))
        module.TF_DeleteDeviceList(devices)
        options = session._config.gpu_options if session._config is not None else None
        virtual = options is not None and len(options.experimental.virtual_devices) > 0
        self.listed = None if virtual else options.visible_device_list if options is not None else ""
        self.granted = gpus

    def _session(self, config, frame):
        program_config = config
        while frame is not None and _is_gpuwatch_frame(frame):
            frame = frame.f_back
        while frame is not None and frame.f_code.co_name == "__init__" and _is_framework_frame(frame):
            program_config = frame.f_locals.get("config", program_config)
            frame = frame.f_back
        late = "too late: TensorFlow already has its devices, configured by the first session" if self.sessions else ""
        self.sessions += 1
        place = self.program_line(frame)
        if program_config is None and frame is not None and not late:
            candidates = [*frame.f_locals.values(), *frame.f_globals.values()]
            candidates = [candidate for candidate in candidates if type(candidate).__name__ == "ConfigProto"]
            for candidate in [candidate.gpu_options for candidate in candidates if hasattr(candidate, "gpu_options")]:
                for name in [name for name in _GPU_OPTIONS if getattr(candidate, name) and name not in self.asked]:
                    self.note(name, getattr(candidate, name), "", _NOT_GIVEN % place)
        if config is None or program_config is None:
            return  # from tf.config, which is reported separately
        for name in _GPU_OPTIONS:
            value = getattr(config.gpu_options, name)
            if value and not (late and self.asked.get(name, {}).get("asked") == value):
                self.note(name, value, place, late)
        virtual = [list(part.memory_limit_mb) for part in config.gpu_options.experimental.virtual_devices]
        if virtual and not (late and self.asked.get("memory_limit", {}).get("asked") == virtual):
            self.note("memory_limit", virtual, place, late)
        if config.allow_soft_placement:
            self.note("allow_soft_placement", True, place, "")

    def note(self, name, asked, source, note):
        """Notes a setting; the last value counts."""
        self.asked[name] = {"asked": asked, "source": self.by or source, "note": note}

    def policy(self, emit):
        """At the end, in the main thread: a policy of mixed precision that no layer of Keras with weights has."""
        state = sys.modules.get("keras.src.backend.common.global_state")
        policy = state.get_global_attribute("dtype_policy") if state is not None else None
        if not getattr(policy, "name", "").startswith("mixed_"):
            return
        layer_classes = [sys.modules["keras.src.layers.layer"].Layer]
        for layer_class in layer_classes:
            layer_classes += layer_class.__subclasses__()
        # Not of all objects: a list of them would hold a tuple that another thread is building, and break it.
        layers = [layer for layer in gc.get_referrers(*layer_classes) if type(layer) in layer_classes]
        layers = [layer for layer in layers if layer.__dict__.get("_trainable_variables")]
        if layers and all(layer.compute_dtype != policy.compute_dtype for layer in layers):
            note = "not in effect: no layer computes in it, all %d with weights in another type" % len(layers)
            emit("setting", name="mixed precision", asked=policy.name, effective=None, note=note, source="")

    @staticmethod
    def program_line(frame):
        """``train.py:12``: the innermost line outside the frameworks; empty if there is none."""
        while frame is not None and _is_framework_frame(frame):
            frame = frame.f_back
        if frame is None:
            return ""
        name = frame.f_code.co_filename
        return "%s:%d" % (os.path.basename(name) if os.path.isabs(name) else name, frame.f_lineno)

    # Effective values

    def tell(self, emit, context):
        """Sends changes; ``context``: TensorFlow's, once it has initialized its devices, or None."""
        for name, entry in list(self.asked.items()):
            effective, note = self._effective(name, entry, context)
            data = {
                "name": name,
                "asked": entry["asked"],
                "effective": effective,
                "source": entry["source"],
                "note": entry["note"] or note,
            }
            if self.sent.get(name) != data:
                self.sent[name] = data
                emit("setting", **data)

    def _effective(self, name, entry, context):
        """The value in TensorFlow's own state, and a note; None if unknown."""
        if entry["note"]:
            return None, ""
        forced = os.environ.get("TF_FORCE_GPU_ALLOW_GROWTH")
        if name in ("memory growth", "allow_growth") and forced in ("true", "false"):
            return forced == "true", "overridden by TF_FORCE_GPU_ALLOW_GROWTH=%s" % forced
        if name in _GPU_OPTIONS and self.granted is not None:
            return self._of_session(name, entry["asked"])
        if context is None:
            return None, ""
        if "by device" in entry:
            gpus = [gpu for gpu in context._physical_devices if gpu.name in entry["by device"]]
            return self._by_gpu(name, gpus, entry["asked"], context), ""
        if name == "visible devices":
            return [device.name for device in context._visible_device_list if device.device_type == "GPU"], ""
        if name == "soft placement":
            return bool(context._soft_device_placement), ""
        return None, ""

    def _by_gpu(self, name, gpus, requested, context):
        """The effective value of each GPU for which a setting was asked for; one value if all have the same."""
        if name == "memory growth":
            values = [bool(context._memory_growth_map.get(gpu)) for gpu in gpus]
        else:
            parts = [context._virtual_device_map.get(gpu) or [] for gpu in gpus]
            limits = [[part.memory_limit for part in parts_of_gpu] for parts_of_gpu in parts]
            values = [
                len(parts_of_gpu) or 1 if name == "logical devices" else _single_value(parts_of_gpu)
                for parts_of_gpu in limits
            ]
        if isinstance(requested, dict):
            return {gpu.name: values[number] for number, gpu in enumerate(gpus)}
        return _common_value(values)

    def _of_session(self, name, asked):
        """The effective value of a session's option, by the devices that the session got."""
        if name == "visible_device_list":
            count = len([part for part in asked.split(",") if part.strip()])
            if count == len(self.granted):
                return asked, ""
            return None, "the session has %d GPUs" % len(self.granted)
        if name == "per_process_gpu_memory_fraction":
            parts = ["%s %d MiB" % (device.rpartition("device:")[2], amount >> 20) for device, amount in self.granted]
            return None, "granted: " + (", ".join(parts) or "no GPU")
        return None, "TensorFlow does not report its value"

    def mapped(self):
        """The GPUs of the first session, as the log has them unless it is off: name, CUDA's number or None, bytes."""
        numbers = self.listed.split(",") if self.listed else None
        for position, (name, amount) in enumerate(self.granted or ()):
            if numbers is not None and len(numbers) == len(self.granted):
                yield name, int(numbers[position]), amount
            else:
                yield name, position if self.listed == "" else None, amount


def _single_value(values):
    return values[0] if len(values) == 1 else values


def _common_value(values):
    return values[0] if values and all(value == values[0] for value in values) else values or None


def _is_framework_frame(frame):
    return any(part in frame.f_code.co_filename for part in _FRAMEWORK_FOLDERS)


def _is_gpuwatch_frame(frame):
    return os.path.basename(frame.f_code.co_filename).startswith("_gpuwatch_")


def _called_by_gpuwatch(frame):
    """Whether the caller is gpuwatch itself (--placement)."""
    while frame is not None and _is_framework_frame(frame):
        frame = frame.f_back
    return frame is not None and _is_gpuwatch_frame(frame)


def _of_the_api(frame):
    """Whether the setter is called by set_device_policy(): strategies set the policy for moments by themselves."""
    return frame.f_back is not None and frame.f_back.f_code.co_name == "set_device_policy"
