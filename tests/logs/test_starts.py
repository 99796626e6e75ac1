"""A log of several starts is about the last; ranks and workers that print the same lines are no starts."""

from __future__ import annotations

import pytest

from gpuwatch.explain.diagnosis.explain_log import explain

_HEAD = ["2026-05-04 10:11:12,131 INFO launch: checking the node", "2026-05-04 10:11:12,140 INFO launch: 8 GPUs", ""]
_HEAD += ["loading the model from /data/m"]
_AGAIN = [line.replace("10:11:12", "10:44:02") for line in _HEAD]
_TRACE = ["Traceback (most recent call last):", '  File "/a/train.py", line 7, in <module>', "    main()"]
_WRONG = ["usage: train.py [-h] [--lr LR]", "train.py: error: unrecognized arguments: --lrr 3"]
_FULL = [*_TRACE, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity"
         " of 15.00 GiB of which 9.00 MiB is free."]  # fmt: skip
_WORK = [f"step {number}: loss 0.1" for number in range(5)]


def test_the_last_start_counts() -> None:
    found = explain([*_HEAD, *_WRONG, *_AGAIN, *_TRACE, "OSError: [Errno 98] Address already in use"])
    assert found.findings[0].title.startswith("The port is in use")
    assert found.findings[-1].title == "The log covers 2 or more starts; this explains the last, from line 7"
    assert "arguments --lrr" in found.findings[-1].evidence[0]
    assert found.lines == 14
    worked = explain([*_HEAD, *_FULL, *_AGAIN, *_WORK])
    assert (worked.primary, worked.ooms) == ("healthy", ())
    # A start that ended well, too, once the first lines are known to begin one.
    thrice = [*_HEAD, *_FULL, *_AGAIN, *_WORK, *_AGAIN, *_TRACE, "KeyError: 'x'"]
    assert explain(thrice).primary == "program.error"
    assert "3 or more starts" in explain(thrice).findings[-1].title


def test_a_last_start_that_shows_nothing_leaves_the_one_before() -> None:
    found = explain([*_HEAD, *_FULL, *_AGAIN])
    assert found.ooms
    assert "explains the one before" in found.findings[-1].title


def test_what_is_no_start() -> None:
    ranks = [*_HEAD, *_AGAIN, *_FULL, *_AGAIN, *_WORK]
    late = [*_HEAD, *_FULL, *["closing"] * 40, *_AGAIN, *_WORK]
    part = [*_HEAD, *_FULL, *_AGAIN[:2], *_WORK]
    same = [*_WORK, *_FULL, *_WORK]
    first = [*_TRACE, "ValueError: bad", *_TRACE, "KeyError: 'x'"]
    ended = [f"{line}\n" for line in ranks]
    for lines in (ranks, late, part, same, first, ended):
        assert not [one for one in explain(lines).findings if one.title.startswith("The log covers ")]


_BAD = [*_TRACE, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB."]
_SERVER = ["INFO:     Started server process [{0}]", "INFO:     Uvicorn running on http://0.0.0.0:80{0} (Press CTRL+C)"]
_ANSWERS = ['INFO:     10.0.0.1:4{0} - "POST /v1/chat HTTP/1.1" 200 OK' for _ in range(3)]
_MARKS = (
    ["nohup: ignoring input"],
    ["nohup: ignoring input and appending output to 'nohup.out'"],
    ["(base) me@host:~/model$ CUDA_VISIBLE_DEVICES=1 python train.py --lr 3"],
    ["$ torchrun --nproc_per_node 2 train.py"],
    ["Using TensorFlow backend."],
    ["(APIServer pid=71) INFO 02-03 04:05:06 [api_server.py:7] vLLM API server version 0.11.0"],
)


@pytest.mark.parametrize("mark", _MARKS)
@pytest.mark.parametrize("failed", [_BAD, _FULL, [*_TRACE, "KeyError: 'x'"]])
def test_a_mark_after_an_error_begins_another_program(mark: list[str], failed: list[str]) -> None:
    ready = ["INFO:     Application startup complete."] if "vLLM" in mark[0] else []
    begun = explain([*failed, *mark, *ready, *_WORK])
    assert begun.primary == "healthy"
    assert (
        begun.findings[-1].title
        == f"The log covers 2 or more starts; this explains the last, from line {len(failed) + 1}"
    )
    last = explain([*failed, *mark, *_TRACE, "IndexError: list index out of range"])
    assert last.primary == "program.error"
    assert "IndexError" in last.findings[0].title
    # Without an error before it nothing began anew, and a start that shows nothing leaves the one before.
    assert not _starts([*_WORK, *mark, *failed])
    assert explain([*failed, *mark]).primary == explain(failed).primary


def _starts(lines: list[str]) -> list[str]:
    return [one.title for one in explain(lines).findings if one.title.startswith("The log covers ")]


def test_a_server_begins_again_when_it_says_so_again() -> None:
    def served(number: int, *more: str) -> list[str]:
        return [line.format(number) for line in (*_SERVER, *more)]

    failed = [*served(1), *_BAD]
    assert explain([*failed, *served(2, *_ANSWERS)]).primary == "healthy"
    assert _starts([*failed, *served(2, *_ANSWERS)])
    assert not _starts([*_BAD, *served(1, *_ANSWERS)])  # its first start, after an error that it survived


def test_a_ray_that_starts_again() -> None:
    ray = "2026-05-04 10:11:12,4 INFO resource_spec.py:205 -- Starting Ray with 7.5 GiB memory available for workers"
    good = "2026-05-04 10:11:12,9 INFO tune.py:276 -- Returning an analysis object by default."
    assert explain([ray, *_BAD, ray, good]).primary == "healthy"
    assert explain([*_BAD, ray, good]).primary == explain(_BAD).primary  # an error that it survived, or the end


def test_what_a_person_or_a_rank_prints_after_an_error_is_no_program() -> None:
    for line in ("$ nvidia-smi", '$ python -c "import torch"', "$ pip list", "costs $ 3", "$ python -m torch.utils.py"):
        assert not _starts([*_BAD, line, *_WORK]), line
    assert not _starts([*_BAD, *["closing"] * 5, "Using TensorFlow backend.", *_WORK])


def test_a_program_that_does_not_compile_has_just_begun() -> None:
    ranks = ['  File "t.py", line 3', '  File "t.py", line 3', "        x = = 3", "x = = 3", "   ^", "^"]
    for end in ("SyntaxErrorSyntaxError: : invalid syntaxinvalid syntax", ": SyntaxErrorinvalid syntax: "):
        found = explain([*_BAD, *ranks, end, *ranks, end])
        assert found.primary == "program.error"
        assert "SyntaxError:" in found.findings[0].title
        assert "2 or more starts" in found.findings[-1].title
    # Its import by a program that runs: one error of one program, as is a frame in a message.
    imported = [*_TRACE[:2], '  File "/a/net.py", line 9', "    x = = 3", "SyntaxError: invalid syntax"]
    assert not _starts([*_BAD, *imported])
    assert not _starts([*_BAD, '  File "/a/net.py", line 9, in forward', *_WORK])


def test_of_several_programs_the_cause_is_the_one_that_did_not_write_the_file() -> None:
    def ended(script: str, error: str) -> list[str]:
        return [_TRACE[0], f'  File "{script}", line 7, in <module>', "    main()", error]

    missing = "FileNotFoundError: [Errno 2] No such file or directory: '/a/data.npz'"
    first = ended("/a/generate.py", "NotImplementedError: use another reader")
    mark = ["Using TensorFlow backend."]
    for later in (1, 2):
        steps = [line for _ in range(later) for line in (*mark, *ended("/a/train.py", missing))]
        found = explain([*first, *steps])
        assert "NotImplementedError" in found.findings[0].title
        assert "because one before it had" in found.findings[-1].title
    stopped = explain([*ended("/a/generate.py", "KeyboardInterrupt"), *mark, *ended("/a/train.py", missing)])
    assert "file or folder does not exist" in stopped.findings[0].title
    again = explain([*ended("/a/train.py", "KeyError: 'x'"), *mark, *ended("/a/train.py", missing)])
    assert "file or folder does not exist" in again.findings[0].title


def test_the_table_of_nvidia_smi_at_the_beginning_comes_again_on_another_day() -> None:
    rule = "+-------------------------------------+"
    table = [
        rule,
        "| NVIDIA-SMI 570.1  Driver Version: 570.1 |",
        "|------------------+------------------|",
        "| a |",
        rule,
    ]
    found = explain(["Sat Dec 20 18:48:39 2025", *table, *_BAD, "Sun Dec 21 20:00:01 2025", *table, *_WORK])
    assert found.primary == "healthy"
    assert _starts(["Sat Dec 20 18:48:39 2025", *table, *table, *_BAD, *table, *_WORK]) == []


def test_ctrl_c_after_the_result_is_named() -> None:
    found = explain(["loading", "Training finished", *_TRACE, "KeyboardInterrupt"])
    assert (found.primary, found.findings[0].title) == (
        "healthy",
        "Stopped by Ctrl+C (SIGINT) after its work; no failure in the log",
    )


def _of(script: str, error: str) -> list[str]:
    return [_TRACE[0], f'  File "/a/{script}", line 7, in <module>', "    main()", error]


def test_another_program_that_failed_later_is_the_last_start() -> None:
    found = explain([*_of("fit.py", _FULL[-1]), "reading scores", *_of("score.py", "KeyError: 'auc'")])
    assert found.primary == "program.error"
    assert "Out of GPU memory" in found.findings[-1].evidence[0]
    # One that reports that the other one failed, a launcher, and the same program in another rank are none.
    for script, error in (("all.py", "RuntimeError: the step fit failed"), ("../bin/run", "KeyError: 'x'")):
        assert explain([*_of("fit.py", _FULL[-1]), *_of(script, error)]).ooms, script
    assert not _starts([*_of("fit.py", _FULL[-1]), *_of("fit.py", "KeyError: 'x'")])


_BOX = """\
╭──────── Traceback (most recent call last) ────────╮
│ /a/fit.py:7 in <module>                           │
│    6 │   x = 3                                    │
│ ❱  7 │   main(x)                                  │
╰───────────────────────────────────────────────────╯""".splitlines()


def test_another_start_of_the_same_program_that_failed_later_is_the_last() -> None:
    begun = [f"reading part {number}" for number in range(30)]
    for again in (_of("fit.py", "KeyError: 'auc'"), [*_BOX, "KeyError: 'auc'"]):
        found = explain([*_of("fit.py", _FULL[-1]), *begun, *again])
        assert "KeyError" in str(found.findings[0])
        assert "fit.py, line 7: main(" in str(found.findings[0])
        assert "2 or more starts" in found.findings[-1].title
        assert "Out of GPU memory" in found.findings[-1].evidence[0]
        assert not found.ooms
    # Ranks fail together, and a person who tries lines goes on in the same program.
    assert not _starts([*_of("fit.py", _FULL[-1]), *begun, "NCCL INFO cleanup", *_of("fit.py", "KeyError: 'x'")])
    assert not _starts(
        [*_of("fit.py", _FULL[-1]), *begun, "[rank3]: " + _TRACE[0], *_of("fit.py", "KeyError: 'x'")[1:]]
    )
    typed = [line.replace("/a/fit.py", "<stdin>") for line in _of("fit.py", "KeyError: 'x'")]
    assert not _starts([*typed, *begun, *typed])


def test_a_first_line_before_an_error_that_comes_again_begins_another_start() -> None:
    first = ["the libraries are there", *_of("fit.py", "KeyError: 'x'")]
    found = explain([*first, first[0], *_WORK])
    assert (found.primary, found.findings[-1].title.partition(";")[0]) == ("healthy", "The log covers 2 or more starts")
    assert not _starts([*first, *["closing"] * 30, first[0], *_WORK])


def test_a_failure_of_the_last_start_is_its_own() -> None:
    failed = "RuntimeError: CUDA driver initialization failed, you might not have a CUDA gpu."
    for error in (failed, "KeyError: 'y'"):
        again = [*_of("fit.py", "KeyError: 'x'"), "nohup: ignoring input", *_of("fit.py", error)]
        assert error.split(":")[0] in str(explain(again).findings[0]), error
    assert explain([*_of("fit.py", "KeyError: 'x'"), *_of("score.py", failed)]).primary == "driver.bad-state"


@pytest.mark.parametrize("launcher", ["", "[2026-02-20 20:27:14,902] [INFO] [launch.py:328:sigkill_handler] "])
def test_a_start_after_one_that_a_signal_ended(launcher: str) -> None:
    ended = ["nohup: ignoring input", *_WORK, f"{launcher}Main process received SIGTERM, exiting"]
    found = explain([*ended, "nohup: ignoring input", *_TRACE, "KeyError: 'x'"])
    assert found.findings[-1].title.endswith(f"the last, from line {len(ended) + 1}")


_COMMANDS = ("$ python {}", "+ srun -n 2 python {} --lr 3", "Running {} ...", "=== Executing script: tools/{}")


@pytest.mark.parametrize("command", _COMMANDS)
def test_a_step_that_failed_before_another_one_that_worked(command: str) -> None:
    first = [command.format("fit.py"), *_of("fit.py", "KeyError: 'x'")]
    found = explain([*first, command.format("score.py"), *_WORK, command.format("plot.py"), *_WORK])
    assert found.primary == "program.error"
    assert "this explains fit.py" in found.findings[-1].title
    assert explain([*first, command.format("fit.py"), *_WORK]).primary == "healthy"


def test_what_another_program_did_later_is_no_success_of_the_one_that_failed() -> None:
    def steps(name: str, count: int) -> list[str]:
        return [f"2026-05-04 10:11:12,131 INFO {name}: batch {number} took 0.1 s" for number in range(count)]

    failed = [*steps("fit", 4), *_of("fit.py", _FULL[-1])]
    assert explain([*failed, *steps("fit", 20)]).primary == "healthy"
    for count in (20, 900):
        assert explain([*failed, *steps("scores", count)]).ooms
        assert explain([*failed, *steps("scores", count)]).primary == "unknown"


_CHILD_FAILED = [
    "E0613 16:37:52.931000 625700 site-packages/torch/distributed/elastic/multiprocessing/api.py:869] failed "
    "(exitcode: 1) local_rank: 1 (pid: 625771) of binary: /usr/bin/python",
    *_TRACE,
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
]
_LAUNCHES = (
    "2025-06-14 02:07:54,685 - ERROR - W0614 00:20:23.880000 900829 site-packages/torch/distributed/run.py:792] *****",
    "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid your system being",
    "INFO:torch.distributed.launcher.api:Starting elastic_operator with launch configs:",
    "INFO:torch.distributed.elastic.agent.server.api:[default] Worker group FAILED. 3/3 attempts left; will restart "
    "worker group",
    "[2023-04-13 10:42:13,465] [WARNING] [runner.py:186:fetch_hostfile] Unable to find hostfile, will proceed",
    "The following values were not passed to `accelerate launch` and had defaults used instead:",
)  # fmt: skip
_TIMED_OUT = (
    "[rank1]:[E614 02:07:50.931850750 ProcessGroupNCCL.cpp:629] [Rank 1] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=309, OpType=_ALLGATHER_BASE, NumelIn=16, NumelOut=32, Timeout(ms)=1800000) ran for 1800070 "
    "milliseconds before timing out."
)


@pytest.mark.parametrize("launch", _LAUNCHES)
def test_a_launcher_that_starts_again_after_its_job_failed(launch: str) -> None:
    error = "FileExistsError: [Errno 17] File exists: '/wandb/run-1.wandb'"
    first = [*_HEAD, launch, *_TRACE, error, *_WORK, *_CHILD_FAILED]
    found = explain([*first, launch, *_WORK, _TIMED_OUT, *_CHILD_FAILED])
    assert "FileExistsError" not in str(found.findings[0])
    assert "the wait timed out" in found.findings[0].title
    assert found.findings[-1].title.endswith(f"this explains the last, from line {len(first) + 1}")


@pytest.mark.parametrize("launch", _LAUNCHES)
def test_another_nodes_launcher_that_starts_after_an_error_of_the_job(launch: str) -> None:
    assert not _starts([*_HEAD, launch, *_TRACE, "ValueError: bad", launch, *_CHILD_FAILED])
