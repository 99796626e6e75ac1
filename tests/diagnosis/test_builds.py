"""Builds, cards and variables of TensorFlow that leave the work without some GPU, or without any."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.run import Framework, Outcome
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.explain_log import explain
from gpuwatch.explain.diagnosis.rule_engine import diagnose, primary_cause
from gpuwatch.explain.diagnosis.runs.finished_run import complete
from gpuwatch.explain.diagnosis.runs.tensorflow_device_prediction import RequestedDevices, predict
from gpuwatch.explain.logs.log_parser import parse
from tests.diagnosis.cases import NO_DRIVER, draft, machine

_IGNORED = (
    "I0000 00:00:1795182157.792905   24832 gpu_device.cc:2439] Ignoring visible gpu device (device: {0}, name: Card,"
    " pci bus id: 0000:0{1}:00.0, compute capability: 8.6) with core count: {2}. The minimum required count is {3}."
    " You can adjust this requirement with the env var TF_MIN_GPU_MULTIPROCESSOR_COUNT."
)
_MAPPED = (
    "I0000 00:00:1795182157.992905   24832 gpu_device.cc:2043] Created device"
    " /job:localhost/replica:0/task:0/device:GPU:0 with 22464 MB memory:  -> device: 0, name: Card, pci bus id:"
    " 0000:01:00.0, compute capability: 8.6"
)


def left_out(lines: list[str], **environment: str) -> Finding:
    (found,) = diagnose(Evidence(log=parse("\n".join(lines)), environment=environment))
    assert found.id == "build.gpu-unsupported"
    return found


def test_a_count_that_leaves_out_every_gpu_is_an_error_and_its_variable_is_to_go() -> None:
    lines = [_IGNORED.format(0, 1, 82, 500), _IGNORED.format(1, 2, 82, 500)]
    for environment in ({}, {"TF_MIN_GPU_MULTIPROCESSOR_COUNT": "500"}):
        found = left_out(lines, **environment)
        assert found.severity == "error"
        assert "MULTIPROCESSOR_COUNT=500" in found.title
        assert found.action.startswith("Unset TF_MIN_GPU_")


def test_a_count_that_leaves_out_some_is_a_warning() -> None:
    found = left_out([_MAPPED, _IGNORED.format(1, 2, 40, 64)])
    assert (found.severity, "every GPU" in found.title) == ("warning", False)
    assert found.action.startswith("Unset")


def test_a_weak_card_beside_a_better_one_may_be_let_in() -> None:
    found = left_out([_MAPPED, _IGNORED.format(1, 2, 4, 8)])
    assert found.severity == "warning"
    assert "MULTIPROCESSOR_COUNT=4 " in found.action


def test_no_amount_is_expected_of_an_allocator_without_a_pool() -> None:
    for asked in (
        RequestedDevices(allocator="cuda_malloc"),
        RequestedDevices(allocator="cuda_malloc", limits={0: (512, 512)}),
    ):
        entries = predict(machine(gpus=1), asked)
        assert entries is not None
        assert [entry.granted_bytes for entry in entries] == [None] * max(1, len(asked.limits.get(0, ())))
        assert "TF_GPU_ALLOCATOR=cuda_malloc" in entries[0].how


_TORCH = 'Traceback (most recent call last):\n  File "a.py", line 2, in <module>\n    x.to("cuda")\n'


def test_a_build_without_cuda_that_ended_the_program_comes_before_the_missing_driver() -> None:
    log = parse(_TORCH + "AssertionError: Torch not compiled with CUDA enabled")
    framework = Framework(name="torch", version="2.13.0", gpu_build=False)
    fields = {"group": "run", "framework": framework, "placements": (), "verdict": "error"}
    run = complete(draft("run", outcome=Outcome(exit_code=1, ended=True), **fields), log, NO_DRIVER)
    assert [(found.id, found.severity) for found in run.findings] == [
        ("build.cpu-only", "error"),
        ("driver.missing", "warning"),
    ]
    alone = diagnose(Evidence(log=log))
    assert (primary_cause(alone), alone[0].severity) == ("build.cpu-only", "error")


def test_where_nothing_ended_for_it_the_missing_driver_comes_first() -> None:
    framework = Framework(name="tensorflow", version="2.21.0", gpu_build=False)
    run = complete(draft("run", group="run", framework=framework), parse(""), NO_DRIVER)
    assert [(found.id, found.severity) for found in run.findings] == [
        ("driver.missing", "error"),
        ("build.cpu-only", "warning"),
    ]


@pytest.mark.parametrize(
    "line",
    [
        'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
        "docker: Error response from daemon: unknown or invalid runtime name: nvidia.",
    ],
)
def test_docker_without_the_toolkit_is_told_to_get_it(line: str) -> None:
    found = explain([line]).findings[0]
    assert found.id == "driver.missing"
    assert "Container Toolkit" in found.title
    assert "nvidia-ctk runtime configure" in found.action
    assert "Install NVIDIA's driver" not in found.action


def test_an_error_beside_a_run_that_ended_well_is_called_one() -> None:
    healthy = machine(gpus=2)
    gone = replace(healthy.devices[1], state="lost")
    lost = replace(healthy, devices=(healthy.devices[0], gone))
    run = complete(draft("growth", placements=()), parse(_MAPPED), lost)
    assert run.findings[0].severity == "error"
    assert "GPU 1 has fallen off the bus" in run.verdict_reason


def test_a_limit_above_the_device_is_nobody_elses_fault() -> None:
    refused = (
        "I0000 00:00:1795182643.300709    6360 cuda_executor.cc:522] failed to allocate {0}GiB ({1} bytes) from device:"
        " RESOURCE_EXHAUSTED: : CUDA_ERROR_OUT_OF_MEMORY: out of memory"
    )
    sizes = [(100 << 30) // 10**step * 9**step for step in range(4)]
    refusals = [refused.format(size >> 30, size) for size in sizes]
    lines = [_MAPPED.replace("22464", "102400"), *refusals]
    findings = diagnose(Evidence(snapshot=machine(gpus=1), log=parse("\n".join(lines))))
    assert [(found.id, found.severity) for found in findings] == [("config.inconsistent", "warning")]
    assert re.findall(r"[\d.]+ GiB", findings[0].title) == ["100.0 GiB", "24.0 GiB"]
    within = diagnose(Evidence(snapshot=machine(gpus=1), log=parse("\n".join([_MAPPED, *refusals]))))
    assert [found.id for found in within] == ["memory.other-process"]


def test_a_limit_is_kept_as_a_float_of_four_bytes() -> None:
    (entry,) = predict(machine(gpus=1), RequestedDevices(limits={0: (99999999,)})) or ()
    assert entry.granted_bytes == 100_000_000 << 20


_OLD_BUILD = (
    "/env/torch/cuda/__init__.py:104: UserWarning:",
    "NVIDIA A10 with CUDA capability sm_86 is not compatible with the current PyTorch installation.",
    "The current PyTorch install supports CUDA capabilities sm_70 sm_75 compute_37.",
)


@pytest.mark.parametrize(
    "end", ["epoch 7: loss 0.31, accuracy 0.94", "RuntimeError: CUDA error: no kernel image is available"]
)
def test_an_incompatible_build_that_works_is_no_error(end: str) -> None:
    found = explain([*_OLD_BUILD, "epoch 1: loss 2.3", end]).findings[0]
    worked = end.startswith("epoch")
    assert (found.id, found.severity) == (("healthy", "info") if worked else ("build.gpu-unsupported", "error"))


@pytest.mark.parametrize(
    ("after", "severity", "title"),
    [
        (
            ["RuntimeError: a leaf Variable that requires grad has been used"],
            "error",
            "The gradient cannot be computed",
        ),
        (["RuntimeError: cuDNN error: it failed"], "error", "The framework's build has no code"),
        (["Starting training for 9 epochs"], "warning", "The framework's build has no code"),
    ],
)
def test_a_warning_of_an_incompatible_build_proves_neither_its_work_nor_its_failure(
    after: list[str], severity: str, title: str
) -> None:
    raised = ["Traceback (most recent call last):", '  File "/a/t.py", line 3, in f', "    g()"]
    lines = [*(raised if "Error" in after[0] else ()), *after]
    found = explain([*lines, *_OLD_BUILD] if severity != "warning" else [*_OLD_BUILD, *lines]).findings[0]
    assert (found.severity, found.title.endswith("worked")) == (severity, False)
    assert found.title.startswith(title)


@pytest.mark.parametrize(
    ("error", "title"),
    [
        ("Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Yours has compute capability 7.",
         "too old for bfloat16"),
        ("FlashAttention only supports Ampere GPUs or newer.", "too old for FlashAttention"),
        ("Expected is_sm80 || is_sm90 to be true, but got false.", "no kernel for this GPU and these sizes"),
        ("The quantization method fp8 is not supported for the current GPU. Minimum capability: 89. Current: 75.",
         "too old for this quantization"),
    ],
)  # fmt: skip
def test_what_a_gpu_does_not_have_in_any_build(error: str, title: str) -> None:
    found = explain([f"RuntimeError: {error}"]).findings[0]
    assert (found.id, title in found.title) == ("build.gpu-unsupported", True)
