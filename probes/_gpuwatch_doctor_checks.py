"""What ``gpuwatch doctor`` runs in the user's interpreter: which libraries load, and what the framework finds.

Three parts, each run in its own process, so that one that hangs or crashes does not affect the others:

- ``driver``: loads and initializes libcuda and NVML, without a framework.
- ``look FRAMEWORK``: lists installed distributions, and opens every library that the framework needs in the loader's
  order: LD_LIBRARY_PATH, then the framework's RUNPATH, then the system (``ld.so(8)``).
- ``framework FRAMEWORK``: imports it, lists its devices, and runs one matrix product on each.

Results are events, as of a probe. The user's settings are not changed, except that memory growth is switched on: a
check must not take all memory of a shared GPU.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import os
import re
import struct
import sys
import time

import _gpuwatch_probe
import _gpuwatch_torch

_MATRIX_SIZE = 64
_DRIVER_VERSION = re.compile(r"\.so\.(\d{3}\.\d+(?:\.\d+)?)$")
_FILE_VERSION = re.compile(r"\.so\.(\d+(?:\.\d+)+)$")

# Libraries that dso_loader.cc opens, by the CUDA version of the build (logged with TF_CPP_VMODULE=dso_loader=1).
_LIBRARIES_BY_CUDA_VERSION = {
    "11": ("libcudart.so.11.0", "libcublas.so.11", "libcublasLt.so.11", "libcufft.so.10", "libcusolver.so.11",
           "libcusparse.so.11"),
    "12": ("libcudart.so.12", "libcublas.so.12", "libcublasLt.so.12", "libcufft.so.11", "libcusolver.so.11",
           "libcusparse.so.12"),
    "13": ("libcudart.so.13", "libcublas.so.13", "libcublasLt.so.13", "libcufft.so.12", "libcusolver.so.12",
           "libcusparse.so.12"),
}  # fmt: skip
_CUDA_NAME = re.compile(r"^lib(?:cu|nccl|nvrtc|nvJitLink|nvToolsExt|nvshmem)")
_DISTRIBUTION = re.compile(
    r"^(?:tensorflow|tf[-_]nightly|keras$|tf[-_]keras$|torch$|torch[-_]|nvidia[-_]|pynvml$|numpy$|triton$|jax|intel[-_]"
    r"|tensorrt|cuda[-_]|cupy|pycuda|numba|onnxruntime|bitsandbytes|xformers$|flash[-_]attn|deepspeed$|vllm$|horovod$"
    r"|accelerate$|transformers$|lightning$|pytorch[-_]lightning|mxnet|paddlepaddle|cudf|cuml|rmm[-_]|dask[-_]cuda"
    r"|faiss[-_]gpu|apex$|ml[-_]dtypes$|pytorch[-_]triton|nvtx$|warp[-_]lang$)",
    re.IGNORECASE,
)


def main():
    part = sys.argv[1]
    name = sys.argv[2] if len(sys.argv) > 2 else "tensorflow"
    if part == "framework":
        config = {"name": "doctor", "title": __doc__, "framework": name, "workload": "matmul"}
        _gpuwatch_probe.main(config, *(_TENSORFLOW if name == "tensorflow" else _TORCH))
        return
    probe = _gpuwatch_probe.Probe({"name": part})
    if "GPUWATCH_EVENT_FD" in os.environ:
        _gpuwatch_probe.die_with_parent()
    if part == "driver":
        ask_driver(probe)
    else:
        distributions(probe)
        libraries(probe, name)
    probe.emit("end", ok=True)


# -- the driver -------------------------------------------------------------------------------------


def ask_driver(probe):
    """NVML first: it may answer even if cuInit hangs."""
    nvml = _load(probe, "libnvidia-ml.so.1", "nvml", "nvmlInit_v2")
    if nvml is not None:
        probe.emit("calling", name="nvmlInit")
        code = nvml.nvmlInit_v2()
        version = ctypes.create_string_buffer(96)
        known = code == 0 and nvml.nvmlSystemGetDriverVersion(version, 96) == 0
        probe.emit("answer", nvml_code=code, nvml_driver=version.value.decode() if known else None)
    cuda = _load(probe, "libcuda.so.1", "libcuda", "cuInit")
    if cuda is None:
        return
    number = ctypes.c_int()
    if cuda.cuDriverGetVersion(ctypes.byref(number)) == 0:
        probe.emit("answer", cuda_driver=number.value)
    probe.emit("calling", name="cuInit")
    began = time.monotonic()
    code = cuda.cuInit(0)
    probe.emit("answer", cuinit_code=code, cuinit_seconds=time.monotonic() - began)
    if code == 0 and cuda.cuDeviceGetCount(ctypes.byref(number)) == 0:
        probe.emit("answer", cuda_devices=number.value)


def _load(probe, name, key, function):
    """The library; None, and the loader's message, if it cannot be loaded or does not have ``function``."""
    probe.emit("calling", name="dlopen of " + name)
    try:
        library = ctypes.CDLL(name)
        getattr(library, function)
    except (OSError, AttributeError) as error:
        probe.emit("answer", **{key: {"name": name, "error": str(error)}})
        return None
    path = mapped_file(name)
    version = _DRIVER_VERSION.search(path or "")
    probe.emit("answer", **{key: {"name": name, "path": path, "version": version and version.group(1)}})
    return library


def mapped_file(name):
    """The file of a library that this process has open."""
    stem = name.partition(".so")[0] + ".so"
    for path in mapped_files():
        if os.path.basename(path).startswith(stem) and _is_library(path, name):
            return path
    return None


def mapped_files():
    """Every file that this process has mapped."""
    files = {}
    with open("/proc/self/maps") as maps:
        for line in maps:
            path = line.rstrip("\n").partition("/")
            if path[1]:
                files["/" + path[2]] = None
    return list(files)


def opened_files():
    """CUDA libraries that this process has mapped."""
    simulated = simulated_folder()
    return [
        path
        for path in mapped_files()
        if _CUDA_NAME.match(os.path.basename(path))
        or (simulated and os.path.dirname(path) == os.path.realpath(simulated))
    ]


def _is_library(path, name):
    """Whether a mapped file is the library with this soname, or its link's target."""
    base = os.path.basename(path)
    # For example, libcudart.so.11.0 links to libcudart.so.11.8.89.
    major = ".".join(name.split(".")[:3])
    return base == major or base.startswith(major + ".") or _DRIVER_VERSION.search(base) is not None


# -- what is installed ------------------------------------------------------------------------------


def distributions(probe):
    """Reports installed packages that may affect GPUs."""
    packages = {}
    for entry in importlib.metadata.distributions():
        name = entry.metadata["Name"]
        if name and _DISTRIBUTION.match(name):
            packages[name.lower().replace("_", "-"), entry.version] = None
    probe.emit("distributions", found=[{"name": name, "version": version} for name, version in sorted(packages)])


def libraries(probe, framework):
    """Opens each library that the framework's build needs, in the same way as the framework."""
    spec = importlib.util.find_spec(framework)
    if spec is None or not spec.origin:
        return
    root = os.path.dirname(spec.origin)
    names, binaries = _tensorflow_wants(root) if framework == "tensorflow" else _torch_wants(root)
    runpath = list(dict.fromkeys(folder for host in binaries for folder in dynamic(host)[1]))
    probe.emit("wanted", names=names, runpath=[folder for folder in runpath if os.path.isdir(folder)])
    simulated = simulated_folder()
    for name in names:
        probe.emit("library", **find(name, runpath, simulated))


def _tensorflow_wants(root):
    info = read_text(root, "python", "platform", "build_info.py")
    cuda = re.search(r"'cuda_version', '(\d+)", info)
    cudnn = re.search(r"'cudnn_version', '(\d+)", info)
    if "'is_cuda_build', True" not in info or cuda is None:
        return [], []
    names = list(_LIBRARIES_BY_CUDA_VERSION.get(cuda.group(1), ()))
    if cudnn is not None:
        names.append("libcudnn.so." + cudnn.group(1))
    found = (os.path.join(root, name) for name in ("libtensorflow_cc.so.2", "libtensorflow_framework.so.2"))
    return names, [path for path in found if os.path.isfile(path)]


def _torch_wants(root):
    binaries = [
        os.path.join(root, "lib", name) for name in ("libtorch_cuda.so", "libtorch_cuda_cpp.so", "libc10_cuda.so")
    ]
    binaries = [path for path in binaries if os.path.isfile(path)]
    names = dict.fromkeys(name for host in binaries for name in dynamic(host)[0] if _CUDA_NAME.match(name))
    return list(names), binaries


def find(name, runpath, simulated=None):
    """Where the loader finds ``name``, whether it opens, and which wheel's library it shadows."""
    stages = [("LD_LIBRARY_PATH", folder) for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    stages += [("runpath", folder) for folder in runpath]
    candidates = []
    for stage, folder in stages:
        path = os.path.join(folder, name)
        if os.path.exists(path) and path not in [candidate_path for _, candidate_path in candidates]:
            candidates.append((stage, path))
    problem = ""
    for stage, path in [*candidates, ("system", name)]:
        try:
            library = ctypes.CDLL(path)
        except OSError as error:
            # The loader continues with the next folder only if the file is for another architecture.
            problem = problem or str(error)
            if stage == "system" or "wrong ELF class" in str(error):
                continue
            return {"name": name, "state": "broken", "path": path, "origin": _origin(stage, path, simulated),
                    "detail": str(error)}  # fmt: skip
        file = mapped_file(name) if stage == "system" else os.path.realpath(path)
        origin = _origin(stage, (file or "") if stage == "system" else path, simulated)
        wheel = next(
            (
                candidate_path
                for where, candidate_path in candidates
                if where == "runpath" and _is_in_wheel(candidate_path)
            ),
            None,
        )
        shadows = wheel if origin == "LD_LIBRARY_PATH" and wheel and wheel != path else None
        return {"name": name, "state": "loaded", "path": file, "origin": origin, "shadows": shadows,
                "version": _version(name, library, file or ""), "detail": problem}  # fmt: skip
    return {"name": name, "state": "missing", "detail": problem}


def _origin(stage, path, simulated):
    if simulated and os.path.dirname(path) == simulated:
        return "simulated"
    if path.startswith("/usr/lib/wsl/"):
        return "WSL"
    if _is_in_wheel(path):
        return "wheel"
    if stage == "LD_LIBRARY_PATH":
        return stage
    prefix = os.environ.get("CONDA_PREFIX") or (
        sys.prefix if os.path.isdir(os.path.join(sys.prefix, "conda-meta")) else None
    )
    return "conda" if prefix and path.startswith(prefix + os.sep) else "system"


def _is_in_wheel(path):
    return re.search(r"/(?:site|dist)-packages/", path) is not None


def simulated_folder():
    """The folder of gpuwatch's simulated driver, if it is in use."""
    if not os.environ.get("GPUWATCH_SIM_STATE"):
        return None
    for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":"):
        if os.path.exists(os.path.join(folder, "libcuda.so.1")):
            return folder
    return None


def _version(name, library, file):
    """From the library itself if that is cheap, else from the file name, else from its wheel."""
    if name.startswith("libcudnn.") and hasattr(library, "cudnnGetVersion"):
        library.cudnnGetVersion.restype = ctypes.c_size_t
        number = library.cudnnGetVersion()
        step = 10000 if number >= 90000 else 1000  # cuDNN 9 writes 90300, 8 wrote 8907
        return "%d.%d.%d" % (number // step, number % step // 100, number % 100)
    match = _FILE_VERSION.search(file)
    if match:
        return match.group(1)
    part = re.search(r"/nvidia/(\w+)/lib/", file)
    for entry in importlib.metadata.distributions() if part else ():
        known = (entry.metadata["Name"] or "").lower().replace("_", "-")
        if re.match(r"nvidia-%s-cu\d+$" % re.escape(part.group(1).replace("_", "-")), known):
            return entry.version
    return None


def read_text(*parts):
    try:
        with open(os.path.join(*parts), encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def dynamic(path):
    """``(needed, runpath)`` of an ELF file (System V ABI, "Dynamic Section"); empty for anything else."""
    with open(path, "rb") as file:
        head = file.read(64)
        if head[:4] != b"\x7fELF" or head[4:6] != b"\x02\x01":  # 64 bits, little-endian
            return [], []
        offset, size, count = struct.unpack_from("<Q", head, 32)[0], *struct.unpack_from("<HH", head, 54)
        file.seek(offset)
        table = file.read(size * count)
        segments = [struct.unpack_from("<IIQQQQ", table, i * size) for i in range(count)]
        dynamic_segment = next((entry for entry in segments if entry[0] == 2), None)  # PT_DYNAMIC
        if dynamic_segment is None:
            return [], []
        file.seek(dynamic_segment[2])
        section_bytes = file.read(dynamic_segment[5])
        tags = [struct.unpack_from("<qQ", section_bytes, at) for at in range(0, len(section_bytes) - 15, 16)]
        strings = next((value for tag, value in tags if tag == 5), None)  # DT_STRTAB
        length = next((value for tag, value in tags if tag == 10), 0)  # DT_STRSZ
        load_segment = next((e for e in segments if e[0] == 1 and e[3] <= (strings or 0) < e[3] + e[5]), None)
        if strings is None or load_segment is None:
            return [], []
        file.seek(strings - load_segment[3] + load_segment[2])
        text = file.read(length)

    def string(at):
        return text[at : text.index(b"\0", at)].decode("utf-8", "replace")

    needed = [string(value) for tag, value in tags if tag == 1]
    folders = [part for tag, value in tags if tag in (15, 29) for part in string(value).split(":")]  # RPATH, RUNPATH
    here = os.path.dirname(os.path.realpath(path))
    expanded = (part.replace("${ORIGIN}", "$ORIGIN").replace("$ORIGIN", here) for part in folders)
    return needed, list(dict.fromkeys(os.path.normpath(part) for part in expanded if part))


# -- the framework ----------------------------------------------------------------------------------


def _configure_tensorflow(tf, probe):
    gpus = tf.config.list_physical_devices("GPU")
    probe.emit("opened", files=opened_files())
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)


def _try_tensorflow(tf, probe):
    gpus = [device.name for device in tf.config.list_logical_devices("GPU")]
    for name in gpus or [None]:

        def product(name=name):
            with tf.device(name):
                # Made on the host: the simulated driver has no fill kernel.
                ones = tf.constant([[1.0] * _MATRIX_SIZE] * _MATRIX_SIZE)
                result = tf.matmul(ones, ones)
                return result.device, float(result.numpy()[0, 0])

        _try(probe, name, product, "MatMul")


def _try_torch(torch, probe):
    available = torch.cuda.is_available()
    count = torch.cuda.device_count() if available else 0
    build = {"cuda_version": torch.version.cuda, "cudnn_version": torch.backends.cudnn.version()}
    if torch.version.cuda:
        build["cuda_compute_capabilities"] = list(torch.cuda.get_arch_list())
    probe.emit(
        "framework",
        name="torch",
        version=torch.__version__,
        gpu_build=torch.version.cuda is not None,
        interpreter=sys.executable,
        python_version=".".join(map(str, sys.version_info[:3])),
        build={key: value for key, value in build.items() if value is not None},
    )
    names = ["cuda:%d" % index for index in range(count)]
    probe.emit("devices", physical=names, visible=names, virtual=[], logical=["CPU:0", *map(_as_gpu, names)])
    probe.emit("opened", files=opened_files())
    for index in range(count):
        probe.emit("described", ordinal=index, **_gpuwatch_torch.describe(torch, index))
    if not count and torch.version.cuda is not None:
        try:
            torch.cuda.init()
        except (RuntimeError, AssertionError) as error:
            # For the log: the message names the cause, while is_available() only returns False.
            sys.stderr.write("%s: %s\n" % (type(error).__name__, error))
    for name in names or [None]:

        def product(name=name):
            ones = torch.ones(_MATRIX_SIZE, _MATRIX_SIZE).to(name or "cpu")
            result = torch.matmul(ones, ones)
            return _as_gpu(str(result.device)), float(result.cpu()[0, 0].item())

        _try(probe, name and _as_gpu(name), product, "matmul")


def _as_gpu(name):
    """The same device names for both frameworks."""
    return name.replace("cuda:", "GPU:") if name.startswith("cuda:") else "CPU:0" if name == "cpu" else name


def _try(probe, name, product, op):
    probe.emit("trying", device=name)
    started_at = time.monotonic()
    try:
        ran_on, value = product()
    except Exception as error:
        message = "%s: %s" % (type(error).__name__, error)
        probe.emit("tried", device=name or "auto", error=message[:2000], seconds=time.monotonic() - started_at)
        probe.error(error)
        return
    seconds = time.monotonic() - started_at
    probe.emit("tried", device=name or "auto", ran_on=ran_on, seconds=seconds, correct=value == _MATRIX_SIZE)
    probe.emit("placement", op=op, dtype="float32", requested=name, actual=ran_on, count=1)


_TENSORFLOW = (_configure_tensorflow, _try_tensorflow)
_TORCH = (lambda torch, probe: None, _try_torch)

if __name__ == "__main__":
    main()
