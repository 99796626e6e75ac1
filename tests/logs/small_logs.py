# ruff: noqa: E501 - texts as they are printed
"""Small logs of our own making, in the words of many versions, with what is right to say of each.

Labels as a grader would give them: acceptable causes, GPUs that were mapped, whether memory ran out, missing
libraries, MB granted by number.
"""

from __future__ import annotations

from typing import NamedTuple


class Small(NamedTuple):
    """One log and its labels; None: not graded."""

    causes: tuple[str, ...]
    text: str
    gpus: int | None
    oom: bool | None
    libraries: tuple[str, ...]
    granted: dict[int, int] | None


ALL: list[Small] = []


def add(
    causes: str,
    text: str,
    gpus: int | None = None,
    oom: bool | None = None,
    libs: str = "",
    mb: dict[int, int] | None = None,
) -> None:
    ALL.append(Small(tuple(causes.split()), text.strip("\n"), gpus, oom, tuple(libs.split()), mb))


add(
    "healthy",
    """
2019-03-02 11:20:01.000111: I tensorflow/core/common_runtime/gpu/gpu_device.cc:1433] Found device 0 with properties:
name: GeForce RTX 2080 Ti major: 7 minor: 5 memoryClockRate(GHz): 1.545
pciBusID: 0000:65:00.0
totalMemory: 10.76GiB freeMemory: 10.48GiB
2019-03-02 11:20:01.000222: I tensorflow/core/common_runtime/gpu/gpu_device.cc:1512] Adding visible gpu devices: 0
2019-03-02 11:20:01.700222: I tensorflow/core/common_runtime/gpu/gpu_device.cc:984] Device interconnect StreamExecutor with strength 1 edge matrix:
2019-03-02 11:20:01.700230: I tensorflow/core/common_runtime/gpu/gpu_device.cc:990]      0
2019-03-02 11:20:01.700240: I tensorflow/core/common_runtime/gpu/gpu_device.cc:1003] 0:   N
2019-03-02 11:20:01.700250: I tensorflow/core/common_runtime/gpu/gpu_device.cc:1115] Created TensorFlow device (/job:localhost/replica:0/task:0/device:GPU:0 with 10101 MB memory) -> physical GPU (device: 0, name: GeForce RTX 2080 Ti, pci bus id: 0000:65:00.0, compute capability: 7.5)
Epoch 1/5
""",
    1,
    False,
    "",
    {0: 10101},
)
add(
    "memory.other-process memory.context-failed",
    """
2017-09-01 08:00:00.1: I tensorflow/core/common_runtime/gpu/gpu_device.cc:955] Found device 0 with properties:
name: Tesla K40c
major: 3 minor: 5 memoryClockRate (GHz) 0.745
pciBusID 0000:83:00.0
Total memory: 11.17GiB
Free memory: 55.12MiB
2017-09-01 08:00:01.1: E tensorflow/core/common_runtime/direct_session.cc:137] Internal: failed initializing StreamExecutor for CUDA device ordinal 0: Internal: failed call to cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY; total memory reported: 11996954624
tensorflow.python.framework.errors_impl.InternalError: Failed to create session.
""",
    0,
    True,
)
add(
    "memory.model-too-large",
    """
2022-06-01 10:00:00.1: I tensorflow/core/common_runtime/gpu/gpu_device.cc:1532] Created device /job:localhost/replica:0/task:0/device:GPU:0 with 22340 MB memory:  -> device: 0, name: NVIDIA A10G, pci bus id: 0000:00:1e.0, compute capability: 8.6
2022-06-01 10:05:00.1: W tensorflow/core/common_runtime/bfc_allocator.cc:479] Allocator (GPU_0_bfc) ran out of memory trying to allocate 1.50GiB (rounded to 1610612736)requested by op gradient_tape/model/conv2d_3/Conv2D/Conv2DBackpropInput
If the cause is memory fragmentation maybe the environment variable 'TF_GPU_ALLOCATOR=cuda_malloc_async' will improve the situation.
Current allocation summary follows.
2022-06-01 10:05:00.2: I tensorflow/core/common_runtime/bfc_allocator.cc:1097] Sum Total of in-use chunks: 21.10GiB
2022-06-01 10:05:00.2: I tensorflow/core/common_runtime/bfc_allocator.cc:1099] total_region_allocated_bytes_: 23425187840 memory_limit_: 23425187840 available bytes: 0 curr_region_allocation_bytes_: 46850375680
2022-06-01 10:05:00.2: I tensorflow/core/common_runtime/bfc_allocator.cc:1105] Stats:
Limit:                     23425187840
InUse:                     22656581632
MaxInUse:                  23100000000
""",
    1,
    True,
    "",
    {0: 22340},
)
add(
    "memory.fragmented",
    """
2021-06-01 10:05:00.1: W tensorflow/core/common_runtime/bfc_allocator.cc:461] Allocator (GPU_1_bfc) ran out of memory trying to allocate 600.00MiB (rounded to 629145600)requested by op Tile
2021-06-01 10:05:00.2: I tensorflow/core/common_runtime/bfc_allocator.cc:1040] InUse at 7f0000000000 of size 4194304000 next 5
2021-06-01 10:05:00.2: I tensorflow/core/common_runtime/bfc_allocator.cc:1040] Free  at 7f00fa000000 of size 419430400 next 7
2021-06-01 10:05:00.2: I tensorflow/core/common_runtime/bfc_allocator.cc:1040] Free  at 7f01fa000000 of size 500000000 next 9
2021-06-01 10:05:00.2: I tensorflow/core/common_runtime/bfc_allocator.cc:1079] Sum Total of in-use chunks: 5.00GiB
2021-06-01 10:05:00.2: I tensorflow/core/common_runtime/bfc_allocator.cc:1081] total_region_allocated_bytes_: 7000000000 memory_limit_: 7000000000 available bytes: 0 curr_region_allocation_bytes_: 14000000000
2021-06-01 10:05:00.2: I tensorflow/core/common_runtime/bfc_allocator.cc:1087] Stats:
Limit:                      7000000000
InUse:                      5368709120
""",
    0,
    True,
)
add(
    "memory.other-process memory.limit-too-small memory.model-too-large",
    """
I0000 00:00:1755594043.834784      19 gpu_device.cc:2022] Created device /job:localhost/replica:0/task:0/device:GPU:0 with 1210 MB memory:  -> device: 0, name: NVIDIA GeForce RTX 4090, pci bus id: 0000:01:00.0, compute capability: 8.9
W0000 00:00:1755594063.834784      19 bfc_allocator.cc:501] Allocator (GPU_0_bfc) ran out of memory trying to allocate 256.00MiB (rounded to 268435456)requested by op Mul
I0000 00:00:1755594063.834784      19 bfc_allocator.cc:1100] Sum Total of in-use chunks: 1.05GiB
I0000 00:00:1755594063.834784      19 bfc_allocator.cc:1104] Total bytes in pool: 1268776960 memory_limit_: 1268776960 available bytes: 0 curr_region_allocation_bytes_: 2537553920
I0000 00:00:1755594063.834784      19 bfc_allocator.cc:1106] Stats:
Limit:                      1268776960
InUse:                      1127428915
""",
    1,
    True,
)
add(
    "cuda.libraries-missing",
    """
2023-02-01 10:00:00.1: W tensorflow/compiler/xla/stream_executor/platform/default/dso_loader.cc:64] Could not load dynamic library 'libcudnn.so.8'; dlerror: libcudnn.so.8: cannot open shared object file: No such file or directory; LD_LIBRARY_PATH: /usr/local/cuda-11.8/lib64:
2023-02-01 10:00:00.2: W tensorflow/core/common_runtime/gpu/gpu_device.cc:1934] Cannot dlopen some GPU libraries. Please make sure the missing libraries mentioned above are installed properly if you would like to use GPU. Follow the guide at https://www.tensorflow.org/install/gpu for how to download and setup the required libraries for your platform.
Skipping registering GPU devices...
Num GPUs Available:  0
""",
    0,
    False,
    "libcudnn.so.8",
)
add(
    "driver.missing",
    """
2020-05-05 05:05:05.050505: W tensorflow/stream_executor/platform/default/dso_loader.cc:55] Could not load dynamic library 'libcuda.so.1'; dlerror: libcuda.so.1: cannot open shared object file: No such file or directory
2020-05-05 05:05:05.050515: E tensorflow/stream_executor/cuda/cuda_driver.cc:313] failed call to cuInit: UNKNOWN ERROR (303)
2020-05-05 05:05:05.050525: I tensorflow/stream_executor/cuda/cuda_diagnostics.cc:156] kernel driver does not appear to be running on this host (build-7): /proc/driver/nvidia/version does not exist
""",
    0,
    False,
)
add(
    "driver.mismatch",
    """
2020-05-05 05:05:05.050515: E tensorflow/stream_executor/cuda/cuda_driver.cc:351] failed call to cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: system has unsupported display driver / cuda driver combination
2020-05-05 05:05:05.050525: I tensorflow/stream_executor/cuda/cuda_diagnostics.cc:200] libcuda reported version is: 450.80.2
2020-05-05 05:05:05.050535: I tensorflow/stream_executor/cuda/cuda_diagnostics.cc:204] kernel reported version is: 450.66.0
2020-05-05 05:05:05.050545: E tensorflow/stream_executor/cuda/cuda_diagnostics.cc:313] kernel version 450.66.0 does not match DSO version 450.80.2 -- cannot find working devices in this configuration
""",
)
add(
    "memory.other-process",
    """
Traceback (most recent call last):
  File "gen.py", line 88, in <module>
    main()
torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.20 GiB. GPU 0 has a total capacity of 79.15 GiB of which 833.00 MiB is free. Process 1182 has 61.10 GiB memory in use. Process 24410 has 17.21 GiB memory in use. Of the allocated memory 16.02 GiB is allocated by PyTorch, and 702.11 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.
""",
    0,
    True,
)
add(
    "memory.model-too-large",
    """
  File "/usr/lib/python3/site-packages/torch/nn/functional.py", line 1612, in linear
RuntimeError: CUDA out of memory. Tried to allocate 392.00 MiB (GPU 0; 7.79 GiB total capacity; 6.01 GiB already allocated; 210.81 MiB free; 6.40 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation.  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF
""",
    0,
    True,
)
add(
    "placement.device-missing",
    """
tensorflow.python.framework.errors_impl.InvalidArgumentError: Cannot assign a device for operation dense/kernel/Initializer/random_uniform/shape: {{node dense/kernel/Initializer/random_uniform/shape}} was explicitly assigned to /device:GPU:2 but available devices are [ /job:localhost/replica:0/task:0/device:CPU:0, /job:localhost/replica:0/task:0/device:GPU:0 ]. Make sure the device specification refers to a valid device.
""",
)
add(
    "build.gpu-unsupported",
    """
W0000 00:00:1740000000.1 11 gpu_device.cc:2433] TensorFlow was not built with CUDA kernel binaries compatible with compute capability 12.0a. CUDA kernels will be jit-compiled from PTX, which could take 30 minutes or longer.
W0000 00:00:1740000000.2 11 gpu_device.cc:2433] TensorFlow was not built with CUDA kernel binaries compatible with compute capability 12.0a. CUDA kernels will be jit-compiled from PTX, which could take 30 minutes or longer.
2025-02-19 20:00:00.1: W tensorflow/compiler/mlir/tools/kernel_gen/tf_gpu_runtime_wrappers.cc:40] 'cuModuleLoadData(&module, data)' failed with 'CUDA_ERROR_INVALID_PTX'
""",
)
add(
    "visibility.hidden",
    """
2026-01-01 00:00:00.1: E external/local_xla/xla/stream_executor/cuda/cuda_platform.cc:51] failed call to cuInit: INTERNAL: CUDA error: Failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected
2026-01-01 00:00:00.1: I external/local_xla/xla/stream_executor/cuda/cuda_diagnostics.cc:160] env: CUDA_VISIBLE_DEVICES=""
2026-01-01 00:00:00.1: I external/local_xla/xla/stream_executor/cuda/cuda_diagnostics.cc:163] CUDA_VISIBLE_DEVICES is set to an empty string - this hides all GPUs from CUDA
2026-01-01 00:00:00.1: I external/local_xla/xla/stream_executor/cuda/cuda_diagnostics.cc:282] kernel version seems to match DSO: 560.35.3
""",
)
add(
    "driver.bad-state",
    """
2022-01-01 00:00:00.1: E tensorflow/stream_executor/cuda/cuda_driver.cc:271] failed call to cuInit: CUDA_ERROR_UNKNOWN: unknown error
2022-01-01 00:00:00.1: I tensorflow/stream_executor/cuda/cuda_diagnostics.cc:169] retrieving CUDA diagnostic information for host: lap
2022-01-01 00:00:00.1: I tensorflow/stream_executor/cuda/cuda_diagnostics.cc:204] kernel reported version is: 470.86.0
""",
)
add(
    "memory.masked",
    """
2020-01-01 00:00:00.1: I tensorflow/core/common_runtime/gpu/gpu_device.cc:1304] Created TensorFlow device (/job:localhost/replica:0/task:0/device:GPU:0 with 4605 MB memory) -> physical GPU (device: 0, name: GeForce GTX 1660 Ti, pci bus id: 0000:01:00.0, compute capability: 7.5)
2020-01-01 00:00:10.1: E tensorflow/stream_executor/cuda/cuda_dnn.cc:329] Could not create cudnn handle: CUDNN_STATUS_ALLOC_FAILED
2020-01-01 00:00:10.2: E tensorflow/stream_executor/cuda/cuda_dnn.cc:329] Could not create cudnn handle: CUDNN_STATUS_ALLOC_FAILED
tensorflow.python.framework.errors_impl.UnknownError:  Failed to get convolution algorithm. This is probably because cuDNN failed to initialize, so try looking to see if a warning log message was printed above.
""",
    1,
)
add(
    "healthy",
    """
/home/u/.local/lib/python3.10/site-packages/torch/cuda/amp/autocast_mode.py:141: UserWarning: User provided device_type of 'cuda'
GPU available: True (cuda), used: True
TPU available: False, using: 0 TPU cores
LOCAL_RANK: 0 - CUDA_VISIBLE_DEVICES: [0,1]
Epoch 0:  50%|█████     | 10/20 [00:03<00:03,  3.1it/s, loss=0.51]
""",
)
add(
    "unknown",
    """
Traceback (most recent call last):
RuntimeError: CUDA error: an illegal memory access was encountered
CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.
For debugging consider passing CUDA_LAUNCH_BLOCKING=1
terminate called after throwing an instance of 'c10::Error'
""",
)
add(
    "driver.too-old",
    """
2021-01-01 00:00:00.1: I tensorflow/core/common_runtime/gpu/gpu_device.cc:1720] Found device 0 with properties:
pciBusID: 0000:02:00.0 name: Tesla P100-PCIE-16GB computeCapability: 6.0
coreClock: 1.3285GHz coreCount: 56 deviceMemorySize: 15.90GiB deviceMemoryBandwidth: 681.88GiB/s
tensorflow.python.framework.errors_impl.InternalError: cudaGetDevice() failed. Status: CUDA driver version is insufficient for CUDA runtime version
""",
)
add(
    "memory.request-too-large memory.model-too-large",
    """
ResourceExhaustedError: Graph execution error:
Out of memory while trying to allocate 48318382080 bytes.
BufferAssignment OOM Debugging.
BufferAssignment stats:
             parameter allocation:   45.00GiB
""",
    0,
    True,
)
add(
    "config.too-late",
    """
ERROR:root:Virtual devices cannot be modified after being initialized
Traceback (most recent call last):
RuntimeError: Virtual devices cannot be modified after being initialized
""",
)
add(
    "distribution.devices-missing",
    """
WARNING:tensorflow:Some requested devices in `tf.distribute.Strategy` are not visible to TensorFlow: /job:localhost/replica:0/task:0/device:GPU:2,/job:localhost/replica:0/task:0/device:GPU:3
INFO:tensorflow:Using MirroredStrategy with devices ('/job:localhost/replica:0/task:0/device:GPU:0',)
""",
)
add(
    "mode.exclusive",
    """
RuntimeError: CUDA error (46): all CUDA-capable devices are busy or unavailable
""",
)
add(
    "visibility.bad-ordinal mode.exclusive",
    """
2019-01-01 00:00:00.1: E tensorflow/core/common_runtime/direct_session.cc:158] Internal: failed initializing StreamExecutor for CUDA device ordinal 1: Internal: failed call to cuDevicePrimaryCtxRetain: CUDA_ERROR_INVALID_DEVICE: invalid device ordinal
""",
)
add(
    "cuda.version-mismatch",
    """
2019-05-05 01:00:00.1: E tensorflow/stream_executor/cuda/cuda_dnn.cc:324] Loaded runtime CuDNN library: 7.2.1 but source was compiled with: 7.4.2.  CuDNN library major and minor version needs to match or have higher minor version in case of CuDNN 7.0 or later version.
""",
)
add(
    "healthy",
    """
Metal device set to: Apple M2 Pro
systemMemory: 32.00 GB
2023-01-01 00:00:00.1: I tensorflow/core/common_runtime/pluggable_device/pluggable_device_factory.cc:306] Could not identify NUMA node of platform GPU ID 0, defaulting to 0. Your kernel may not have been built with NUMA support.
2023-01-01 00:00:00.1: I tensorflow/core/common_runtime/pluggable_device/pluggable_device_factory.cc:272] Created TensorFlow device (/job:localhost/replica:0/task:0/device:GPU:0 with 0 MB memory) -> physical PluggableDevice (device: 0, name: METAL, pci bus id: <undefined>)
""",
    1,
)
add(
    "build.cpu-only",
    """
WARNING:jax._src.xla_bridge:An NVIDIA GPU may be present on this machine, but a CUDA-enabled jaxlib is not installed. Falling back to cpu.
""",
)
add(
    "driver.missing visibility.hidden container.lost-devices",
    """
  File "/opt/conda/lib/python3.10/site-packages/torch/cuda/__init__.py", line 298, in _lazy_init
    torch._C._cuda_init()
RuntimeError: No CUDA GPUs are available
""",
)
add(
    "memory.context-failed memory.other-process",
    """
terminate called after throwing an instance of 'std::runtime_error'
2023-03-03 03:03:03.3: F tensorflow/tsl/platform/statusor.cc:33] Attempting to fetch value instead of handling error INTERNAL: failed initializing StreamExecutor for CUDA device ordinal 0: INTERNAL: failed call to cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY: out of memory; total memory reported: 18446744073709551615
Aborted (core dumped)
""",
    0,
    True,
)
add(
    "memory.model-too-large memory.request-too-large",
    """
numpy.core._exceptions._ArrayMemoryError: Unable to allocate 7.45 GiB for an array with shape (1000000000,) and data type float64
tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with shape[1000000,1024] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc [Op:Conv2D]
""",
    0,
    True,
)
add("container.lost-devices", "Failed to initialize NVML: Unknown Error\n")
add(
    "driver.bad-state driver.mismatch",
    "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices() that might have already set an error? Error 999: unknown error\n",
)
add("config.inconsistent", "ValueError: Cannot set memory growth on device when virtual devices configured\n")
add("api.removed", "AttributeError: module 'tensorflow' has no attribute 'get_default_session'\n")
add(
    "placement.no-kernel",
    """
2021-01-01 00:00:00.1: W tensorflow/core/common_runtime/colocation_graph.cc:1164] Failed to place the graph without changing the devices of some resources. Some of the operations (that had to be colocated with resource generating operations) are not supported on the resources' devices. Current candidate devices are [
  /job:localhost/replica:0/task:0/device:CPU:0].
See below for details of this colocation group:
Colocation Debug Info:
Colocation group had the following types and supported devices:
Root Member(assigned_device_name_index_=-1 requested_device_name_='/device:GPU:0' assigned_device_name_='' resource_device_name_='/device:GPU:0' supported_device_types_=[CPU] possible_devices_=[]
ResourceApplyX: CPU
VarHandleOp: GPU CPU

Colocation members, user-requested devices, and framework assigned devices, if any:
  counter (VarHandleOp) /device:GPU:0
  ResourceApplyX (ResourceApplyX) /device:GPU:0
2021-01-01 00:00:00.1: I tensorflow/core/common_runtime/gpu/gpu_device.cc:1720] Created device /job:localhost/replica:0/task:0/device:GPU:0 with 5000 MB memory:  -> device: 0, name: X, pci bus id: 0000:01:00.0, compute capability: 7.5
""",
    1,
)
add(
    "memory.model-too-large memory.other-process",
    """
Original error: RESOURCE_EXHAUSTED: Failed to allocate request for 212.00MiB (222298112B) on device ordinal 1
""",
    0,
    True,
)
add(
    "memory.model-too-large memory.request-too-large",
    """
ResourceExhaustedError: OOM when allocating tensor with shapedim { size: 20000 } dim { size: 24 } dim { size: 24 } dim { size: 16 }
""",
    0,
    True,
)
add(
    "healthy",
    """
[name: "/device:CPU:0"
device_type: "CPU"
memory_limit: 268435456
, name: "/device:GPU:0"
device_type: "GPU"
memory_limit: 7000000000
physical_device_desc: "device: 0, name: GeForce RTX 2070 SUPER, pci bus id: 0000:2b:00.0, compute capability: 7.5"
]
""",
    1,
    False,
)
