"""What each end of a program means and what helps, by topic of its log line or by signal."""

from __future__ import annotations

import signal

from gpuwatch.explain.diagnosis.rules import machine_messages
from gpuwatch.explain.diagnosis.rules.machine_messages import COMPILE, COMPILER, CUDA_COMPILER, FAULTS, SEGFAULT
from gpuwatch.explain.diagnosis.rules.meanings import Meaning
from gpuwatch.explain.diagnosis.rules.program_messages import TWO_DEVICES
from gpuwatch.explain.logs import reported_ends

PEER = "ended.peer"
WAITED = "ended.nccl-timeout"
NCCL_INTERNAL = "ended.nccl-internal"
"""NCCL's "internal error", as it also calls a connection that another rank closed."""
HOST_MEMORY = reported_ends.HOST_MEMORY
WORKER = "ended.worker"
TENSORRT = "ended.tensorrt"
_NCCL = Meaning(
    "NCCL failed while GPUs exchanged data",
    "Set NCCL_DEBUG=WARN and read its first line; start a container with --ipc=host or a larger --shm-size.",
)
ENDINGS: dict[str, Meaning] = {
    "ended.nan": Meaning("The probabilities to sample from contain NaN or infinity",
            "Look for the step at which the loss or the logits became NaN or infinite: a lower learning rate,"
            " bfloat16 instead of float16, gradient clipping; torch.autograd.set_detect_anomaly(True) names the"
            " operation."),
    "ended.assert": Meaning("A kernel stopped at an assertion of its own, which the program's values did not meet",
            "Read the line 'Assertion … failed' before the error: it tells what was compared (most often an index or a"
            " label with its limit); CUDA_LAUNCH_BLOCKING=1, or the same step on the CPU, shows the program's line."),
    "ended.label": Meaning("A label is outside the range of classes: the data or the last layer is wrong, not the GPU",
            "Make the last layer as wide as there are classes, and count labels from 0 (the line names the value and"
            " the range); on a GPU the same mistake can give NaN instead of an error."),
    "ended.no-switch": Meaning("The fabric manager found no NVSwitch",
            "Nothing to do, if the machine has none."),
    "ended.network": Meaning("The network between two nodes failed, or the rank at its other end had ended before",
            "Read the log of the peer that the line names: if it worked until then, look at the link (ibstat,"
            " ibdiagnet, dmesg of both nodes); NCCL_IB_TIMEOUT and NCCL_IB_RETRY_CNT allow longer pauses,"
            " NCCL_SOCKET_IFNAME and NCCL_IB_HCA choose the network, NCCL_IB_DISABLE=1 tells whether it is"
            " InfiniBand."),
    WAITED: machine_messages.WAITED,
    "ended.same-gpu": Meaning("Two ranks of the job use the same GPU",
            "Give each rank its own: torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before the process group is"
            " made, and no more ranks on a host than it has GPUs (--nproc-per-node)."),
    "ended.nccl": _NCCL,
    NCCL_INTERNAL: _NCCL,
    "ended.torch-kernel": Meaning("PyTorch has no CUDA kernel for this operator",
            "Move the tensors of this operator to the CPU (.cpu()), or install a build of the package with that"
            " operator that has CUDA."),
    "ended.shared-memory": machine_messages.SHARED_MEMORY,
    HOST_MEMORY: machine_messages.HOST_MEMORY,
    reported_ends.KILLED: Meaning("The program was killed by SIGKILL, usually by the kernel because the host's memory"
            " (RAM) was used up",
            "Look in dmesg for 'Out of memory: Killed process'. Then keep less data in memory, use fewer workers, or"
            " give the job more memory."),
    "ended.not-initialized": Meaning("CUDA was used where it was not initialised (error 3): in a forked process,"
            " while the program ended, or before the framework had started it",
            "If the program starts processes (workers of a loader), use the start method 'spawn'; otherwise find out"
            " which call came before the framework's own start. nvidia-smi shows whether the driver works."),
    "ended.watchdog": Meaning("A kernel ran longer than the driver allows on a GPU that also drives a display",
            "Make each launch smaller (a smaller batch), or compute on a GPU without a display."),
    "ended.launch": Meaning("A kernel requested more registers, threads or shared memory than this GPU has",
            "Reduce the kernel's block size or tiles (Triton: num_stages, BLOCK sizes), or use a larger GPU."),
    "ended.two-types": Meaning("Tensors of one operation have different types or are on different devices",
            "Move or convert them before the operation (.to(device), .to(dtype)): inputs, model, and tensors that the"
            " code creates."),
    "ended.two-devices": TWO_DEVICES,
    "ended.paging-file": Meaning("Windows' paging file is too small for the libraries that were loaded: the host's"
            " memory, not the GPU's",
            "Enlarge the paging file, or start fewer processes (num_workers=0): each loads the CUDA libraries again."),
    "ended.dll": Meaning("A library failed to initialize (WinError 1114)",
            "Reinstall Microsoft's Visual C++ runtime, and install the framework into a new environment."),
    "ended.loader": Meaning("A library of the framework, not of CUDA, cannot be loaded",
            "Install Microsoft's Visual C++ runtime (2015-2022), reinstall the framework; for fbgemm.dll also"
            " libomp140."),
    "ended.extension": Meaning("A compiled extension does not match the installed framework: a symbol is missing",
            "Install the extension built for this version of framework and Python, or recompile it."),
    "ended.cudnn": Meaning("cuDNN rejected the operation",
            "Compare with torch.backends.cudnn.enabled=False or other shapes; look for a second cuDNN in"
            " LD_LIBRARY_PATH."),
    "ended.cublas": Meaning("cuBLAS failed in an operation: wrong shapes or indices, a kernel that crashed before it,"
            " or another version",
            "Rule out another cuBLAS first: unset LD_LIBRARY_PATH and run it again. Then run the step on the CPU,"
            " which names wrong shapes and indices, and with CUDA_LAUNCH_BLOCKING=1, which names the line."),
    "ended.shell-variable": Meaning("The shell treated CUDA_VISIBLE_DEVICES=… as a command: nothing was started",
            "Windows: set CUDA_VISIBLE_DEVICES=0 in a line before the command (PowerShell:"
            " $env:CUDA_VISIBLE_DEVICES=0). Elsewhere: no spaces around the sign =."),
    "ended.jax-backend": Meaning("JAX could not start its CUDA backend",
            "Read the reason in that line; TF_CPP_MIN_LOG_LEVEL=0 shows more. jax, jaxlib and its plugin must have"
            ' the same version: pip install -U "jax[cuda12]".'),
    "ended.peermem": Meaning("GPUDirect RDMA (nvidia-peermem): memory of a GPU was freed while a network card still"
            " had it registered",
            "Most often a program that was killed leaves such lines. If they come again in jobs that run, look for"
            " Xids in dmesg, and update the driver and nvidia-peermem together (or use DMA-BUF, which needs no"
            " nvidia-peermem)."),
    "ended.ucx": Meaning("UCX found no CUDA context in the thread that sends a GPU's tensor",
            "Let that thread choose its GPU (torch.cuda.set_device) before MPI uses it, or leave CUDA IPC out"
            " (UCX_TLS=^cuda_ipc), a newer UCX, or the backend nccl."),
    "ended.intel-gpu": Meaning("The Intel GPU (driver i915) hung and was given up",
            "Update kernel, firmware and Mesa, and report it there with /sys/class/drm/card0/error; only a restart"
            " brings it back. An NVIDIA GPU in the same machine is not affected."),
    "ended.x-driver": Meaning("The X server has NVIDIA's GLX, but its screen runs on another driver",
            "nvidia-smi must work first (is its kernel module loaded? dmesg | grep NVRM); then name the driver nvidia"
            " in Xorg's configuration, or remove NVIDIA's packages if another card drives the screen."),
    "ended.container": Meaning("nvidia-container-cli could not set the container up",
            "Read its line, which names the file or cgroup that is the problem; update the NVIDIA Container Toolkit."),
    "ended.permission": Meaning("NVML has no permission for the request",
            "Run it as root on the host; within a container MIG's capabilities must be granted"
            " (NVIDIA_MIG_CONFIG_DEVICES, NVIDIA_MIG_MONITOR_DEVICES)."),
    "ended.fork": Meaning("A forked process used CUDA, which only the process that initialized it can",
            "Start processes that use the GPU with the method 'spawn', or do not use the GPU before the fork."),
    "ended.xla-flags": Meaning("XLA_FLAGS (or TF_XLA_FLAGS) has a flag unknown to this build, which ends the program"
            " at its start",
            "Remove the flag from the variable, or unset it: XLA's flags change from version to version."),
    reported_ends.FATAL: Meaning("A check inside the framework failed and ended the program",
            "Read that line; if it is a bug of the framework, report it there."),
    TENSORRT: Meaning("TensorRT's tool failed",
            "Read the first line marked [E] above it: what comes after it follows from it."),
    reported_ends.CRASH: Meaning("The program crashed with a signal",
            "Read the lines before it. An illegal instruction at the import means that this build needs a newer CPU."),
    reported_ends.TIME_LIMIT: Meaning("The job reached its time limit",
            "Request more time (--time), or save checkpoints and continue from the last one."),
    reported_ends.PREEMPTED: Meaning("The scheduler preempted the job",
            "Submit it again, and continue from a checkpoint; Slurm: --requeue does so by itself."),
    reported_ends.NODE: Meaning("The job ended because its node failed",
            "Submit it again and continue from a checkpoint; if the node returns and fails again, tell its"
            " administrator (sacct -j JOB -o NodeList) and use --exclude."),
    reported_ends.INTERRUPTED: Meaning("It was interrupted (Ctrl+C, SIGINT)",
            "Nothing to do if a person did it; else find what sent it: a launcher passes it on when its terminal ends."),
    reported_ends.CANCELLED: Meaning("The job was cancelled",
            "Find who ended it: sacct -j JOB -o State%30 names the user; else Ctrl+C, a dependency or an"
            " administrator."),
    reported_ends.KERNEL_DIED: Meaning("The notebook's kernel died: killed for lack of host memory (RAM), or crashed",
            "Look in dmesg for 'Out of memory: Killed process', then run the notebook as a script (jupyter nbconvert"
            " --to script), whose last lines say more."),
    reported_ends.COMMAND: Meaning("The shell found no command of that name: a word of the script was taken for one",
            "Look at that line of the script and the one before: a command that goes on needs \\ as its last"
            " character (no space or comment after it, no empty line), and a name with spaces needs quotes. Otherwise"
            " load its module or activate its environment."),
    reported_ends.CONTINUED: Meaning("The shell took an argument for a command of its own: the command line before it"
            " ends too early",
            "Let the line before end with \\ and nothing after it (no space, no comment, no empty line, no Windows"
            " line end: dos2unix)."),
    reported_ends.ARGUMENT: Meaning("The program rejected its arguments",
            "That line names the argument: compare it with --help of this version, and look at the script's quotes,"
            " variables and line ends."),
    reported_ends.NOT_STARTED: Meaning("The program did not start: its interpreter, a module, a library or an"
            " argument is wrong",
            "Read that line: it names what could not be found or understood."),
    reported_ends.TERMINATED: machine_messages.ENDED_BY_SIGTERM,
    reported_ends.NO_COMPILER: COMPILER,
    reported_ends.NO_CUDA_COMPILER: CUDA_COMPILER,
    reported_ends.NOT_COMPILED: COMPILE,
    WORKER: Meaning("A worker of the DataLoader was killed, usually for lack of host memory",
            "Use fewer workers or less data in memory, and check dmesg for the kernel's OOM killer."),
}  # fmt: skip
"""By topic, for failures with a log line of their own."""

SIGNALS: dict[signal.Signals, Meaning] = {
    signal.SIGKILL: ENDINGS[reported_ends.KILLED],
    signal.SIGSEGV: SEGFAULT,
    signal.SIGBUS: Meaning("It crashed with SIGBUS: a mapped file has no memory behind it; usually /dev/shm or the"
            " disk is full",
            "Check df /dev/shm; start a container with --ipc=host or a larger --shm-size, or use fewer workers."),
    signal.SIGABRT: Meaning("It aborted with SIGABRT: a check in native code failed, a C++ exception was not caught,"
            " or it called abort()",
            f"Read its last lines, which name the check. {FAULTS}"),
    signal.SIGILL: Meaning("It crashed with SIGILL: an illegal instruction, usually one that this CPU does not"
            " support",
            "Install a build for this CPU: a build of the framework without AVX, or an older version."),
    signal.SIGFPE: Meaning("It crashed with SIGFPE: an arithmetic error in native code, such as a division by 0",
            FAULTS),
    signal.SIGTERM: machine_messages.ENDED_BY_SIGTERM,
    signal.SIGXCPU: Meaning("It was ended by SIGXCPU: its CPU time limit",
            "Raise the limit (ulimit -t)."),
}  # fmt: skip
"""Signals that end programs."""
