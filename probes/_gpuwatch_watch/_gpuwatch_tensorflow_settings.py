"""A watched program's settings of TensorFlow's devices and memory: the line that made them, and the effective values.

No public function of TensorFlow is wrapped, so tracebacks, signatures and warnings do not change. tf.config stores its
settings in attributes of TensorFlow's context, which are replaced by descriptors: a function that reads or writes one
has the setting in its arguments (tensorflow/python/eager/context.py). A session's configuration is seen where it is
passed to the C API, after TensorFlow has checked it. Standard library only, Python 3.7 or newer.
"""

import gc
import os
import sys

_FRAMEWORKS = tuple(os.sep + name + os.sep for name in ("tensorflow", "keras", "tf_keras"))
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
        call, given = frame.f_code.co_name, frame.f_locals
        if call in _FOR_THE_RUNTIME and "memory growth" in self.asked:
            gpus = [one for one in context._visible_device_list if one.device_type == "GPU"]
            grows = {one: bool(context.__dict__["_memory_growth_map"].get(one)) for one in gpus}
            if len(set(grows.values())) > 1 and not context.__dict__["_virtual_device_map"]:
                self.asked["memory growth"]["note"] = _DIFFERS % ", ".join(one.name for one in gpus if not grows[one])
        elif call == "set_memory_growth" and "enable" in given:
            self._by_device("memory growth", given.get("dev"), bool(given["enable"]), frame)
        elif call == "set_logical_device_configuration" and given.get("virtual_devices") is not None:
            parts = list(given["virtual_devices"])
            limits = [getattr(part, "memory_limit", None) for part in parts]
            if getattr(given.get("dev"), "device_type", "GPU") == "GPU" and limits:
                self._by_device("memory_limit", given.get("dev"), limits[0] if len(limits) == 1 else limits, frame)
                if len(limits) > 1:
                    self._by_device("logical devices", given.get("dev"), len(limits), frame)

    def _value(self, frame, context):
        call, given = frame.f_code.co_name, frame.f_locals
        if call == "set_visible_devices" and given.get("device_type") in (None, "GPU"):
            devices = given.get("devices")
            devices = devices if isinstance(devices, (list, tuple)) else [devices]
            names = [device.name for device in devices if getattr(device, "device_type", "") == "GPU"]
            self.note("visible devices", names, _place(frame), "")
        elif call == "soft_device_placement" and "enable" in given:
            self.note("soft placement", bool(given["enable"]), _place(frame), "")
        elif call == "device_policy" and "policy" in given and _of_the_api(frame) and not _ours(frame):
            self.note("device policy", str(given["policy"]), _place(frame), "")

    def _by_device(self, name, device, value, frame):
        """Notes a setting once if it is the same for all devices, otherwise by device."""
        known = self.asked.get(name, {}).get("by device", {})
        known = dict(known)
        known[getattr(device, "name", str(device))] = value
        values = list(known.values())
        self.note(name, value if all(one == value for one in values) else known, _place(frame), "")
        self.asked[name]["by device"] = known

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
        found = module.TF_SessionListDevices(session._session)
        listed = []
        for number in range(module.TF_DeviceListCount(found)):
            if module.TF_DeviceListType(found, number) == "GPU":
                name = module.TF_DeviceListName(found, number)
                amount = module.TF_DeviceListMemoryBytes(found, number)
                listed.append(("/device:" + name.rpartition("/device:")[2], amount))
        module.TF_DeleteDeviceList(found)
        options = session._config.gpu_options if session._config is not None else None
        virtual = options is not None and len(options.experimental.virtual_devices) > 0
        self.listed = None if virtual else options.visible_device_list if options is not None else ""
        self.granted = listed

    def _session(self, config, frame):
        given = config
        while frame is not None and _gpuwatch(frame):
            frame = frame.f_back
        while frame is not None and frame.f_code.co_name == "__init__" and _framework(frame):
            given = frame.f_locals.get("config", given)
            frame = frame.f_back
        late = "too late: TensorFlow already has its devices, configured by the first session" if self.sessions else ""
        self.sessions += 1
        place = _place(frame)
        if given is None and frame is not None and not late:
            seen = [*frame.f_locals.values(), *frame.f_globals.values()]
            seen = [one for one in seen if type(one).__name__ == "ConfigProto"]
            for one in [one.gpu_options for one in seen if hasattr(one, "gpu_options")]:
                for name in [name for name in _GPU_OPTIONS if getattr(one, name) and name not in self.asked]:
                    self.note(name, getattr(one, name), "", _NOT_GIVEN % place)
        if config is None or given is None:
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
        kinds = [sys.modules["keras.src.layers.layer"].Layer]
        for kind in kinds:
            kinds += kind.__subclasses__()
        # Not of all objects: a list of them would hold a tuple that another thread is building, and break it.
        layers = [one for one in gc.get_referrers(*kinds) if type(one) in kinds]
        layers = [one for one in layers if one.__dict__.get("_trainable_variables")]
        if layers and all(one.compute_dtype != policy.compute_dtype for one in layers):
            note = "not in effect: no layer computes in it, all %d with weights in another type" % len(layers)
            emit("setting", name="mixed precision", asked=policy.name, effective=None, note=note, source="")

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
            asked = [gpu for gpu in context._physical_devices if gpu.name in entry["by device"]]
            return self._by_gpu(name, asked, entry["asked"], context), ""
        if name == "visible devices":
            return [one.name for one in context._visible_device_list if one.device_type == "GPU"], ""
        if name == "soft placement":
            return bool(context._soft_device_placement), ""
        return None, ""

    def _by_gpu(self, name, gpus, asked, context):
        """The effective value of each GPU for which a setting was asked for; one value if all have the same."""
        if name == "memory growth":
            found = [bool(context._memory_growth_map.get(gpu)) for gpu in gpus]
        else:
            parts = [context._virtual_device_map.get(gpu) or [] for gpu in gpus]
            limits = [[part.memory_limit for part in one] for one in parts]
            found = [len(one) or 1 if name == "logical devices" else _only(one) for one in limits]
        if isinstance(asked, dict):
            return {gpu.name: found[number] for number, gpu in enumerate(gpus)}
        return _common(found)

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


def _only(values):
    return values[0] if len(values) == 1 else values


def _common(values):
    return values[0] if values and all(one == values[0] for one in values) else values or None


def _framework(frame):
    return any(part in frame.f_code.co_filename for part in _FRAMEWORKS)


def _gpuwatch(frame):
    return os.path.basename(frame.f_code.co_filename).startswith("_gpuwatch_")


def _ours(frame):
    """Whether the caller is gpuwatch itself (--placement)."""
    while frame is not None and _framework(frame):
        frame = frame.f_back
    return frame is not None and _gpuwatch(frame)


def _of_the_api(frame):
    """Whether the setter is called by set_device_policy(): strategies set the policy for moments by themselves."""
    return frame.f_back is not None and frame.f_back.f_code.co_name == "set_device_policy"


def _place(frame):
    """``train.py:12``: the innermost line outside the framework."""
    while frame is not None and _framework(frame):
        frame = frame.f_back
    if frame is None:
        return ""
    name = frame.f_code.co_filename
    return "%s:%d" % (os.path.basename(name) if os.path.isabs(name) else name, frame.f_lineno)
