"""Translates a program's memory and device settings for GPUs that gpuwatch simulates as a PluggableDevice.

For a PluggableDevice, TensorFlow ignores memory_limit, virtual GPUs and some uses of fractions and device lists. All
settings, from tf.config, a TF1 session or a server, end up in a ConfigProto. It is intercepted where Python passes it
to TensorFlow's C++: the plug-in gets the requested logical devices, and TensorFlow a ConfigProto that uses them as they
are. The program's own objects are not changed. Not loaded on real GPUs. Python 3.7 or newer.
"""

import ctypes
import functools
import os
import sys

_TOO_MANY, _NO_ROOM = 28, 12  # ENOSPC, ENOMEM


class Settings:
    """Translates settings. ``tell(name, asked, effective, note)`` is called for those that cannot be honoured."""

    def __init__(self, tell):
        self.tell = tell
        self.library = None
        self.counted = self.changed = False
        """Whether CUDA_VISIBLE_DEVICES was read; whether it leaves other devices than TensorFlow listed at its import,
        and TensorFlow has not listed them again."""
        self.actions = {
            "tensorflow.python.eager.context": self.physical,
            "tensorflow.python.pywrap_tfe": self.eager,
            "tensorflow.python.client.pywrap_tf_session": self.sessions,
            "tensorflow.python.client._pywrap_device_lib": self.listing,
        }
        """Functions by the module that they are called with after its import."""

    # Where TensorFlow gets a configuration

    def physical(self, module):
        """Context: re-reads CUDA_VISIBLE_DEVICES when the program first lists devices, as CUDA would."""
        original = module.Context._initialize_physical_devices

        @functools.wraps(original)
        def _initialize_physical_devices(context, *arguments, **keywords):
            self.recount()
            if not self.changed:
                return original(context, *arguments, **keywords)
            self.changed = False
            return original(context, True)

        module.Context._initialize_physical_devices = _initialize_physical_devices

    def recount(self):
        """Reads CUDA_VISIBLE_DEVICES once, at the first use of the devices."""
        tensorflow = sys.modules.get("tensorflow")
        if not self.counted and not getattr(getattr(tensorflow, "__spec__", None), "_initializing", True):
            self.counted = True
            self.changed = bool(self.plugin().gpuwatch_plugin_recount())

    def eager(self, module):
        """pywrap_tfe: the eager context, and cluster servers."""
        _replace(module, "TFE_ContextOptionsSetConfig", self.configuration)
        for name in (
            "TFE_EnableCollectiveOps",
            "TFE_ContextSetServerDef",
            "TFE_ContextSetServerDefWithTimeoutAndRetries",
            "TFE_ContextUpdateServerDef",
        ):
            _replace(module, name, self.server)

    def sessions(self, module):
        """pywrap_tf_session: the sessions and servers of TensorFlow 1."""
        _replace(module, "_TF_SetConfig", self.configuration)
        _replace(module, "TF_NewServer", self.server)

    def listing(self, module):
        """_pywrap_device_lib: list_local_devices creates devices too, often without a configuration."""
        original = module.list_devices

        def list_devices(serialized_config=None):
            return original(self.configuration(serialized_config or b""))

        module.list_devices = list_devices

    def configuration(self, serialized):
        """Translates a serialized ConfigProto."""
        from tensorflow.core.protobuf import config_pb2

        return self.translated(config_pb2.ConfigProto.FromString(serialized)).SerializeToString()

    def server(self, serialized):
        """Translates the ConfigProto in a serialized ServerDef."""
        from tensorflow.core.protobuf import tensorflow_server_pb2

        server = tensorflow_server_pb2.ServerDef.FromString(serialized)
        self.translated(server.default_session_config)
        return server.SerializeToString()

    # Translation

    def translated(self, config):
        """Lays out the logical devices of ``config``, and changes it accordingly."""
        gpu_options = config.gpu_options
        self.report_cuda_only_settings(gpu_options)
        self.recount()
        count = config.device_count.get("GPU")
        if count == 0:
            return config  # TensorFlow creates no GPU, and checks nothing
        visible = self.plugin().gpuwatch_plugin_visible()
        ordinals = _listed(gpu_options.visible_device_list, visible)
        pluggable_options = gpu_options
        if "pluggable_device_options" in config.DESCRIPTOR.fields_by_name:  # in 2.16 there is one for both
            pluggable_options = config.pluggable_device_options
        if ordinals is None:
            pluggable_options.visible_device_list = (
                gpu_options.visible_device_list
            )  # TensorFlow refuses it, as for CUDA devices
            return config
        virtual = [list(part.memory_limit_mb) for part in gpu_options.experimental.virtual_devices]
        if len(virtual) > len(ordinals):
            return config
        if count is not None and not virtual:
            ordinals = ordinals[:count]
        logical_devices = []
        for position, ordinal in enumerate(ordinals):
            for limit in (virtual[position] if position < len(virtual) else []) or [0]:
                logical_devices.append((ordinal, int(limit) << 20))
        if not logical_devices:
            return config
        new_ordinals = self.lay_out(logical_devices, gpu_options.per_process_gpu_memory_fraction)
        if new_ordinals is None:
            return config
        pluggable_options.allow_growth = gpu_options.allow_growth
        pluggable_options.experimental.ClearField("virtual_devices")
        pluggable_options.visible_device_list = ",".join(map(str, new_ordinals))
        pluggable_options.per_process_gpu_memory_fraction = (
            1.0  # of the total, which the plug-in reports as the exact grant
        )
        config.device_count["GPU"] = len(new_ordinals)
        return config

    def lay_out(self, logical_devices, fraction):
        """The ordinals for these devices (pairs of ordinal and limit in bytes); None if they cannot be laid out."""
        number = len(logical_devices)
        new_ordinals = (ctypes.c_int * number)()
        code = self.plugin().gpuwatch_plugin_lay_out(
            number,
            (ctypes.c_int * number)(*[ordinal for ordinal, _ in logical_devices]),
            (ctypes.c_uint64 * number)(*[limit for _, limit in logical_devices]),
            ctypes.c_double(fraction),
            new_ordinals,
        )
        if code == _NO_ROOM:
            from tensorflow.python.framework import errors_impl

            # The message of a CUDA build when there is no memory for the context.
            text = "failed call to cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY: out of memory"
            raise errors_impl.InternalError(None, None, text)
        if code == _TOO_MANY:
            self.tell("logical devices", number, None, "simulated GPUs are limited to 16 logical devices in a program")
        return list(new_ordinals) if code == 0 else None

    def report_cuda_only_settings(self, gpu_options):
        """Reports settings that only CUDA devices have."""
        allocator = os.environ.get("TF_GPU_ALLOCATOR") or gpu_options.allocator_type
        if allocator in ("cuda_malloc_async", "cuda_malloc"):
            note = "%s needs CUDA: the plug-in tier uses BFC instead (use --sim-tier driver)" % allocator
            self.tell("TF_GPU_ALLOCATOR", allocator, "BFC", note)
        if gpu_options.per_process_gpu_memory_fraction > 1 or gpu_options.experimental.use_unified_memory:
            self.tell("unified memory", True, False, "simulated GPUs have no unified memory")

    def plugin(self):
        """The plug-in that TensorFlow has loaded."""
        if self.library is None:
            self.library = ctypes.CDLL(os.environ["TF_PLUGGABLE_DEVICE_LIBRARY_PATH"])
        return self.library


def _listed(text, visible):
    """The ordinals in a visible_device_list, all if it is empty; None if TensorFlow rejects it for CUDA devices."""
    if not text:
        return list(range(visible))
    try:
        ordinals = [int(number) for number in text.split(",")]
    except ValueError:
        return None
    known = all(0 <= ordinal < visible for ordinal in ordinals)
    return ordinals if known and len(set(ordinals)) == len(ordinals) else None


def _replace(module, name, translate):
    """Passes serialized messages to one of TensorFlow's C++ functions through ``translate``."""
    original = getattr(module, name, None)
    if original is None:
        return

    def call(*arguments, **keywords):
        return original(
            *[translate(argument) if isinstance(argument, bytes) else argument for argument in arguments], **keywords
        )

    setattr(module, name, call)
