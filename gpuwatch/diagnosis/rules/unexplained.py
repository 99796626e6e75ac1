"""Failures that no known cause explains: reported, so that the run does not look healthy."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

from gpuwatch.diagnosis.evidence import Evidence
from gpuwatch.diagnosis.framework_advice import framework_of, gpu_build
from gpuwatch.diagnosis.rule_registry import finding, rule
from gpuwatch.diagnosis.rules import last_errors
from gpuwatch.diagnosis.rules.build import NO_NCCL
from gpuwatch.diagnosis.rules.phrasing import at
from gpuwatch.diagnosis.rules.simulated_driver import unreached
from gpuwatch.diagnosis.rules.simulation import lacks_compiler
from gpuwatch.formatting.units import size
from gpuwatch.logs import reported_ends
from gpuwatch.logs.exceptions import telling
from gpuwatch.logs.facts import LogFacts
from gpuwatch.logs.topics import topics_of
from gpuwatch.model.findings import CAUSES, Certainty, Finding, Severity
from gpuwatch.model.run import HostMemory, Run, RunError

_TAIL = 8
"""Lines that may follow the exception that ended a program: the rest of its message, notes of a shell."""
_EPILOGUE = 200
"""Lines that may follow the last report of a bad end: summaries of a scheduler. After more, the program went on."""
_LATE = 500
"""Lines of prints and summaries that may follow the last traceback, if none shows that the program went on."""
_ENOUGH = frozenset(
    {
        "build.gpu-jit",
        "cuda.libraries-skipped",
        "driver.cuinit",
        "driver.not-running",
        "visibility.none-available",
        "cuda.missing-library",
        NO_NCCL,
        "memory.library-failed",
        "ended.kernel",
        "driver.other-module",
        "memory.dnn-missing",
    }
)
"""Topics that are not causes themselves, but from which rules infer one."""
_OF_DATA = (
    "KeyError",
    "FileNotFoundError",
    "IsADirectoryError",
    "PermissionError",
    "UnicodeDecodeError",
    "JSONDecodeError",
)
_OF_A_GPU = re.compile(r"gpu|cuda|cudnn|nvidia|nvcc|nvml|driver|device|rank|worker|/dev/|\.so\b|\.dll\b", re.IGNORECASE)
_OF_IMPORTS = ("ImportError", "ModuleNotFoundError")
"""Libraries print such tracebacks of parts that they do without."""
_ON_PURPOSE = ("KeyboardInterrupt", "SystemExit")
_PEER = "ended.peer"
_WAITED = "ended.nccl-timeout"
_NCCL_INTERNAL = "ended.nccl-internal"
"""NCCL's "internal error", as it also calls a connection that another rank closed."""
_OF_A_PEER = frozenset({_PEER, _NCCL_INTERNAL, _WAITED})
_COMPILER_SAYS = "compiler.message"
NOT_KNOWN = "which gpuwatch does not know"
DESPITE_ERROR = "It exited with code 0, although"
WENT_ON = "It went on after"
"""Beginnings of titles for a program that exited with 0 after an exception."""
_TELLING = 8
"""Characters from which a message is recognised within another."""
_CUT = "The log ends within a Python traceback, before the error itself"

HOST_MEMORY = "ended.host-memory"
_NCCL = (
    "NCCL failed while GPUs exchanged data",
    "Set NCCL_DEBUG=WARN and read its first line; start a container with --ipc=host or a larger --shm-size.",
)
_WORKER = "ended.worker"
ENDINGS = {
    "ended.assert": (
        "A kernel stopped at an assertion: an index or a label is out of range",
        "Check that labels are from 0 to classes - 1 and indices within their table; CUDA_LAUNCH_BLOCKING=1, or the"
        " same step on the CPU, shows the line.",
    ),
    "ended.nccl-timeout": (
        "Ranks of a job waited for one that never arrived, until the wait timed out",
        "Look for the rank that stopped first: its own log shows why (an exception, out of memory, fewer batches).",
    ),
    "ended.same-gpu": (
        "Two ranks of the job use the same GPU",
        "Give each rank its own: torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before the process group is made,"
        " and no more ranks on a host than it has GPUs (--nproc-per-node).",
    ),
    "ended.nccl": _NCCL,
    _NCCL_INTERNAL: _NCCL,
    "ended.torch-kernel": (
        "PyTorch has no CUDA kernel for this operator",
        "Move the tensors of this operator to the CPU (.cpu()), or install a build of the package with that operator"
        " that has CUDA.",
    ),
    "ended.shared-memory": last_errors.SHARED_MEMORY,
    HOST_MEMORY: last_errors.HOST_MEMORY,
    "ended.killed": (
        "The program was killed by SIGKILL, usually by the kernel because the host's memory (RAM) was used up",
        "Look in dmesg for 'Out of memory: Killed process'. Then keep less data in memory, use fewer workers, or give"
        " the job more memory.",
    ),
    "ended.not-initialized": (
        "CUDA was used where it was not initialised (error 3): in a forked process, while the program ended, or before"
        " the framework had started it",
        "If the program starts processes (workers of a loader), use the start method 'spawn'; otherwise find out which"
        " call came before the framework's own start. nvidia-smi shows whether the driver works.",
    ),
    "ended.watchdog": (
        "A kernel ran longer than the driver allows on a GPU that also drives a display",
        "Make each launch smaller (a smaller batch), or compute on a GPU without a display.",
    ),
    "ended.launch": (
        "A kernel requested more registers, threads or shared memory than this GPU has",
        "Reduce the kernel's block size or tiles (Triton: num_stages, BLOCK sizes), or use a larger GPU.",
    ),
    "ended.two-devices": (
        "Tensors of one operation are on different devices",
        "Move them to one device (.to(device)) before the operation: inputs, model, and tensors that the code creates.",
    ),
    "ended.paging-file": (
        "Windows' paging file is too small for the libraries that were loaded: the host's memory, not the GPU's",
        "Enlarge the paging file, or start fewer processes (num_workers=0): each loads the CUDA libraries again.",
    ),
    "ended.dll": (
        "A library failed to initialize (WinError 1114)",
        "Reinstall Microsoft's Visual C++ runtime, and install the framework into a new environment.",
    ),
    "ended.loader": (
        "A library of the framework, not of CUDA, cannot be loaded",
        "Install Microsoft's Visual C++ runtime (2015-2022), reinstall the framework; for fbgemm.dll also libomp140.",
    ),
    "ended.extension": (
        "A compiled extension does not match the installed framework: a symbol is missing",
        "Install the extension built for this version of framework and Python, or recompile it.",
    ),
    "ended.cudnn": (
        "cuDNN rejected the operation",
        "Compare with torch.backends.cudnn.enabled=False or other shapes; look for a second cuDNN in LD_LIBRARY_PATH.",
    ),
    "ended.cublas": (
        "cuBLAS failed in an operation: wrong shapes or indices, a kernel that crashed before it, or another version",
        "Run the step on the CPU, which names wrong shapes and indices, and with CUDA_LAUNCH_BLOCKING=1.",
    ),
    "ended.shell-variable": (
        "The shell treated CUDA_VISIBLE_DEVICES=… as a command: nothing was started",
        "Windows: set CUDA_VISIBLE_DEVICES=0 in a line before the command (PowerShell: $env:CUDA_VISIBLE_DEVICES=0)."
        " Elsewhere: no spaces around the sign =.",
    ),
    "ended.jax-backend": (
        "JAX could not start its CUDA backend",
        "Read the reason in that line; TF_CPP_MIN_LOG_LEVEL=0 shows more. jax, jaxlib and its plugin must have the same"
        ' version: pip install -U "jax[cuda12]".',
    ),
    "ended.container": (
        "nvidia-container-cli could not set the container up",
        "Read its line, which names the file or cgroup that is the problem; update the NVIDIA Container Toolkit.",
    ),
    "ended.permission": (
        "NVML has no permission for the request",
        "Run it as root on the host; within a container MIG's capabilities must be granted"
        " (NVIDIA_MIG_CONFIG_DEVICES, NVIDIA_MIG_MONITOR_DEVICES).",
    ),
    "ended.fork": (
        "A forked process used CUDA, which only the process that initialized it can",
        "Start processes that use the GPU with the method 'spawn', or do not use the GPU before the fork.",
    ),
    "ended.xla-flags": (
        "XLA_FLAGS (or TF_XLA_FLAGS) has a flag unknown to this build, which ends the program at its start",
        "Remove the flag from the variable, or unset it: XLA's flags change from version to version.",
    ),
    "ended.fatal": (
        "A check inside the framework failed and ended the program",
        "Read that line; if it is a bug of the framework, report it there.",
    ),
    "ended.crash": (
        "The program crashed with a signal",
        "Read the lines before it. An illegal instruction at the import means that this build needs a newer CPU.",
    ),
    reported_ends.TIME_LIMIT: (
        "The job reached its time limit",
        "Request more time (--time), or save checkpoints and continue from the last one.",
    ),
    reported_ends.PREEMPTED: (
        "The scheduler preempted the job",
        "Submit it again, and continue from a checkpoint; Slurm: --requeue does so by itself.",
    ),
    reported_ends.CANCELLED: (
        "The job was cancelled",
        "Find who ended it: sacct -j JOB -o State%30 names the user; else Ctrl+C, a dependency or an administrator.",
    ),
    reported_ends.KERNEL_DIED: (
        "The notebook's kernel died: killed for lack of host memory (RAM), or crashed",
        "Look in dmesg for 'Out of memory: Killed process', then run the notebook as a script (jupyter nbconvert --to"
        " script), whose last lines say more.",
    ),
    reported_ends.NOT_STARTED: (
        "The program did not start: its interpreter, a module, a library or an argument is wrong",
        "Read that line: it names what could not be found or understood.",
    ),
    reported_ends.TERMINATED: (
        "The program was ended by SIGTERM: by a scheduler, a timeout, a supervisor or a person",
        "Find who sent it (sacct -j JOB, timeout, systemd); in a job of several ranks, look for the one that failed"
        " first.",
    ),
    **last_errors.ENDS,
    _WORKER: (
        "A worker of the DataLoader was killed, usually for lack of host memory",
        "Use fewer workers or less data in memory, and check dmesg for the kernel's OOM killer.",
    ),
}
"""Topic to title and action, for failures with a log line of their own."""

_FAULTS = "Run it with python -X faulthandler, which prints the line of Python at the crash."
SIGNALS = {
    signal.SIGKILL: ENDINGS["ended.killed"],
    signal.SIGSEGV: (
        "It crashed with SIGSEGV: native code made an illegal memory access",
        f"{_FAULTS} The most frequent reason is incompatible library versions: compare them with pip"
        " check, and try a fresh environment.",
    ),
    signal.SIGBUS: (
        "It crashed with SIGBUS: a mapped file has no memory behind it; usually /dev/shm or the disk is full",
        "Check df /dev/shm; start a container with --ipc=host or a larger --shm-size, or use fewer workers.",
    ),
    signal.SIGABRT: (
        "It aborted with SIGABRT: a check in native code failed",
        f"Read its last lines, which name the check. {_FAULTS}",
    ),
    signal.SIGILL: (
        "It crashed with SIGILL: an instruction that this CPU does not support",
        "Install a build for this CPU: a build of the framework without AVX, or an older version.",
    ),
    signal.SIGFPE: ("It crashed with SIGFPE: an arithmetic error in native code, such as a division by 0", _FAULTS),
    signal.SIGTERM: (
        "It was ended by SIGTERM: by a user, a scheduler or a time limit",
        "Ask the scheduler (sacct -j JOB, journalctl) why it ended the job.",
    ),
    signal.SIGXCPU: ("It was ended by SIGXCPU: its CPU time limit", "Raise the limit (ulimit -t)."),
}
"""Signals that end programs, with title and action."""


def ended_by(run: Run) -> signal.Signals | None:
    """The signal that ended a program, unless the user wanted that; a shell returns 128 plus its number."""
    number = run.outcome.signal or (run.outcome.exit_code or 0) - 128
    if run.verdict != "error" or run.ooms:
        return None
    return next((known for known in SIGNALS if known == number), None)


def _of_signal(run: Run, number: signal.Signals) -> tuple[str, str, Certainty]:
    """What a signal means, given what is known about host memory."""
    title, action = SIGNALS[number]
    host = run.host_memory
    if number != signal.SIGKILL:
        return title, action, "fact" if run.outcome.signal else "likely"
    if run.host_memory_out:
        return *ENDINGS[HOST_MEMORY], "fact"
    if host is not None and host.oom_kills == 0:
        # The kernel counts its OOM kills.
        return (
            "It was killed by SIGKILL, not by the kernel's OOM killer: its counter did not change",
            "Find who sent it: the scheduler (sacct -j JOB), a supervisor, systemd-oomd (journalctl -u systemd-oomd),"
            " or a user's kill -9.",
            "likely",
        )
    return title, action, "likely"


_BY_SIGNAL = re.compile(r"killed by signal: ([A-Z][\w ]{1,40})")


def _of_worker(text: str, host: HostMemory | None) -> tuple[str, str, bool]:
    """Title and action for a DataLoader's worker that died, by its signal; whether host memory matters.

    SIGKILL is judged by the kernel's count of its OOM kills, where that is known.
    """
    match = _BY_SIGNAL.search(text)
    if match is None:
        return (
            "A worker of the DataLoader exited unexpectedly",
            "Run it with num_workers=0: then the error appears in the main process, with its traceback.",
            False,
        )
    if match[1] == "Bus error":
        return *ENDINGS["ended.shared-memory"], False
    if match[1] != "Killed":
        return f"A worker of the DataLoader ended with a signal: {match[1]}", f"{_FAULTS} Or use num_workers=0.", False
    title, action = ENDINGS[_WORKER]
    if host is not None and (host.kernel_line or host.oom_kills):
        title = "A worker of the DataLoader was killed when the kernel ran out of host memory (RAM)"
    elif host is not None and host.oom_kills == 0:
        title = "A worker of the DataLoader was killed by SIGKILL, not by the OOM killer: its counter did not change"
        action = (
            "Find who sent it: the scheduler (sacct -j JOB), a supervisor, systemd-oomd (journalctl -u systemd-oomd),"
            " or the program itself."
        )
    return title, action, host is not None


_CRASH_WORDS = (
    ("segmentation fault", signal.SIGSEGV),
    ("sigsegv", signal.SIGSEGV),
    ("bus error", signal.SIGBUS),
    ("illegal instruction", signal.SIGILL),
    ("abort", signal.SIGABRT),
    ("terminate called", signal.SIGABRT),
    ("corrupt", signal.SIGABRT),
)


def _crash(lines: list[str]) -> tuple[str, str]:
    """Title and action for the signal that the line names."""
    text = lines[0].lower()
    return next((SIGNALS[number] for word, number in _CRASH_WORDS if word in text), ENDINGS[reported_ends.CRASH])


def _host_evidence(run: Run) -> Iterator[str]:
    host = run.host_memory
    if host is None:
        return
    if host.kernel_line:
        yield host.kernel_line
    if host.peak_bytes is not None:
        most = f"its largest process had at most {size(host.peak_bytes)} of host memory"
        if host.limit_bytes is not None:
            most += f", its control group's limit is {size(host.limit_bytes)}"
        elif host.total_bytes is not None:
            most += f", the host has {size(host.total_bytes)}"
        yield most
    if host.oom_kills is not None:
        yield f"the kernel's OOM killer ended {host.oom_kills} processes meanwhile"
    else:
        yield "the counter of the kernel's OOM killer cannot be read here"


_NO_GPU = "gpu.none"
_UNUSED_GPU = "gpu.unused"
_CPU_WHEEL = "build.cpu-wheel"
_CPU_XLA = "xla.interpreter"
"""XLA's log of the platforms that it started, without CUDA, not even as a failure."""


@rule("unknown", "build.cpu-only")
def no_gpu_without_why(evidence: Evidence) -> Iterator[Finding]:
    """The framework reports no GPU, and nothing in the log says why."""
    log = evidence.log
    if log is None or evidence.gpu_usable or evidence.run is not None:
        return
    lines = log.lines_of(_NO_GPU)
    if "device.used" not in log.topics and "devices.xla-gpu" not in log.topics:
        lines += tuple(line for line in log.lines_of("devices.cpu") if "gpu" not in line.lower())
    if not lines or log.ooms or any(topic in CAUSES or topic in _ENOUGH for topic in log.topics):
        return
    if wheel := log.lines_of(_CPU_WHEEL, _CPU_XLA):
        yield finding(
            "build.cpu-only",
            "warning",
            "likely",
            evidence=(*lines, *wheel),
            action=gpu_build(framework_of(evidence, lines)),
        )
        return
    yield finding(
        "unknown",
        "warning",
        "fact",
        title="The program has no GPU, and the log does not say why",
        evidence=lines,
        action="Run gpuwatch doctor on that machine, or nvidia-smi and the framework's own build information: they"
        " distinguish a missing driver, a hidden GPU and a build without CUDA.",
    )


@rule("unknown")
def gpu_not_used(evidence: Evidence) -> Iterator[Finding]:
    """The framework says itself that it found a GPU and leaves it."""
    log = evidence.log
    if log is not None and evidence.run is None and (lines := log.lines_of(_UNUSED_GPU)):
        yield finding(
            "unknown",
            "warning",
            "fact",
            title="The program found a GPU and does not use it",
            evidence=lines,
            action="Request it (Lightning: Trainer(accelerator='gpu')), or look for device='cpu', use_cpu=True or"
            " no_cuda=True in its arguments.",
        )


@rule("unknown")
def unrecognised_error(evidence: Evidence) -> Iterator[Finding]:
    """The program ended with an unrecognised error, reported so that it does not look healthy."""
    log = evidence.log
    if evidence.run is not None and unreached(evidence.run):
        return  # reported as a limit of the simulation
    lines = _run_ended(evidence.run, log) if evidence.run is not None else _log_ended(log)
    if not lines and evidence.run is not None and evidence.run.verdict == "timeout":
        yield _deadline(evidence.run)
        return
    if not lines:
        return
    name = lines[0].partition(":")[0]
    title = f"{_how_it_ended(evidence, log)} {name}, {NOT_KNOWN}" if name.isidentifier() else ""
    action = "Read the end of the log; if it is a bug of the framework or the driver, report it there."
    certainty: Certainty = "fact"
    number = ended_by(evidence.run) if evidence.run is not None else None
    known = next((topic for topic in ENDINGS if log is not None and topic in log.topics), None)
    peer = log is not None and evidence.run is None and _PEER in log.topics and known in (None, _NCCL_INTERNAL)
    if log is not None and evidence.run is None and known == HOST_MEMORY and _of_the_programs_data(log):
        # The kernel may have killed another program.
        known, lines = None, [_line(log.errors[-1]), *log.lines_of(HOST_MEMORY)]
        title = f"It ended in {log.errors[-1].type}, {NOT_KNOWN}"
    if log is not None and evidence.run is None and known == _WAITED and _own_error(log) is not None:
        peer = True
    if peer:
        known = None  # NCCL's "internal error" may be the lost connection itself
    reported, of_a_child = _reported(log) if known is None and log is not None else ("", "")
    if reported in ENDINGS:
        known = reported
    if evidence.run is not None and evidence.run.host_memory_out:
        known = HOST_MEMORY  # by the kernel's own count
    if evidence.run is not None and number is not None and known in (None, HOST_MEMORY, "ended.killed", "ended.crash"):
        title, action, certainty = _of_signal(evidence.run, number)
        lines = [*lines, *_host_evidence(evidence.run)]
    elif peer and log is not None and known in (None, reported_ends.CRASH, reported_ends.TERMINATED):
        title, action, certainty = _other_rank(log)
        lines = list(dict.fromkeys((*_own_lines(log), *log.lines_of(_PEER, _WAITED))))
    elif known == _WORKER:
        lines = list(dict.fromkeys((*(log.lines_of(_WORKER) if log is not None else ()), *lines)))
        host = evidence.run.host_memory if evidence.run is not None else None
        title, action, shown = _of_worker(" ".join(lines), host)
        if shown and evidence.run is not None:
            lines = [*lines, *_host_evidence(evidence.run)]
    elif known is not None:
        title, action = _crash(lines) if known == reported_ends.CRASH else ENDINGS[known]
        lines = list(dict.fromkeys((*(log.lines_of(known) if log is not None else ()), *lines)))
    elif reported and log is not None:
        title, action = _in_a_process(log)
        own = _own_error(log)
        own_lines = [_line(own), *_raised_at(log, own)] if own is not None else []
        lines = list(dict.fromkeys((*own_lines, of_a_child, *lines)))
    elif refused := _refused(lines):
        title, action = refused
        lines = [*lines, *(log.lines_of(_COMPILER_SAYS) if log is not None else ())]
    elif lines == [_CUT]:
        title, action = _CUT, "Look at the whole log: the last line of a traceback names the error."
        lines = []
        if log is not None:
            begun = max(log.last_frame_line or 0, log.open_traceback_line or 0)
            lines = [f"of {log.lines} lines, line {begun} is the last that shows where the error was"]
    if evidence.run is not None and log is not None and log.errors and lines and _is_about(lines[0], log.errors[-1]):
        where = _raised_at(log, log.errors[-1])
        lines = [lines[0], *where, *lines[1:]]
        if where and title.endswith(NOT_KNOWN):
            action = "Look at that line of the program, and at the frames below it at the end of the log."
    # A cause that the log names stays the first, whatever the program did later.
    severity: Severity = "warning" if evidence.run is None and _explains(log) else "error"
    yield finding("unknown", severity, certainty, title=title, evidence=lines, action=action)


def _raised_at(log: LogFacts, error: RunError) -> list[str]:
    """The user's own line that led to an exception, if its traceback is in the log."""
    frame = log.error_frames.get(f"{error.type}: {error.message}")
    return [at("raised at", frame)] if frame is not None else []


def _is_about(line: str, error: RunError) -> bool:
    """Whether a line names this exception, or TensorFlow's own that passes it on."""
    said = telling(error.message)
    return line.startswith(error.type) or (len(said) >= _TELLING and said in line)


@rule("unknown")
def error_despite_success(evidence: Evidence) -> Iterator[Finding]:
    """The program exited with 0, but its log shows an exception with its traceback: it need not have done its work."""
    run, log = evidence.run, evidence.log
    if run is None or log is None or run.group != "run" or run.verdict != "ok" or run.outcome.exit_code != 0:
        return
    if not log.errors or not log.last_error_has_traceback or run.ooms or log.last_error_line is None:
        return
    error = log.errors[-1]
    if error.type in _ON_PURPOSE or _known(error.message):
        return
    at_end = log.lines - log.last_error_line <= _TAIL and not log.last_error_went_on
    title = f"{WENT_ON} {error.type}, whose traceback is in its log"
    if log.last_error_in:
        title = f"{DESPITE_ERROR} a {log.last_error_in} of it ended in {error.type}"
    elif at_end:
        title = f"{DESPITE_ERROR} its stderr ends in the traceback of {error.type}"
    yield finding(
        "unknown",
        "warning" if at_end or log.last_error_in else "info",
        "fact",
        title=title,
        evidence=(_line(error), *_raised_at(log, error)),
        action="If the program does not handle this error on purpose, let it exit with another code (sys.exit(1)), so"
        " that scripts and schedulers notice.",
    )


def _how_it_ended(evidence: Evidence, log: LogFacts | None) -> str:
    """What is certain of the last exception: without a traceback it may have been handled and only printed."""
    if evidence.run is not None and evidence.run.verdict == "interrupted":
        return "Before it was interrupted, it raised"
    if evidence.run is not None or log is None:
        return "It ended in"
    if log.last_error_in:
        return f"A {log.last_error_in} of the program ended in"
    if log.last_error_line is not None and log.lines - log.last_error_line > _TAIL:
        return "The last error is"
    if not log.last_error_has_traceback and log.last_error_line is not None and log.last_error_line < log.lines:
        return "The last error is"
    return "It ended in"


def _refused(lines: list[str]) -> last_errors.Words | None:
    """What the operating system or a compiler refused: said by the last error, before a line that only tells the exit
    code."""
    last = "\n".join(lines[-2:])
    return last_errors.refused(last) or (last_errors.not_compiled() if reported_ends.of_a_compiler(last) else None)


def _run_ended(run: Run, log: LogFacts | None) -> list[str]:
    """The finding about a run's end that nothing else explains."""
    if run.ooms:
        return []
    unexpected = [error for error in run.errors if not error.expected]
    simulated = run.simulation == "plugin"
    lines = [
        _line(error)
        for error in unexpected
        if not _known(error.message) and not (simulated and lacks_compiler(error.message))
    ]
    if lines:
        return lines
    if run.verdict != "error" or unexpected or _explains(log):
        return []
    number = ended_by(run)
    named = f" ({number.name})" if number is not None else ""
    ending = f"killed by signal {run.outcome.signal}" if run.outcome.signal else f"exit code {run.outcome.exit_code}"
    ending += named
    last = log.errors[-1:] if log is not None else []
    return [*map(_line, last), ending]


def _deadline(run: Run) -> Finding:
    """gpuwatch itself ended it at its deadline: probably too little time, not a fault of the machine."""
    phases = run.phases
    reached = [
        f"{name} took {seconds:.1f} s"
        for name, seconds in (
            ("the import", phases.import_seconds),
            ("starting the devices", phases.device_init_seconds),
            ("the first step", phases.first_step_seconds),
        )
        if seconds is not None
    ]
    spent = f"it was killed after {phases.total_seconds:.0f} s" if phases.total_seconds is not None else ""
    return finding(
        "unknown",
        "warning",
        "fact",
        title="The probe did not finish before its deadline",
        evidence=[spent or "it was killed", *(reached or ["it did not finish the import"])],
        action="Raise --deadline (or lower --seconds). If it never finishes, check dmesg for a GPU that hangs.",
    )


def _log_ended(log: LogFacts | None) -> list[str]:
    """The failure at the end of a log that nothing else explains."""
    if log is None:
        return []
    if _explains(log):
        only_warned = not log.ooms and not any(_known(error.message) for error in log.errors)
        return [_line(log.errors[-1])] if only_warned and _of_the_programs_data(log) else []
    endings = [line for topic in ENDINGS for line in log.lines_of(topic)][:1]
    if endings:
        return endings
    _, reported = _reported(log)
    if reported:
        own = _own_error(log)
        return [reported, *([_line(own)] if own is not None else [])]
    last = log.last_error_line
    if last is not None and log.lines - last <= _TAIL:
        error = log.errors[-1]
        return [] if error.type in _ON_PURPOSE or log.last_error_went_on else [_line(error)]
    if last is not None and _nothing_after(log):
        return [] if log.errors[-1].type in _ON_PURPOSE else [_line(log.errors[-1])]
    frame, head = log.last_frame_line, log.open_traceback_line
    if frame is not None and log.lines - frame <= _TAIL and (last or 0) < frame:
        return [_CUT]
    return [_CUT] if head is not None and (last or 0) < head else []


def _of_the_programs_data(log: LogFacts) -> bool:
    """Whether the log ends in an exception about the program's own files or data, which follows from no GPU's state."""
    at_end = log.last_error_line is not None and log.lines - log.last_error_line <= _TAIL
    if not at_end or not log.last_error_has_traceback or log.last_error_in or log.last_error_went_on:
        return False
    error = log.errors[-1]
    return error.type in _OF_DATA and not topics_of(_line(error)) and _OF_A_GPU.search(error.message) is None


def _nothing_after(log: LogFacts) -> bool:
    """Whether no line after the last traceback shows that the program went on: not summaries, further lines of a
    message, or prints that Python wrote when the program ended."""
    imported = log.errors[-1].type in _OF_IMPORTS if log.errors else False
    raised = log.last_error_has_traceback and not log.last_error_in and not imported
    near = log.last_error_line is not None and log.lines - log.last_error_line <= _LATE
    return raised and near and not log.printed_after_error and not log.last_error_went_on


def _reported(log: LogFacts) -> tuple[str, str]:
    """The topic and line of a shell, launcher or scheduler that reports a bad end; empty if none does."""
    if log.reported_end and log.lines - log.reported_end_at <= _EPILOGUE:
        return log.reported_end, log.reported_end_line
    last = log.errors[-1] if log.errors else None
    at_end = log.last_error_line is not None and log.lines - log.last_error_line <= _TAIL
    if last is not None and at_end and reported_ends.of_a_child(last.type, last.message):
        return reported_ends.child_end(last.message), _line(last)
    return "", ""


def _own_error(log: LogFacts) -> RunError | None:
    """The last exception that is not about another process."""
    own = (one for one in reversed(log.errors) if not reported_ends.of_a_child(one.type, one.message))
    return next((one for one in own if one.type not in _ON_PURPOSE and not _OF_A_PEER & {*topics_of(_line(one))}), None)


def _own_lines(log: LogFacts) -> list[str]:
    own = _own_error(log)
    return [_line(own)] if own is not None else []


def _other_rank(log: LogFacts) -> tuple[str, str, Certainty]:
    """Title, action and certainty for a connection to another rank that was lost."""
    own = _own_lines(log)
    if own:
        return (
            f"Another rank failed first; the other error in this log is {own[0].partition(':')[0]}",
            "Read that error. If it is not the other rank's, that rank's own log says why it ended (torchrun --log-dir"
            " DIR --tee 3; srun -o %t.log).",
            "likely",
        )
    return (
        "The connection to another rank was lost: that rank failed first, or the network did",
        "Read the other rank's own log: its last lines say why it ended (torchrun --log-dir DIR --tee 3; srun -o"
        " %t.log). If every rank lost its connection, check the network and dmesg for killed processes.",
        "fact",
    )


def _in_a_process(log: LogFacts) -> tuple[str, str]:
    """Title and action for a process that exited with an error of its own."""
    own = _own_error(log)
    if own is None:
        return (
            "A process of the job failed, and its own error is not in this log",
            "Read that process's own output: its last lines say why (torchrun --log-dir DIR --tee 3; srun -o %t.log;"
            " vLLM: the lines above that begin with (EngineCore or (Worker).",
        )
    return (
        f"A process of the job failed; the last error before is {own.type}",
        "Read that error, which the process printed itself; what launchers print after it says only that it failed.",
    )


def _explains(log: LogFacts | None) -> bool:
    """Whether a log names a cause that can end the program."""
    if log is None:
        return False
    ran_out = bool(log.ooms) and not log.oom_survived
    masked = {"memory.masked"} if "ended.assert" in log.topics else set()
    return ran_out or any(topic in CAUSES or topic in _ENOUGH for topic in log.topics.keys() - masked)


def _known(message: str) -> bool:
    return any(topic in CAUSES or topic in _ENOUGH for topic in topics_of(message))


def _line(error: RunError) -> str:
    return f"{error.type}: {telling(error.message)[:300]}".rstrip(": ")
