"""Errors of what is around a program: scheduler, cluster, network, container, installers, build tools.

Sources of the texts: the operating system's errors (their number is the same in every language), PyTorch
(``torch/_inductor``, ``torch/utils/cpp_extension.py``), TensorFlow (``tf.distribute``), Slurm,
Environment Modules and Lmod, conda, pip, apt, CMake, GNU ld, Docker, kubelet, NVIDIA's installers of driver and CUDA,
PyTorch (``torch/distributed``, ``ATen/native/cuda``), NCCL, Xorg, Triton, transformers, the kernel, gdb.
"""

from __future__ import annotations

from gpuwatch.explain.diagnosis.rules.meanings import Meaning

SHARED_MEMORY = Meaning(
    "Workers of the DataLoader ran out of shared memory",
    "Start the container with --ipc=host or a larger --shm-size, or use fewer workers.",
    (r"(?i)unable to write to file </torch_|no space left on device: '/dev/shm|\[errno 28\][^\0]*'/dev/shm",),
)
HOST_MEMORY = Meaning(
    "The host's memory (RAM) was used up, not the GPU's",
    "Keep less data in memory (read it in batches), use fewer workers, or give the job more memory (--mem, limits of a"
    " container).",
    (r"(?i)oserror: \[errno 12\]|std::bad_alloc|memoryerror",),
)
COMPILER = Meaning(
    "A C or C++ compiler is missing, which torch.compile, Triton and extensions need; the GPU is not the problem",
    "Install one (Debian and Ubuntu: apt install build-essential; conda: conda install -c conda-forge gxx; Windows:"
    " Visual Studio's Build Tools for C++), or set CC and CXX to one that is not in PATH.",
    (
        r"(?i)failed to find c compiler|no working c\+\+ compiler found|invalidcxxcompiler",
        r"(?i)unable to find vcvarsall\.bat|command '\['where', 'cl'\]'",
        r"(?i)filenotfounderror: \[errno 2\][^\0]*(?:: '|/)(?:gcc|g\+\+|cc|c\+\+|cl|cl\.exe|clang|clang\+\+)'",
    ),
)
CUDA_COMPILER = Meaning(
    "nvcc, CUDA's compiler, is missing, which extensions need to be built; the GPU is not the problem",
    "Install the CUDA toolkit of the framework's CUDA version (conda install -c nvidia cuda-toolkit) and set CUDA_HOME"
    " to it, or install a prebuilt wheel of the package.",
    (r"(?i)filenotfounderror: \[errno 2\][^\0]*nvcc'",),
)
COMPILE = Meaning(
    "The compiler failed, not the GPU; its own message stands before this error",
    "Read the compiler's first line with 'error': a missing Python.h needs python3-dev, and 'cannot find -lcuda' needs"
    " the folder of libcuda.so in LIBRARY_PATH (it belongs to the driver).",
    (r"(?i)error compiling objects for extension|error building extension|cppcompileerror|c\+\+ compile error",),
)
PIP_BUILD = Meaning(
    "pip could not build a package",
    "Read the first error above it: a missing compiler, nvcc or CUDA_HOME, another torch in the isolated build"
    " (--no-build-isolation), or too little memory (MAX_JOBS=2); or install a prebuilt wheel.",
    (
        r"Failed (?:to build|building wheel)|Could not build wheels",
        r"subprocess-exited-with-error|metadata-generation-failed",
    ),
)
CMAKE = Meaning(
    "CMake could not configure the build",
    "Read its first 'CMake Error': it names what was not found or is wrong (a package, a compiler, a version); install"
    " that, or name its folder (-DNAME_ROOT=…), and begin in an empty build folder.",
    (r"^CMake Error|Configuring incomplete",),
)
OF_WRAPPERS = (COMPILE, CMAKE, PIP_BUILD)
"""What a tool says of a failure that its lines before tell better."""
_TF_CONFIG = (
    "Set TF_CONFIG in every process before TensorFlow is imported: the cluster (worker, ps, chief: lists of host:port)"
    " and its own task (type, index). On one machine MirroredStrategy needs none."
)
_THREADS = Meaning(
    "The system refused the program another thread or process",
    "Look at its limits: ulimit -u (processes and threads), ulimit -v (address space), and a container's pids limit"
    " (docker --pids-limit, pids.max of its cgroup).",
    (
        r"(?i)pthread_create[^\0]*fail|fail[^\0]*pthread_create|can't start new thread",
        r"(?i)resource temporarily unavailable[^\0]*thread|thread[^\0]*resource temporarily unavailable",
        r"(?i)\[errno 11\] resource temporarily unavailable",
    ),
)
_UNMAPPED = Meaning(
    "A library could not be mapped into the process's memory",
    "Look at ulimit -v (its address space), at free host memory, and at whether the environment's file system is"
    " mounted noexec.",
    (r"(?i)failed to map segment from shared object",),
)
OF_ADDRESS_SPACE = (_THREADS, _UNMAPPED, HOST_MEMORY)
"""What a limit of the address space can be the reason of."""
ADDRESS_SPACE = Meaning(
    "The process's address space is limited (ulimit -v), and what it needed did not fit",
    "Raise the limit (ulimit -v, resource.setrlimit(RLIMIT_AS)): libraries of CUDA alone map some GiB.",
)
SYSTEM: tuple[Meaning, ...] = (
    SHARED_MEMORY,
    Meaning('The disk is full: the "device" without space is a disk, not the GPU',
            "Look at df -h and df -i for the folder in that line (checkpoints, caches, /tmp); make room there.",
            (r"(?i)no space left on device|oserror: \[errno 28\]",)),
    Meaning("The disk quota is used up",
            "Look at quota -s for the folder in that line; move caches (HF_HOME, TORCH_HOME, KERAS_HOME) elsewhere.",
            (r"(?i)disk quota exceeded|oserror: \[errno 122\]",)),
    Meaning("The process has too many files open",
            "Raise the limit (ulimit -n), or use fewer workers; PyTorch:"
            " torch.multiprocessing.set_sharing_strategy('file_system').",
            (r"(?i)too many open files|oserror: \[errno 24\]",)),
    HOST_MEMORY,
    _THREADS,
    _UNMAPPED,
    COMPILER,
    CUDA_COMPILER,
    Meaning("ninja is missing, which PyTorch needs to compile extensions; the GPU is not the problem",
            "Install it: pip install ninja.",
            (r"(?i)ninja is required to load c\+\+ extensions",)),
    COMPILE,
    Meaning("The strategy has no cluster, or one without parameter servers or workers",
            _TF_CONFIG,
            (r"ValueError: (?:Cluster spec must be non-empty in|There must be at least one (?:ps|worker))",)),
    Meaning("The task of this process is not in the strategy's cluster",
            _TF_CONFIG,
            (r"ValueError: (?:Disallowed task type found in cluster spec|Unrecognized task_type)",
             r"ValueError: (?:`task_type`[^\0]*not found in cluster_spec|The `task_id`[^\0]*exceeds the maximum id)")),
    Meaning("A dataset of ParameterServerStrategy was iterated by the coordinator itself, as fit() of Keras 3 does:"
            " only its workers can",
            "Use ClusterCoordinator.create_per_worker_dataset and schedule in a loop of your own, or Keras 2 (pip"
            " install tf_keras, TF_USE_LEGACY_KERAS=1). On one machine MirroredStrategy does the same work.",
            (r"ClusterCoordinator\.create_per_worker_dataset",)),
)  # fmt: skip
"""What the operating system, a compiler or a cluster's description refused: only of the error that ended a program,
since one can handle a full disk, and torch.compile goes on without a compiler if told to."""

ENDED_BY_SIGTERM = Meaning(
    "It was ended by SIGTERM: by a scheduler, a timeout, a supervisor or a person",
    "Find who sent it (sacct -j JOB, journalctl, timeout, systemd); in a job of several ranks, look for the one that"
    " failed first.",
    (
        r"^SignalException: Process \d+ got signal: 15",
        r"Received Signals\.SIGTERM death signal",
        r"\bSIGTERM received\b|Received SIGTERM: \d|Bypassing SIGTERM",
    ),
)
FAULTS = "Run it with python -X faulthandler, which prints the line of Python at the crash."
SEGFAULT = Meaning(
    "It crashed with SIGSEGV: native code made an illegal memory access",
    f"{FAULTS} The most frequent reason is incompatible library versions: compare them with pip check, and try a fresh"
    " environment.",
    (r"[Ss]egmentation fault(?! handler)",),
)
WAITED = Meaning(
    "Ranks of a job waited for one that never arrived, until the wait timed out",
    "Look for the rank that stopped first: its own log shows why (an exception, out of memory, fewer batches).",
    (r"watchdog (?:got stuck for \d+|hang\b)|^RuntimeError: Socket Timeout",),
)
WORKER_EXITED = Meaning(
    "A worker of the DataLoader exited unexpectedly: its own error stands before",
    "Run it with num_workers=0: then the error appears in the main process, with its traceback.",
    (r"Pin memory thread exited unexpectedly",),
)

RAY_WORKER = Meaning(
    "A worker process of Ray died without an error of its own: killed, most often for lack of host memory (RAM), or"
    " crashed",
    "The raylet's line (Worker exit detail, PID) names it. Look at that time in dmesg for 'Out of memory: Killed"
    " process', and on that node in /tmp/ray/session_latest/logs for the files of that PID, which show a crash; fewer"
    " workers or less data in memory if it was killed.",
    (
        r"(?:ActorUnavailable|ActorDied|RayActor|WorkerCrashed)Error: ",
        r"[Ww]orker (?:process )?(?:has )?died",
        r"unexpected system error.{0,200}dead worker",
    ),
)

MACHINE: tuple[Meaning, ...] = (
    Meaning("Triton compiled a kernel that the driver does not accept: Triton's CUDA is newer than the driver",
            "Update the driver, or use the Triton of an older PyTorch; TRITON_PTXAS_PATH can name a ptxas of the"
            " driver's CUDA version (nvidia-smi shows it).",
            (r"Triton Error \[CUDA\]: device kernel image is invalid",)),
    Meaning("TensorRT could not build or run the engine: {0}",
            "The text in brackets names the layer or the call: change it in the ONNX model (polygraphy surgeon sanitize"
            " --fold-constants), or use a TensorRT release that supports it; what is printed after it follows from it.",
            (r"\bError Code \d{1,3}: (?:[\w ]{1,40} )?\(([^\n]{4,200}?)\)(?=$|\n)",
             r"&&&& FAILED (TensorRT\.\w+)")),
    Meaning("DKMS could not build a kernel module that is not NVIDIA's: {0}",
            "Read its make.log, or remove the module if nothing needs it (dkms remove); NVIDIA's driver is another"
            " module, of which these lines say nothing.",
            (r"/var/lib/dkms/(?!nvidia)([\w.-]+)/",)),
    Meaning("The X server (Xorg) failed: its lines marked (EE) say why, the first most",
            "Read those lines: no card or no screen found means that its driver is missing, or that the card belongs"
            " to another driver (lspci -k). Programs that only compute need no X server.",
            (r"Fatal server error|no screens found|Server terminated with error|Caught signal \d+ .*Server aborting",)),
    SEGFAULT,
    WAITED,
    WORKER_EXITED,
    ENDED_BY_SIGTERM,
    Meaning("The kernel reports that a program crashed (segfault): {0}",
            "The file after 'in' is the library in which it happened: update it, or install the version that the"
            f" program was built for. {FAULTS}",
            (r"\b([^\s\[]+\[\d+\]): segfault at ", r"\btraps: ([^\s\[]+\[\d+\]) general protection")),
    Meaning("It was interrupted in a debugger (Ctrl+C, SIGINT)",
            "The frames of bt show where it was at that moment; a program that seems to hang waits in the lowest ones.",
            (r"received signal SIGINT, Interrupt",)),
    Meaning("bfloat16 was asked for, and this GPU or this build of PyTorch does not have it",
            "A GPU of compute capability 8.0 (Ampere) or later has it; on an older one use fp16=True or float32. If"
            " this is one, PyTorch does not see it: gpuwatch doctor on that machine says why.",
            (r"Your setup doesn't support bf16/gpu", r"Bfloat16 is only supported on GPUs with compute capability")),
    Meaning("Triton could not compile a kernel for this GPU",
            "Most often the kernel needs a newer GPU (before Ampere: no bfloat16, less shared memory) or another"
            " Triton: update Triton and the framework together, or choose another attention or quantisation backend.",
            (r"PassManager::run failed|Failures have been detected while processing an MLIR pass pipeline",)),
    Meaning("ComfyUI rejected the workflow: {0}",
            "Open the workflow and correct that node: a newer version has other inputs, or a model that it names is"
            " missing.",
            (r"(Required input is missing: \w+|Value not in list: \w+|Return type mismatch between linked nodes)",)),
    Meaning("This PyTorch was built without NCCL, as on Windows",
            "Use the backend gloo (init_process_group('gloo'); Lightning: PL_TORCH_DISTRIBUTED_BACKEND=gloo), or Linux"
            " (WSL2).",
            (r"Distributed package doesn't have NCCL",)),
    Meaning("A library of CUDA for transforms or solvers (cuFFT, cuSOLVER, cuSPARSE) failed in an operation",
            "Run the step alone and on the CPU: NaN in its input, no free GPU memory, or another CUDA library in"
            " LD_LIBRARY_PATH are the usual reasons; cuFFT of CUDA 11.7 also fails on newer GPUs.",
            (r"cuFFT error|CUFFT_\w+|CUSOLVER_STATUS_\w+|CUSPARSE_STATUS_\w+|(?i:cusolver (?:internal )?error)|cusparse error",)),
    Meaning("The other end of a connection went away: another process of the program ended first",
            "Look for the process that failed before, in this log or its own.",
            (r"^RuntimeError: (?:Connection reset by peer|Broken pipe|received 0 items of ancdata)",)),
    Meaning("The linker did not find libcuda, which belongs to the driver",
            "Add its folder to LIBRARY_PATH (/usr/lib/x86_64-linux-gnu, /usr/lib/wsl/lib), or the stub's of the"
            " toolkit (/usr/local/cuda/lib64/stubs) for building only.",
            (r"cannot find -lcuda\b",)),
    Meaning("A database file is in use by another process",
            "Give each process its own file, or a database server (Optuna: JournalStorage or PostgreSQL).",
            (r"OperationalError\)?:? .{0,40}database is locked|^database is locked",)),
    Meaning("A rank of the job never joined: the others waited for it at the start",
            "Compare the number of processes that started with the world size, and MASTER_ADDR, MASTER_PORT on every"
            " node; look for the rank that failed before (its own log) and for a firewall between the nodes.",
            (r"client socket has timed out after", r"waiting for clients\. \d+/\d+ clients joined",
             r"^DistStoreError: .*[Tt]imed out", r"Barrier timed out")),
    RAY_WORKER,
    Meaning("A node of the Ray cluster went away while it worked",
            "Look at that node (power, network, its job's time limit, host memory) and at"
            " /tmp/ray/session_latest/logs/raylet.out on it; retries or a checkpoint let the job go on.",
            (r"(?:NodeDied|LocalRayletDied)Error: ",)),
    Meaning("The processes of a job did not reach the one that brings them together (rendezvous, MASTER_ADDR)",
            "See from this node whether that address and port answer (nc -vz HOST PORT), whether the process there has"
            " started, and whether a firewall is between; several networks: GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME.",
            (r"^RendezvousConnectionError: ", r"connection to the C10d store has failed")),
    Meaning("NCCL's communicator was aborted: a rank had failed, or an exchange had timed out, before",
            "Look for the first error of any rank above, and in the ranks' own logs; this one only follows from it.",
            (r"NCCL communicator was aborted",)),
    Meaning("Its terminal was closed (SIGHUP)",
            "Start it under tmux, nohup or the scheduler.",
            (r"^SignalException: Process \d+ got signal: 1$", r"Received Signals\.SIGHUP death signal")),
    Meaning("The job used more of the host's memory (RAM) than it had requested",
            "Request more (--mem), or keep less data in memory and use fewer workers.",
            (r"[Ee]xceeded (?:job |step |its )?memory (?:limit|quota)|exceeded memory limit",)),
    Meaning("The model needs more of the host's memory (RAM) than is free",
            "Use a smaller or more quantised model, a shorter context, or end other programs.",
            (r"model requires more system memory",)),
    Meaning("The conda environment could not be activated: {0}",
            "In a script run source $(conda info --base)/etc/profile.d/conda.sh first, then conda activate NAME; conda"
            " env list names those that exist.",
            (r"(Run 'conda init' before 'conda activate')",
             r"(Your shell has not been properly configured to use 'conda activate')",
             r"(?:EnvironmentNameNotFound|EnvironmentLocationNotFound): (.{1,100}?)\.?$")),
    Meaning("The environment module could not be loaded on this node",
            "module spider NAME (module avail) lists the versions that exist here, and what must be loaded before.",
            (r"following module\(s\) are unknown", r"Unable to locate a modulefile|cannot be loaded as requested")),
    Meaning("The shell script names a file that does not exist: {0}",
            "Compare the path with the folder in which the script was started (a job's: sbatch --chdir); to activate"
            " an environment takes the path of its activate.",
            (r"^(?:/bin/)?(?:ba|z|da|)sh: (?:line \d+: )?(\S+): No such file or directory",
             r"^\S+: line \d+: (\S+): No such file or directory", r"^(?:/usr)?/bin/env: (\S+): No such file")),
    Meaning("The script has Windows line ends",
            "Convert it: dos2unix FILE (sed -i 's/\\r$//' FILE).",
            (r"\^M: bad interpreter|\$'\\r': command not found",)),
    Meaning("The script or command may not be executed",
            "chmod +x FILE, or start it with its interpreter (bash FILE); the file system must not be mounted noexec.",
            (r"^(?:/bin/)?(?:ba|z|da|)sh: .*: Permission denied$", r"bad interpreter: Permission denied")),
    Meaning("The program was called with an option or argument that it does not accept",
            "That line names it: compare it with --help of this version.",
            (r"^Error: (?:No such option|Missing (?:option|argument)|Invalid value for|Got unexpected extra arg)",
             r"Flags parsing error:|Could not consume arg:|unrecognized arguments:")),
    Meaning("The image was built for another kind of CPU",
            "Use an image for this platform (docker pull --platform linux/amd64 or linux/arm64), or build it here.",
            (r"exec format error|no matching manifest for",)),
    Meaning("The container's image could not be pulled",
            "Check its name and tag, log in to its registry (docker login; Kubernetes: imagePullSecrets), and the"
            " network.",
            (r"ErrImagePull|ImagePullBackOff|pull access denied|manifest (?:for \S+ )?(?:unknown|not found)",)),
    Meaning("Kubernetes removed the pod: its node ran out of a resource",
            "Request that resource for the pod (memory, ephemeral-storage), write less to its own file system"
            " (volumes), and set limits for its neighbours.",
            (r"The node was low on resource",)),
    Meaning("Kubernetes restarts the container again and again: it ends soon after its start",
            "kubectl logs POD --previous shows what it printed before, kubectl describe pod POD its last state and exit"
            " code (137: killed, most often for memory).",
            (r"Back-off restarting failed container|CrashLoopBackOff",)),
    Meaning("A volume of the pod could not be mounted",
            "The line names it: look at its claim (kubectl describe pvc), whether the node reaches the storage, and"
            " whether another node still has it.",
            (r"\bFailedMount\b|MountVolume\.SetUp failed|\bFailedAttachVolume\b",)),
    Meaning("The node's device plugin has no free GPU for the pod",
            "Delete pods that ended on that node, or restart the device plugin's pod; nvidia-smi on the node says"
            " whether a GPU was lost.",
            (r"Allocate failed due to .{0,80}unavailable for (?:nvidia|amd)\.com/",)),
    Meaning("Ollama's runner, which computes, was killed: most often the host's memory (RAM) was used up",
            "Look in dmesg for 'Out of memory: Killed process'; then use a smaller or more quantised model or a shorter"
            " context (num_ctx).",
            (r"llama runner process (?:has terminated|no longer running).*signal: killed",)),
    Meaning("Ollama's runner, which computes, ended: the server's own log says why",
            "Read it (journalctl -u ollama, or server.log; OLLAMA_DEBUG=1 shows more): the lines before the end name"
            " CUDA's error or the file.",
            (r"llama runner process (?:has terminated|no longer running)",)),
    Meaning("The ollama server does not answer",
            "Start it (ollama serve, or its service), and look at OLLAMA_HOST and at the server's own log.",
            (r"could not connect to (?:a running )?ollama",)),
    Meaning("NVIDIA's installer did not find the sources (headers) of the running kernel",
            "Install them (apt install linux-headers-$(uname -r); dnf install kernel-devel-$(uname -r)) and start it"
            " again.",
            (r"[Uu]nable to find the kernel source tree",
             r"kernel headers? for target kernel \S+ (?:were|was)? ?not found",)),
    Meaning("NVIDIA's installer found the driver or an X server in use",
            "Stop what uses the GPU (systemctl isolate multi-user.target; persistence daemon, containers), unload the"
            " modules (modprobe -r nvidia-drm nvidia-modeset nvidia-uvm nvidia) and start it again.",
            (r"appears? to already be loaded in your kernel|appear to be running an X server",)),
    Meaning("NVIDIA's installer rejects this compiler: it is newer than the toolkit knows",
            "Install the toolkit without the driver from the distribution's packages, use an older gcc (CC=gcc-12), or"
            " a newer CUDA toolkit; --override skips the check.",
            (r"unsupported compiler version|unsupported GNU version",)),
    Meaning("CUDA's installer could not install the driver: its own log says why",
            "Read /var/log/nvidia-installer.log (kernel headers, nouveau, Secure Boot, a running X server), or install"
            " the driver from the distribution's packages and only the toolkit here (--toolkit).",
            (r"Install of (?:driver component|[\d.]+) failed",)),
    Meaning("System packages conflict (unmet dependencies)",
            "apt --fix-broken install, then remove the NVIDIA packages of other sources (apt list --installed | grep"
            " nvidia) and install them from one repository.",
            (r"you have held broken packages|unmet dependencies|dpkg was interrupted|error processing package",)),
    Meaning("The package is not in the repositories that this system knows",
            "Add NVIDIA's repository for this distribution (cuda-keyring, nvidia-container-toolkit), then apt update.",
            (r"Unable to locate package|Unable to find a match:|No package \S+ available",)),
    Meaning("Another program installs packages at the moment",
            "Wait until it ends (unattended-upgrades at the start of a machine), then start it again.",
            (r"Could not get lock /var/lib",)),
    Meaning("pip found no build of the package for this Python and platform",
            "Use a Python that the package supports (its page on PyPI lists them), another version, or for CUDA builds"
            " the index of the framework (pytorch.org's --index-url).",
            (r"No matching distribution found for|Could not find a version that satisfies",)),
    Meaning("conda found no set of packages for what was asked: {0}",
            "Compare the names, versions and channels with what exists (conda search NAME -c conda-forge -c nvidia), in"
            " a new environment and with the Python that they are built for; CUDA 12 has packages of other names.",
            (r"(PackagesNotFound|ResolvePackageNotFound|\w*Unsatisfiable)\w*",)),
    Meaning("pip may not install into the system's own Python",
            "Make a virtual environment (python3 -m venv .venv; .venv/bin/pip install …) or use conda.",
            (r"externally-managed-environment",)),
    PIP_BUILD,
    Meaning("The connection to the machine was closed (ssh), and with it the terminal in which this ran",
            "Start the program under tmux, nohup or the scheduler; see on that machine whether it still runs (ps), and"
            " whether the machine went down (last -x).",
            (r"^Connection to \S+ closed by remote host|^client_loop: send disconnect|^packet_write_wait: ",)),
    Meaning("llama.cpp could not load the model: {0}",
            "Update llama.cpp (or what contains it) if the model is newer; else compare the file's size with its source"
            " and fetch it again.",
            (r"\berror loading model: (?:error loading model \w+: )?([^\n]{4,})",)),
    Meaning("CMake found no CUDA compiler, or was not told for which GPUs to build",
            "Install the CUDA toolkit and put its bin folder into PATH (or CUDACXX=/usr/local/cuda/bin/nvcc), and set"
            " -DCMAKE_CUDA_ARCHITECTURES (native, or 80, 86, 90).",
            (r"No CMAKE_CUDA_COMPILER could be found|CMAKE_CUDA_ARCHITECTURES must be",
             r"Failed to detect a default CUDA arch|Could NOT find CUDA|CUDA_TOOLKIT_ROOT_DIR not found")),
    Meaning("The linker did not find a function of CUDA's libraries",
            "Link the library that has it (-lcudart -lcublas -lcudnn; -L/usr/local/cuda/lib64) after the objects that"
            " use it.",
            (r"undefined reference to `(?:cu|nv|nccl)\w+",)),
    Meaning("The CUDA toolkit (nvcc) here is too old to build the package",
            "Install a newer toolkit of the framework's own CUDA version and set CUDA_HOME to it, or install a prebuilt"
            " wheel of the package.",
            (r"only supported on CUDA [\d.]+ and above",)),
    COMPILE._replace(says=(r"collect2: error|ld returned \d+ exit status",)),
    CMAKE,
    Meaning("A file system failed: a network disk that went away, or a damaged one",
            "Start again when it is back; keep checkpoints on a disk of the node, and tell its administrator (dmesg"
            " names it).",
            (r"\[Errno (?:5|116|107|121|103)\]|Stale file handle|Input/output error",
             r"Transport endpoint is not connected",)),
    Meaning("torch.compile needs Triton, which is not installed or does not work",
            "Install it (pip install triton; Windows: triton-windows), or go without torch.compile"
            " (TORCH_COMPILE_DISABLE=1).",
            (r"Cannot find a working triton installation",)),
    Meaning("The loss was given values outside 0 to 1, where it takes probabilities",
            "Apply torch.sigmoid before BCELoss (or use BCEWithLogitsLoss), scale targets to 0 to 1, and look for NaN"
            " in the model's output.",
            (r"Assertion `(?:input_val >= zero|input >= 0\. && input <= 1)",
             r"all elements of (?:input|target) should be between")),
    Meaning("A kernel stopped at an assertion: a label is out of range",
            "Labels must be from 0 to classes - 1 (or ignore_index): compare their smallest and largest with the width"
            " of the last layer.",
            (r"Assertion `(?:cur_target|t|target|\*target) >= 0 && ", r"Assertion `target_val")),
    Meaning("A kernel stopped at an assertion: an index is out of range",
            "Compare the largest index with the table: token ids with the size of the embedding"
            " (resize_token_embeddings after adding tokens), positions with the longest sequence; the same step on the"
            " CPU names the line.",
            (r"Assertion `(?:srcIndex|-?sizes\[|index >= -|ind >= 0|idx_dim|idx >= 0|index_value|0 <= index)",)),
    Meaning("A kernel stopped at an assertion: a mask selects more places than there are values for them",
            "Compare the two counts before that line (masked_scatter): of a model that takes images, the placeholder"
            " tokens of the prompt and the embeddings of its images, which the processor's version or settings decide.",
            (r"masked_scatter_size_check|Assertion `totalElements <= srcSize",)),
    Meaning("The file was saved from a GPU, and this process has none",
            "torch.load(…, map_location='cpu') reads it without. If there should be a GPU, gpuwatch doctor on that"
            " machine says why there is none: not requested (Slurm: --gres=gpu:1), hidden, no driver, or a build"
            " without CUDA.",
            (r"CUDA device but torch\.cuda\.is_available\(\) is False",)),
    Meaning("The port is taken: another program on this host, or what is left of one, listens on it",
            "Choose another (torchrun: --master-port, or --rdzv-endpoint=localhost:0 for a free one), or find who has"
            " it: ss -ltnp (Windows: netstat -ano).",
            (r"(?i)failed to listen on any local network address", r"(?i)address already in use",
             r"\[(?:Errno|WinError) (?:98|48|10048)\]", r"EADDRINUSE|port is already allocated",
             r"Cannot find empty port in range", r"Only one usage of each socket address")),
    Meaning("No node of the cluster has a free GPU for the pod: it waits",
            "kubectl describe nodes shows nvidia.com/gpu: what is allocatable and what is allocated. If no node lists"
            " any, the device plugin does not run.",
            (r"Insufficient (?:nvidia\.com|amd\.com|gpu\.intel\.com)/",)),
    Meaning("Slurm could not set up the job's cgroup: the node's setup, not the program",
            "Tell its administrator (cgroup.conf and the cgroup version of that node); --exclude=NODE avoids it.",
            (r"to init root cgroup|cgroup namespace '\w+' not mounted|(?i:unable to create .{0,20}cgroup)",)),
    Meaning("Two GPUs cannot access each other's memory (peer access): NCCL fails, as in many virtual machines",
            "Set NCCL_P2P_DISABLE=1; if shared memory fails too, NCCL_SHM_DISABLE=1. nvidia-smi topo -p2p r shows"
            " which pairs can.",
            (r"NCCL WARN Cuda failure 217|peer access is not supported between",)),
    Meaning("NCCL found no network interface for the ranks to meet on",
            "Name one that the nodes share (NCCL_SOCKET_IFNAME=eth0; ip -br addr lists them); within one container"
            " lo or eth0 must be up.",
            (r"[Nn]o socket interface found|Bootstrap : no socket",)),
    Meaning("NCCL could not set up NVLink SHARP (NVLS); it usually goes on without it",
            "If the job fails there: NCCL_NVLS_ENABLE=0, a newer NCCL, or a fabric manager of the driver's version.",
            (r"transport/nvls\.cc:\d+ NCCL WARN",)),
    Meaning("What read the program's output closed it (broken pipe: head, a closed terminal)",
            "Write the output to a file, or start the program under tmux, nohup or the scheduler.",
            (r"^BrokenPipeError",)),
    Meaning("Slurm rejected the job: no node fits what it asks for, or its account is not permitted",
            "Compare --gres, --mem, --constraint, --partition and --account with sinfo -o '%P %G %m %f' and sacctmgr"
            " show assoc user=$USER.",
            (r"^(?:srun|sbatch|salloc): (?:error|fatal): .*(?:Unable to allocate resources|submission failed|Invalid"
             r" generic resource|are mutually exclusive)",
             r"Requested node configuration is not available")),
    Meaning("Slurm could not start the command: it does not exist on that node, or may not be executed",
            "Check its path on that node, its #! line, chmod +x, and that the script loads modules and environments.",
            (r"^(?:slurmstepd|srun): error: .*execve\(",)),
    Meaning("The nodes with GPUs are tainted, and the pod does not tolerate it",
            "Add to its spec: tolerations: [{{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}}].",
            (r"untolerated taint \{nvidia\.com/",)),
)  # fmt: skip
