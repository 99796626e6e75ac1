"""The texts of log messages by what they mean: the tables of :mod:`gpuwatch.explain.logs.message_topics`.

Sources: the messages in the sources of TensorFlow (``tensorflow/python/eager``, ``core/common_runtime``,
``stream_executor``), PyTorch, JAX and XLA, ONNX Runtime, CuPy, Numba, bitsandbytes, vLLM, SGLang, llama.cpp, Ollama,
CTranslate2, TensorRT, NCCL, cuDNN's frontend, Caffe, MXNet, PaddlePaddle, OpenCV, FFmpeg, XGBoost, Ray; NVML's
nvmlErrorString and nvidia-smi, the NVRM messages of NVIDIA's open kernel modules, the README of the Linux driver
("Common problems"), libnvidia-container, nvidia-container-toolkit, gpu_burn, gpustat, the kernel's amdgpu and nouveau.

A text is in lower case (:func:`.message_topics.lower_plain`); several in brackets must all be in the line. One of
them must contain a word of :func:`is_worth_parsing`, at the end, unless the message comes as an exception or with a C++
source position, which are always parsed (tests check this).
"""

from __future__ import annotations

Needle = str | tuple[str, ...]
"""A text, or several that must all be in the line."""
Texts = dict[str, tuple[Needle, ...]]
"""By topic: a cause, or evidence for rules."""

EXPLICIT: Texts = {
    "placement.device-missing": (
        "could not satisfy device specification", "unable to find any devices for spec", " unknown device.",
        "was explicitly assigned to /", "doesn't exist in the list of available devices",
        "no devices matching that specification",
    ),
    "placement.no-kernel": (
        "because no supported kernel for", "no opkernel was registered to support op",
        "opkernel for 'gpu' devices compatible with node", "opkernel for gpu devices compatible with node",
        "could not find device for node", "node was colocated with a group of nodes that required incompatible device",
        "connects colocation groups with incompatible assigned devices",
        "failed to place the graph without changing the devices",
    ),
    "config.too-late": (
        "devices cannot be modified after being initialized", "must be set before gpus have been initialized, devices",
    ),
    "config.inconsistent": (
        "memory growth cannot differ between gpu devices",
        "cannot set memory growth on device when virtual devices configured", "cannot set memory growth on non-gpu",
        "setting memory limit is required for gpu virtual devices",
        "memory limit on cpu virtual devices is currently not supported",
        "setting both virtual devices and memory growth", "rotocol message gpuoptions has no ",
        "rotocol message configproto has no ",
    ),
    "visibility.bad-ordinal": (
        "invalid visible device index", "attempting to deserialize object on cuda device",
        "'visible_device_list' listed an invalid", "assertionerror: invalid device id",
        "device < num_gpus internal assert failed", "nvidia-container-cli: device error",
    ),
    "visibility.none-available": ("no visible gpu devices", "no supported devices found for platform cuda",),
    "driver.not-running": (
        "kernel driver does not appear to be running", "couldn't communicate with the nvidia driver",
        "nvidia driver was not detected", "couldn't find libnvidia-ml.so", "nvmlerror_drivernotloaded",
        "unknown runtime specified nvidia", "unknown or invalid runtime name: nvidia", "nvml error: driver not loaded",
        "nvrm: no nvidia gpu found", "could not select device driver",
        "cudagetdevicecount() returned cudaerrornotsupported", "initialize nvml: driver not loaded",
        "error_driver_not_loaded", "error_library_not_found", "could not load nvml library",
        "nvml shared library not found", "load library failed: libnvidia-ml.so",
        ("nvidia-container-cli: initialization error", "cannot open shared object file"),
        (" nvc.c:", "failed to change root directory"), ("module nvidia", "not found in directory"),
        "could not insert 'nvidia", "could not insert module nvidia", "unable to load the kernel module 'nvidia",
        "unable to load the nvidia", "unable to build the nvidia kernel module", "nvidia kernel module was not created",
        "nvidia: version magic",
        "no nvidia graphics adapter found", "nvidia kernel module not loaded", "nvidia probe routine was not called",
        ("executable file not found in $path", "nvidia"), ("unresolvable cdi devices", "nvidia.com"),
        "failed to initialize the nvidia kernel module", "cuda driver library cannot be found",
        ("libcuda.so not found", "cuda driver"), "cannot load nvcuda.dll", "found no nvidia driver on your system",
    ),
    "driver.no-device-node": ("no nvidia gpu device is present",),
    "driver.mismatch": (
        "-- cannot find working devices in this configuration", "does not match dso", "driver/library version mismatch",
        "nvrm: api mismatch", "nvmlerror_librmversionmismatch", "error_lib_rm_version_mismatch",
        ("interface version", "don't match with driver version"),
    ),
    "driver.bad-state": (
        "nvml: gpu access blocked", "cuda driver initialization failed, you might not have",
        "failed to get device attribute", "cuda unknown error - this may be due to", "rminitadapter failed",
        "rm_init_adapter failed", "none of the nvidia graphics adapters were initialized",
        "none of the nvidia devices were initialized", "nvidia probe routine failed",
        "could not load uvm kernel module",
    ),
    "driver.too-old": (
        "container was built for nvidia driver release", "requirement error: unsatisfied condition: cuda",
        "unsupported cuda version: driver", ("nvidia-container-cli", "please update your driver"),
        "does not support the required nvenc api version", "minimum required nvidia driver for nvenc is",
        "nvidia driver on your system is too old", ("libcuda.so", "undefined symbol: cu"),
    ),
    "cuda.nccl-missing": ("unable to load nccl library",),
    "cuda.version-mismatch": (
        "cudnn version incompatibility: pytorch was compiled", "cuda backend failed to initialize: found c",
        "in cudnn dso; dlerror", "found cudnn version", "but jax was built against version",
        ("outdated", "installation found"), "mismatched pjrt plugin", ("unexpected pjrt_", "size: expected"),
        ("plugin", "is not compatible with the installed jaxlib version"),
        ("installed cuda version", "torch was compiled with", "unable to compile"),
        ("detected cuda version", "mismatches the version that was used to compile"),
        ("compiled with different cuda", "torch"),
        "cudnn_status_version_mismatch", "cudnn_status_sublibrary_version_mismatch",
        ("but source was compiled", "with"), "mismatched nccl version", "xla requires ptxas version",
        "not compatible with this version of tensorrt", "engine created with incompatible serialization version",
        "header.magictag == rt::kplan_magic_tag failed", "version tag does not match",
        ("linked against cudnn", "but loaded cudnn"), ("linked against cublas", "but loaded cublas"),
    ),
    "build.gpu-unsupported": (
        "does not support target 'sm_", "value 'sm_", ("ptxas", "not supported on .target 'sm_"),
        "'sm_100' is not a recognized processor",
        "'sm_101' is not a recognized processor", "'sm_103' is not a recognized processor",
        "'sm_120' is not a recognized processor", "'sm_121' is not a recognized processor",
        "the minimum required cuda capability is", "gpu because it is too old",
        "is not compatible with the current pytorch installation", "flashattention only supports",
        ("only supported on gpus with compute capability", "has compute capability"), "expected is_sm",
        ("fatal: kernel", "but was built for sm"),
        ("not supported for the current gpu", "capability"), ("has no device code compatible with", "arch"),
        "generated on an incompatible device", "is not supported by this tensorrt release", "hiperrornobinaryforgpu",
        "hip error: invalid device function", "unable to find code object for all current devices",
        ("tensilelibrary", "gpu arch"), "cuda gpu is too old", ("compute capability", "is not supported (requires"),
        "cudnn_status_arch_mismatch",
    ),
    "cuda.libraries-skipped": ("skipping registering gpu devices", "cannot dlopen some gpu",),
    "device.used": (
        "loaded cudnn version", "ynamic library libcublas", "initialized for platform cuda",
        "successful numa node read from sysfs", "directml: creating device on adapter", "metal device set to",
    ),
    "tensorflow.started": (
        "this tensorflow binary is optimized", "this tensorflow binary was not compiled to use",
        "onednn custom operations are on",
    ),
    "cuda.cudart-missing": ("could not find cuda drivers on your machine",),
    "cuda.libdevice-unfound": ("can't find libdevice directory",),
    "build.gpu-jit": ("was not built with cuda kernel binaries compatible",),
    "build.cpu-only": (
        "cuda is not enabled", "torch not compiled with cuda enabled", "module 'torch._c' has no attribute '_cuda_",
        "gpu support is not available on native windows",
        "ctranslate2 package was not compiled with cuda", "not compiled with gpu support",
        "not compiled with gpu offload support", "was compiled without gpu support", "compiled without cuda support",
        "not built with cuda backend", "not compiled with cuda support", "was not enabled in this build",
        "compile with use_cuda=1 to enable gpu usage", "cannot use gpu in cpu-only caffe", "cpu version paddlepaddle",
        "paddlepaddle is not compiled with cuda", "environment for task type [gpu] not found",
        "cuda used to build pytorch: none", "cuda used to build pytorch: could not collect",
    ),
    "ended.kernel": ("error: gpu sync failed",),
    "simulation.limit": ("the simulated driver lacks",),
    "memory.masked": (
        "could not create cudnn handle", "failed to create cublas handle", "dnn library initialization failed",
        "cudnn failed to initialize", "cudnn_status_not_initialized", "cudnn_status_alloc_failed",
        "cublas_status_not_initialized", "cublas_status_alloc_failed", "when calling `cublascreate",
        "gemm launch failed", "gemmbatched launch failed", "gemmstridedbatched launch failed", "gemv launch failed",
        "streamexecutor without blas support", "streamexecutor without dnn support", "no dnn in stream executor",
        "fail to find the dnn implementation", "no algorithm worked!", "cuda failure 'out of memory'",
        "cuda failure 2 'out of memory'",
    ),
    "memory.library-failed": (
        "cudnn_status_execution_failed", "cudnn_status_internal_error", "cudnn_status_mapping_error",
        "failed to call thenrnn", "cudnn launch failure",
    ),
    "memory.limit-too-small": (
        "larger than the maximum number of tokens that can be stored in kv cache",
        "larger than the available kv cache memory",
    ),
    "memory.other-process": ("is less than desired gpu memory utilization",),
    "memory.not-a-failure": ("the caller indicates that this is not a failure",),
    "ended.network": (
        ("net/ib", "ompletion", "with error"), ("nccl warn", "call to ibv_", "failed"),
        ("nccl warn", "call to connect", "failed"), ("nccl warn", "onnect to", "no route to host"),
    ),
    "ended.nccl-timeout": (
        "operation timeout: worknccl", "nccl operations have failed or timed out",
        ("gloo/transport", "timed out waiting"), ("frame #", "worknccl::checktimeout"),
    ),
    "ended.nccl": (
        ("frame #", "processgroupnccl::checkfornccl"),
        "error invoking nccl", ("nccl error", " unhandled "), ("ncclcomm", " failed: unhandled "),
        ("nccl failure", "unhandled "), ("nccl error", " invalid "), "ncclinvalidusage",
        "ncclsystemerror", "ncclunhandledcudaerror",
    ),
    "ended.same-gpu": ("duplicate gpu detected",),
    "ended.nccl-internal": (("nccl error", ": internal error"), "nccl error in", "ncclinternalerror",),
    "ended.peer": (
        "ncclremoteerror", ("nccl error", "remote process exited"), "connection closed by remote peer",
        ("call to recv from", " failed : "), ("call to send to", " failed : "),
        ("gloo/transport", "connection closed by peer"), ("gloo/transport", "connection reset by peer"),
        ("gloo/transport", "broken pipe"), ("retrieving nccluniqueid from", "but store->get"),
        ("connection was likely closed", "remote server shutdown"), ("horovod has been shut down", "one of the ranks"),
        ("collective ops is aborted by", "failed to connect"), "distnetworkerror: failed to recv, got 0 bytes",
    ),
    "ended.fork": ("cannot re-initialize cuda in forked subprocess",),
    "ended.host-memory": (
        "oom-kill event", "oom_kill event", "oom-kill:constraint=", "error: [errno 12] cannot allocate memory",
        "an instance of 'std::bad_alloc'",
    ),
    "ended.shared-memory": ("insufficient shared memory (shm)", "are out of shared memory",),
    "ended.fatal": ("unexpected event status: 1", "variable in data clause is ", "clause was not found on device"),
    "ended.xla-flags": (
        "unknown flag in xla_flags", "unknown flags in xla_flags", "unknown flag in tf_xla_flags",
        "unknown flags in tf_xla_flags",
    ),
    "ended.crash": ("(core dumped)",),
    "ended.worker": ("error: dataloader worker (pid",),
    "distribution.devices-missing": (
        "some requested devices in `tf.distribute.strategy` are not visible",
        "we expect the following devices to be available", "misconfigurationexception: you requested gpu",
        "error: processgroupnccl is only supported with gpus",
        ("world size", "is larger than the number of available gpus"),
        ("tensor parallel size", "larger than the number of available gpus"), ("gpus, but only", "available"),
        ("but only", "gpus available"), ("but only", "gpus are available"),
        "required gpus exceeds the total number of available gpus",
    ),
    "environment.growth-unread": ("tf_force_gpu_allow_growth environment variable is set but could not be parsed",),
    "memory.growth-forced": (
        "allow_growth setting because the tf_force_gpu_allow_growth",
        "orig_value setting because the tf_force_gpu_allow_growth",
    ),
    "hardware.fault": (
        "nvmlerror_gpuislost", "gpu is lost", "fallen off the bus", ("remapping failure occurred", "yes"),
    ),
}  # fmt: skip
"""Texts that name their cause explicitly."""

INFERRED: Texts = {
    "cuda.libraries-missing": (
        "error: dll load failed: ", "error: dll load failed while importing _pywrap",
        "failed to create cudaexecutionprovider", "failed to create tensorrtexecutionprovider",
        ("loadlibrary failed with error", "onnxruntime_providers_"),
        ("failed to load library", "onnxruntime_providers_"), ("error loading", "onnxruntime_providers_"),
        "libcudart.so not found in any environmental path",
        ("required library version not found", "libbitsandbytes_cuda"), "configured cuda binary not found",
        "could not find the bitsandbytes cuda binary",
        "cuda setup failed despite gpu being available", "cuda setup: setup failed",
        "cuda setup: cuda detection failed", ("libbitsandbytes_cpu", "undefined symbol"),
        ("unable to load cu", "is it installed"), ("the cu", "library was not found"),
        ("library", "is not found or cannot be loaded", "cu"), ("failed to load", "cupy", "lib"),
        "libnvvm cannot be found", "missing libdevice file", "libdevice not found", "cannot load cudnn shared library",
        ("the third-party dynamic library", "cu"), ("please make sure", "in your library path"),
        "find a suitable version of ptxas", "couldn't get ptxas version string", "failed to launch ptxas",
        "no ptx compilation provider is available", ("cuda_home", "is not set"),
        ("cuda_home does not exist", "unable to compile"), "cudnn_status_sublibrary_loading_failed",
    ),
    "build.gpu-unsupported": (
        "failed with 'cuda_error_invalid_handle'", ("error named symbol not found", "cuda"),
        ("error named symbol not found at line", ".cu"), ("cuda failure", "named symbol not found"),
        "invalid value for --gpu-architecture", "do not support efficient float16",
        ("found gpu", "which is of cuda capability"), "cuda capability supported by this version of pytorch",
        ("gpu", "too old", "compute capability"),
    ),
    "container.lost-devices": (
        "initialize nvml: unknown error", "initialize nvml: error_unknown", "initialize nvml: insufficient permissions",
        "unable to open /dev/kfd",
    ),
    "driver.bad-state": (
        "nvmlerror_unknown", "nvml error: unknown error", "nvmlerror_irqissue", "nvmlerror_operatingsystem",
        "detected an issue with gpu interrupts", "failed to initialize the nvidia gpu", ("fabric", "manager", "fail"),
        "no devices were found", "failed to query nvidia devices", ("nvrm", "rpc event history"),
        ("nvrm", "rpc history"), ("nvrm", "rpc", "timeout"), ("nvrm", "coredump"), ("nvrm", "gsp", "fail"),
        ("nvrm", "gsp", "timed out"), ("nvrm", "kgsp"), ("nvrm", "assertion failed"), ("nvrm", "cannot attach gpu"),
        ("nvrm", "failed to copy vbios"), ("nvrm", "is not supported by"), ("nvrm", "legacy driver"),
        ("nvrm", "will ignore this gpu"), ("nvrm", "open kernel modules"), ("nvrm", "region", "is invalid"),
        ("vmap allocation for size", "vmalloc="), ("nvrm", "can't find an irq"), ("nvrm", "open() failed"),
        ("nvidia-modeset", "timed out"), ("nvidia-modeset", "failed to query display engine"),
        "failed to allocate nvkmskapidevice", ("nvidia", "probe of", "failed with error"), "nvlddmkm",
        ("amdgpu", "fatal error during gpu init"), "hsa_status_error_out_of_resources",
        ("initialization error", "driver rpc error"),
        ("initialization error", "driver error: failed to process request"),
        ("named symbol not found", "cudagetdevicecount"),
    ),
    "hardware.fault": (
        "nvmlerror_resetrequired", "nvmlerror_insufficientpower", "insufficient external power",
        ("pending page blacklist", ": yes"), "unable to determine the device handle for g", "gpu requires reset",
        "gpu reset required", ("|", "err!"), ("gpu ", ": faulty"), "detected nvswitch fatal error",
        ("sxid (pci:", ", fatal,"), "nvrm: xid", "lost from the bus", ("pcie bus error", "severity=uncorrect"),
        "gpu recovery action changed from", ("amdgpu", "gpu reset begin"), ("amdgpu", "ring", "timeout"),
        ("amdgpu", "reset failed"),
    ),
    "driver.too-old": ("nvmlerror_functionnotfound",),
    "driver.not-running": (
        "nvidia-smi has failed", "communicate with the nvidia driver", ("nvidia-smi", "command not found"),
        ("nvidia-smi", "is not recognized"), ("no runtime for", "nvidia", "is configured"),
        ("runtimeclass", "nvidia", "not found"), ("nvidia", "key was rejected by service"),
        ("nvidia", "required key not available"), ("nvidia", "unsigned module"),
        "unsigned module loading is restricted", ("dkms module 'nvidia", "failed"), "consult /var/lib/dkms/nvidia",
        ("nvidia", "kernel module failed to build"), "nvidia.ko failed to build", ("modpost", "module nvidia", "gpl"),
        ("dkms/nvidia", ".h:", "error: "), ("dkms/nvidia", ".c:", "error: "), "rock module is not loaded",
        "no adapters were found", "libdxcore.so: cannot open shared object",
    ),
    "ended.no-switch": (("nvswitch", "nv_warn_nothing_to_do"),),
    "driver.answered": (
        "loaded the uvm driver", "nvsmi log", ("'c,", "% |", " mb"), ("slowdown", ": not active"), "(uuid: gpu-",
        ("# gpu", "pwr"), "nvrm: loading nvidia", "nvidia-modeset: loading nvidia", "initialized nvidia-drm",
        ("nvidia 0", ": enabling device"), "nvbandwidth version:", ("devicequery", "numdevs = "),
        ("nvitop", "driver version:"), "gpu burn", "multicast team", "connected to 1 node",
        ("successfully configured", "nvswitches"), ("nvidia-nvswitch", ": open ("), "initialized amdgpu",
    ),
    "throttle.thermal": (("thermal slowdown", ": active"),),
    "throttle.power": (("power brake slowdown", ": active"),),
    "nvswitch.non-fatal": ("detected nvswitch non-fatal error", ("sxid (pci:", ", non-fatal,"),),
    "driver.mismatch": (("nvidia", "disagrees about version of symbol"), ("nvidia", "unknown symbol"),),
    "driver.other-module": (
        "nouveau 0000:", "such as: nouveau", "such as nouveau", "nouveau kernel driver is currently in use",
        "kernel driver in use: nouveau", "kernel driver in use: vfio-pci", "already bound to vfio-pci",
        "already bound to nouveau", "nouveau            ",
    ),
    "ended.kernel": ("memory access fault by gpu",),
    "ended.peermem": (("nvidia-peermem", "detected invalid context"),),
    "ended.ucx": (("ucx", "error", "invalid device context"),),
    "ended.intel-gpu": (
        "detected a hung gpu", "gpu hanging too fast, declaring wedged", "*error* failed to reset chip",
    ),
    "ended.x-driver": ("compatible nvidia x driver not found",),
    "ended.container": (
        ("nvidia-container-cli", "container error"), ("nvidia-container-cli", "mount error"),
        ("nvidia-container-cli", "ldcache error"), ("nvidia-container-cli", "detection error"),
    ),
    "ended.permission": (("instance", "insufficient permissions"), "nvmlerror_nopermission",),
    "mig.misuse": (
        ("instance", "insufficient resources"), ("unable to create a", "instance on gpu"),
        "no mig-enabled devices found", "no gpu instances found", ("mig mode", "in use by another client"),
    ),
    "gpu.unused": ("gpu available but not used", ("gpu available: true", "used: false"),),
    "gpu.none": (
        ("device_type of 'cuda'", "cuda is not available"),
        ("'pin_memory' argument is set as true but no accelerator", "is found"), "cuda is set but no cuda device",
        "no gpu/tpu found", ("num gpus available", " 0"), "gpu available: false",
        "cuda available: false", "is_available() returned false", "cuda is not available, using cpu",
        "cuda.is_available(): false", "is_available() returns false", "torch is not able to use gpu",
        "machine only has: []",
        "no supported gpu backend found", ("can only be used on", "cuda devices"),
        "setting accelerator to cpu. if you have",
        ("accelerator` can not run on your system", "gpu"), ("device: cpu", "n_gpu: 0"),
        ("accelerator` can not run on your system", "cuda"),
        ("accelerator can not run on your system", "gpu"), "accelerator can not run on your system since",
        ("cuda unavailable", "requested"), ("invalid cuda", "requested"), "no gpu detected", "no gpu found",
        "no gpus found", "no visible gpu is found", "no compatible gpus were discovered", "no nvidia gpu detected",
        "no usable gpu found", "failed to infer device type", "there are non-gpu devices in `tf.distribute.strategy`",
        "using mirroredstrategy with devices ('/job:localhost/replica:0/task:0/device:cpu:0',)", "requires a gpu",
        ("no platforms that are instances of", "are present"), "is not in the list of known backends", "[cpudevice(id=",
        "tfrt_cpu_",
    ),
    "devices.cpu": ("/physical_device:cpu:", 'name: "/device:cpu:',),
    "device.used": (
        "/physical_device:gpu:", "device='cuda", 'name: "/device:gpu:',
        "available platform names are: interpreter cuda", "available platform names are: cuda", "gpu available: true",
        "cuda available: true", "nccl info", "device: cuda", "cudadevice(id=", "gpudevice(id=",
        ("ggml_cuda_init: found", "cuda device"), ("offloaded", "layers to gpu"), "# gpu blocks:",
    ),
    "build.cpu-only": (
        ("an nvidia gpu may be present", "cuda-enabled jaxlib"), "available platform names are: interpreter host",
        "available platform names are: host interpreter",
        ("unable to initialize backend 'cuda'", "has no attribute 'get_gpu_client'", "jaxlib"),
        ("unable to initialize backend 'cuda'", "has no attribute 'gpuallocatorconfig'", "jaxlib"),
        ("unable to initialize backend 'gpu'", "has no attribute 'get_gpu_client'", "jaxlib"),
        ("unable to initialize backend 'gpu'", "has no attribute 'gpuallocatorconfig'", "jaxlib"),
        ("could not run 'torchvision::", "from the 'cuda' backend"),
        ("could not run 'torchaudio::", "from the 'cuda' backend"),
        "but no gpu backend was provided", "cudaexecutionprovider' is not in available provider names",
    ),
    "visibility.none-available": ("no hip gpus are available", "no cuda gpus are available",),
    "build.cpu-wheel": ("+cpu",),
    "cuda.runtime-found": ("cuda runtime path found",),
    "cuda.version-mismatch": (
        "not defined in file libcu", "not defined in file libnv", "not defined in file libnccl",
        "undefined symbol: __nvjitlink", "undefined symbol: cu", "undefined symbol: __cuda", "undefined symbol: nccl",
        "undefined symbol: nvrtc", "undefined symbol: nvml", ("symbol not found", "cuda"),
        "no supported gpu compute capabilities found", ("unsupported .version", "current version is"),
        ("xformers was built for", "you have"),
        ("can't load c++/cuda extensions", "xformers"),
    ),
    "ended.extension": ("undefined symbol: _zn",),
    "memory.masked": (
        ("cusolver", "create", "failed"), ("cublas", "create", "failed", "not initialized"),
        ("gpublascreate", "failed"), ("gpusolver", "create", "failed"),
        "unable to find a valid cudnn algorithm to run convolution", "cublas runtime error : library not initialized",
        "cublas runtime error : resource allocation failed", "cuda error: the resource allocation failed",
    ),
    "memory.limit-too-small": (
        "no available memory for the cache blocks", ("reserved for kv cache is -", "gib"),
        ("available kv cache memory: -", "gib"), "try to increase --mem-fraction-static",
        "alloc_req_slots runs out of memory", "maximum pool size exceeded",
        ("is smaller than requested bytes", "available memory of"),
    ),
    "memory.retried": (
        ("oom detected", "reducing"), ("failed", "retrying with"), ("out of memory", "retrying"),
        ("out of memory", "falling back"), ("out of memory", "skipping"), "recover from oom",
        ("out of memory", "smaller batch"), ("oom", "batch size", "reduc"), ("oom", "batch size", "retry"),
        ("oom", "batch size", "decreas"),
    ),
    "placement.no-kernel": (
        "only supports the nhwc tensor format on the cpu", "only supports nhwc on device type cpu",
    ),
    "ended.cublas": (
        "cublas runtime error : the gpu program failed", ("error", "cublas_status_execution_failed"),
        ("error", "cublas_status_invalid_value"), ("error", "cublas_status_not_supported"),
    ),
    "ended.two-devices": (
        "expected all tensors to be on the same device", ("expected object of", "but got", "backend"),
        "is on cpu, but expected them to be on gpu",
    ),
    "ended.torch-kernel": (("could not run '", "from the 'cuda' backend"),),
    "ended.two-types": (("input type (", "and weight type ("), ("input type (", "and bias type ("),),
    "ended.paging-file": ("winerror 1455",),
    "ended.dll": ("winerror 1114",),
    "ended.loader": (("winerror 126", "error loading"), ("winerror 127", "error loading"),),
    "ended.assert": (("] assertion `", "thread: ["),),
    "ended.nan": ("probability tensor contains either",),
    "ended.label": (("received a label value of", "which is outside the valid range"),),
    "ended.shell-variable": (
        ("cuda_visible_devices", "is not recognized as"), ("cuda_visible_devices", "n'est pas reconnu"),
        ("cuda_visible_devices", "ist entweder falsch geschrieben"), ("cuda_visible_devices", "no se reconoce como"),
        ("cuda_visible_devices", "nao e reconhecido"), ("cuda_visible_devices", "n\xe3o \xe9 reconhecido"),
        ("cuda_visible_devices", "non \xe8 riconosciuto"),
        ("cuda_visible_devices", "\u043d\u0435 \u044f\u0432\u043b\u044f\u0435\u0442\u0441\u044f"),
        ("cuda_visible_devices", "\u4e0d\u662f\u5185\u90e8\u6216\u5916\u90e8\u547d\u4ee4"),
        "cuda_visible_devices: command not found", ("cuda_visible_devices=", "command not found"),
    ),
    "ended.launch": ("out of resource: shared memory",),
    "ended.cudnn": (
        "unable to find an engine to execute this computation", ("error", "cudnn_status_not_supported"),
        ("error", "cudnn_status_bad_param"),
    ),
    "memory.dnn-missing": ("dnn library is not found",),
    "ended.jax-backend": (
        "unable to initialize backend 'cuda'", "unable to initialize backend 'gpu'",
        "backend 'cuda' failed to initialize", "cuda backend failed to initialize",
    ),
    "kernel.crash": (
        "kernel panic - not syncing", "unable to handle kernel ", "unable to handle page fault for address",
        "kernel null pointer dereference", "kernel bug at ", "general protection fault, probably",
    ),
    "kernel.trace": (("+0x", "/0x", "[nvidia"),),
    "tensorrt.message": (("error code ", "error ("),),
    "ended.tensorrt": ("&&&& failed tensorrt",),
    "ray.worker-exit": (
        "a worker died or was killed",
        ("worker exit type:", "worker exit detail:"), "killed while executing a task by an unexpected system error",
    ),
    "horovod.stalled": ("[missing ranks:", "are waiting for remainder of ranks for more than"),
    "checkpoint.refused": ("error(s) in loading state_dict for",),
    "compiler.message": (
        ("fatal error: ", "no such file or directory"), "cannot find -l", "nvcc fatal", "undefined reference to ",
        "unsupported cuda gpu architecture", ("/bin/sh: ", "permission denied"), ("/bin/sh: ", ": not found"),
        ("/bin/sh: ", "command not found"),
        ("fatal error", "cannot open include file"), ("fatal error: ", "file not found"), "cannot open source file",
        "ptxas fatal ", "undefined symbols for architecture", "cc1plus: fatal error", "cicc: fatal",
        ("): error: ", ".cu"), ("): error: ", ".h"), (": error: ", ".cpp:"), (": error: ", ".cc:"), "cmake error at",
        (": error: ", ".c:"), (": error: ", ".cu:"), (": error: ", ".h:"),
    ),
    "devices.counted": ("num gpus available",),
    "windows.error": ("winerror",),
    "server.started": (
        "application startup complete", "running on http", "to see the gui go to: http",
        ("tensorboard", " at http", "to quit"), "running on local url",
        "starting vllm server on http", ("starting vllm api server", "on http"), "fired up and ready to roll",
    ),
    "server.starting": ("non-default args: {", "vllm api server version", "server_args=serverargs("),
    "server.kills-itself": ("received sigquit from a child process",),
    "server.refused": (
        ("error", "exceeds the available context size"), ("error", "maximum context length is", "you requested"),
        ("error", "longer than the maximum model length"), ("error", "longer than the model's context length"),
        ("error loading model", "unknown model architecture"),
    ),
    "framework.started": (
        "unable to initialize backend", "initializing torch", "warning:tensorflow:", "info:tensorflow:",
        "vllm is using nccl",
    ),
    "xla.interpreter": ("initialized for platform interpreter", "tfrtcpuclient created",),
}  # fmt: skip
"""Texts that suggest a cause, while similar causes remain possible."""

ENVIRONMENTS: Texts = {
    "environment.docker": (
        "docker: error response", "error response from daemon", "docker run", "docker compose", "docker-compose",
        "docker exec", "/.dockerenv",
    ),
    "environment.wsl": ("microsoft-standard", "/usr/lib/wsl", "wsl --update",),
    "environment.windows": ("windowspath(", "\\site-packages\\bitsandbytes"),
    "environment.android": (" for android", "com.termux"),
    "environment.macos": ("/var/folders/", "/opt/homebrew/",),
    "environment.kubernetes": (
        "kubelet", "kubectl", "kubepods", "nvidia-device-plugin", "k8s-device-plugin",
        "detected non-nvml platform", "nvidia.com/gpu",
    ),
    "environment.singularity": ("singularity", "could not find any nv files on this host",),
    "environment.shm": (("docker", "--shm-size"), ("docker", "--ipc=host"),),
    "environment.launcher": ("--nproc", "local_rank",),
    "environment.setting": (
        "nvidia-ctk runtime configure", "expandable_segments:true", "triton_ptxas_path", "cuda_disable_control",
        "_vram", "+cu1",
    ),
}  # fmt: skip
"""Texts that show where the program ran and what is already set, for the advice table."""


def is_worth_parsing(line: bytes) -> bool:
    """Whether a line without a C++ source position is parsed. Written without a loop, which would be slower.

    ``line`` is UTF-8, with or without its digits; it is searched as Latin-1, which is faster.
    """
    text = line.decode("latin-1").lower()
    return (
        "rror" in text or "evice" in text or "emory" in text or "cud" in text or "nvi" in text or "nvm" in text
        or "nvrm" in text or "nvl" in text or "nvs" in text or "nvb" in text or "multicast" in text or "nvcc" in text
        or "nvenc" in text or "pu:" in text or "gpu" in text or "fail" in text or "unable" in text
        or "support" in text or "core dumped" in text or "xception" in text or "colocation" in text
        or "nccl" in text or "dnn" in text or "blas" in text or "() " in text
        or "symbol" in text or "sm_" in text or ".so" in text or ".dll" in text or "library" in text
        or "bad_alloc" in text or "oom" in text or "retry" in text or "killed" in text or "terminat" in text
        or "fault" in text or "abort" in text or "illegal" in text or "corrupt" in text or " peer" in text
        or "(): " in text or "***" in text or "panicked" in text or "crash" in text or "command" in text
        or "can't open" in text or "cancelled" in text or "exit" in text or "died" in text or "root cause" in text
        or "term_" in text or "interrupt" in text or "nouveau" in text or "kernel" in text
        or "jax" in text or "slowdown" in text or "module" in text or "adapters" in text or "platform" in text
        or "assertion" in text or "instance" in text or "+c" in text or "docker" in text or "kube" in text
        or "singularity" in text or "nv files" in text or "--nproc" in text or "local_rank" in text or "_vram" in text
        or "root@" in text or "wsl" in text or "microsoft" in text or "outside the" in text or "% |" in text
        or "initializing torch" in text or "tfrt" in text or "err!" in text or "running on" in text
        or "omp_num_t" in text or "elastic_op" in text or "accelerate la" in text
        or "ignoring inp" in text or "w backend" in text or "$ " in text
        or (".py" in text and ("+ " in text or "running" in text or "executing" in text or "launching" in text))
        or "/var/f" in text or "homebrew" in text or "startup comp" in text or "gui go to" in text
        or "server ver" in text or "starting vllm" in text or "default args" in text or "server_args=" in text
        or "fired up" in text or "lly completed" in text or "down with sig" in text
        or "d reference" in text or "bin/sh: " in text or "only has: [" in text or "android" in text
        or "sigkill" in text or "to quit" in text or "remapp" in text or "page blacklist" in text or "xla" in text
        or "death sig" in text or "evicted" in text or "deleted at" in text or "walltime" in text or "wallclock" in text
    )  # fmt: skip
