"""Failures that have no cause id of their own, told by what they are."""

from __future__ import annotations

import pytest

from gpuwatch.diagnosis.explain import explain

_TRACE = 'Traceback (most recent call last):\n  File "a.py", line 3, in <module>\n    x = work()\n'
_SHELL = "/var/spool/slurmd/job1/slurm_script: line 12: 21345 Killed                  python train.py"


@pytest.mark.parametrize(
    ("text", "title", "action"),
    [
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=1.0.", "host's memory (RAM)", "--mem"),
        (_TRACE + "MemoryError", "host's memory (RAM)", "less data"),
        (_TRACE + "OSError: [Errno 12] Cannot allocate memory", "host's memory (RAM)", "less data"),
        ("terminate called after throwing an instance of 'std::bad_alloc'", "host's memory (RAM)", "less data"),
        ("Epoch 1/5\nKilled", "SIGKILL", "dmesg"),
        ("Epoch 1/5\n" + _SHELL, "SIGKILL", "dmesg"),
        ("RuntimeError: Unexpected bus error: insufficient shared memory (shm)", "shared memory", "--shm-size"),
        ("2026-05-04 10:11:12.1: F external/x/parse_flags_from_env.cc:226] Unknown flag in XLA_FLAGS: --foo",
         "XLA_FLAGS", "unset it"),
        (_TRACE + "OSError: [Errno 28] No space left on device: '/ckpt/1.pt'", "disk is full", "df -h"),
        (_TRACE + "tensorflow.python.framework.errors_impl.ResourceExhaustedError: /ckpt/x.tempstate; No space left on"
         " device [Op:SaveV2]", "disk is full", "df -i"),
        (_TRACE + "RuntimeError: unable to write to file </torch_4_9_0>: No space left on device (28)",
         "shared memory", "--shm-size"),
        (_TRACE + "OSError: [Errno 28] No space left on device: '/dev/shm/x'", "shared memory", "--shm-size"),
        (_TRACE + "OSError: [Errno 122] Disk quota exceeded: '/home/u/.cache'", "quota", "quota -s"),
        (_TRACE + "OSError: [Errno 24] Too many open files: 'a.png'", "too many files open", "ulimit -n"),
        (_TRACE + "AssertionError", "ended in AssertionError", "end of the log"),
    ],
)  # fmt: skip
def test_what_ended_it(text: str, title: str, action: str) -> None:
    explained = explain(text.split("\n"))
    assert [(found.id, found.severity) for found in explained.findings] == [("unknown", "error")]
    assert title in explained.findings[0].title
    assert action in explained.findings[0].action
    assert text.split("\n")[-1].removeprefix("tensorflow.python.framework.errors_impl.") in (
        explained.findings[0].evidence
    )


def test_a_full_disk_that_was_handled_is_not_what_ended_it() -> None:
    text = "OSError: [Errno 28] No space left on device: '/ckpt/1.pt'\nsaved elsewhere\n" + _TRACE + "ValueError: bad"
    assert explain(text.split("\n")).findings[0].title.startswith("It ended in ValueError")


@pytest.mark.parametrize("text", ["Killed workers so far: 0", "I Killed it", _TRACE + "KeyboardInterrupt"])
def test_what_only_looks_like_one(text: str) -> None:
    found = explain(text.split("\n"))
    assert found.primary in ("healthy", "unknown")
    assert [entry.severity for entry in found.findings] == ["info"]


def test_a_reason_that_was_reported_comes_before_one_that_is_inferred() -> None:
    """A cuDNN of the wrong version is also "not found"."""
    text = (
        "E cuda_dnn.cc:417] Loaded runtime CuDNN library: 8.2.4 but source was compiled with: 8.6.0.\n"
        "tensorflow.python.framework.errors_impl.UnimplementedError: DNN library is not found."
    )
    assert explain(text.split("\n")).primary == "cuda.version-mismatch"
