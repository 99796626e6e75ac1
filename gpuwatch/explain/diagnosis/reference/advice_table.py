"""What to do about a cause, by the environment that the log shows, the framework that failed, and its line.

Sources: the installation guides and documentation of NVIDIA's container toolkit, device plugin, CUDA on WSL, CUDA
compatibility and fabric manager, Apptainer, DKMS, PyTorch ("CUDA semantics", torchrun), Triton, JAX ("GPU memory
allocation"), vLLM, SGLang, text-generation-inference, llama.cpp, ComfyUI, ONNX Runtime and the others named.
"""

from __future__ import annotations

import re
from typing import NamedTuple

TENSORFLOW, TORCH, JAX = "tensorflow", "pytorch", "jax"


class Advice(NamedTuple):
    """One cell. The first that fits wins: those of a line stand before those of an environment or framework."""

    action: str
    """With the named groups of ``says`` in braces, where it has any."""
    says: str = ""
    """What one of the finding's lines says (a regular expression, in any case); empty: whatever it says."""
    environment: str = ""
    """As in the topics ``environment.*``; empty: any."""
    framework: str = ""
    """Empty: any."""
    done: str = ""
    """How the log shows that this was done already (a regular expression): then the next cell is tried."""


_IN_WINDOWS = (
    "Install the NVIDIA driver in Windows (never in WSL), then wsl --update and wsl --shutdown; nvidia-smi must work in"
    " WSL before a container can have the GPU."
)
_LOOK_AT_WINDOWS = (
    "WSL is up to date, so look at Windows: nvidia-smi there must list a GPU (WSL 1 and GPUs of other vendors have"
    " none); then restart Windows and Docker Desktop, with its WSL 2 engine."
)
_GPUS = r"--gpus[ =]|--runtime[ =]nvidia|NVIDIA_VISIBLE_DEVICES=|capabilities: \[\[gpu|driver: nvidia"
_NO_TOOLKIT = r"could not select device driver|Unknown runtime specified nvidia|unknown or invalid runtime name: nvidia"
_FRACTION = "XLA_CLIENT_MEM_FRACTION (XLA_PYTHON_CLIENT_MEM_FRACTION in older versions of JAX)"

_SERVERS = (
    Advice("Another process took the memory while vLLM slept: end it before wake_up, or start vLLM with a lower"
           " --gpu-memory-utilization.", says=r"cumem_allocator"),
    Advice("If it failed while the weights were loaded, use a quantised model or more GPUs"
           " (--tensor-parallel-size); if later, lower --max-num-seqs, --max-model-len or --gpu-memory-utilization"
           " a little, or leave CUDA graphs out (--enforce-eager).", framework="vllm"),
    Advice("Lower --mem-fraction-static, --chunked-prefill-size and --cuda-graph-max-bs, use a quantised model, or"
           " share it among more GPUs (--tp).", framework="sglang"),
    Advice("Lower --max-batch-prefill-tokens and --max-input-tokens, use --quantize, or share the model among more"
           " GPUs (--num-shard).", framework="text-generation-inference"),
    Advice("Offload fewer layers (-ngl; Ollama: num_gpu), use a smaller context (-c; num_ctx) or a quantised KV"
           " cache (-ctk q8_0 -ctv q8_0), or divide the model otherwise (--tensor-split).", framework="llama.cpp"),
    Advice("Start the web UI with --medvram or --lowvram (COMMANDLINE_ARGS), make the picture or the batch smaller, or"
           " use the model in fp8.", environment="webui"),
    Advice("Start ComfyUI with --lowvram, make the picture, video or batch smaller, or use the model in fp8 or"
           " GGUF.", framework="comfyui", done=r"--lowvram|LOW_VRAM|NO_VRAM"),
    Advice("--lowvram is not enough: make the picture, video or batch smaller, use the model in fp8 or GGUF, or"
           " start with --novram.", framework="comfyui", done=r"--novram|NO_VRAM"),
    Advice("Make the batch or the model smaller; on Windows a native CUDA build of PyTorch or TensorFlow in WSL"
           " uses an NVIDIA GPU's memory better than DirectML.", framework="DirectML"),
)  # fmt: skip
"""For all that does not fit into the GPU, by server."""

TABLE: dict[str, tuple[Advice, ...]] = {
    "driver.missing": (
        Advice("Choose a runtime with a GPU (Colab: Runtime > Change runtime type), or install the package's CPU build:"
               " no driver can be installed there.", says=r"libcuda|nvidia driver", environment="colab"),
        Advice(_IN_WINDOWS, says=r"WSL environment|dxcore", done=r"wsl(?:\.exe)? --update"),
        Advice(_LOOK_AT_WINDOWS, says=r"WSL environment|dxcore"),
        Advice(_IN_WINDOWS, environment="wsl", done=r"wsl(?:\.exe)? --update"),
        Advice(_LOOK_AT_WINDOWS, environment="wsl"),
        Advice("On the host write the description of its GPUs: sudo nvidia-ctk cdi generate"
               " --output=/etc/cdi/nvidia.yaml (again after each update of the driver); nvidia-ctk cdi list must show"
               " the name that the line asks for.", says=r"unresolvable CDI devices"),
        Advice("Register the runtime on that node: nvidia-ctk runtime configure --runtime=containerd (or crio, or k3s'"
               " own template), restart it, and create a RuntimeClass named nvidia.",
               says=r'no runtime for \"?\\?\"?nvidia|RuntimeClass \"?nvidia\"? not found'),
        Advice("On the host, install the NVIDIA Container Toolkit (package nvidia-container-toolkit), run nvidia-ctk"
               " runtime configure --runtime=docker, and restart Docker; nvidia-smi must work on the host.",
               says=_NO_TOOLKIT, done=r"nvidia-ctk runtime configure"),
        Advice("Restart Docker, and check whether docker info lists the runtime nvidia: Docker Desktop and Docker from"
               " snap do not read the file that nvidia-ctk changes.", says=_NO_TOOLKIT),
        Advice("The toolkit was told to look for the driver below another root (its line 'using root'), which does not"
               " exist: start the container that brings the driver (GPU operator), or comment out root = in"
               " /etc/nvidia-container-runtime/config.toml if the driver is installed on the host itself.",
               says=r"failed to change root directory"),
        Advice("Look at the host, outside any container: nvidia-smi must work there, and ldconfig -p | grep"
               " libnvidia-ml must list the driver's library (sudo ldconfig; root and ldcache in"
               " /etc/nvidia-container-runtime/config.toml).", says=r"nvidia-container-cli: initialization error"),
        Advice("Read the make.log that the line names: the module was not built. Install the headers of the running"
               " kernel (linux-headers-$(uname -r), and its compiler) or a driver release that supports this kernel,"
               " then run dkms autoinstall.",
               says=r"dkms|modpost|failed to build|was not created|Bad return status for module build|bad exit status"),
        Advice("Read dmesg and the installer's log (/var/log/nvidia-installer.log) for why: headers or a compiler"
               " of another kernel, Secure Boot, the module nouveau, or a GPU that this driver does not know; a newer"
               " driver release supports newer kernels.", says=r"Unable to load the kernel module 'nvidia"),
        Advice("Enrol the key that signs the module (mokutil --import, then confirm it at the next boot), or disable"
               " Secure Boot in the firmware.", says=r"Key was rejected|Required key not available|unsigned module"),
        Advice("Start the container with singularity exec --nv (apptainer exec --nv), which brings the host's driver"
               " in.", environment="singularity", done=r"(?:^|\s)--nv(?:\s|$)|any nv files on this host"),
        Advice("--nv found no driver on that host: run nvidia-smi outside the container, and submit to a node with"
               " GPUs (Slurm: --gres=gpu:1), or let ldconfig know the folder of libcuda.so.1.",
               environment="singularity"),
        Advice("Run the pod with NVIDIA's runtime: runtimeClassName: nvidia in its spec (the device plugin's own pods,"
               " too), or make it the default (nvidia-ctk runtime configure --runtime=containerd --set-as-default),"
               " and let the pod request nvidia.com/gpu.", environment="kubernetes",
               done=r'runtimeClass(?:Name)?: ?\"?nvidia'),
        Advice("The pod has the runtime: look at the node. nvidia-smi must work there, nvidia-container-cli info must"
               " list its GPUs, and the pod must request nvidia.com/gpu.", environment="kubernetes"),
        Advice("Start the container with its GPUs (docker run --gpus all IMAGE; Compose:"
               " deploy.resources.reservations.devices), with the NVIDIA Container Toolkit and a working nvidia-smi on"
               " the host.", environment="docker", done=_GPUS),
        Advice("The container asked for GPUs: nvidia-smi must work on the host, and docker run --rm --gpus all ubuntu"
               " nvidia-smi in a bare container; if only this image fails, unset NVIDIA_VISIBLE_DEVICES and"
               " LD_LIBRARY_PATH in it.", environment="docker", done=r"--rm --gpus all ubuntu"),
    ),
    "driver.mismatch": (
        Advice("Install the fabric manager of exactly the driver's version, {driver} (package nvidia-fabricmanager of"
               " its branch), or the driver {manager}, then systemctl restart nvidia-fabricmanager.",
               says=r"fabric manager .{0,60}version (?P<manager>[\d.]+\d) don.t match"
               r" with driver version (?P<driver>[\d.]+\d)"),
        Advice("Remove cuda-compat's libcuda.so.1 from LD_LIBRARY_PATH (or from the image: /usr/local/cuda/compat):"
               " forward compatibility is for data-center GPUs. Or update the host's driver, so that the image needs"
               " none.", says=r"\b804\b|forward compatibility was attempted|CUDA_ERROR_COMPAT_NOT_SUPPORTED"),
        Advice("Use the host's driver in the container: remove the image's own libcuda.so.1 (cuda-compat, or a driver"
               " package that was installed into it) or its folder from LD_LIBRARY_PATH; or update the host's driver."
               " Nothing needs a reboot.", says=r"does not match DSO|\b803\b|unsupported display driver",
               environment="docker"),
    ),
    "driver.bad-state": (
        Advice("In WSL the driver is Windows': run wsl --update, then wsl --shutdown, update NVIDIA's driver in"
               " Windows, and restart Windows if nvidia-smi fails there, too. There is no module to reload in WSL.",
               says=r"blocked by the operating system"),
        Advice("On the host run sudo nvidia-smi, which loads the driver's modules; then nvidia-container-cli -k -d"
               " /dev/tty info names the step that fails: a wrong root in /etc/nvidia-container-runtime/config.toml,"
               " /dev/nvidia* without permission (SELinux, rootless), or modules that cannot be loaded.",
               says=r"driver error: failed to process request|initialization error: driver rpc error"),
        Advice("The loaded libcuda.so.1 is the stub of the CUDA toolkit: remove its folder (lib64/stubs) from"
               " LD_LIBRARY_PATH.", says=r"UNKNOWN ERROR \(-1\)|CUresult\(-1\)|stub library"),
        Advice("Install the driver with NVIDIA's open kernel modules, which this GPU needs (packages nvidia-open,"
               " nvidia-driver-NNN-open; .run: --kernel-module-type=open), then reboot.",
               says=r"open (?:GPU )?kernel modules"),
        Advice("Look in dmesg for lines with NVRM or Xid: they say why the card does not start. A laptop's second GPU"
               " may have been left without power (bbswitch, bumblebee): NVIDIA's driver should manage it"
               " (prime-select, PRIME); otherwise power the machine off and on.",
               says=r"failed to initialize the nvidia gpu"),
        Advice("Give the kernel more address space for drivers: boot it with vmalloc=512M (32-bit), or use a 64-bit"
               " kernel.", says=r"vmalloc="),
        Advice("The card's VBIOS cannot be read. In a virtual machine, give it the ROM (romfile) and do not boot the"
               " host's display on it; otherwise power the machine off, reseat the card and its power cables, and try"
               " another slot.", says=r"failed to copy vbios"),
    ),
    "visibility.bad-ordinal": (
        Advice("Start no more processes than the host has GPUs: --nproc-per-node (num_processes, -np) at most what"
               " nvidia-smi -L lists, or what CUDA_VISIBLE_DEVICES leaves; and use LOCAL_RANK, not RANK, as the"
               " device's number.", says=r"invalid device ordinal|Invalid device id", environment="launcher"),
    ),
    "build.gpu-unsupported": (
        Advice("Give Triton a ptxas that knows {arch}: export TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas of a newer"
               " CUDA toolkit (13.0 for sm_110, 12.9 for sm_103 and sm_121, 12.8 for sm_100 and sm_120), or install a"
               " newer Triton.", says=r"ptxas fatal.{0,40}Value '(?P<arch>sm_\d+\w?)' is not defined",
               done=r"TRITON_PTXAS_PATH ?="),
        Advice("Install a build for {arch} (Blackwell): PyTorch 2.7 or later with CUDA 12.8 or later (the cu128"
               " command from pytorch.org; cu130 on Thor and GB10), and rebuild or update what was compiled for the"
               " older one (flash-attn, xformers, bitsandbytes).",
               says=r"capability (?P<arch>(?:sm_)?1[0-2][01][af]?\b|1[0-2]\.[01])", framework=TORCH,
               done=r"\+cu12[89]|\+cu13\d"),
        Advice("Install a newer bitsandbytes, built for this GPU and this PyTorch's CUDA (python -m bitsandbytes tells"
               " them); with several kinds of GPU, CUDA_VISIBLE_DEVICES chooses those that it supports.",
               says=r"named symbol not found", framework="bitsandbytes"),
    ),
    "cuda.version-mismatch": (
        Advice("The loaded kernel was compiled by a ptxas older than this GPU: update the framework (jaxlib or"
               " TensorFlow for CUDA 11.8 or later on RTX 40, 12.8 on RTX 50), and keep an older CUDA's bin folder out"
               " of PATH.", says=r"failed to get PTX kernel"),
        Advice("Build the engine again with the TensorRT that is installed here (delete the old file): an engine works"
               " only with the version that made it.",
               says=r"serialization version|version tag does not match|not compatible with this version of tensorrt"
               r"|magicTag"),
        Advice("Install a newer {what}, at least the version that the lines after it name as the minimum (pip install"
               ' -U "jax[cuda12]" brings its own), and keep older copies out of LD_LIBRARY_PATH.',
               says=r"outdated (?P<what>\w+) installation found"),
    ),
    "cuda.libraries-missing": (
        Advice("Install a CUDA toolkit with nvcc, of the CUDA version that PyTorch was built for (torch.version.cuda;"
               " conda install -c nvidia cuda-toolkit, or the devel image), and set CUDA_HOME to its folder; or"
               " install a prebuilt wheel of the package, which needs none.", says=r"CUDA_HOME|nvcc was not found"),
        Advice("Install ptxas and nvJitLink into the same environment: pip install nvidia-cuda-nvcc-cu12"
               " nvidia-nvjitlink-cu12 (cu13 for CUDA 13), or put the bin folder of a CUDA toolkit into PATH.",
               says=r"PTX compilation provider|version of ptxas|ptxas version string|launch ptxas"),
        Advice("Reinstall PyTorch with the command from pytorch.org: its wheels include the CUDA libraries that they"
               " need. Keep other copies out of LD_LIBRARY_PATH.", framework=TORCH),
        Advice('Install JAX with its CUDA: pip install -U "jax[cuda12]" (or cuda13, depending on the driver); keep'
               " other copies of CUDA out of LD_LIBRARY_PATH.", framework=JAX),
        Advice("Install the CUDA and cuDNN that ONNX Runtime's table lists for this version (1.19 and later: CUDA 12"
               " with cuDNN 9), or pip install onnxruntime-gpu[cuda,cudnn] and call onnxruntime.preload_dlls() first"
               " (1.21 and later); otherwise add their folder to LD_LIBRARY_PATH or PATH.", framework="onnxruntime"),
        Advice("Install the CuPy for the installed CUDA (cupy-cuda12x, cupy-cuda13x), or the CUDA that CuPy needs: its"
               " toolkit or pip's nvidia packages.", framework="cupy"),
        Advice('Install what Numba needs into the same environment: pip install "numba-cuda[cu12]" (or cu13), conda'
               " install cuda-nvcc cuda-nvrtc, or a CUDA toolkit named by CUDA_HOME; of a version that the driver"
               " supports.", framework="numba"),
        Advice("Make the CUDA runtime known to bitsandbytes (python -m bitsandbytes shows what it looked for): add the"
               " folder of libcudart to LD_LIBRARY_PATH, or use a newer bitsandbytes, which uses PyTorch's CUDA.",
               framework="bitsandbytes"),
        Advice("Install the cuBLAS and cuDNN that CTranslate2 needs (pip install nvidia-cublas-cu12"
               " nvidia-cudnn-cu12), and add their folders to LD_LIBRARY_PATH or PATH.", framework="ctranslate2"),
        Advice("Reinstall vLLM in its own environment: its wheels include the PyTorch and CUDA that they need.",
               framework="vllm"),
    ),
    "memory.model-too-large": (
        *_SERVERS,
        Advice("Make the batch or the model smaller, or use bfloat16. JAX allocates 75 % of the GPU by default:"
               f" {_FRACTION} raises that.", framework=JAX),
    ),
    "memory.request-too-large": _SERVERS,
    "hardware.fault": (
        Advice("Restart the machine, as the line says (with power off if that is not enough); if the GPU is lost again,"
               " check its power cables, its seat and its temperature.", says=r"GPU is lost"),
    ),
    "memory.limit-too-small": (
        Advice("Start it with --max-model-len {length}, which fits by vLLM's own estimate, raise"
               " --gpu-memory-utilization (0.9 by default), or use --kv-cache-dtype fp8 or more GPUs.",
               says=r"estimated maximum model length is (?P<length>\d+)"),
        Advice("Set --max-running-requests lower (SGLang has no slot left for another request).",
               says=r"alloc_req_slots runs out of memory"),
        Advice("Raise --mem-fraction-static; if weights and graphs leave no room, lower --context-length, or share the"
               " model among more GPUs (--tp).", says=r"--mem-fraction-static"),
        Advice("Raise the pod's share (nvidia.com/gpumem), or make the batch smaller: HAMi allows no more."
               " CUDA_DISABLE_CONTROL=true in the container shows whether the limit is the reason.",
               says=r"HAMi|cuMemoryAllocate|Device \d+ OOM", done=r"CUDA_DISABLE_CONTROL=true"),
        Advice(f"Raise {_FRACTION}: the device has room for more.", framework=JAX),
        Advice("Raise the fraction in torch.cuda.set_per_process_memory_fraction, or remove that call: the device has"
               " room for more.", framework=TORCH),
    ),
    "unknown": (
        Advice("It is an AMD GPU (ROCm): the build may lack its architecture. Compare rocminfo's gfx number with those"
               " of the build (HSA_OVERRIDE_GFX_VERSION takes a related one), and repeat with AMD_SERIALIZE_KERNEL=3,"
               " which shows the op.", says=r"\b(?:ROCm|HIP) error|hipError"),
        Advice("Choose another attention backend (vLLM: --attention-backend or VLLM_ATTENTION_BACKEND=FLASH_ATTN;"
               " SGLang: --attention-backend triton), or a FlashInfer of this framework's version; it may not know"
               " this GPU.", says=r"Batch(?:Prefill|Decode)With\w+ failed with error"),
        Advice("These are Xids of programs that draw (engine GRAPHICS): update the program, or try another driver"
               " series. If several programs fail, suspect the card (memory clock, power, cooling).",
               says=r"Graphics Exception|ENGINE GRAPHICS"),
        Advice("The first exchange of all never ended: the GPUs do not reach each other, no rank is merely slow. Try"
               " NCCL_P2P_DISABLE=1 (with IOMMU or PCIe ACS on, transfers between GPUs hang), a larger --shm-size, and"
               " read what NCCL_DEBUG=INFO says; between nodes, NCCL_SOCKET_IFNAME chooses the network.",
               says=r"WorkNCCL\(SeqNum=1,"),
        Advice('Install jax, jaxlib and the CUDA plugin of one version: pip install -U "jax[cuda12]". If they are, see'
               " whether nvidia-smi works.", says=r"jaxlib/cuda/versions_helpers.{0,300}NOT_INITIALIZED"),
        Advice("The kernel that failed may be NCCL's own or one before it: CUDA_LAUNCH_BLOCKING=1 tells them apart. If"
               " it is NCCL's, update it (pip install -U nvidia-nccl-cu12 or -cu13) or try NCCL_P2P_DISABLE=1 and"
               " another NCCL_ALGO.", says=r"NCCL WARN Cuda failure (?:7\d\d|'(?:an illegal|unspecified|misaligned))"),
        Advice("Set no-cgroups = true in /etc/nvidia-container-runtime/config.toml, as in unprivileged LXC containers"
               " and with rootless Docker, and pass the /dev/nvidia* devices to the container.",
               says=r"bpf_prog_query|failed to add device rules|device filters attached to the cgroup",
               done=r"no-cgroups ?= ?true"),
        Advice("Give the node more RAM or run fewer tasks at once (num_cpus of each task); RAY_memory_usage_threshold"
               " moves the share at which Ray kills, RAY_memory_monitor_refresh_ms=0 turns that off.",
               says=r"memory pressure \(OOM\)|node running low on memory|memory usage threshold"),
        Advice("Raise its memory limit (Kubernetes: resources.limits.memory; Docker: --memory; Slurm: --mem; systemd:"
               " MemoryMax=), or keep less data in memory: what is written to /dev/shm and to emptyDir volumes of"
               " medium Memory counts, too.", says=r"OOMKilled|CONSTRAINT_MEMCG|cgroup out of memory"),
        Advice("Mount an emptyDir of medium Memory at /dev/shm, or use fewer workers.",
               says=r"shared memory \(shm\)|out of shared memory|/dev/shm|torch_shm", environment="kubernetes",
               done=r"medium: ?Memory"),
        Advice("Use fewer workers (num_workers), or torch.multiprocessing.set_sharing_strategy('file_system'): the"
               " container has its /dev/shm enlarged already.",
               says=r"shared memory \(shm\)|out of shared memory|/dev/shm|torch_shm", environment="shm"),
        Advice("Nothing, if the machine has no NVSwitch: then the fabric manager is not needed (systemctl disable"
               " nvidia-fabricmanager). An HGX or DGX B200 needs nvlsm as well, which talks to the switches through"
               " InfiniBand's management devices.", says=r"NV_WARN_NOTHING_TO_DO"),
    ),
    "memory.fragmented": (
        Advice("Leave JAX's preallocation on (no XLA_PYTHON_CLIENT_PREALLOCATE=false, no platform allocator), and keep"
               " batch shapes constant.", framework=JAX),
        Advice("Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (since PyTorch 2.9 PYTORCH_ALLOC_CONF; before"
               " 2.1: max_split_size_mb:128) before the program starts, and keep the shapes of batches constant.",
               framework=TORCH,
               done=r"(?<!setting PYTORCH_CUDA_ALLOC_CONF=)(?<!setting PYTORCH_ALLOC_CONF=)expandable_segments:True"
               r"|expandable_segments not supported"),
        Advice("Keep the shapes of batches constant (pad to a few lengths), or make them smaller;"
               " torch.cuda.empty_cache() between phases of different shapes.", framework=TORCH),
    ),
    "memory.other-process": (
        Advice("Stop the other programs on this GPU, or share it: XLA_PYTHON_CLIENT_PREALLOCATE=false, or a smaller"
               f" {_FRACTION}.", framework=JAX),
    ),
    "memory.masked": (
        Advice("Leave GPU memory free: offload fewer layers (-ngl; koboldcpp: --gpulayers), make the context smaller,"
               " or keep the KV cache off the GPU; end other programs on it.",
               says=r"error: the resource allocation failed"),
        Advice(f"Leave room for cuDNN and cuBLAS: a smaller {_FRACTION}, or XLA_PYTHON_CLIENT_PREALLOCATE=false; or"
               " free the device.", framework=JAX),
        Advice("Leave room for cuDNN and cuBLAS: use a smaller batch, or end other programs on this GPU. If its memory"
               " is free (nvidia-smi), look for another cuDNN or cuBLAS version in LD_LIBRARY_PATH.", framework=TORCH),
    ),
    "build.cpu-only": (
        Advice('Install the build with GPU support: pip uninstall tensorflow-cpu; pip install "tensorflow[and-cuda]"'
               " (on Windows: within WSL2, native builds have no GPU since 2.11).", framework=TENSORFLOW),
        Advice('On a Mac there is no CUDA: use the device "mps" (torch.backends.mps.is_available()) or "cpu".',
               environment="macos", framework=TORCH),
        Advice("Install the CUDA build: pip uninstall torch, then the command from pytorch.org for your CUDA.",
               framework=TORCH),
        Advice('Install the CUDA build: pip install -U "jax[cuda12]" (cuda13 for driver release 580 or later).',
               framework=JAX),
        Advice("Install the CUDA build: pip uninstall onnxruntime; pip install onnxruntime-gpu.",
               framework="onnxruntime"),
        Advice("Look first whether PyTorch itself has CUDA (torch.version.cuda must not be None); then pip install -U"
               " bitsandbytes in the same environment. python -m bitsandbytes shows which CUDA it looks for.",
               framework="bitsandbytes"),
        Advice("Build llama.cpp with -DGGML_CUDA=ON (llama-cpp-python: CMAKE_ARGS=-DGGML_CUDA=on, and"
               " --force-reinstall --no-cache-dir).", framework="llama.cpp"),
        Advice("Uninstall paddlepaddle, then install paddlepaddle-gpu with the command of PaddlePaddle's installation"
               " page for your CUDA: it names an index of its own.", framework="paddlepaddle"),
        Advice("Its wheels have CUDA on x86-64 Linux and Windows only: elsewhere build it with -DWITH_CUDA=ON, or use"
               " device='cpu'.", framework="ctranslate2"),
    ),
}  # fmt: skip
"""By cause."""


def compiled(pattern: str) -> re.Pattern[str]:
    """A cell's expression, which no letter case changes."""
    return re.compile(pattern, re.IGNORECASE)
