# ruff: noqa: E501 - texts as they are printed
"""The table of advice: each cell is reached, and none advises what the log shows was done already."""

from __future__ import annotations

import re
from typing import NamedTuple

from gpuwatch.explain.diagnosis.explain_log import explain
from gpuwatch.explain.diagnosis.reference.advice_table import TABLE, Advice
from tests.every import every

_NO_DRIVER = "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU"
_DSO = "E tensorflow/stream_executor/cuda/cuda_diagnostics.cc:313] kernel version 455.32.0 does not match DSO version 460.73.1 -- cannot find working devices"
_OOM = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.64 GiB of which 512.06 MiB is free. Of the allocated memory 20.11 GiB is allocated by PyTorch, and {} is reserved by PyTorch but unallocated."
_HINT = " If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
_LIMIT = "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."


class Sample(NamedTuple):
    """A log, a part of the action for it, a line that shows that this was done, and a part of the action then."""

    log: str
    action: str
    done: str = ""
    then: str = ""


SAMPLES = (
    Sample("[E] IRuntime: Error Code 1: Serialization (Serialization assertion plan->header.magicTag == rt::kPLAN_MAGIC_TAG failed.)", "Check which file was passed"),
    Sample("[E] IRuntime: Error Code 1: (Trying to load an engine created with incompatible serialization version.", "Rebuild the engine"),
    Sample("RuntimeError: Unable to use CUDA: Outdated cuDNN installation found.", "Install a newer cuDNN"),
    Sample("[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE)", "very first collective"),
    Sample("[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=17, OpType=ALLREDUCE)", "rank that stopped"),
    Sample("[XORG] (EE) NVIDIA(GPU-0): Failed to initialize the NVIDIA GPU at PCI:1:0:0.", "second GPU may be"),
    Sample("CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:139", "while vLLM was asleep"),
    Sample("CUDA backend failed to initialize: jaxlib/cuda/versions_helpers.cc:90: operation gpuDeviceGetAttribute() failed: CUDA_ERROR_NOT_INITIALIZED",
           "plugin in one version"),
    Sample("cuda driver library failed to get device context 46", "COMPUTE"),
    Sample("nvidia-container-cli: initialization error: WSL environment detected but no adapters were found: unknown",
           "wsl --update", "PS C:\\> docker run --gpus all x; wsl --update", "nvidia-smi there must list"),
    Sample(f"Linux 5.15.90.1-microsoft-standard-WSL2 #1 SMP\n{_NO_DRIVER}", "wsl --update", "PS C:\\> wsl --update", "nvidia-smi there must list"),
    Sample('Warning  FailedCreatePodSandBox  kubelet  Failed to create pod sandbox: no runtime for "nvidia" is configured',
           "RuntimeClass named nvidia"),
    Sample('docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
           "nvidia-container-toolkit", "$ sudo nvidia-ctk runtime configure --runtime=docker", "Restart Docker"),
    Sample("Failed to initialize NVML: GPU access blocked by the operating system", "wsl --shutdown"),
    Sample("ERROR: The nvidia-drm kernel module failed to build.", "linux-headers"),
    Sample("ERROR: Unable to load the kernel module 'nvidia.ko'.  This happens", "nvidia-installer.log"),
    Sample("CUDA error: the resource allocation failed", "--gpulayers"),
    Sample('  File "/Users/a/t.py", line 3, in f\nAssertionError: Torch not compiled with CUDA enabled', '"mps"'),
    Sample('  File "/v/site-packages/torch_cluster/a.py", line 3, in f\nRuntimeError: Not compiled with CUDA support', "FORCE_CUDA"),
    Sample("Error! Bad return status for module build on kernel: 6.8.0-31-generic\nConsult /var/lib/dkms/nvidia/535.1/build/make.log for more information.",
           "linux-headers"),
    Sample('docker: Error response from daemon: could not inject: unresolvable CDI devices nvidia.com/gpu=all', "nvidia-ctk cdi generate"),
    Sample("ValueError: To serve, 18.35 GiB KV cache is needed, which is larger than the available KV cache memory (8.72 GiB). the estimated maximum model length is 122880.",
           "--max-model-len 122880"),
    Sample("E0504 10:11:12.131415 4711 nvc.c:180] failed to change root directory: No such file or directory", "below another root"),
    Sample("nvidia-container-cli: initialization error: cannot open shared object file: no such file or directory: unknown.", "ldconfig -p"),
    Sample("stderr: nvidia-container-cli: initialization error: driver error: failed to process request", "-d /dev/tty"),
    Sample("NVRM: installed in this system requires use of the NVIDIA open kernel modules.", "nvidia-open"),
    Sample("kernel: vmap allocation for size 16781312 failed: use vmalloc=<size> to increase size.", "vmalloc=512M"),
    Sample("NVRM: failed to copy vbios to system memory.", "romfile"),
    Sample("n1:7:9 [0] enqueue.cc:1556 NCCL WARN Cuda failure 700 'an illegal memory access was encountered'",
           "nvidia-nccl-cu12"),
    Sample("modprobe: ERROR: could not insert 'nvidia': Key was rejected by service", "mokutil"),
    Sample(f"Singularity> python train.py --singularity\n{_NO_DRIVER}", "exec --nv", "INFO:    Could not find any nv files on this host!",
           "outside the container"),
    Sample(f"I0121 20:28 factory.go:107] Detected non-NVML platform: x\n{_NO_DRIVER}", "runtimeClassName: nvidia",
           "$ kubectl get pod -o yaml | grep runtimeClassName: nvidia", "look at the node"),
    Sample(f"root@4728a09607c1:/opt/project# python3 test.py\n{_NO_DRIVER}", "docker run --gpus all", "$ docker run -it --gpus all me/image",
           "on the host"),
    Sample("nv-fabricmanager[7]: fabric manager NVIDIA GPU driver interface version 530.30.02 don't match with driver version 530.41.03. Please update",
           "fabric manager with exactly the driver's version, 530.41.03"),
    Sample("RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 804: forward compatibility was attempted on non supported HW",
           "cuda-compat"),
    Sample(f"I cuda_diagnostics.cc:169] retrieving CUDA diagnostic information for host: f7b7a8f85319\n{_DSO}", "A reboot is not needed"),
    Sample("2020-07-26 10:00:00.2: E tensorflow/stream_executor/cuda/cuda_driver.cc:318] failed call to cuInit: UNKNOWN ERROR (-1)", "stub"),
    Sample("[rank6]: RuntimeError: CUDA error: invalid device ordinal", "--nproc-per-node"),
    Sample("ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'", "supports sm_121a", "$ export TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas",
           "sm_121a"),
    Sample("NVIDIA RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch installation.", "cu128",
           "torch 2.9.1+cu128", "sm_120"),
    Sample("bitsandbytes: Error named symbol not found at line 90 in file /src/csrc/ops.cu", "newer bitsandbytes"),
    Sample("OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root.", "toolkit with nvcc"),
    Sample("W op_kernel.cc:1855] OP_REQUIRES failed at xla_ops.cc:590 : UNAVAILABLE: No PTX compilation provider is available.", "nvidia-cuda-nvcc"),
    Sample('  File "/opt/env/lib/python3.12/site-packages/vllm/worker.py", line 7, in load\ntorch.OutOfMemoryError: ' + _OOM.format("1.00 MiB"), "--enforce-eager"),
    Sample('  File "/opt/env/lib/python3.12/site-packages/sglang/srt/x.py", line 7, in load\ntorch.OutOfMemoryError: ' + _OOM.format("1.00 MiB"),
           "--chunked-prefill-size"),
    Sample("Error: Not enough memory to handle 4096 prefill tokens.", "--max-batch-prefill-tokens"),
    Sample("ggml_backend_cuda_buffer_type_alloc_buffer: allocating 5174.72 MiB on device 1: cudaMalloc failed: out of memory", "-ngl"),
    Sample('  File "C:\\ComfyUI\\execution.py", line 323, in execute\ntorch.OutOfMemoryError: Allocation on device ', "--lowvram",
           "Set vram state to: LOW_VRAM", "--novram"),
    Sample("RuntimeError: Could not allocate tensor with 734003200 bytes. There is not enough GPU video memory available!", "DirectML"),
    Sample("RuntimeError: alloc_req_slots runs out of memory. Please set a smaller number for `--max-running-requests`.", "--max-running-requests"),
    Sample(_LIMIT, "Raise --mem-fraction-static"),
    Sample("[HAMI-core ERROR (pid:7 allocator.c:53)]: Device 0 OOM 4171158016 / 4145728000", "nvidia.com/gpumem", "export CUDA_DISABLE_CONTROL=true", ""),
    Sample("nvidia-container-cli: mount error: failed to add device rules: bpf_prog_query(BPF_CGROUP_DEVICE) failed: operation not permitted",
           "no-cgroups = true"),
    Sample("ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.", "num_cpus"),
    Sample("[88112.31] Memory cgroup out of memory: Killed process 461754 (python) total-vm:20255636kB", "resources.limits.memory"),
    Sample("kubelet: x\nRuntimeError: DataLoader worker is killed. It is possible that dataloader's workers are out of shared memory.", "emptyDir"),
    Sample("$ docker run --ipc=host me/image\nRuntimeError: DataLoader worker is killed. It is possible that dataloader's workers are out of shared memory.",
           "set_sharing_strategy"),
    Sample("request to query NVSwitch device information from NVSwitch driver failed with error:WARNING Nothing to do [NV_WARN_NOTHING_TO_DO]",
           "not needed"),
    Sample("writing to /var/folders/lc/x/T/tmp7\nAssertionError: Torch not compiled with CUDA enabled", '"mps"'),
    Sample("zsh: /opt/homebrew/bin/python3 x.py\nAssertionError: Torch not compiled with CUDA enabled", '"mps"'),
    Sample("ROCm error: unspecified launch failure", "HSA_OVERRIDE_GFX_VERSION"),
    Sample("RuntimeError: Check failed: (status == cudaSuccess): BatchDecodeWithPagedKVCache failed with error invalid argument", "attention backend"),
    Sample("NVRM: Xid (PCI:0000:01:00): 13, pid=7, Graphics Exception: ESR 0x405840=0x82000200", "graphics program"),
    Sample("NVRM: Xid (PCI:0000:01:00): 13, pid=7, Graphics Exception: ChID 0015, Class 0000c597, Offset 00000000", "graphics program"),
    Sample("NVRM: Xid (PCI:0000:01:00): 31, pid=7, name=Game.exe, Ch 00000008. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_8 faulted", "graphics program"),
    # The engine of a CUDA kernel has the same name.
    Sample("NVRM: Xid (PCI:0000:01:00): 13, pid=7, name=python, Graphics Exception: ESR 0x546fb0=0x11f000e", "CUDA_LAUNCH_BLOCKING"),
    Sample("NVRM: Xid (PCI:0000:01:00): 31, pid=7, name=python, Ch 00000008. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_8 faulted", "CUDA_LAUNCH_BLOCKING"),
    Sample("E xla/cuda_driver.cc:628] failed to get PTX kernel \"add\" from module: CUDA_ERROR_NOT_FOUND: named symbol not found", "older than this GPU"),
    Sample("/Users/a/torch/bin/luajit: cuda runtime error (35) : CUDA driver version is insufficient for CUDA runtime version", "last for macOS"),
    Sample("RuntimeError: CUDA error: no kernel image is available for execution on the device", "Kepler"),
    Sample('Traceback (most recent call last):\n  File "/p/x.py", line 3, in <module>\n    model.to(device)\nRuntimeError: CUDA error: out of memory', "moved to the GPU"),
    Sample("Unable to determine the device handle for GPU 0000:03:00.0: GPU is lost.  Reboot the system to recover", "Restart the machine, as the line says"),
    Sample('Traceback (most recent call last):\n  File "/content/x.py", line 3, in <module>\nOSError: libcuda.so.1: cannot open shared object file: No such file or directory',
           "runtime with a GPU"),
    Sample('Traceback (most recent call last):\n  File "/a/stable-diffusion-webui/x.py", line 3, in f\ntorch.OutOfMemoryError: ' + _OOM.format("1.00 MiB"), "--medvram"),
    Sample("torch.OutOfMemoryError: " + _OOM.format("3.00 GiB") + _HINT, "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
           "$ export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", "shapes"),
    Sample("build: 8319 (6de1bc631) with Clang 21.1.8 for Android aarch64\nllama_model_load: warning: one possible reason is that llama.cpp was compiled without GPU support", "GGML_VULKAN"),
    # Programs without batches.
    Sample("ERROR: cudaMalloc( &arg_alloc, size ) error( cudaErrorMemoryAllocation): out of memory /src/lammps/lib/kokkos/core/src/Cuda/Kokkos_CudaSpace.cpp:191",
           "A simulation has no batch"),
    Sample('Traceback (most recent call last):\n  File "/a/b.py", line 3, in f\n    cudf.read_csv(p)\nMemoryError: std::bad_alloc: out_of_memory: CUDA error (failed to allocate 4000000000 bytes) at: /x/include/rmm/mr/device/cuda_memory_resource.hpp:62: cudaErrorMemoryAllocation out of memory',
           "does not fit as a whole"),
    Sample("Error: System is out of GPU memory: CUDA error: out of memory in cuMemAlloc(&device_pointer, size) (blender/intern/cycles/device/cuda)", "Render with less"),
    Sample("[TensorRT] ERROR: ../rtSafe/safeRuntime.cpp (32) - Cuda Error in allocate: 2 (out of memory)", "once, outside the loop"),
    Sample('Traceback (most recent call last):\n  File "/o/colabfold/batch.py", line 3, in f\n    predict()\nRuntimeError: Resource exhausted: Out of memory while trying to allocate 90000000000 bytes.', "fewer residues"),
    Sample('Traceback (most recent call last):\n  File "/a/b.py", line 3, in f\n    f()\njaxlib.xla_extension.XlaRuntimeError: FAILED_PRECONDITION: DNN library initialization failed. Look at the errors above for more details.',
           "Read the errors before it"),
    Sample("[omni.physx.fabric.plugin] CUDA error: an illegal memory access was encountered: plugins/omni.physx/Helper.cpp: 7", "use_gpu_pipeline"),
    Sample("ERROR: CUDA error: an illegal memory access was encountered (code 700, ERROR_ILLEGAL_ADDRESS) @ CUDA.jl/lib/cudadrv/libcuda.jl:27", "julia -g2"),
    Sample("2018-03-02 11:20:01.1: W tensorflow/core/common_runtime/bfc_allocator.cc:277] Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.00GiB.  Current allocation summary follows.\n"
           "2018-03-02 11:20:01.1: I tensorflow/core/common_runtime/bfc_allocator.cc:684] Chunk at 0x7f00 of size 1073741824\n"
           "2018-03-02 11:20:01.1: I tensorflow/core/common_runtime/bfc_allocator.cc:684] Free  at 0x7f01 of size 1073741824\n"
           "2018-03-02 11:20:01.1: I tensorflow/core/common_runtime/bfc_allocator.cc:684] Chunk at 0x7f02 of size 1073741824\n"
           "2018-03-02 11:20:01.1: I tensorflow/core/common_runtime/bfc_allocator.cc:684] Free  at 0x7f03 of size 1610612736\n"
           "2018-03-02 11:20:01.1: I tensorflow/core/common_runtime/bfc_allocator.cc:700] Stats: \nLimit:                  9663676416\nInUse:                  6442450944\nMaxInUse:               6442450944\nNumAllocs:                     7\nMaxAllocSize:           1073741824",
           "predates the allocator"),
)  # fmt: skip


@every(SAMPLES)
def test_the_action_is_for_the_line_and_its_environment(sample: Sample) -> None:
    assert sample.action in explain(sample.log.split("\n")).findings[0].action


@every([one for one in SAMPLES if one.done])
def test_nothing_is_advised_that_was_done_already(sample: Sample) -> None:
    first = explain(sample.log.split("\n")).findings[0]
    again = explain([sample.done, *sample.log.split("\n")]).findings[0]
    assert again.id == first.id
    assert again.action != first.action
    assert sample.then in again.action
    for cell in TABLE.get(again.id, ()):
        if cell.done and cell.done.search(sample.done):
            assert not _is(cell, again.action)


def test_each_cell_of_a_line_or_an_environment_is_reached() -> None:
    said = {explain(sample.log.split("\n")).findings[0].action for sample in SAMPLES}
    said |= {explain([one.done, *one.log.split("\n")]).findings[0].action for one in SAMPLES if one.done}
    unreached = [
        cell.action[:60]
        for cells in TABLE.values()
        for cell in cells
        if (cell.says or cell.environment) and not any(_is(cell, one) for one in said)
    ]
    assert unreached == []


def _is(cell: Advice, action: str) -> bool:
    pattern = ".+".join(map(re.escape, re.split(r"\{\w+\}", cell.action)))
    return re.fullmatch(pattern, action) is not None
