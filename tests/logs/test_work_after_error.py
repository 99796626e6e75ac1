"""Whether a program went on after an error that it logged, or ended with it."""

from __future__ import annotations

import pytest

from gpuwatch.explain.diagnosis.explain_log import explain

_HEAD = "2026-05-04 10:11:10,000 INFO train: using device: cuda:0"
_LOGGED = [
    "2026-05-04 10:11:12,345 ERROR train: upload failed",
    "Traceback (most recent call last):",
    '  File "/home/u/train.py", line 12, in upload',
    "    client.post(url)",
    "requests.exceptions.ConnectionError: too many retries",
]
_FULL = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.64 GiB"
    " of which 512.06 MiB is free. Including non-PyTorch memory, this process has 23.12 GiB memory in use. Of the"
    " allocated memory 22.11 GiB is allocated by PyTorch, and 390.50 MiB is reserved by PyTorch but unallocated."
)
_SURVIVED = [*_LOGGED[:4], _FULL]
_RAN_OUT = [_LOGGED[1], _LOGGED[2].replace("in upload", "in <module>"), _LOGGED[3], _FULL]
_EPOCHS = [f"epoch {number} of 20" for number in range(3)]
_BAR = "Training:   3%|3  | 12/400 [00:10<05:00,  1.2it/s]"
_PEER = "RuntimeError: [../gloo/transport/tcp/pair.cc:598] Connection closed by peer [127.0.0.1]:4711"
_KEY_ERROR = [*_LOGGED[1:4], "KeyError: 'label'"]


def _steps(count: int, form: str = "2026-05-04 10:12:00,000 INFO train: step {} loss 0.4") -> list[str]:
    return [form.format(500 + number) for number in range(count)]


@pytest.mark.parametrize(
    "after",
    [
        _steps(2),
        _steps(5, "INFO:train:epoch {} loss 0.1"),
        _steps(3, "2026-05-04 10:12:00.345 | INFO     | __main__:main:90 - iteration {}"),
        _steps(3, "I0504 10:12:00.345678 140123 train.py:9] batch {}"),
        _steps(3, '{{"level": "info", "event": "progress", "step": {}}}'),
        ["INFO:train:epoch 9 loss 0.1", "INFO:train:Training finished"],
        _steps(3, "[I 2026-05-04 10:12:00,000] Trial {} finished with value: 0.3. Best is trial 1 with value: 0.1."),
        ['INFO:     127.0.0.1:4 - "POST /v1/completions HTTP/1.1" 200 OK'] * 2,
    ],
)
def test_an_error_that_was_logged_and_survived(after: list[str]) -> None:
    assert explain([_HEAD, *_LOGGED, *after]).primary == "healthy"


@pytest.mark.parametrize(
    "after",
    [
        [],
        ["INFO:train:shutting down"],
        ["INFO:train:saving checkpoint at step 500", "INFO:train:saved checkpoint of step 501"],
        ["INFO:train:cleaning up", "INFO:train:exiting with code 1"],
        ["INFO:train:step 500 loss 0.4"],
        ["INFO:train:step 500 loss 0.4", "INFO:train:step 500 loss 0.4"],
        ["INFO:     Application shutdown complete.", "INFO:     Finished server process [4700]"],
        _steps(3, "step {} loss 0.4"),  # printed, perhaps before the error
        _steps(3, "[rank1]: INFO:train:step {} loss 0.4"),  # by another process
    ],
)
def test_an_error_that_may_have_ended_the_program(after: list[str]) -> None:
    found = explain([_HEAD, *_LOGGED, *after]).findings[0]
    assert (found.id, found.severity) == ("program.error", "error")
    assert "ConnectionError: too many retries" in found.evidence


def test_the_steps_of_the_rank_that_had_the_error() -> None:
    logged = [f"[rank1]: {line}" for line in _LOGGED]
    assert explain([_HEAD, *logged, *_steps(3, "[rank1]: INFO:train:step {}")]).primary == "healthy"
    assert explain([_HEAD, *logged, *_steps(3, "[rank0]: INFO:train:step {}")]).primary == "program.error"


def test_a_later_error_that_ended_it() -> None:
    found = explain([_HEAD, *_LOGGED, *_steps(3), *_KEY_ERROR]).findings[0]
    assert found.title.startswith("It ended in KeyError")


def test_what_a_script_says_of_an_error_does_not_displace_it() -> None:
    raised = [_LOGGED[1], '  File "/home/u/train.py", line 12, in <module>', "    fit()", "KeyError: 'label'"]
    for said in ("Error: training failed, see above", "Exception: stopped"):
        assert "KeyError" in explain([*raised, "cleaning up", said]).findings[0].title
    assert "ValueError" in explain([*raised, "ValueError: bad"]).findings[0].title
    assert "Error" in explain([*raised[:3], "Error: stopped"]).findings[0].title


def test_memory_that_ran_out_and_was_freed() -> None:
    survived = explain([_HEAD, *_SURVIVED, *_steps(20)])
    assert [(one.id, one.severity) for one in survived.findings] == [("healthy", "info")]
    assert _FULL in survived.findings[0].evidence
    ended = explain([_HEAD, *_SURVIVED, *_steps(20), *_KEY_ERROR])
    assert ended.primary == "program.error"
    assert ended.findings[0].title.startswith("It ended in KeyError")
    for end in (_KEY_ERROR, ["Killed"], ["run.sh: line 12: 48213 Killed                  python run.py"]):
        later = explain([_HEAD, *_SURVIVED, *_steps(9, "iter {}: loss 0.3, time 210.0ms"), *end])
        assert later.findings[0].evidence[0] in (end[-1], "KeyError: 'label'")
        assert [one.severity for one in later.findings if one.id.startswith("memory.")] == ["info"]


def test_a_progress_bar_that_was_filled_after_the_last_error() -> None:
    bar = "".join(f"\r {25 * at}%|###  | {at}/4 [00:0{at}<00:01,  1.0it/s]" for at in range(5))
    missing = [*_LOGGED[1:4], "ModuleNotFoundError: No module named 'tifffile'"]
    assert explain([_HEAD, *_SURVIVED, *missing, "Loading tiles", bar]).primary == "healthy"
    assert explain([_HEAD, *_SURVIVED, *missing, "Loading tiles", bar.rpartition("\r")[0]]).primary != "healthy"


@pytest.mark.parametrize(
    "log",
    [
        [_HEAD, *_SURVIVED, *_steps(3)],  # another rank may have made these
        [
            _HEAD,
            *_SURVIVED,
            *_steps(3),
            *_LOGGED[1:4],
            _PEER,
        ],
        [_HEAD, *_SURVIVED, *_steps(20), *_SURVIVED],
        # bars as the program that ended left them
        [_BAR, *_RAN_OUT, "\r" + _BAR.replace("12/400", "13/400")],
        [
            *_EPOCHS,
            *_RAN_OUT,
            "",
            "\r   \r\x1b[A\repoch:  10%|#  | 2/20 [22:41<3:24]",
            "\rbatch: 52%|# | 230/445 [04:18<04:01]",
        ],
        [_HEAD, *_SURVIVED, *_steps(20, "step {}")],
    ],
)
def test_memory_that_ran_out_and_ended_it(log: list[str]) -> None:
    found = explain(log)
    assert found.primary == "memory.model-too-large"
    assert found.findings[0].severity == "error"


_PRINTS = [f"epoch {number} loss {1 / number:.3f}" for number in range(1, 30)]
_RAISED = _KEY_ERROR[:-1]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([], ["Using device: cuda", *_PRINTS]),  # Python writes prints late when they go to a file
        (_PRINTS, ["wandb: Run summary:", *(f"wandb:   loss{number} 0.{number}" for number in range(20))]),
        (_PRINTS, ["Exception raised from f at x.cpp:1:", *(f"frame #{n}: f + 0x1 (0x2 in x.so)" for n in range(20))]),
        (_PRINTS, ["", "Arguments received by f:", *(f"  \u2022 x{n}=Tensor(shape=(None, 3))" for n in range(20))]),
        (_PRINTS, [f" {n % 2 + 1}%|#  | {n % 2 + 1}/100 [00:04<00:25,  3.40it/s]" for n in range(4)] + ["text"] * 9),
        (_PRINTS, ["loss 0.4:  12%|#  | 12/100 [00:04<00:25,  3.40it/s]"] * 20),
    ],
)
def test_lines_after_a_traceback_that_do_not_show_that_the_program_went_on(before: list[str], after: list[str]) -> None:
    found = explain([_HEAD, *before, *_RAISED, "KeyError: 'label'", *after]).findings[0]
    assert (found.id, found.severity) == ("program.error", "error")
    assert found.title.startswith("The last error is KeyError")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (_PRINTS[:9], _PRINTS[9:]),
        (_PRINTS, _PRINTS),
        ([], _PRINTS[9:]),
        (_PRINTS, [f"{number}/100 loss" for number in range(20)]),
        ([], ["a line of text"] * 600),
        (_PRINTS, [f" {number}%|#  | {number}/100 [00:04<00:25,  3.40it/s]" for number in range(20)]),
    ],
)
def test_lines_after_a_traceback_that_show_that_the_program_went_on(before: list[str], after: list[str]) -> None:
    assert explain([_HEAD, *before, *_RAISED, "KeyError: 'label'", *after]).primary == "healthy"


@pytest.mark.parametrize(
    "prefix",
    ["", "gpu-01: ", "[trainer3]:", "node7: [rank3]: ", "[10:11:12] app.py:3 ", "2026-05-04T10:11:12.{:09d}Z "],
)
def test_a_traceback_behind_any_prefix(prefix: str) -> None:
    message = [f"\tsize mismatch for layers.{number}.weight" for number in range(40)]
    lines = [*_RAISED, "RuntimeError: Error(s) in loading state_dict:", *message]
    found = explain([_HEAD, *(prefix.format(number * 7919) + line for number, line in enumerate(lines))]).findings[0]
    assert found.title.startswith("A checkpoint does not match")
    named = [*_RAISED, "StopIteration"]
    found = explain([_HEAD, *(prefix.format(number * 7919) + line for number, line in enumerate(named))]).findings[0]
    assert found.title.startswith("It ended in StopIteration")


def test_a_part_that_a_library_does_without() -> None:
    text = ["line of text"] * 30
    for error, primary in (
        ("ModuleNotFoundError: No module named 'triton'", "healthy"),
        ("KeyError: 3", "program.error"),
    ):
        assert explain([_HEAD, *_RAISED, error, *text]).primary == primary
    assert explain([_HEAD, *_RAISED, "ModuleNotFoundError: No module named 'triton'"]).primary == "program.error"


_DUMP = [
    "2020-02-03 10:11:12.1: W tensorflow/core/common_runtime/bfc_allocator.cc:419] Allocator (GPU_0_bfc) ran out of"
    " memory trying to allocate 2.25GiB (rounded to 2415919104).  Current allocation summary follows.",
    "2020-02-03 10:11:12.1: I tensorflow/core/common_runtime/bfc_allocator.cc:917] Bin (256): \tTotal Chunks: 3",
    "2020-02-03 10:11:12.2: I tensorflow/core/common_runtime/bfc_allocator.cc:962] Stats:",
    "Limit:                  4294967296",
    "InUse:                  4100000000",
    "2020-02-03 10:11:12.2: W tensorflow/core/common_runtime/bfc_allocator.cc:424] ***********____***********",
]
_REFUSED = (
    "2020-02-03 10:11:22.2: W tensorflow/core/framework/op_kernel.cc:1651] OP_REQUIRES failed at conv_ops.cc:501 :"
    " Resource exhausted: OOM when allocating tensor with shape[64,64,384,384] and type float on GPU:0 by allocator"
    " GPU_0_bfc"
)
_RATES = ["10\timages/sec: 311.2 +/- 0.2", "20\timages/sec: 310.9 +/- 0.1", "total images/sec: 310.55"]


def test_an_allocator_that_tried_again_with_success() -> None:
    assert explain([*_DUMP, *_DUMP, *_RATES]).primary == "healthy"
    for failed in ([*_RATES, *_DUMP], [*_DUMP, _REFUSED, *_RATES], [*_DUMP, "MemoryError", *_RATES], _DUMP):
        assert explain(failed).primary.startswith("memory."), failed[-1]


_PROMPT = ["got prompt", *_RAISED, "ValueError: no such sampler"]


@pytest.mark.parametrize(
    ("after", "primary"),
    [
        (["Prompt executed in 12.20 seconds", "got prompt", "Prompt executed in 31.07 seconds"], "healthy"),
        (["Prompt executed in 12.20 seconds"], "program.error"),  # of the prompt that failed
        (["Prompt executed in 12.20 seconds", "got prompt", "Prompt executed in 0.00 seconds"], "program.error"),
        (["INFO:     Waiting for application startup.", "INFO:     Application startup complete."], "healthy"),
        (["INFO:     Waiting for application startup."], "program.error"),
        ([f"[I 11:4{minute}:25.346 NotebookApp] Saving file at /notebooks/a.ipynb" for minute in (5, 7)], "healthy"),
        (
            [
                "[I 2024-02-03 11:45:25.346 ServerApp] Kernel started: 7ca4",
                "[I 2024-02-03 11:46:25.346 ServerApp] Creating new notebook in ",
            ],
            "healthy",
        ),
        (["[W 11:45:25.346 NotebookApp] Clearing invalid/expired login cookie"], "program.error"),
    ],
)
def test_a_server_that_works_on(after: list[str], primary: str) -> None:
    assert explain(["Total VRAM 8188 MB, pytorch version: 2.3.1+cu121", *_PROMPT, "", *after]).primary == primary


def test_a_server_that_a_person_stopped_did_not_end_in_its_last_error() -> None:
    stopped = explain([*_PROMPT, "", "Prompt executed in 0.03 seconds", "", "Stopped server"]).findings[0]
    assert stopped.title.startswith("The last error is ValueError")
    assert explain(_PROMPT).findings[0].title.startswith("It ended in ValueError")


@pytest.mark.parametrize(
    ("item", "end"),
    [
        ("Sample {0}/20\n[ERROR] FindingSource error: Failed to reach the model", ["Total samples evaluated: 20"]),
        ("2025-01-02 10:00:00,{0} - ERROR - Request {0} failed: Max retries exceeded", ["20 requests sent"]),
        ("Processing a{0}.png\nError processing a{0}.png: no such codec", ["Done! Processed 20 files"]),
    ],
)
def test_an_error_of_every_item_is_one_of_the_whole_work(item: str, end: list[str]) -> None:
    closing = [*end, *["-" * 20] * 30, "Report saved to: report.txt", "SUCCESS"]
    lines = [line for at in range(1, 21) for line in item.format(at).split("\n")]
    found = explain([*lines, *closing]).findings[0]
    assert (found.severity, "Every item" in found.title) == ("warning", True)
    assert explain([*lines[:-4], *["Sample done: ok"] * 3, *closing]).primary == "healthy"
