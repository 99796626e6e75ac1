"""How shells, launchers and schedulers report that a program ended badly.

A program that is killed, or one of many ranks, often says nothing itself: the last lines of the log are those of
torchrun, srun, mpirun, kubectl or the shell. Formats: ``torch/distributed/elastic/multiprocessing/errors``, DeepSpeed's
``launcher/launch.py``, srun(1) and slurmstepd, Open MPI's ``prterun``/``orterun`` help texts, job ends of LSF, PBS
and HTCondor, bash(1), zsh(1), make(1), ``kubectl exec``, Docker Compose, ``subprocess.CalledProcessError``, systemd,
gunicorn.
"""

from __future__ import annotations

import re
import signal

from gpuwatch.explain.logs.device_names import explain_device_type
from gpuwatch.explain.logs.log_facts import LogFacts

KILLED = "ended.killed"
TERMINATED = "ended.terminated"
CRASH = "ended.crash"
HOST_MEMORY = "ended.host-memory"
TIME_LIMIT = "ended.time-limit"
PREEMPTED = "ended.preempted"
CANCELLED = "ended.cancelled"
NODE = "ended.node"
INTERRUPTED = "ended.interrupted"
FATAL = "ended.fatal"
KERNEL_DIED = "ended.notebook"
NOT_STARTED = "ended.not-started"
CONTINUED = "ended.continued-line"
NO_COMPILER = "ended.no-compiler"
NO_CUDA_COMPILER = "ended.no-cuda-compiler"
NOT_COMPILED = "ended.not-compiled"
PROCESS_FAILED = "ended.in-a-process"
"""A process exited with an exit code of its own: why stands in its own output."""

ENDED_FROM_OUTSIDE = frozenset({TIME_LIMIT, PREEMPTED, CANCELLED, INTERRUPTED, NODE})
"""Ends by a scheduler or a person, for which no fault is needed."""

ROOT_CAUSE = "Root Cause (first observed failure)"
"""torchrun's summary: the process after this line failed first; those before it were ended for it, or later."""

KILLS_RANKS = "sigkill_handler] Killing subprocess"
"""DeepSpeed's launcher, after one rank ended badly: its exit code stands in a later line, if the log has it."""

_EXIT_CODE = re.compile(
    r"^[\"'`]?srun: error: .{1,200}: Exited with exit code (?P<srun>\d{1,3})\b"
    r"|^exitcode +: (?P<torchrun>-?\d{1,3}) \(pid: \d+\)"
    r"|\bfailed \(exitcode: (?P<agent>-?\d{1,3})\) local_rank: \d+"
    r"|\] exits with return code = (?P<deepspeed>-?\d{1,3})\b"
    r"|^Exited with exit code (?P<lsf>\d{1,3})\.$"
    r"|^Exit Code: +(?P<kubectl_describe>\d{1,3})$"
    r"|^(?:error: )?command terminated with exit code (?P<kubectl>\d{1,3})\b"
    r"|^[\w.-]{1,80}-\d{1,4} exited with code (?P<compose>\d{1,3})$"
    r"|^(?:##\[error\])?Process completed with exit code (?P<actions>\d{1,3})\.?$"
    r"|^g?make(?:\[\d+\])?: [* ]{0,4}\[[^\]]{1,200}\] Error (?P<make>\d{1,3})\b"
    r"|^\[?Process (?:finished|exited) with (?:exit )?code (?P<editor>-?\d{1,10})\b"
    r"|\bexited on signal (?P<mpirun>\d{1,2})\b"
    r"|^Signal: .{3,60} \((?P<openmpi>\d{1,2})\)$|^\[\S{1,80}:\d{1,10}\] Caught signal (?P<ucx>\d{1,2}) \("
    r"|\bdied through signal \w{2,10} \((?P<sge>\d{1,2})\)"
    r"|: Main process exited, code=(?:killed|dumped), status=(?P<systemd>\d{1,2})/"
    r"|: Main process exited, code=exited, status=(?P<unit>\d{1,3})/"
    r"|^The target application returned non-zero exit code (?P<nsys>\d{1,3})$"
    r"|^Command '.{1,2000}' returned non-zero exit status (?P<printed>\d{1,3})\.?$"
    r"|\bNormal termination \(return value (?P<condor>\d{1,3})\)"
    r"|\bAbnormal termination \(signal (?P<condor_signal>\d{1,2})\)"
    r"|\bJob terminated of its own accord at .{1,40} with exit-code (?P<condor_code>\d{1,3})"
    r"|: (?:job|task|command|process) failed with (?:exit )?(?:status|code) (?P<failed>\d{1,3})\b"
    r"|\bShard process was signaled to shutdown with signal (?P<tgi>\d{1,2})\b"
    r"|^Command exited with non-zero status (?P<time>\d{1,3})$|^Command terminated by signal (?P<timed>\d{1,2})$"
    r"|^(?P<lsf_success>Successfully completed)\.$"
)
_EXIT_CODE_WORDS = ("code", "Code", "ignal", "status", "make", "return value", "Successfully completed")
"""One of these is in each line that the pattern finds: it is searched for in few lines."""
_BATCH_JOB_END = re.compile(
    r"Exited with exit code \d+\.$|Successfully completed\.$|TERM_[A-Z]+: "
    r"|.*\b(?:Normal|Abnormal) termination \(|.*\bJob terminated of its own accord at "
    r"|.*\bJob was (?:aborted|evicted)\b"
)
"""LSF's and HTCondor's ends of a job: of jobs that append to one log, the last counts."""
_SIGNAL_BELOW = "Process received signal ***"
"""Open MPI's heading of a crash, below which the signal stands."""
_REASON = "TERM_"
"""LSF's reason for an end stands in the line before its exit code."""
_SIGNAL_GROUPS = frozenset({"mpirun", "openmpi", "ucx", "sge", "systemd", "condor_signal", "tgi", "timed"})
"""Groups of ``_EXIT_CODE`` that are signals."""
_CRASHES = "[Ss]egmentation fault|[Aa]bort(?:ed)?|[Bb]us error|[Ii]llegal instruction|[Ff]loating point exception"
_SIGNAL_WORD = re.compile(
    rf"^[\"'`]?srun: error: \S{{1,200}}: tasks? [\d,-]{{1,80}}: (?P<srun>Killed|Terminated|{_CRASHES})"
    rf"|^(?:zsh|bash|sh|dash|fish): (?P<shell>killed|terminated|{_CRASHES})\b"
    rf"|^(?:\[\d+\] *[-+]? *)?\d{{1,10}} (?P<job>killed|terminated|{_CRASHES})\b {{1,2}}\S"
    rf"|(?:^|(?:^|(?<=\]))[^\s\]]{{1,400}}: line \d{{1,9}}: +\d{{1,10}} )(?P<alone>Terminated|{_CRASHES})"
    r"(?: \(core dumped\)|: \d{1,2})?(?: {2,}|$)|^\[\d+\] ?[-+]? +(?P<bash>Killed|Terminated) {2,}\S"
)
_SIGNAL_WORDS = (
    "illed", "erminated", "egmentation fault", "bort", "us error", "llegal instruction", "loating point exception"
)  # fmt: skip
"""One of these is in each line that the pattern finds."""
# The same in any language: "train.sh: Zeile 3:  4711 Get\u00f6tet                python train.py".
_SHELL_JOB = re.compile(
    r"^\S{1,200} ?: (?:[^\W\d]{1,12} ?\d{1,9}|\u7b2c ?\d{1,9} ?\u884c) ?[:\uff1a] +\d{1,10} (?P<word>\S.{0,60}?)"
    r"(?: \(.{1,60}\))? {2,}\S"
)
_CRASH_MESSAGE = re.compile(
    r"^(?:\*{0,3} ?(?:stack smashing detected|buffer overflow detected|Process received signal) \*\*\*"
    r"|double free or corruption|(?:free|malloc|realloc|munmap_chunk)\(\): |malloc_consolidate\(\): "
    r"|corrupted (?:size vs|double-link)|Fatal Python error: |Windows fatal exception: |libc\+\+abi: terminating"
    r"|terminate called (?:after throwing|without an active|recursively))"
)
_RUST_PANIC = re.compile(r"^thread '[^']{1,80}' (?:\(\d+\) )?panicked at ")
_NOT_STARTED = re.compile(
    r"^(?:\S{0,200}python[\w.]{0,12}: (?:can't (?:open|find) |No module named|symbol lookup error|error while loading)"
    r"|slurmstepd: error: execve\(\): \S{1,300}: (?:No such file|Permission denied|Exec format error|Not a directory)"
    r"|\S{1,200}\.py: error: |[\w.-]{1,40}: error: (?:unrecognized arg|the following arg|argument [^:]{1,80}: )"
    r"|\S{1,200}: (?:line \d{1,9}: )?(?:(?P<continued>--?\w\S{0,200})|\S{1,200}): command not found$)"
)
# Looked for in the last line only.
_SHELL_REFUSAL = re.compile(
    r"^(?:(?:line )?\S{1,200}: ){1,4}(?:Bad substitution$|bad interpreter: |cannot execute)"
    r"|^\S{1,200}: (?:line )?\d{1,9}: (?:(?:\S{1,200}: )?[Ss]yntax error(?:: | near )|\S{1,200}: Permission denied$)"
    r"|^\S{1,200}: \d{1,9}: \S{1,200}: not found$|^-?(?:/bin/)?(?:ba|z|da|)sh: \S{1,200}: Permission denied$"
    r"|^zsh:(?:\d+:)? (?:command not found|no such file|permission denied|no matches found)|^/usr/bin/env: "
    r"|is not recognized as (?:an internal or external|the name of)"
)
"""What shells say of a command or script that they do not start."""
# setuptools and pip, which name the compiler that they did not find or that failed.
_BUILD_ERROR = re.compile(
    r"^error: (?:\[Errno 2\] No such file or directory: '(?P<missing>[^']{1,300})'"
    r"|(?P<windows>Microsoft Visual C\+\+ \d)|command '(?P<command>[^']{1,300})' failed(?P<absent>: No such file)?)"
)
_COMPILER = re.compile(
    r"(?:^|[/\\-])(?:(?P<cuda>nvcc)|(?:gcc|g\+\+|cc|c\+\+|clang|clang\+\+|hipcc|ninja|cl)(?:-\d{1,3})?)(?:\.exe)?$"
)
# After "]", too: a progress bar does not end its line.
_SEFF_STATE = re.compile(r"^State: (?P<state>[A-Z_]{4,15}) \(exit code \d{1,3}\)")
_TOPIC_OF_STATE = {
    "FAILED": PROCESS_FAILED, "TIMEOUT": TIME_LIMIT, "OUT_OF_MEMORY": HOST_MEMORY, "CANCELLED": CANCELLED,
    "NODE_FAIL": NODE, "PREEMPTED": PREEMPTED,
}  # fmt: skip
"""Slurm's seff of a job."""
_CANCELLED = re.compile(
    r"(?:(?:^|\])slurmstepd(?:-\S{1,80})?: |^\[[\d:.T-]{8,30}\] |^)error: \*\*\* (?:JOB|STEP) (?P<job>\d{1,12})?"
    r".{1,200}CANCELLED\b"
    r"(?P<why>.{0,120})"
)
_TEXTS: dict[str, tuple[str, ...]] = {
    HOST_MEMORY: (
        "TERM_MEMLIMIT", "This job has exceeded its memory quota", "PBS: job killed: mem", "PBS: job killed: vmem",
        "Task was killed due to the node running low on memory", "killed due to memory pressure (OOM)",
        "which exceeds the memory usage threshold of", "Your session crashed after using all available RAM",
        "has been killed by the OOM killer",
    ),
    TIME_LIMIT: (
        "TERM_RUNLIMIT", "TERM_CPULIMIT: ", "TERM_DEADLINE: ", "TERM_WINDOW: ", "PBS: job killed: walltime",
        "exceeded its walltime limit", "exceeded wallclock limit", "exceeded walltime limit",
    ),
    CANCELLED: (
        "TERM_OWNER: ", "TERM_ADMIN: ", "TERM_FORCE_OWNER: ", "TERM_FORCE_ADMIN: ", "Job was aborted by the user",
        "Job was aborted.", "Job deleted at request of ", "srun: Force Terminated job", "srun: forcing job termination",
    ),
    PREEMPTED: ("TERM_PREEMPT: ", "TERM_BUCKET_KILL: ", "Job was evicted"),
    INTERRUPTED: ("Received Signals.SIGINT death signal", "Main process received SIGINT, exiting"),
    PROCESS_FAILED: (
        "Primary job  terminated normally, but", "one or more processes exited with non-zero status", KILLS_RANKS,
        "Received sigquit from a child process",
    ),
    KERNEL_DIED: (
        "appears to have died. It will restart automatically", "DeadKernelError: Kernel died",
        "The Kernel crashed while executing code",
    ),
    KILLED: ("was sent SIGKILL! Perhaps out of memory?", "timeout: sending signal KILL to command"),
    TERMINATED: (
        "timeout: sending signal TERM to command", "Received Signals.SIGTERM death signal",
        "Main process received SIGTERM, exiting", "`Termination signal` is detected by the operating system",
    ),
    CRASH: ("` is detected by the operating system.",),  # PaddlePaddle's names of signals
}  # fmt: skip
_POD_OOM_KILLED = re.compile(r"\bReason: +OOMKilled\b")
_RUST_OUT_OF_MEMORY = re.compile(r"^(?:memory allocation of )+\d{1,20} bytes failed$")
_TOPIC_OF_SIGNAL = {signal.SIGKILL: KILLED, signal.SIGTERM: TERMINATED, signal.SIGINT: INTERRUPTED} | dict.fromkeys(
    (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE), CRASH
)
_FOREIGN_WORDS = {
    KILLED: (
        "get\u00f6tet", "tu\u00e9", "processus arr\u00eat\u00e9", "ucciso", "matado", "\u5df2\u6740\u6b7b",
        "\u5f37\u5236\u7d42\u4e86", "\u0443\u0431\u0438\u0442\u043e",
    ),
    TERMINATED: ("\u5df2\u7ec8\u6b62", "\u5df2\u7d42\u6b62"),
    CRASH: (
        "\u5df2\u653e\u5f03", "\u6d6e\u70b9\u6570\u4f8b\u5916", "speicherzugriffsfehler",
        "erreur de segmentation", "violaci\u00f3n de segmento",
        "falha de segmenta\u00e7\u00e3o", "errore di segmentazione", "\u6bb5\u9519\u8bef",
        "\u0441\u0435\u0433\u043c\u0435\u043d\u0442\u0430\u0446\u0438\u0438",
    ),
}  # fmt: skip
"""How shells name SIGKILL and SIGSEGV in other languages; only the last line of a log says so."""
_TOPIC_OF_WORD = {"killed": KILLED, "terminated": TERMINATED}
_CHILD_EXIT = re.compile(
    r"(?:non-zero exit status |Failed core proc\(s\): \{'[^']{1,60}': )(?P<code>-?\d{1,3})\b"
    r"|died with <Signals\.\w{2,10}: (?P<signal>\d{1,2})>"
)
_CHILD_TYPES = frozenset(
    {"CalledProcessError", "ChildFailedError", "ProcessExitedException", "ProcessRaisedException", "EngineDeadError",
     "ActorDiedError", "RayActorError", "ActorUnavailableError", "WorkerCrashedError", "NodeDiedError",
     "LocalRayletDiedError", "BrokenProcessPool", "TuneError", "PapermillExecutionError", "CellExecutionError"}
)  # fmt: skip
"""Exceptions about a process that the program started: torchrun's, vLLM's, Ray's, ``concurrent.futures``'."""
_CHILD_TEXTS = (
    "Engine core initialization failed",
    "initialization failed due to an exception in a background process",
    "Initialization failed. Please see the error messages above",
    "ShardCannotStart",
)
"""The same of vLLM, SGLang and TGI, whose type is a RuntimeError or an Exception."""
_WAITED_IN_VAIN = re.compile(
    r"\btime[sd]? ?-?out\b.{0,40}\bwait(?:ing|ed)?\b.{0,40}\b(?:engine|worker|child|process|actor|replica|executor)"
    r"|\b(?:engine|worker|child|process|actor|replica|executor)(?:s|es|ren)?\b.{0,30}"
    r"\b(?:did not|didn't|never|failed to)\b.{0,20}\b(?:start|bec[oa]me|respond|report|initiali[sz]e|come up)",
    re.IGNORECASE,
)
"""What a program says that waited for another process in vain."""
_COMMAND = re.compile(r"Command '\[?'?(?P<file>[^' ,\]]{1,300})")


def topic_of_report(line: str) -> str | None:
    """The topic of a line without prefixes that reports a bad end; ``""`` for a good one; None for other lines."""
    if any(word in line for word in _EXIT_CODE_WORDS) and (found := _EXIT_CODE.search(line)) is not None:
        kind = str(found.lastgroup)
        if kind == "lsf_success":
            return ""
        return _topic_of_code(-int(found[kind]) if kind in _SIGNAL_GROUPS else int(found[kind]))
    if any(word in line for word in _SIGNAL_WORDS) and (found := _SIGNAL_WORD.search(line)) is not None:
        return _TOPIC_OF_WORD.get(str(found[str(found.lastgroup)]).lower(), CRASH)
    if "CANCELLED" in line and (found := _CANCELLED.search(line)) is not None:
        why = found["why"].upper()
        if "NODE FAIL" in why:
            return NODE
        return TIME_LIMIT if "TIME LIMIT" in why else PREEMPTED if "PREEMPT" in why or "REQUEUE" in why else CANCELLED
    if (found := _SEFF_STATE.match(line)) is not None:
        return _TOPIC_OF_STATE.get(found["state"], "" if found["state"] == "COMPLETED" else None)
    if _RUST_OUT_OF_MEMORY.search(line) or ("OOMKilled" in line and _POD_OOM_KILLED.search(line)):
        return HOST_MEMORY
    if _CRASH_MESSAGE.search(line):
        return CRASH
    if _RUST_PANIC.search(line):
        return FATAL
    if (found := _BUILD_ERROR.search(line)) is not None:
        return _build_topic(found)
    if (found := _NOT_STARTED.search(line)) is not None:
        return CONTINUED if found["continued"] else NOT_STARTED
    return next((topic for topic, texts in _TEXTS.items() if any(text in line for text in texts)), None)


def _build_topic(found: re.Match[str]) -> str | None:
    if found["windows"]:
        return NO_COMPILER
    compiler = _COMPILER.search(found["missing"] or found["command"])
    if compiler is None:
        return None
    if found["command"] and not found["absent"]:
        return NOT_COMPILED
    return NO_CUDA_COMPILER if compiler["cuda"] else NO_COMPILER


_WORD_AFTER_TIME = re.compile(r"^\[?\d[\d :.,T/-]{7,40}\]?:? (?P<word>Killed|Terminated)$")
"""The shell's word behind a time that the program had begun its line with."""


def topic_of_last_line(line: str) -> str | None:
    """The topic of a log's last line without prefixes, as a shell in any language reports a signal, or that it
    started nothing; None for others."""
    if (found := _WORD_AFTER_TIME.search(line)) is not None:
        return _TOPIC_OF_WORD[found["word"].lower()]
    job = _SHELL_JOB.search(line)
    word = job["word"] if job is not None else line.partition(" (")[0]
    topic = next((topic for topic, words in _FOREIGN_WORDS.items() if word.strip().lower() in words), None)
    return topic or (
        PROCESS_FAILED if job is not None else NOT_STARTED if _SHELL_REFUSAL.search(line) is not None else None
    )


def is_about_child(error_type: str, message: str = "") -> bool:
    """Whether an exception is about another process, which the program started: its own error stands before."""
    known = error_type in _CHILD_TYPES or any(text in message for text in _CHILD_TEXTS)
    known = known or waited_for_a_child(message)
    return known and not is_about_compiler(message)


def waited_for_a_child(message: str) -> bool:
    """Whether a message says that another process did not become ready: it may also have been too slow."""
    return _WAITED_IN_VAIN.search(message) is not None


def is_about_compiler(message: str) -> bool:
    """Whether the command in such an exception is a compiler's."""
    command = _COMMAND.search(message)
    return command is not None and _COMPILER.search(command["file"]) is not None


def topic_of_child_end(message: str) -> str:
    """The topic of such an exception, by its message."""
    found = _CHILD_EXIT.search(message)
    if found is None:
        return PROCESS_FAILED
    return _topic_of_code(-int(found["signal"]) if found["signal"] else int(found["code"])) or PROCESS_FAILED


def _topic_of_code(code: int) -> str:
    """Exit codes above 128 are signals in shells; negative ones in Python."""
    number = -code if code < 0 else code - 128
    if code == 0:
        return ""
    if code < -128 or code > 255:
        return CRASH  # a status of Windows, such as 0xC0000005
    try:
        return (
            _TOPIC_OF_SIGNAL.get(signal.Signals(number), PROCESS_FAILED) if code < 0 or code > 128 else PROCESS_FAILED
        )
    except ValueError:
        return PROCESS_FAILED


class ReportedEnds:
    """Takes the reports of one log; its facts keep the first, which the others follow, or torchrun's "root cause"."""

    def __init__(self, facts: LogFacts) -> None:
        self._facts = facts
        self._after_root_cause = False
        self._job_ended = False
        """Whether the last report was of a batch system, so that the next one is of another job."""

    def close(self, line: str, before: str) -> None:
        """Takes the last line of the log and the one before, without prefixes."""
        if self._facts.reported_end:
            return
        if (topic := topic_of_last_line(line)) is not None:
            self._set(topic, line)
        elif _SHELL_REFUSAL.search(before) is not None:
            self._set(NOT_STARTED, before)

    def forget_unstarted_command(self, number: int) -> None:
        """Forgets a command that was not started, as line ``number`` shows that the script went on and worked."""
        if self._facts.reported_end == NOT_STARTED and self._facts.reported_end_line_number < number:
            self._clear()

    def take(self, line: str) -> bool:
        """Takes a line without prefixes; False if it reports no end."""
        if ROOT_CAUSE in line:
            self._after_root_cause = True
            return True
        topic = topic_of_report(line)
        if topic is None:
            return False
        facts = self._facts
        of_a_job = _BATCH_JOB_END.match(line) is not None
        reason_just_given = (
            facts.reported_end_line.startswith(_REASON) and facts.reported_end_line_number >= facts.line_count - 1
        )
        if self._job_ended and not reason_just_given and (of_a_job or topic):
            self._clear()
        self._job_ended = of_a_job or (self._job_ended and not topic)
        if topic:
            facts.reported_end_line_number = facts.line_count
            known, known_line = facts.reported_end, facts.reported_end_line
            if (
                not known
                or KILLS_RANKS in known_line
                or (self._after_root_cause and (known, topic) != (NOT_STARTED, PROCESS_FAILED))
                or topic == CONTINUED
                or (known, topic) in ((CANCELLED, TIME_LIMIT), (PREEMPTED, CANCELLED))
                or (known == NOT_STARTED and topic in ENDED_FROM_OUTSIDE)
                or known_line.endswith(_SIGNAL_BELOW)
                or _of_another_job(known_line, line)
            ):
                self._set(topic, line)
                self._after_root_cause = False
        return True

    def _set(self, topic: str, line: str) -> None:
        facts = self._facts
        facts.reported_end, facts.reported_end_line, facts.reported_end_line_number = (
            topic,
            explain_device_type(line[:400]),
            facts.line_count,
        )

    def _clear(self) -> None:
        facts = self._facts
        facts.reported_end, facts.reported_end_line, facts.reported_end_line_number = "", "", 0


def _of_another_job(before: str, line: str) -> bool:
    """Whether Slurm ended another job than before: of jobs that append to one log, the last counts."""
    last, new = _CANCELLED.search(before), _CANCELLED.search(line)
    return last is not None and new is not None and last["job"] != new["job"]
