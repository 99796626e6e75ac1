"""Reads the devices of TensorFlow, PyTorch and JAX, and the memory that their allocators hold, without starting any.

Part of the watcher (_gpuwatch_watcher.py), whose thread calls it. Standard library only, Python 3.7 or newer.
"""

import gc
import sys

_MIRRORED_STRATEGY_MODULE = "tensorflow.python.distribute.mirrored_strategy"
_MAX_SEARCHES = 5
"""Each search goes through all of the program's objects, which takes some ten milliseconds."""


class Devices:
    def __init__(self, watcher):
        self.watcher = watcher
        self.reset()

    def reset(self):
        """Starts over in a forked process."""
        self.searched = 0

    def tensorflow(self):
        module = sys.modules.get("tensorflow")
        if not _is_imported(module) or self.watcher.started_before_fork:
            return
        context = self.watcher.context()
        if self.watcher.forked and context is None:
            return
        if self.watcher.settings is not None:
            self.watcher.settings.tell(self.watcher.emit, context)
        self.watcher.once(
            "tensorflow",
            "framework",
            **_framework("tensorflow", module, gpu_build=bool(module.test.is_built_with_cuda())),
        )
        if context is None:
            self.report_session()
            return
        logical = [device.name for device in context.list_logical_devices()]
        if "devices" not in self.watcher.sent:
            self.watcher.once(
                "devices",
                "devices",
                physical=[device.name for device in context.list_physical_devices()],
                visible=[device.name for device in context.get_visible_devices()],
                virtual=[],
                logical=logical,
            )
            self.report_mapping(context, logical)
            self.watcher.emit("environment", variables=self.watcher.environment(), places=self.watcher.places())
        self.report_replicas(logical)
        for name in logical:
            # In a cluster, names begin with a job, and those of other tasks are listed too.
            if ":GPU:" in name and name.startswith(("/device:", context.host_address_space())):
                info = context.get_memory_info(name[8:] if name.startswith("/device:") else name)
                self.watcher.changed(name, "memory", device=name, current=info["current"], peak=info["peak"])

    def report_session(self):
        """Reports the GPUs of a program that only uses sessions."""
        if self.watcher.settings is None or not self.watcher.settings.granted or "session" in self.watcher.sent:
            return
        self.watcher.sent.add("session")
        for name, ordinal, amount in self.watcher.settings.mapped():
            self.watcher.emit("mapping", framework_device=name, cuda_ordinal=ordinal, granted_bytes=amount)
        self.watcher.emit("environment", variables=self.watcher.environment(), places=self.watcher.places())

    def report_replicas(self, logical):
        """Reports the devices of a MirroredStrategy, and which do not exist: TensorFlow accepts any name.

        TensorFlow's gauge says that there is a strategy; it is found among the referrers of its class.
        """
        if "replicas" in self.watcher.sent:
            return
        lib = sys.modules.get("tensorflow.python.distribute.distribute_lib")
        strategy = getattr(sys.modules.get(_MIRRORED_STRATEGY_MODULE), "MirroredStrategy", None)
        gauge = getattr(lib, "distribution_strategy_gauge", None)
        if strategy is None or gauge is None or gauge.get_cell("V2").value() != "MirroredStrategy":
            return
        self.searched += 1
        if self.searched >= _MAX_SEARCHES:
            self.watcher.sent.add("replicas")
        for candidate in gc.get_referrers(strategy):
            if isinstance(candidate, strategy) and hasattr(candidate, "extended"):
                self.watcher.sent.add("replicas")
                names = ["/device:" + name.rpartition("/device:")[2] for name in candidate.extended.worker_devices]
                missing = [name for name in names if name not in logical]
                value = {"devices": names, "missing": missing} if missing else {"devices": names}
                self.watcher.emit("result", name="replicas", value=value)
                return

    def report_mapping(self, context, logical):
        """Reports the logical GPUs, each on a visible one, as the log does unless it is off.

        TensorFlow may list a GPU as physical and visible without creating a device for it.
        """
        amounts = self.memory_limits(context)
        number = 0
        for device in context.get_visible_devices("GPU"):
            ordinal = int(device.name.rpartition(":")[2])
            details = context.get_device_details(device) or {}
            capability = details.get("compute_capability")
            parts = context.get_logical_device_configuration(device) or [None]
            for _ in parts:
                name = "/device:GPU:%d" % number
                number += 1
                if name not in logical:
                    return
                self.watcher.emit(
                    "mapping",
                    framework_device=name,
                    cuda_ordinal=ordinal,
                    name=details.get("device_name"),
                    compute_capability=".".join(map(str, capability)) if capability else None,
                    granted_bytes=amounts.get(name),
                )

    def memory_limits(self, context):
        """Each device's memory limit, from TensorFlow's list of devices."""
        execution = sys.modules.get("tensorflow.python.pywrap_tfe")
        session = sys.modules.get("tensorflow.python.client.pywrap_tf_session")
        limits = {}
        try:
            devices = execution.TFE_ContextListDevices(context._handle)
            for number in range(session.TF_DeviceListCount(devices)):
                name = session.TF_DeviceListName(devices, number)
                limits["/device:" + name.rpartition("/device:")[2]] = session.TF_DeviceListMemoryBytes(devices, number)
            session.TF_DeleteDeviceList(devices)
        except (AttributeError, TypeError):
            return {}  # another version of TensorFlow: the log may have it
        return limits

    def torch(self):
        module = sys.modules.get("torch")
        cuda = getattr(module, "cuda", None)
        if not _is_imported(module) or not hasattr(cuda, "is_initialized"):
            return
        started = cuda.is_initialized()  # False in a fork whose parent has started CUDA
        if self.watcher.forked and not started:
            return
        built = getattr(getattr(module, "version", None), "cuda", None) is not None
        self.watcher.once("torch", "framework", **_framework("torch", module, gpu_build=built))
        if not started:
            return
        count = cuda.device_count()
        self.watcher.once("cuda", "devices", **_device_event(["cuda:%d" % number for number in range(count)]))
        for number in range(count):
            allocated_bytes, peak = cuda.memory_allocated(number), cuda.max_memory_allocated(number)
            if not allocated_bytes and not peak:
                continue
            name = "cuda:%d" % number
            self.report_gpu(cuda, number)
            stats = cuda.memory_stats(number)
            self.watcher.changed(
                name + " holds",
                "memory",
                device=name,
                current=allocated_bytes,
                peak=peak,
                ooms=int(stats.get("num_ooms", 0)),
            )

    def last_torch(self):
        """At the program's end, in its main thread: where it held no memory, the GPU that it has chosen."""
        self.torch()
        sent = self.watcher.sent
        if "cuda" in sent and not any(name.startswith("cuda:") for name in sent):
            cuda = sys.modules["torch"].cuda
            self.report_gpu(cuda, cuda.current_device())

    def report_gpu(self, cuda, number):
        name = "cuda:%d" % number
        if name not in self.watcher.sent:
            self.watcher.once(name, "result", name=name, value=self.properties(cuda, number))

    def properties(self, cuda, number):
        """A GPU's properties, in the form that the torch probes use."""
        gpu = cuda.get_device_properties(number)
        value = {"name": gpu.name}
        if hasattr(gpu, "uuid"):
            value["uuid"] = "GPU-%s" % gpu.uuid
        if hasattr(gpu, "pci_bus_id"):
            value["pci_bus_id"] = "%04x:%02x:%02x.0" % (gpu.pci_domain_id, gpu.pci_bus_id, gpu.pci_device_id)
        return value

    def jax(self):
        """Reports JAX, its devices and their memory, once it has started them; before that only that it is there.

        A program may import TensorFlow beside it, for its data.
        """
        module = sys.modules.get("jax")
        if not _is_imported(module) or not hasattr(module, "__version__"):
            return
        bridge = sys.modules.get("jax._src.xla_bridge")
        clients = dict(getattr(bridge, "_backends", None) or {})
        if not clients and ({"tensorflow", "torch"} & set(sys.modules) or "jax devices" in self.watcher.latest):
            return  # perhaps another framework does the work; or JAX has cleaned up, at the end
        factories = set(getattr(bridge, "_backend_factories", ()))
        built = bool(factories & {"cuda", "rocm", "gpu"}) if clients and factories else None
        self.watcher.changed("jax", "framework", **_framework("jax", module, gpu_build=built))
        devices = [device for client in clients.values() for device in client.local_devices()]
        names = [str(device) for device in devices]
        if not names:
            return
        self.watcher.changed("jax devices", "devices", **_device_event(names))
        for device, name in zip(devices, names):  # noqa: B905  (Python 3.7)
            stats = device.memory_stats() if device.platform != "cpu" else None
            if device.platform != "cpu":
                ordinal = name.rpartition(":")[2]
                self.watcher.once(
                    name,
                    "mapping",
                    framework_device=name,
                    cuda_ordinal=int(ordinal) if name.startswith("cuda:") and ordinal.isdigit() else None,
                    name=device.device_kind,
                    granted_bytes=(stats or {}).get("bytes_limit"),
                )
            if stats:
                allocated_bytes = stats["bytes_in_use"]
                self.watcher.changed(
                    name,
                    "memory",
                    device=name,
                    current=allocated_bytes,
                    peak=stats.get("peak_bytes_in_use", allocated_bytes),
                )


def _framework(name, module, gpu_build):
    python = {"interpreter": sys.executable, "python_version": sys.version.split()[0]}
    return {"name": name, "version": str(module.__version__), "gpu_build": gpu_build, **python}


def _device_event(names):
    return {"physical": names, "visible": names, "virtual": [], "logical": names}


def _is_imported(module):
    """Whether a module is completely imported."""
    return module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False)
