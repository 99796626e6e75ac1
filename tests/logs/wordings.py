# ruff: noqa: E501 - texts as they are printed
"""What frameworks, drivers and containers say, version by version, with the causes that are right for it.

Written from the format strings (TensorFlow 1.0 to 2.21, PyTorch 1.0 to 2.11, JAX, CUDA runtime, NVML, kernel log,
container toolkit), with names and numbers of our own. Several causes: each of them is a fair reading.
"""

from __future__ import annotations

from typing import NamedTuple


class Wording(NamedTuple):
    """One text, and what explain may call it."""

    text: str
    causes: str
    libraries: str = ""
    """Names that must be among the missing libraries."""


_AT = "2026-05-04 10:11:12.131415: {} tensorflow/{}] "
_ABSL = "{}0000 00:00:1777889472.131415   40712 {}] "


def _old(severity: str, source: str, text: str) -> str:
    return _AT.format(severity, source) + text


def _new(severity: str, source: str, text: str) -> str:
    return _ABSL.format(severity, source) + text


LIBRARIES = (
    Wording("ImportError: libcublas.so.9.0: cannot open shared object file: No such file or directory",
            "cuda.libraries-missing", "libcublas.so.9.0"),
    Wording("ImportError: libcudart.so.12: cannot open shared object file: No such file or directory",
            "cuda.libraries-missing", "libcudart.so.12"),
    Wording("OSError: libcufft.so.11: cannot open shared object file: No such file or directory",
            "cuda.libraries-missing", "libcufft.so.11"),
    Wording("ImportError: libcusparse.so.12: Kann die Shared-Object-Datei nicht öffnen: Datei oder Verzeichnis nicht"
            " gefunden", "cuda.libraries-missing", "libcusparse.so.12"),
    Wording("ImportError: Could not find 'cudart64_80.dll'. TensorFlow requires that this DLL be installed in a"
            " directory that is named in your %PATH% environment variable.",
            "cuda.libraries-missing", "cudart64_80.dll"),
    Wording(_old("W", "stream_executor/platform/default/dso_loader.cc:64",
                 "Could not load dynamic library 'cudnn64_8.dll'; dlerror: cudnn64_8.dll not found") + "\n"
            + _old("W", "core/common_runtime/gpu/gpu_device.cc:1850", "Cannot dlopen some GPU libraries. Please make"
                   " sure the missing libraries mentioned above are installed properly") + "\n"
            "Skipping registering GPU devices...",
            "cuda.libraries-missing", "cudnn64_8.dll"),
    Wording(_old("W", "core/common_runtime/gpu/gpu_device.cc:2251", "Cannot dlopen some GPU li"),
            "cuda.libraries-missing"),
    Wording("Could not load library libcudnn_cnn_infer.so.8. Error: libcuda.so: cannot open shared object file:"
            " No such file or directory", "cuda.libraries-missing driver.missing", "libcudnn_cnn_infer.so.8"),
    Wording("Could not load library libcudnn_ops_infer.so.8. Error: libcudnn_ops_infer.so.8: cannot open shared object"
            " file: No such file or directory\nPlease make sure libcudnn_ops_infer.so.8 is in your library path!"
            "\nAborted (core dumped)", "cuda.libraries-missing", "libcudnn_ops_infer.so.8"),
    Wording("Unable to load any of {libcudnn_engines_precompiled.so.9.1.0, libcudnn_engines_precompiled.so.9}\n"
            "Invalid handle. Cannot load symbol cudnnCreateTensorDescriptor", "cuda.libraries-missing"),
    Wording(_old("I", "stream_executor/dso_loader.cc:102", "Couldn't open CUDA library libcudnn.so. LD_LIBRARY_PATH:"
                 " /usr/local/cuda/lib64"), "cuda.libraries-missing", "libcudnn.so"),
    Wording(_old("I", "stream_executor/dso_loader.cc:99", "Couldn't open CUDA library libcupti.so.8.0. LD_LIBRARY_PATH:"
                 " "), "cuda.libraries-missing healthy"),
    Wording(_old("I", "stream_executor/cuda/cuda_dnn.cc:1062", "Unable to load cuDNN DSO."), "cuda.libraries-missing",
            "libcudnn.so"),
    Wording("Could not load library cudnn_ops_infer64_8.dll. Error code 126\nPlease make sure cudnn_ops_infer64_8.dll is in"
            " your library path!", "cuda.libraries-missing", "cudnn_ops_infer64_8.dll"),
    Wording("libcufft.so.9.0: cannot open shared object file: No such file or directory\nFailed to load the native"
            " TensorFlow runtime.", "cuda.libraries-missing", "libcufft.so.9.0"),
    Wording('OSError: [WinError 126] The specified module could not be found. Error loading "C:\\py\\torch\\lib\\c10_cuda.dll"'
            " or one of its dependencies.", "cuda.libraries-missing", "c10_cuda.dll"),
    Wording("ImportError: DLL load failed: The specified module could not be found.\n\nFailed to load the native TensorFlow"
            " runtime.", "cuda.libraries-missing"),
    Wording("ImportError: DLL load failed while importing _pywrap_tensorflow_internal: A dynamic link library (DLL)"
            " initialization routine failed.", "cuda.libraries-missing"),
    Wording("jaxlib.xla_extension.XlaRuntimeError: NOT_FOUND: Couldn't find a suitable version of ptxas",
            "cuda.libraries-missing"),
    Wording("./train: error while loading shared libraries: libcudnn.so.6: cannot open shared object file: No such file"
            " or directory", "cuda.libraries-missing", "libcudnn.so.6"),
    Wording(_new("W", "gpu_backend_lib.cc:579", "Can't find libdevice directory ${CUDA_DIR}/nvvm/libdevice. This may"
                 " result in compilation or runtime failures, if the program we try to run uses routines from"
                 " libdevice.") + "\nSearched for CUDA in the following directories:\n  ./cuda_sdk_lib\n  .",
            "cuda.libraries-missing", "libdevice"),
    Wording(_new("W", "gpu_backend_lib.cc:617", "libdevice is required by this HLO module but was not found at"
                 " ./libdevice.10.bc"), "cuda.libraries-missing", "libdevice.10.bc"),
)  # fmt: skip

VERSIONS = (
    Wording(_old("E", "stream_executor/cuda/cuda_dnn.cc:378", "Loaded runtime CuDNN library: 5005 (compatibility"
                 " version 5000) but source was compiled with 5110 (compatibility version 5100)."),
            "cuda.version-mismatch"),
    Wording(_new("E", "cuda_dnn.cc:456", "Loaded runtime CuDNN library: 9.1.1 but source was compiled with: 9.3.0."
                 "  CuDNN library needs to have matching major version and equal or higher minor version."),
            "cuda.version-mismatch"),
    Wording("RuntimeError: cuDNN version incompatibility: PyTorch was compiled  against (8, 9, 2) but found runtime"
            " version (8, 5, 0). PyTorch already comes bundled with cuDNN.", "cuda.version-mismatch"),
    Wording("RuntimeError: CUDA backend failed to initialize: Found cuDNN version 8600, but JAX was built against"
            " version 8904, which is newer.", "cuda.version-mismatch"),
    Wording("RuntimeError: CUDA backend failed to initialize: Found CUDA version 11080, but JAX was built against"
            " version 12020, which is newer.", "cuda.version-mismatch driver.too-old"),
    Wording("Could not load library libcudnn_cnn_infer.so.8. Error: /opt/cuda/lib64/libnvrtc.so: undefined symbol:"
            " nvrtcGetCUBIN", "cuda.version-mismatch cuda.libraries-missing"),
    Wording(_old("F", "stream_executor/cuda/cuda_dnn.cc:222", "Check failed: s.ok() could not find cudnnCreate in cudnn"
                 " DSO; dlerror: /usr/lib/python2.7/tensorflow/_pywrap_tens"), "cuda.version-mismatch"),
    Wording("ImportError: /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cuda.so: undefined symbol:"
            " cublasLtMatmulAlgoGetHeuristic, version libcublasLt.so.12", "cuda.version-mismatch"),
)  # fmt: skip

DRIVER = (
    Wording("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the NVIDIA Display"
            " Driver is properly installed and present in your system.", "driver.missing"),
    Wording("pynvml.NVMLError_LibraryNotFound: NVML Shared Library Not Found", "driver.missing"),
    Wording("docker: Error response from daemon: Unknown runtime specified nvidia.", "driver.missing"),
    Wording(_old("F", "stream_executor/lib/statusor.cc:34", "Attempting to fetch value instead of handling error Internal:"
                 " failed to get device attribute 13 for device 0: CUDA_ERROR_UNKNOWN: unknown error"), "driver.bad-state"),
    Wording("RuntimeError: CUDA error: API call is not supported in the installed CUDA driver", "driver.too-old"),
    Wording(_old("E", "stream_executor/cuda/cuda_diagnostics.cc:303", "kernel version 515.65.1 does not match DSO versio"),
            "driver.mismatch"),
    Wording("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest"
            " NVIDIA driver is installed and running.", "driver.missing driver.bad-state"),
    Wording("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 560.35", "driver.mismatch"),
    Wording("Failed to initialize NVML: GPU access blocked by the operating system", "driver.bad-state container.lost-devices"),
    Wording("[ 9121.44] NVRM: API mismatch: the client has the version 560.35.03, but\n[ 9121.44] NVRM: this kernel"
            " module has the version 550.90.07.  Please", "driver.mismatch"),
    Wording("[   12.40] NVRM: RmInitAdapter failed! (0x62:0x40:2393)", "driver.bad-state hardware.fault"),
    Wording("[   12.40] NVRM: No NVIDIA GPU found.", "driver.missing"),
    Wording("WARNING: The NVIDIA Driver was not detected.  GPU functionality will not be available.\n   Use the NVIDIA"
            " Container Toolkit to start this container with GPU support", "driver.missing container.lost-devices"),
    Wording("ERROR: This container was built for NVIDIA Driver Release 545.23 or later, but\n       version 470.82.01"
            " was detected and compatibility mode is UNAVAILABLE.", "driver.too-old"),
    Wording("nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.4, please update your driver to a"
            " newer version, or use an earlier cuda container: unknown.", "driver.too-old"),
    Wording("nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown.", "driver.missing"),
    Wording('docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
            "driver.missing container.lost-devices"),
    Wording("nvidia-container-cli: device error: 4: unknown device: unknown.", "visibility.bad-ordinal container.lost-devices"),
    Wording("/opt/conda/lib/python3.10/site-packages/torch/cuda/__init__.py:129: UserWarning: CUDA initialization: The"
            " NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver",
            "driver.too-old"),
    Wording("UserWarning: CUDA initialization: Unexpected error from cudaGetDeviceCount(). Did you run some cuda"
            " functions before calling NumCudaDevices() that might have already set an error? Error 804: forward"
            " compatibility was attempted on non supported HW (Triggered internally at ../c10/cuda/CUDAFunctions.cpp:108.)",
            "driver.mismatch"),
    Wording("UserWarning: CUDA initialization: Unexpected error from cudaGetDeviceCount(). Did you run some cuda"
            " functions before calling NumCudaDevices() that might have already set an error? Error 803: system has"
            " unsupported display driver / cuda driver combination", "driver.mismatch"),
    Wording("RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling"
            " NumCudaDevices() that might have already set an error? Error 802: system not yet initialized",
            "driver.bad-state"),
    Wording("UserWarning: CUDA initialization: CUDA driver initialization failed, you might not have a CUDA gpu."
            " (Triggered internally at ../c10/cuda/CUDAFunctions.cpp:108.)", "driver.bad-state driver.missing"),
    Wording("RuntimeError: CUDA error: unknown error\nCUDA kernel errors might be asynchronously reported at some other"
            " API call", "driver.bad-state hardware.fault"),
    Wording("RuntimeError: CUDA driver error: invalid argument", "unknown driver.bad-state"),
    Wording("RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed"
            " a driver from http://www.nvidia.com/Download/index.aspx", "driver.missing"),
    Wording("RuntimeError: No CUDA GPUs are available", "visibility.hidden driver.missing container.lost-devices"),
    Wording("RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain.",
            "driver.too-old build.gpu-unsupported"),
    Wording("tensorflow.python.framework.errors_impl.InternalError: 'cuModuleLoadDataEx(&module, data)' failed with"
            " 'CUDA_ERROR_UNSUPPORTED_PTX_VERSION'", "driver.too-old build.gpu-unsupported"),
    Wording("W0504 10:11:12 xla_bridge.py:1116] An NVIDIA GPU may be present on this machine, but a CUDA-enabled jaxlib"
            " is not installed. Falling back to cpu.", "build.cpu-only"),
    Wording("RuntimeError: Unable to initialize backend 'cuda': FAILED_PRECONDITION: No visible GPU devices. (you may"
            " need to uninstall the failing plugin package, or set JAX_PLATFORMS=cpu to skip this backend.)",
            "visibility.hidden driver.missing container.lost-devices"),
    Wording(_new("E", "cuda_platform.cc:52", "failed call to cuInit: INTERNAL: CUDA error: Failed call to cuInit:"
                 " CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected") + "\n"
            + _new("I", "cuda_diagnostics.cc:160", 'env: CUDA_VISIBLE_DEVICES="7"') + "\n"
            + _new("I", "cuda_diagnostics.cc:284", "kernel version seems to match DSO: 550.90.7"),
            "visibility.bad-ordinal visibility.hidden"),
    Wording(_old("E", "stream_executor/cuda/cuda_driver.cc:271", "failed call to cuInit: CUDA_ERROR_NO_DEVICE: no"
                 " CUDA-capable device is detected") + "\n"
            + _old("I", "stream_executor/cuda/cuda_diagnostics.cc:200", "libcuda reported version is: 515.65.1") + "\n"
            + _old("I", "stream_executor/cuda/cuda_diagnostics.cc:204", "kernel reported version is: 515.65.1") + "\n"
            + _old("I", "stream_executor/cuda/cuda_diagnostics.cc:310", "kernel version seems to match DSO: 515.65.1"),
            "container.lost-devices visibility.hidden"),
    Wording(_old("E", "stream_executor/cuda/cuda_diagnostics.cc:303", "kernel version 515.65.1 does not match DSO"
                 " version 515.76.0 -- cannot find working devices in this configuration"), "driver.mismatch"),
    Wording(_old("I", "stream_executor/cuda/cuda_diagnostics.cc:156", "kernel driver does not appear to be running on"
                 " this host (node7): /proc/driver/nvidia/version does not exist"), "driver.missing"),
)  # fmt: skip

OLD_PYTORCH = (
    Wording("THCudaCheck FAIL file=/pytorch/aten/src/THC/THCGeneral.cpp line=51 error=802 : system not yet initialized\n"
            "RuntimeError: cuda runtime error (802) : system not yet initialized at ../aten/src/THC/THCGeneral.cpp:51",
            "driver.bad-state"),
    Wording("RuntimeError: cuda runtime error (35) : CUDA driver version is insufficient for CUDA runtime version at"
            " ..\\aten\\src\\THC\\THCGeneral.cpp:51", "driver.too-old"),
    Wording("RuntimeError: cuda runtime error (38) : no CUDA-capable device is detected at THCGeneral.cpp:51",
            "visibility.hidden driver.missing container.lost-devices"),
    Wording("RuntimeError: cuda runtime error (30) : unknown error at /pytorch/aten/src/THC/THCGeneral.cpp:51",
            "driver.bad-state"),
    Wording("RuntimeError: cuda runtime error (48) : no kernel image is available for execution on the device at x.cu:1",
            "build.gpu-unsupported"),
    Wording("UserWarning: cudaGetDeviceCount() returned cudaErrorNotSupported, likely running on CPU machine (Triggered"
            " internally at ../c10/cuda/CUDAFunctions.cpp:86.)", "driver.missing"),
)  # fmt: skip

VISIBILITY = (
    Wording("AssertionError: Invalid device id", "visibility.bad-ordinal"),
    Wording("RuntimeError: CUDA error: invalid device ordinal\nCUDA kernel errors might be asynchronously reported",
            "visibility.bad-ordinal"),
    Wording("RuntimeError: cuda runtime error (101) : invalid device ordinal at /pytorch/torch/csrc/cuda/Module.cpp:59",
            "visibility.bad-ordinal"),
    Wording("ValueError: 'visible_device_list' listed an invalid GPU id '6' but visible device count is 2",
            "visibility.bad-ordinal"),
    Wording('RuntimeError: device >= 0 && device < num_gpus INTERNAL ASSERT FAILED at "aten/src/ATen/cuda/CUDAContext.cpp"'
            ":51, please report a bug to PyTorch. device=1, num_gpus=1", "visibility.bad-ordinal mig.misuse"),
    Wording("RuntimeError: Attempting to deserialize object on CUDA device 5 but torch.cuda.device_count() is 2. Please"
            " use torch.load with map_location", "visibility.bad-ordinal"),
    Wording("RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable", "mode.exclusive"),
    Wording("RuntimeError: CUDA error: no CUDA-capable device is detected",
            "visibility.hidden driver.missing container.lost-devices"),
    Wording("RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable", "mode.exclusive"),
    Wording("InternalError: cudaGetDevice() failed. Status: all CUDA-capable devices are busy or unavailable",
            "mode.exclusive"),
    Wording("MisconfigurationException: You requested gpu: [0, 1, 2, 3]\n But your machine only has: [0]",
            "distribution.devices-missing visibility.bad-ordinal"),
    Wording("ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
            "distribution.devices-missing driver.missing visibility.hidden"),
)  # fmt: skip

MEMORY = (
    Wording("InternalError: CUDA runtime implicit initialization on GPU:0 failed. Status: out of memory",
            "memory.context-failed memory.other-process"),
    Wording("RuntimeError: cudaSetDevice() on GPU:0 failed. Status: out of memory",
            "memory.context-failed memory.other-process"),
    Wording(_old("F", "core/platform/statusor.cc:33", "Attempting to fetch value instead of handling error INTERNAL:"
                 " failed initializing StreamExecutor for CUDA device ordinal 1: INTERNAL: failed call to"
                 " cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY: out of memory; total memory reported: 8589934592"),
            "memory.context-failed memory.other-process"),
    Wording("tensorflow.python.framework.errors_impl.UnknownError: 2 root error(s) found.\n  (0) Unknown: Failed to get"
            " convolution algorithm. This is probably because cuDNN failed to initialize, so try looking to see if a"
            " warning log message was printed above.", "memory.masked cuda.version-mismatch"),
    Wording("tensorflow.python.framework.errors_impl.InternalError: Blas GEMM launch failed : a.shape=(64, 784),"
            " b.shape=(784, 512), m=64, n=512, k=784", "memory.masked"),
    Wording("tensorflow.python.framework.errors_impl.NotFoundError: No algorithm worked! Error messages:",
            "memory.masked"),
    Wording(_old("W", "core/framework/op_kernel.cc:1763", "OP_REQUIRES failed at conv_ops.cc:1106 : Not found: No algorithm"
                 " worked!"), "memory.masked cuda.version-mismatch"),
    Wording("  (0) Not found:  No algorithm worked!\n\t [[node model/conv2d/Conv2D (defined at train.py:7) ]]",
            "memory.masked cuda.version-mismatch"),
    Wording("tensorflow.python.framework.errors_impl.UnknownError: Fail to find the dnn implementation. [Op:CudnnRNN]",
            "memory.masked cuda.version-mismatch"),
    Wording("UnknownError: Graph execution error:\n\nFail to find the dnn implementation.\n\t [[{{node CudnnRNN}}]]",
            "memory.masked cuda.version-mismatch"),
    Wording("InternalError: Failed to call ThenRnnForward with model config: [rnn_mode, rnn_input_mode]: 2, 0",
            "memory.masked"),
    Wording(_old("E", "stream_executor/dnn.cc:616", "CUDNN_STATUS_EXECUTION_FAILED"), "memory.masked"),
    Wording("RuntimeError: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR", "memory.masked"),
    Wording("RuntimeError: CUDA error: CUBLAS_STATUS_INTERNAL_ERROR when calling `cublasCreate(handle)`", "memory.masked"),
    Wording("InternalError: cuDNN launch failure : input shape ([32,64,112,112])", "memory.masked"),
    Wording("InternalError: Blas xGEMMBatched launch failed : a.shape=[2,3,4], b.shape=[2,4,3]", "memory.masked"),
    Wording("InternalError: Blas GEMV launch failed:  m=1, n=1000", "memory.masked"),
    Wording("RuntimeError: CUDA driver error: out of memory", "memory.model-too-large"),
    Wording("RuntimeError: [enforce fail at alloc_cpu.cpp:83] data. DefaultCPUAllocator: not enough memory: you tried to"
            " allocate 12884901888 bytes.", "memory.model-too-large"),
    Wording("numpy.core._exceptions._ArrayMemoryError: Unable to allocate 7.45 GiB for an array with shape (9, 9)",
            "memory.model-too-large"),
    Wording("jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4.13GiB with allocator GPU_0_bfc on device 0. [executable_name='jit_multiply']",
            "memory.model-too-large memory.request-too-large memory.other-process"),
    Wording("cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 8,589,934,592 bytes (allocated so far: 1,024 bytes).",
            "memory.model-too-large"),
    Wording("ggml_backend_cuda_buffer_type_alloc_buffer: allocating 4096.00 MiB on device 0: cudaMalloc failed: out of"
            " memory", "memory.model-too-large"),
    Wording("RuntimeException: [ONNXRuntimeError] : 6 : Failed to allocate memory for requested buffer of size 1073741824",
            "memory.model-too-large"),
    Wording("  (0) Internal:  Blas GEMM launch failed : a.shape=(64, 784), b.shape=(784, 512)", "memory.masked"),
    Wording("tensorflow.python.framework.errors_impl.InternalError: Attempting to perform BLAS operation using"
            " StreamExecutor without BLAS support [Op:MatMul]", "memory.masked"),
    Wording("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "memory.masked"),
    Wording("RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`", "memory.masked"),
    Wording("RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED", "memory.masked cuda.version-mismatch"),
    Wording("RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED", "memory.masked"),
    Wording("W tensorflow/core/common_runtime/executor.cc:1076] 0x18ef Compute status: Resource exhausted: OOM when"
            " allocating tensor with shape\n\t [[Node: Sub = Sub[T=DT_FLOAT]]]", "memory.model-too-large"),
    Wording(_old("W", "core/common_runtime/bfc_allocator.cc:474", 60 * "*" + 40 * "_"), "memory.model-too-large"),
    Wording("jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184"
            " bytes.", "memory.model-too-large memory.request-too-large"),
    Wording("jaxlib.xla_extension.XlaRuntimeError: INTERNAL: Failed to load in-memory CUBIN (compiled for a different"
            " GPU?).: CUDA_ERROR_OUT_OF_MEMORY: out of memory", "memory.model-too-large memory.other-process memory.masked"),
    Wording("RuntimeError: cuda runtime error (2) : out of memory at /opt/pytorch/THC/generic/THCStorage.cu:58",
            "memory.model-too-large"),
    Wording("RuntimeError: CUDA error: out of memory\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
            "memory.model-too-large memory.other-process memory.context-failed"),
    Wording("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 23.68"
            " GiB of which 1.12 GiB is free. Including non-PyTorch memory, this process has 22.54 GiB memory in use. Of"
            " the allocated memory 21.90 GiB is allocated by PyTorch, with 41.00 MiB allocated in private pools (e.g.,"
            " CUDA Graphs), and 330.11 MiB is reserved by PyTorch but unallocated.", "memory.model-too-large"),
    Wording("torch.OutOfMemoryError: CUDA out of memory. Allocation was preemptively rejected because it would exceed"
            " per_process_memory_fraction limit. Requested size: 3.50 GiB.", "memory.limit-too-small"),
    Wording("torch.OutOfMemoryError: HIP out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 15.98"
            " GiB of which 210.00 MiB is free. Of the allocated memory 15.20 GiB is allocated by PyTorch, and 96.20 MiB"
            " is reserved by PyTorch but unallocated.", "memory.model-too-large"),
    Wording("RuntimeError: MPS backend out of memory (MPS allocated: 17.88 GB, other allocations: 98.05 MB, max allowed:"
            " 18.13 GB). Tried to allocate 1.00 GB on private pool.", "memory.model-too-large memory.limit-too-small"),
    Wording("ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when"
            " initializing the engine.", "memory.limit-too-small memory.model-too-large"),
    Wording("ValueError: The model's max seq len (32768) is larger than the maximum number of tokens that can be stored in"
            " KV cache (11200). Try increasing `gpu_memory_utilization` or decreasing `max_model_len`",
            "memory.limit-too-small memory.model-too-large"),
    Wording("ValueError: To serve at least one request with the models's max seq len (40960), (5.62 GiB KV cache is needed,"
            " which is larger than the available KV cache memory (3.10 GiB).", "memory.limit-too-small"),
    Wording("ValueError: Free memory on device (3.21/23.64 GiB) on startup is less than desired GPU memory utilization"
            " (0.9, 21.28 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.",
            "memory.other-process"),
    Wording("node3:4112:4388 [2] include/alloc.h:181 NCCL WARN Cuda failure 'out of memory'",
            "memory.model-too-large memory.other-process memory.masked"),
    Wording("tensorflow.python.framework.errors_impl.ResourceExhaustedError: failed to allocate memory [Op:AddV2]",
            "memory.model-too-large"),
    Wording("tensorflow.python.framework.errors_impl.ResourceExhaustedError: {{function_node __wrapped__Mul}} SameWorkerRecvDone"
            " unable to allocate output tensor. Key: /job:localhost/replica:0/task:0/device:CPU:0", "memory.model-too-large"),
    Wording("tensorflow.python.framework.errors_impl.InternalError: Failed copying input tensor from"
            " /job:localhost/replica:0/task:0/device:CPU:0 to /job:localhost/replica:0/task:0/device:GPU:0 in order to run"
            " _EagerConst: Dst tensor is not initialized.", "memory.model-too-large memory.request-too-large"),
)  # fmt: skip

BUILD = (
    Wording("    Found GPU0 Tesla K20c which is of cuda capability 3.5.\n    PyTorch no longer supports this GPU because"
            " it is too old.", "build.gpu-unsupported"),
    Wording("NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch"
            " installation.\nThe current PyTorch install supports CUDA capabilities sm_50 sm_60 sm_70",
            "build.gpu-unsupported"),
    Wording("LLVM ERROR: PTX version 8.5 does not support target 'sm_120'.", "build.gpu-unsupported"),
    Wording("'sm_120' is not a recognized processor for this target (ignoring processor)", "build.gpu-unsupported"),
    Wording("ptxas fatal   : Value 'sm_120' is not defined for option 'gpu-name'", "build.gpu-unsupported"),
    Wording("tensorflow.python.framework.errors_impl.InternalError: {{function_node __wrapped__Cast}}"
            " 'cuLaunchKernel(function, gridX, gridY, gridZ)' failed with 'CUDA_ERROR_INVALID_HANDLE' [Op:Cast]",
            "build.gpu-unsupported"),
    Wording("RuntimeError: CUDA error: no kernel image is available for execution on the device", "build.gpu-unsupported"),
    Wording("InternalError: CUDA runtime implicit initialization on GPU:0 failed. Status: device kernel image is invalid",
            "build.gpu-unsupported"),
    Wording(_old("I", "core/common_runtime/gpu/gpu_device.cc:1961", "Ignoring visible gpu device (device: 0, name: Quadro"
                 " K620, pci bus id: 0000:03:00.0, compute capability: 5.0) with Cuda compute capability 5.0. The"
                 " minimum required Cuda capability is 6.0."), "build.gpu-unsupported"),
    Wording("AssertionError: Torch not compiled with CUDA enabled", "build.cpu-only"),
    Wording("RuntimeError: Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. If"
            " you are running on a CPU-only machine, please use torch.load with map_location=torch.device('cpu')",
            "unknown placement.device-missing visibility.hidden driver.missing"),
)  # fmt: skip

HARDWARE = tuple(
    Wording(text, "hardware.fault")
    for text in (
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        "[88112.31] NVRM: Xid (PCI:0000:65:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        "Unable to determine the device handle for GPU 0000:65:00.0: GPU is lost.  Reboot the system to recover this GPU",
        "InternalError: cudaSetDevice() on GPU:0 failed. Status: uncorrectable ECC error encountered",
        # The same code cannot fail in two ways by one fault of its own.
        _old("E", "stream_executor/cuda/cuda_event.cc:29", "Error polling for event status: failed to query event:"
             " CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered") + "\n"
        + _old("E", "stream_executor/cuda/cuda_event.cc:29", "Error polling for event status: failed to query event:"
               " CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure"),
    )
)  # fmt: skip

CRASHED = tuple(
    Wording(text, "unknown")
    for text in (
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "RuntimeError: cuda runtime error (77) : an illegal memory access was encountered at THCReduceAll.cuh:327",
        "RuntimeError: CUDA error: unspecified launch failure",
        "RuntimeError: CUDA error: misaligned address",
        "RuntimeError: CUDA error: the launch timed out and was terminated",
        "tensorflow.python.framework.errors_impl.InternalError: GPU sync failed",
        _old("E", "stream_executor/cuda/cuda_event.cc:49", "Error polling for event status: failed to query event:"
             " CUDA_ERROR_LAUNCH_FAILED") + "\n" + _old("E", "stream_executor/dnn.cc:616", "CUDNN_STATUS_MAPPING_ERROR"),
        "RuntimeError: CUDA error: an illegal instruction was encountered",
        _old("E", "compiler/xla/stream_executor/cuda/cuda_event.cc:29", "Error polling for event status: failed to query"
             " event: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered"),
        _new("F", "gpu_event_mgr.cc:226", "Unexpected Event status: 1 CUDA_ERROR_LAUNCH_FAILED"),
    )
)  # fmt: skip

REMOVED = tuple(
    Wording(text, "api.removed")
    for text in (
        "AttributeError: module 'tensorflow' has no attribute 'Session'",
        "AttributeError: module 'tensorflow' has no attribute 'placeholder'",
        "AttributeError: module 'tensorflow' has no attribute 'get_default_graph'",
        "AttributeError: module 'tensorflow' has no attribute 'GPUOptions'. Did you mean: 'OptionalSpec'?",
        "AttributeError: module 'tensorflow' has no attribute 'contrib'",
        "ModuleNotFoundError: No module named 'tensorflow.contrib'",
        "ImportError: cannot import name 'multi_gpu_model' from 'tensorflow.keras.utils'",
        "ModuleNotFoundError: No module named 'keras.utils.training_utils'",
        "AttributeError: module 'keras.backend' has no attribute 'set_session'",
        "AttributeError: module 'tensorflow._api.v2.config' has no attribute 'gpu'",
        "AttributeError: module 'tensorflow._api.v2.train' has no attribute 'AdamOptimizer'",
        "AttributeError: module 'tensorflow._api.v2.compat.v1' has no attribute 'estimator'",
        "AttributeError: module 'tensorflow' has no attribute 'enable_eager_execution'",
        "ModuleNotFoundError: No module named 'tensorflow.examples'",
        "ModuleNotFoundError: No module named 'keras.layers.convolutional'",
        "ModuleNotFoundError: No module named 'tensorflow.keras.wrappers.scikit_learn'",
        "ValueError: Argument(s) not recognized: {'lr': 0.01}",
        "TypeError: Layer.add_variable() missing 1 required positional argument: 'initializer'",
        "ValueError: The filename must end in `.weights.h5`. Received: filepath=./model.ckpt",
    )
)

PLACEMENT = (
    Wording("InvalidArgumentError: Cannot assign a device for operation 'w': Operation was explicitly assigned to"
            " /device:GPU:3 but available devices are [ /job:localhost/replica:0/task:0/device:CPU:0 ].",
            "placement.device-missing"),
    Wording("InvalidArgumentError: Cannot assign a device to node 'w': Could not satisfy explicit device specification"
            " '/device:GPU:1' because no devices matching that specification are registered in this process",
            "placement.device-missing"),
    Wording("RuntimeError: /job:localhost/replica:0/task:0/device:GPU:4 unknown device.", "placement.device-missing"),
    Wording("InvalidArgumentError: No OpKernel was registered to support Op 'CudnnRNN' used by {{node lstm/CudnnRNN}}with"
            " these attrs: [seed=0]\nRegistered devices: [CPU]\nRegistered kernels:\n  device='GPU'",
            "placement.no-kernel placement.device-missing build.cpu-only"),
    Wording("tensorflow.python.framework.errors_impl.NotFoundError: Could not find device for node: {{node BitwiseAnd}} ="
            " BitwiseAnd[T=DT_BOOL]\nAll kernels registered for op BitwiseAnd:", "placement.no-kernel"),
    Wording("ValueError: To call `multi_gpu_model` with `gpus=3`, we expect the following devices to be available:"
            " ['/cpu:0', '/gpu:0', '/gpu:1', '/gpu:2']. However this machine only has: ['/cpu:0', '/gpu:0']. Try reducing"
            " `gpus`.", "distribution.devices-missing"),
    Wording("creating a partition for /device:CPU:3 which doesn't exist in the list of available devices. Available"
            " devices: /device:CPU:0,/device:GPU:0", "placement.device-missing"),
    Wording("WARNING:tensorflow:Some requested devices in `tf.distribute.Strategy` are not visible to TensorFlow:"
            " /replica:0/task:0/device:GPU:1", "distribution.devices-missing"),
    Wording("RuntimeError: Virtual devices cannot be modified after being initialized", "config.too-late"),
    Wording(
        'ValueError: Protocol message GPUOptions has no "per_process_memory_fraction" field.', "config.inconsistent"
    ),
    Wording("ValueError: Memory growth cannot differ between GPU devices", "config.inconsistent"),
    Wording("ValueError: Cannot set memory growth on device when virtual devices configured", "config.inconsistent"),
    Wording("ValueError: Cannot configure virtual devices with memory growth enabled on the same GPU",
            "config.inconsistent unknown"),
)  # fmt: skip

ENDED = (
    Wording("RuntimeError: CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously reported",
            "unknown"),
    Wording("RuntimeError: cuda runtime error (59) : device-side assert triggered at THCReduceAll.cuh:327", "unknown"),
    Wording("[E504 10:11:12.131415926 ProcessGroupNCCL.cpp:616] [Rank 2] Watchdog caught collective operation timeout:"
            " WorkNCCL(SeqNum=91, OpType=ALLREDUCE, NumelIn=64, NumelOut=64, Timeout(ms)=600000) ran for 600032"
            " milliseconds before timing out.", "unknown"),
    Wording("RuntimeError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1191, unhandled system error,"
            " NCCL version 2.10.3", "unknown"),
    Wording("\t[[{{node NcclAllReduce}}]]\n(0) Unknown: Error invoking NCCL: unhandled cuda error", "unknown"),
    Wording("RuntimeError: DataLoader worker (pid 4711) is killed by signal: Bus error. It is possible that dataloader's"
            " workers are out of shared memory. Please try to raise your shared memory limit.", "unknown"),
    Wording("RuntimeError: DataLoader worker (pid(s) 4711, 4712) exited unexpectedly", "unknown"),
    Wording("RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use"
            " the 'spawn' start method", "unknown"),
    Wording(_old("F", "core/platform/cpu_feature_guard.cc:37", "The TensorFlow library was compiled to use AVX"
                 " instructions, but these aren't available on your machine."), "unknown"),
    Wording(_old("F", "core/common_runtime/gpu/gpu_event_mgr.cc:198", "Unexpected Event status: 1"), "unknown"),
    Wording("F0504 10:11:12.131415   40712 cuda_x.cc:7] Check failed: a == b", "unknown"),
    Wording("Segmentation fault (core dumped)", "unknown"),
    Wording("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=123.batch. Some of your processes may have been"
            " killed by the cgroup out-of-memory handler.", "unknown"),
    Wording("ncclInvalidUsage: This usually reflects invalid usage of NCCL library.", "unknown"),
    Wording('Traceback (most recent call last):\n  File "train.py", line 7, in <module>\n    model.fit(x, y)', "unknown"),
    Wording("UnknownError                              Traceback (most recent call last)\nCell In[14], line 18\n"
            "     17 for x in data:\n---> 18   total += step(x)", "unknown"),
)  # fmt: skip

# What tells of nothing at all is "unknown", as a remark.
HEALTHY = tuple(
    Wording(text, "healthy unknown")
    for text in (
        _old("I", "stream_executor/cuda/cuda_gpu_executor.cc:998", "successful NUMA node read from SysFS had negative value"
             " (-1), but there must be at least one NUMA node, so returning NUMA node zero"),
        _old("E", "stream_executor/cuda/cuda_gpu_executor.cc:967", "could not open file to read NUMA node:"
             " /sys/bus/pci/devices/0000:0b:00.0/numa_node\nYour kernel may have been built without NUMA support."),
        _old("I", "core/platform/cpu_feature_guard.cc:210", "This TensorFlow binary is optimized to use available CPU"
             " instructions in performance-critical operations.") + "\n"
        + _old("I", "xla/stream_executor/cuda/cuda_executor.cc:998", "successful NUMA node read from SysFS had neg"),
        _old("I", "core/platform/cpu_feature_guard.cc:210", "This TensorFlow binary is optimized to use available CPU"
             " instructions in performance-critical operations.") + "\n"
        + _old("I", "core/common_runtime/dml/dml_device_factory.cc:32", "DirectML: creating device on adapter 0 (AMD X)"),
        "Metal device set to: Apple M1\n"
        + _old("I", "core/platform/cpu_feature_guard.cc:210", "This TensorFlow binary is optimized to use available CPU"
             " instructions in performance-critical operations."),
        "2026-05-04 10:11:12.1: E external/local_xla/xla/stream_executor/cuda/cuda_fft.cc:467] Unable to register cuFFT"
        " factory: Attempting to register factory for plugin cuFFT when one has already been registered",
        _old("W", "compiler/tf2tensorrt/utils/py_utils.cc:38", "TF-TRT Warning: Could not find TensorRT"),
        _old("W", "compiler/tf2tensorrt/utils/py_utils.cc:38", "TF-TRT Warning: Cannot dlopen some TensorRT libraries. If"
             " you would like to use Nvidia GPU with TensorRT, please make sure the missing libraries mentioned above"
             " are installed properly."),
        "2026-05-04 10:11:12.1: W external/local_tsl/tsl/framework/bfc_allocator.cc:296] Allocator (GPU_0_bfc) ran out of"
        " memory trying to allocate 3.31GiB with freed_by_count=0. The caller indicates that this is not a failure, but"
        " this may mean that there could be performance gains if more memory were available.",
        "2026-05-04 10:11:12.1: E external/local_xla/xla/stream_executor/cuda/cuda_blas.cc:1452] Unable to register cuBLAS"
        " factory: Attempting to register factory for plugin cuBLAS when one has already been registered",
        _new("E", "computation_placer.cc:177", "computation placer already registered. Please check linkage and avoid"
             " linking the same target more than once."),
        "node3:4112:4388 [2] NCCL INFO Channel 00/02 :    0   1   2   3",
        "I0504 10:11:12.407243 26518 nvc.c:376] initializing library context (version=1.17.0, build=)",
        "  0%|          | 0/798 [00:00<?, ?it/s]" + _old("I", "stream_executor/platform/default/dso_loader.cc:49",
                                                         "Successfully opened dynamic library libcuda.so.1"),
        _new("W", "cuda_executor.cc:1755", "Failed to determine cuDNN version (Note that this is expected if the application"
             " doesn't link the cuDNN plugin): INTERNAL: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR"),
        "ImportError while reading config: fallback\nDLL search path set",
        "Reserved 2.0 GiB memory on GPU 0 for the cache",
        "tcmalloc: large alloc 1147494400 bytes == 0x38916000 @  0x7f1 0x7f2",
        _old("W", "stream_executor/gpu/redzone_allocator.cc:314", "Internal: ptxas exited with non-zero error code 256")
        + "\nRelying on driver to perform ptx compilation.\nThis message will be only logged once.",
        "^^^^ CUDNN_STATUS_NOT_SUPPORTED for Algo 6: -1.000000 time requiring 0 memory",
        "I tensorflow/core/common_runtime/gpu/pool_allocator.cc:244] PoolAllocator: After 1925 get requests, put_count=1701",
        "2026-05-04 10:11:12.1: I tensorflow/core/x.cc:7] " + 60 * "*",
        "frame #3: c10d::ProcessGroupNCCL::watchdog() + 0x10c (0x7f3b6e in /opt/torch/lib/libtorch_cuda.so)",
        "WARNING:tensorflow:5 out of the last 5 calls to <function f> triggered tf.function retracing.",
        "Epoch 3/10\n1875/1875 [==============================] - 4s 2ms/step - loss: 0.0410 - accuracy: 0.9871",
        "I0504 10:11:12 device error rate 0.0, memory error count 0",
        "WARNING:absl:CUDA graphs are enabled; out of memory handling: retry",
        "You can avoid CUDA out of memory errors by lowering --batch-size (see docs).",
    )
)  # fmt: skip

ALL = (
    *LIBRARIES,
    *VERSIONS,
    *DRIVER,
    *OLD_PYTORCH,
    *VISIBILITY,
    *MEMORY,
    *BUILD,
    *HARDWARE,
    *CRASHED,
    *REMOVED,
    *PLACEMENT,
    *ENDED,
    *HEALTHY,
)
