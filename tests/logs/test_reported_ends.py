"""What shells, launchers and schedulers say when a program ended badly."""

from __future__ import annotations

from itertools import product

import pytest

from gpuwatch.explain.diagnosis.explain_log import explain
from gpuwatch.explain.logs import reported_ends
from gpuwatch.explain.logs.reported_ends import (
    CANCELLED,
    CONTINUED,
    CRASH,
    FATAL,
    HOST_MEMORY,
    KERNEL_DIED,
    KILLED,
    NOT_STARTED,
    PREEMPTED,
    PROCESS_FAILED,
    TERMINATED,
    TIME_LIMIT,
    topic_of_report,
)
from tests.every import every

_HEALTHY = (
    "2026-11-02 10:00:00.1: I tensorflow/core/common_runtime/gpu/gpu_device.cc:2021] Created device"
    " /job:localhost/replica:0/task:0/device:GPU:0 with 20480 MB memory:  -> device: 0, name: NVIDIA A100,"
    " pci bus id: 0000:01:00.0, compute capability: 8.0",
    "Epoch 1/2",
    "100/100 - 20s - loss: 0.5",
)
_TORCHRUN = """\
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-05-01_10:00:02
  host      : n3
  rank      : 6 (local_rank: 6)
  exitcode  : -15 (pid: 3313)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 3313
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-05-01_10:00:00
  host      : n3
  rank      : 5 (local_rank: 5)
  exitcode  : {code} (pid: 3312)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================"""

ENDS = [
    ("srun: error: n7: task 3: Exited with exit code 1", PROCESS_FAILED),
    ("srun: error: n7: tasks 0-3,5: Killed", KILLED),
    ("State: FAILED (exit code 3)", PROCESS_FAILED),
    ("State: OUT_OF_MEMORY (exit code 0)", HOST_MEMORY),
    ("State: TIMEOUT (exit code 0)", TIME_LIMIT),
    ("[2026-05-01 10:00:00,7] [INFO] [launch.py:319:sigkill_handler] Killing subprocess 4711", PROCESS_FAILED),
    ("srun: error: n7: task 3: Segmentation fault (core dumped)", CRASH),
    ("srun: error: n7: task 0: Exited with exit code 143", TERMINATED),
    ("slurmstepd: error: *** JOB 44 ON n3 CANCELLED AT 2026-05-01T10:00:00 DUE TO TIME LIMIT ***", TIME_LIMIT),
    ("slurmstepd-n3: error: *** JOB 44 ON n3 CANCELLED AT 2026-05-01T10:00:00 DUE TO PREEMPTION ***", PREEMPTED),
    ("slurmstepd: error: *** STEP 44.0 ON n3 CANCELLED AT 2026-05-01T10:00:00 ***", CANCELLED),
    (
        "[2026-05-01T10:00:00.229] error: *** JOB 44 ON n3 CANCELLED AT 2026-05-01T10:00:00 DUE to SIGNAL X ***",
        CANCELLED,
    ),
    ("ERROR:smemwatch:This job has exceeded its memory quota and will be terminated", HOST_MEMORY),
    (
        "[2026-04-16 21:54:13,235] [ERROR] [launch.py:434:sigkill_handler] ['python'] exits with return code = -9",
        KILLED,
    ),
    ("mpirun noticed that process rank 2 with PID 4231 on node n3 exited on signal 9 (Killed).", KILLED),
    ("mpirun noticed that process rank 2 with PID 4231 on node n3 exited on signal 11 (Segmentation fault).", CRASH),
    ("Primary job  terminated normally, but 1 process returned", PROCESS_FAILED),
    ("mpirun detected that one or more processes exited with non-zero status, thus causing", PROCESS_FAILED),
    ("make: *** [Makefile:12: train] Error 137", KILLED),
    ("zsh: killed     python train.py", KILLED),
    ("[1]    12345 segmentation fault (core dumped)  python train.py", CRASH),
    ("Terminated", TERMINATED),
    ("error: command terminated with exit code 137", KILLED),
    ("command terminated with exit code 3", PROCESS_FAILED),
    ("train-1 exited with code 139", CRASH),
    ("  Exit Code:    137", KILLED),
    ("##[error]Process completed with exit code 1.", PROCESS_FAILED),
    ("TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.", HOST_MEMORY),
    ("TERM_RUNLIMIT: job killed after reaching LSF run time limit.", TIME_LIMIT),
    ("=>> PBS: job killed: walltime 3602 exceeded limit 3600", TIME_LIMIT),
    ("job 44.1 died through signal KILL (9)", KILLED),
    ("memory allocation of 2097152 bytes failed", HOST_MEMORY),
    ("Nov 22 10:11:12 n1 systemd[1]: train.service: Main process exited, code=killed, status=9/KILL", KILLED),
    ("Nov 22 10:11:12 n1 systemd[1]: train.service: Main process exited, code=dumped, status=11/SEGV", CRASH),
    (
        "Nov 22 10:11:12 n1 systemd[1]: train.service: Main process exited, code=exited, status=1/FAILURE",
        PROCESS_FAILED,
    ),
    ("train.service: A process of this unit has been killed by the OOM killer.", HOST_MEMORY),
    ("[2026-11-22 10:11:13 +0000] [1] [ERROR] Worker (pid:47) was sent SIGKILL! Perhaps out of memory?", KILLED),
    ("The kernel for train.ipynb appears to have died. It will restart automatically.", KERNEL_DIED),
    ("Segmentation fault", CRASH),
    ("./run.sh: line 3: 4711 Aborted                 (core dumped) python train.py", CRASH),
    ("*** stack smashing detected ***: terminated", CRASH),
    ("double free or corruption (!prev)", CRASH),
    ("terminate called after throwing an instance of 'std::runtime_error'", CRASH),
    ("*** Process received signal ***", CRASH),
    ("Fatal Python error: Segmentation fault", CRASH),
    ("Windows fatal exception: access violation", CRASH),
    ("Process finished with exit code 139 (interrupted by signal 11:SIGSEGV)", CRASH),
    ("Process finished with exit code -1073740791 (0xC0000409)", CRASH),
    ("thread 'main' panicked at src/main.rs:3:5:", FATAL),
    ("timeout: sending signal TERM to command 'python'", TERMINATED),
    ("Your session crashed after using all available RAM.", HOST_MEMORY),
    ("The Kernel crashed while executing code in the current cell or a previous cell.", KERNEL_DIED),
    ("python: can't open file '/home/u/train.py': [Errno 2] No such file or directory", NOT_STARTED),
    ("/usr/bin/python3: No module named train", NOT_STARTED),
    ("bash: line 1: pyhton: command not found", NOT_STARTED),
    ("/var/spool/job7/slurm_script: line 15: --epochs: command not found", CONTINUED),
    ("train.py: error: unrecognized arguments: --bacth 3", NOT_STARTED),
    ("python: symbol lookup error: /env/libx.so: undefined symbol: foo", NOT_STARTED),
    (
        "subprocess.CalledProcessError: Command '['python', 'train.py']' returned non-zero exit status 1.",
        PROCESS_FAILED,
    ),
    ("Command '['train', '--seed', '42']' returned non-zero exit status 1.", PROCESS_FAILED),
    ("(0) Abnormal termination (signal 9)", KILLED),
    ("(1) Normal termination (return value 2)", PROCESS_FAILED),
    ("subprocess.CalledProcessError: Command 'x' died with <Signals.SIGKILL: 9>.", KILLED),
]
_TITLES = {
    KILLED: "killed by SIGKILL",
    TERMINATED: "SIGTERM",
    CRASH: ("crashed with", "aborted"),
    FATAL: "check inside the framework failed",
    NOT_STARTED: ("does not exist", "not find the command", "not accept", "cannot be loaded", "python -m"),
    CONTINUED: "ends too early",
    HOST_MEMORY: "host's memory",
    TIME_LIMIT: "time limit",
    PREEMPTED: "preempted",
    CANCELLED: "cancel",
    KERNEL_DIED: "kernel died",
    PROCESS_FAILED: (
        "process of the job failed",
        "ended with exit code",
        "command that make ran",
        "DeepSpeed's launcher",
    ),
}


@every(product(ENDS, ["", "[rank3]: ", "2026-11-20T07:00:01.5Z stderr F "]))
def test_a_log_that_looks_healthy_but_for_its_end(end: tuple[str, str], prefix: str) -> None:
    line, topic = end
    found = explain([*_HEALTHY, prefix + line])
    assert found.primary == "unknown"
    assert found.findings[0].severity == "error"
    titles = _TITLES[topic]
    assert any(title in found.findings[0].title for title in ((titles,) if isinstance(titles, str) else titles))


@pytest.mark.parametrize(("code", "title"), [("-9", "SIGKILL"), ("1", "process of the job failed"), ("-11", "crashed")])
def test_torchruns_root_cause_counts_not_the_ranks_that_were_ended_for_it(code: str, title: str) -> None:
    found = explain([*_HEALTHY, *_TORCHRUN.format(code=code).split("\n")])
    assert found.primary == "unknown"
    assert title in found.findings[0].title


def test_a_make_within_a_make() -> None:
    assert topic_of_report("make[2]: *** [train] Error 2") == PROCESS_FAILED


def test_the_programs_own_error_is_told_not_the_launchers() -> None:
    own = ["Traceback (most recent call last):", '  File "train.py", line 3, in <module>', "ValueError: 3 != 4"]
    called = "subprocess.CalledProcessError: Command '['python', 'train.py']' returned non-zero exit status 1."
    for end in (_TORCHRUN.format(code="1").split("\n"), [called]):
        found = explain([*_HEALTHY, *own, *end]).findings[0]
        assert "failed in ValueError" in found.title
        assert "ValueError: 3 != 4" in found.evidence


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ("./train.sh: Zeile 3:  4711 Get\u00f6tet                python train.py", "SIGKILL"),
        ("./train.sh : ligne 3 :  4711 Processus arr\u00eat\u00e9      python train.py", "SIGKILL"),
        ("./train.sh: \u884c 3:  4711 \u5df2\u6740\u6b7b               python train.py", "SIGKILL"),
        ("./train.sh: sor 3:  4711 Kil\u0151ve               python train.py", "process of the job failed"),
        ("Speicherzugriffsfehler (Speicherabzug geschrieben)", "crashed with"),
        ("Get\u00f6tet", "SIGKILL"),
    ],
)
def test_a_shell_in_another_language(line: str, title: str) -> None:
    found = explain([*_HEALTHY, line, ""])
    assert (found.primary, found.findings[0].severity) == ("unknown", "error")
    assert title in found.findings[0].title
    assert explain([*_HEALTHY, line, "epoch 3 loss 0.1"]).primary == "healthy" or "core" in line


@pytest.mark.parametrize("line", ["Terminado", "Beendet", "step 3: 4711 fertig", "Zeile 3: 4711 Werte  gelesen"])
def test_words_that_end_no_program(line: str) -> None:
    assert explain([*_HEALTHY, line]).primary == "healthy"


_ENGINE = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"


@pytest.mark.parametrize(
    "end",
    [
        _ENGINE,
        "Exception: WorkerProc initialization failed due to an exception in a background process. See stack trace",
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above)",
        "Error: ShardCannotStart",
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
    ],
)
@pytest.mark.parametrize(
    "prefix", ["(EngineCore_0 pid=7) ERROR 09-01 10:11:12 [core.py:700] ", "(EngineCore_DP0 pid=7) "]
)
def test_an_error_that_refers_to_another_process(end: str, prefix: str) -> None:
    own = ["Traceback (most recent call last):", '  File "core.py", line 3, in run', "    load()", "ValueError: 3 != 4"]
    api = [f"(APIServer pid=3) {line}" for line in (*own[:3], end)]
    found = explain([*(prefix + line for line in own), *api]).findings[0]
    assert "failed in ValueError" in found.title
    assert "ValueError: 3 != 4" in found.evidence
    without = explain(api).findings[0]
    assert without.id == "unknown"
    told = "A Ray worker process died" if "ray." in end else "its own error is not in this log"
    told = "died without reporting an error" if "EngineDead" in end else told
    assert told in without.title
    killed = explain([*api[:3], "(APIServer pid=3) " + _ENGINE.replace("{}", "{'EngineCore_0': -9}")]).findings[0]
    assert "SIGKILL" in killed.title
    driver = f"{prefix}RuntimeError: The NVIDIA driver on your system is too old (found version 11040)."
    assert explain([driver, *api]).primary == "driver.too-old"


def test_a_cause_that_the_log_names_stays_the_cause() -> None:
    full = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.6 GiB"
    )
    found = explain([*_HEALTHY, full, *_TORCHRUN.format(code="1").split("\n")])
    assert found.primary is not None
    assert found.primary.startswith("memory.")


@every(
    [
        "srun: error: n7: task 3: Exited with exit code 0",
        "train-1 exited with code 0",
        "worker exited with code 1, starting another",
        "Terminated early: no improvement for 5 epochs",
        "exitcode of the last run was 1",
        "memory allocation of 20 bytes failed over to the host",
        "killed 3 stale workers",
        "Aborted jobs: 0",
        "Terminated workers 3 and 4",
        "train.service: Main process exited, code=exited, status=0/SUCCESS",
        "Process finished with exit code 0",
        "Segmentation fault handler installed",
        "error: unrecognized option, ignored",
    ]
)
def test_what_only_looks_like_an_end(line: str) -> None:
    assert not topic_of_report(line)
    assert explain([*_HEALTHY, line]).primary == "healthy"


def test_a_good_end_does_not_hide_a_bad_one_of_the_same_shape() -> None:
    lines = [f"srun: error: n{i}: task {i}: Exited with exit code 0" for i in range(3)]
    assert explain([*_HEALTHY, *lines, "srun: error: n7: task 7: Exited with exit code 7"]).primary == "unknown"


def test_a_program_that_went_on_did_not_end_there() -> None:
    steps = [f"step {i}: loss {i / 7:.4f}" for i in range(300)]
    assert explain([*_HEALTHY, "make: *** [ops] Error 2", *steps]).primary == "healthy"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("Killed", "SIGKILL"),
        ("Terminated", "SIGTERM"),
        ("Bus error (core dumped)", "SIGBUS"),
        ("KeyboardInterrupt", "interrupted"),
        ("^C", "interrupted"),
        ("srun: Force Terminated job 7", "cancel"),
        ("slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-17T19:22:36 DUE TO TIME LIMIT ***", "time limit"),
        ("Connection to 10.0.0.1 closed by remote host.", "connection"),
        ("run.sh: line 3:  4711 Segmentation fault      (core dumped) python train.py", "SIGSEGV"),
    ],
)
@pytest.mark.parametrize(
    "unfinished", ["9%|8      | 3/34 [00:27<05:56, 1.41s/it, loss=2.59]", "step 3: loss 0.25", "Loading the data... "]
)
@pytest.mark.parametrize("after", [(), ("real\t0m3.1s", "user\t0m2.0s", "sys\t0m0.1s")])
def test_who_ended_a_program_is_read_behind_a_line_that_it_left_unfinished(
    unfinished: str, said: str, told: str, after: tuple[str, ...]
) -> None:
    if (after and said[0] in "^C") or (said.startswith("run.sh") and unfinished[-1].isdigit()):
        return  # a shell prints no times after these; a number may be a part of the script's path
    found = explain([*_HEALTHY, "\r".join([unfinished, unfinished + said]), *after])
    assert found.primary != "healthy"
    assert told in found.findings[0].title


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Termination signal", "SIGTERM"),
        ("Segmentation fault", "SIGSEGV"),
        ("Erroneous arithmetic operation", "SIGFPE"),
        ("Access to an undefined portion of a memory object", "SIGBUS"),
    ],
)
def test_paddle_names_signals_in_words_of_its_own(name: str, told: str) -> None:
    text = [
        f"FatalError: `{name}` is detected by the operating system.",
        "  [SignalInfo: *** received by PID 7866 ***]",
    ]
    assert told in explain([*_HEALTHY, *text]).findings[0].title


def test_a_word_that_the_program_says_itself_is_no_end() -> None:
    for line in ("jobs: 3 ok, 1 Killed", "names: ['Killed']Terminated by rule 7", "state=Killed", "step 3: 0.1Killedx"):
        assert explain([*_HEALTHY, line, "101/101 - 20s - loss: 0.4"]).primary == "healthy"


_LSF = ("Sender: LSF System <a@b>", "Exited with exit code 3.")


@pytest.mark.parametrize(
    ("ends", "title"),
    [
        ((*_LSF, "Successfully completed."), ""),
        ((*_LSF, "TERM_OWNER: job killed by owner.", "Exited with exit code 143."), "cancel"),
        ((*_LSF, "TERM_RUNLIMIT: job killed after reaching LSF run time limit.", "Exited with exit code 140."), "time"),
        (("(1) Normal termination (return value 1)", "(1) Normal termination (return value 0)"), ""),
        (("(1) Normal termination (return value 0)", "(1) Normal termination (return value 1)"), "exit code"),
        (('"srun: error: n2: task 1: Killed', 'srun: Force Terminated StepId=7.0"'), "SIGKILL"),
        (
            ("[launch.py:7:sigkill_handler] Killing subprocess 7", "[launch.py:9] ['a'] exits with return code = -9"),
            "SIGKILL",
        ),
        (("make[1]: *** [Makefile:7: all] Error 1",), "command that make ran"),
    ],
)
def test_of_several_jobs_the_last_end_counts(ends: tuple[str, ...], title: str) -> None:
    found = explain([*_HEALTHY, *ends]).findings[0]
    assert (found.severity == "error") is bool(title)
    assert title in found.title


def test_an_error_with_a_long_message_is_the_end() -> None:
    message = [f"  layer {i}: 3 != 4" for i in range(40)]
    for prefix in ("", "[rank1]:"):
        text = [f"{prefix}{line}" for line in ("ValueError: shapes do not match:", *message)]
        found = explain([*_HEALTHY, *text]).findings[0]
        assert found.title.startswith("It ended in ValueError")
    went_on = ["ValueError: no cache", "going on", *(f"  layer {i}: 3 != 4" for i in range(40))]
    assert explain([*_HEALTHY, *went_on]).primary == "healthy"


@pytest.mark.parametrize(
    "error", ["StopIteration", "paramiko.ssh_exception.NoBanner: slow", "mine.NotGood: bad", "SystemExit: 3"]
)
@pytest.mark.parametrize("prefix", ["", "[rank1]: ", "[1,1]<stderr>:"])
def test_an_exception_after_a_traceback_may_have_any_name(error: str, prefix: str) -> None:
    frames = ["Traceback (most recent call last):", '  File "a.py", line 3, in <module>', "    work()", "    ^^^^^^"]
    found = explain([*_HEALTHY, *(f"{prefix}{line}" for line in (*frames, error))])
    name = error.partition(":")[0].rpartition(".")[2]
    if name == "SystemExit":
        assert "SystemExit: 3" in found.findings[0].title
    else:
        assert found.findings[0].title.startswith(f"It ended in {name}")
    assert explain([*_HEALTHY, *frames, error, *(f"step {i}: loss 0.{i}" for i in range(20))]).primary == "healthy"


def test_an_exception_after_the_box_of_a_rich_traceback() -> None:
    box = [
        "\u256d" + "\u2500" * 10 + " Traceback (most recent call last) " + "\u2500" * 10 + "\u256e",
        "\u2502 /home/u/a.py:3 in <module>                              \u2502",
        "\u2570" + "\u2500" * 55 + "\u256f",
    ]
    assert explain([*_HEALTHY, *box, "NotGood: bad"]).findings[0].title.startswith("It ended in NotGood")


def test_a_gpu_that_is_found_and_left_alone() -> None:
    found = explain(["GPU available: True (cuda), used: False", "TPU available: False, using: 0 TPU cores"])
    assert [(one.id, one.severity) for one in found.findings] == [("unknown", "warning")]
    assert found.findings[0].title.endswith("and does not use it")


@pytest.mark.parametrize(
    "line",
    [
        "UserWarning: 'pin_memory' argument is set as true but no accelerator is found, then device pinned",
        "UserWarning: User provided device_type of 'cuda', but CUDA is not available. Disabling",
        "UserWarning: cuda is set but no CUDA device. amp disabled",
    ],
)
def test_pytorch_without_a_gpu(line: str) -> None:
    assert "does not say why" in explain([line]).findings[0].title


_TRACE = [
    "Traceback (most recent call last):",
    '  File "/env/lib/python3.11/site-packages/torch/utils/data/dataloader.py", line 1479, in __del__',
    "    self._shutdown_workers()",
    "AssertionError: can only test a child process",
]


@pytest.mark.parametrize("head", ["in: <function Loader.__del__ at 0x7f>", "in atexit callback: <function f at 0x7f>"])
def test_an_exception_that_python_ignored_is_not_the_end(head: str) -> None:
    assert explain([*_HEALTHY, f"Exception ignored {head}", *_TRACE]).primary == "healthy"
    piped = ["Exception ignored in: <_io.TextIOWrapper name='<stdout>'>", "BrokenPipeError: [Errno 32] Broken pipe"]
    assert explain([*_HEALTHY, *piped]).primary == "healthy"
    after = explain([*_HEALTHY, f"Exception ignored {head}", *_TRACE, *_TRACE[:3], "ValueError: bad"])
    assert after.findings[0].title.startswith("It ended in ValueError")


@pytest.mark.parametrize(
    ("head", "title"),
    [
        ("Exception in thread Thread-3 (_pin_memory_loop):", "A thread of the program ended in AssertionError"),
        ("Task exception was never retrieved", "A task of the program ended in AssertionError"),
    ],
)
def test_an_exception_of_a_thread_or_task_is_told_as_that(head: str, title: str) -> None:
    assert explain([*_HEALTHY, head, *_TRACE]).findings[0].title.startswith(title)


@pytest.mark.parametrize(
    "line", ["TrainError: 0.08", "RootMeanSquareError: 4.1e-3", "TopOneError: 12 %", "HuberError: nan"]
)
def test_a_measure_is_no_exception(line: str) -> None:
    assert explain([*_HEALTHY, line]).primary == "healthy"
    assert explain([*_HEALTHY, *_TRACE[:3], "KeyError: 3"]).findings[0].title.startswith("It ended in KeyError")


def test_an_error_that_was_only_printed_is_not_said_to_have_ended_the_program() -> None:
    found = explain([*_HEALTHY, "MaxRetryError: too many", "entering retry loop"]).findings[0]
    assert "MaxRetryError" in found.title


def test_a_cancelled_job() -> None:
    """Behind a progress bar, of several jobs in one log, and before a warning of its start."""
    said = "slurmstepd: error: *** JOB {} ON n3 CANCELLED AT 2026-05-01T10:00:00{} ***"
    assert topic_of_report(" 40%|####      | 4/10 [00:02<00:03,  2.0it/s]" + said.format(44, "")) == CANCELLED
    preempted = said.format(45, " DUE TO PREEMPTION")
    assert "preempted" in explain([said.format(44, ""), *_HEALTHY, preempted]).findings[0].title
    slow = (
        "2026-11-02 10:00:00.1: W tensorflow/core/common_runtime/gpu/gpu_device.cc:2348] TensorFlow was not built with"
        " CUDA kernel binaries compatible with compute capability 9.0. CUDA kernels will be jit-compiled from PTX,"
        " which could take 30 minutes or longer."
    )
    assert explain([slow, *_HEALTHY, said.format(44, "")]).findings[0].title == "The job was canceled"
    assert explain([slow, *_HEALTHY]).primary == "build.gpu-unsupported"
    assert "SIGKILL" in explain([slow, *_HEALTHY, "Killed"]).findings[0].title


def test_a_run_that_finished_without_a_gpu() -> None:
    none = "GPU available: False, used: False"
    assert explain([none, "Epoch 0: 12/12", "`Trainer.fit` stopped: `max_epochs=1` reached."]).primary == "healthy"
    assert explain([none, "Epoch 0: 12/12"]).primary == "unknown"


def test_a_broken_line_of_a_script_is_told_before_the_arguments_that_it_leaves_out() -> None:
    lines = [
        "eval.py: error: the following arguments are required: --data",
        "job.sh: line 3: --data: command not found",
    ]
    assert "ends too early" in explain(lines).findings[0].title


def test_of_several_jobs_of_a_batch_system_the_last_counts_and_words_around_it_do_not() -> None:
    condor = ["005 (238.000.000) 12/09 13:44:04 Job terminated.", "\t(1) Normal termination (return value 1)", "..."]
    condor += ["009 (041.000.000) 12/10 09:35:20 Job was aborted by the user.", "\tvia condor_rm (by user a)", "..."]
    assert explain(condor).findings[0].title == "The job was canceled"
    condor = [
        "004 (7.0.0) 2026-02-02 08:52:08 Job was evicted.",
        "...",
        "009 (7.0.0) 2026-02-02 08:52:08 Job was aborted.",
    ]
    assert explain([*condor, "\tvia condor_rm (by user a)", "..."]).findings[0].title == "The job was canceled"
    moab = ["job deleted", "Job deleted at request of root@ib0", "MOAB_INFO:  job exceeded wallclock limit", ""]
    assert "time limit" in explain([*moab, "The failure happens as if my limit was 1 minute. Ideas?"]).findings[0].title


def test_ends_that_stand_in_other_places_than_at_the_beginning_of_a_line() -> None:
    bar = "step:  19%|x   | 28/152 [07:43<35:25,  1.71s/it]"
    assert "SIGKILL" in explain([f"{bar}./a.sh: line 33: 13683 Killed       python3 a.py"]).findings[0].title
    assert "SIGSEGV" in explain([f"{bar}./a.sh: line 33: 13683 Segmentation fault   python3 a.py"]).findings[0].title
    block = [
        "[n1:77] *** Process received signal ***",
        "[n1:77] Signal: Floating point exception (8)",
        "[n1:77] Signal code: (3)",
    ]
    assert "SIGFPE" in explain(block).findings[0].title
    assert "SIGFPE" in explain(["[n1:77:0:77] Caught signal 8 (Floating point exception: overflow)"]).findings[0].title
    slurm = [
        "slurmstepd: error: execve(): /a/bin/mix: Permission denied",
        "srun: error: n1: task 0: Exited with exit code 13",
    ]
    joblib = "TerminatedWorkerError: A worker was terminated. This could be caused by a segmentation fault or by"
    head = ["Traceback (most recent call last):", '  File "a.py", line 3, in <module>']
    assert "SIGSEGV" not in explain([*head, joblib]).findings[0].title
    assert "could not start the command" in explain(slurm).findings[0].title


def test_an_error_that_the_program_passed_before_a_person_stopped_it() -> None:
    raised = [
        "Traceback (most recent call last):",
        '  File "/a/nodes.py", line 1, in <module>',
        "OSError: a.so: undefined symbol: _ZN2",
    ]
    passed = [*raised, "To see the GUI go to: http://127.0.0.1:8188", *["Prompt executed in 9.4 seconds"] * 9]
    found = explain([*passed, "Keyboard interruption in main thread... closing server."])
    assert (found.primary, found.findings[0].title.partition(";")[0]) == (
        "healthy",
        "The server was stopped by Ctrl+C (SIGINT)",
    )
    assert "undefined symbol" in str(explain(passed).errors)
    assert explain(passed).primary == "healthy"
    ended = explain(["Keyboard interruption in main thread... closing server.", *raised])
    assert ended.findings[0].severity == "error" or "interrupted" in ended.findings[0].title


def test_errors_of_logging_itself_are_none_of_the_program() -> None:
    cut = [
        "--- Logging error ---",
        "Traceback (most recent call last):",
        '  File "/a/logging/__init__.py", line 9, in flush',
    ]
    stack = [
        "OSError: [Errno 5] Input/output error",
        "Call stack:",
        '  File "/a/poller.py", line 35, in run',
        "    warn(x)",
    ]
    logged = [*cut, *stack, "Message: 'Parent appears to have exited, shutting down.'", "Arguments: ()"]
    assert "its parent process did" in explain(["step 3: loss 0.2", *logged]).findings[0].title
    assert (
        explain(["step 3: loss 0.2", *cut, *stack, "Message: 'a'", "Arguments: ()", "step 4: loss 0.2"]).primary
        == "healthy"
    )
    assert explain(["starting", *cut]).primary == "unknown"
    own = ["Traceback (most recent call last):", '  File "/a/fit.py", line 3, in <module>', "KeyError: 'x'"]
    assert "KeyError" in explain([*logged, *own]).findings[0].title


def test_a_countdown_at_the_end_of_a_server_is_no_failure() -> None:
    triton = ["I0202 15:33:18.794436 35 http_server.cc:3477] Started HTTPService at 0.0.0.0:8000"]
    triton += [
        "I0202 15:37:19.772781 35 server.cc:302] Timeout 29: Found 0 live models and 0 in-flight non-inference requests"
    ]
    assert explain(triton).primary == "healthy"


def test_a_script_that_went_on_after_a_command_that_did_not_start() -> None:
    went_on = ["/a/job.sh: line 3: s: command not found", *[f"pass {number} of 900" for number in range(30)]]
    limit = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-10-01T15:25:39 DUE TO TIME LIMIT ***"
    assert "time limit" in explain([*went_on, limit]).findings[0].title
    assert explain([*went_on, "Launcher: Done. Job exited without errors"]).primary == "healthy"
    assert "command" in explain([*went_on[:1], "srun: error: n1: task 0: Exited with exit code 127"]).findings[0].title


@pytest.mark.parametrize(
    "waited",
    [
        "TimeoutError: Timed out waiting for engines to send initial message on input socket.",
        "RuntimeError: worker did not become ready within 60 s",
        "TimeoutError: Timeout waiting for worker processes to be ready",
    ],
)
def test_a_parent_that_waited_in_vain_for_its_child(waited: str) -> None:
    head, frame = "Traceback (most recent call last):", '  File "/app/serve.py", line 80, in main'
    child = "ERROR 11-14 20:58:03 [core.py:586] OSError: [Errno 98] Address already in use"
    assert "port is in use" in explain([child, head, frame, waited]).findings[0].title
    assert waited[:30] in explain([head, frame, waited]).findings[0].title


_EXIT_CODES = {
    "srun": "srun: error: n7: task 3: Exited with exit code 9",
    "torchrun": "exitcode  : -11 (pid: 3749067)",
    "agent": "E0611 api.py:869] failed (exitcode: -11) local_rank: 0 (pid: 37) of binary: /usr/bin/python",
    "deepspeed": "[launch.py:325:sigkill_handler] ['python'] exits with return code = 1",
    "lsf": "Exited with exit code 3.",
    "kubectl_describe": "Exit Code:    137",
    "kubectl": "command terminated with exit code 137",
    "compose": "trainer-1 exited with code 137",
    "actions": "Process completed with exit code 1.",
    "make": "make: *** [Makefile:3: train] Error 2",
    "editor": "Process finished with exit code -1073741819",
    "mpirun": "prterun noticed that process rank 1 with PID 7 on node n7 exited on signal 9 (Killed).",
    "openmpi": "Signal: Segmentation fault (11)",
    "ucx": "[n7:1234:0:1234] Caught signal 11 (Segmentation fault)",
    "sge": "job 12 died through signal KILL (9)",
    "systemd": "systemd[1]: train.service: Main process exited, code=killed, status=9/KILL",
    "unit": "systemd[1]: train.service: Main process exited, code=exited, status=1/FAILURE",
    "nsys": "The target application returned non-zero exit code 1",
    "printed": "Command 'python train.py' returned non-zero exit status 1.",
    "condor": "(1) Normal termination (return value 1)",
    "condor_signal": "(0) Abnormal termination (signal 9)",
    "condor_code": "Job terminated of its own accord at 2026-01-02T03:04:05Z with exit-code 1.",
    "failed": "launcher: job failed with status 1",
    "tgi": "Shard process was signaled to shutdown with signal 9 rank=0",
    "time": "Command exited with non-zero status 1",
    "timed": "Command terminated by signal 9",
    "lsf_success": "Successfully completed.",
}
_SIGNALS = (
    "srun: error: n7: tasks 0-3: Killed",
    "zsh: terminated  python train.py",
    "[1]  + 4711 killed  python train.py",
    "./train.sh: line 7:  4711 Terminated              python train.py",
    "Segmentation fault (core dumped)",
    "Aborted (core dumped)",
    "Bus error",
    "Illegal instruction",
    "Floating point exception",
    "[1]+  Killed                  python train.py",
)


def test_every_form_of_an_exit_code_or_signal_is_searched_for() -> None:
    assert reported_ends._EXIT_CODE.groupindex.keys() == _EXIT_CODES.keys()
    for line in (*_EXIT_CODES.values(), *_SIGNALS):
        assert topic_of_report(line) is not None, line
