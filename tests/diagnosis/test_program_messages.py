"""Errors of the program's own code, data and services are told as such; of a GPU's nothing is said."""

from __future__ import annotations

import pytest

from gpuwatch.explain.diagnosis.explain import explain
from gpuwatch.explain.diagnosis.rules.program_messages import KNOWN, by_type, meaning

ERRORS = (
    ("ModuleNotFoundError: No module named 'flash_attn'", "module flash_attn is not installed"),
    ("ImportError: cannot import name 'Trainer' from 'lib' (/env/lib/__init__.py)", "Trainer is not in the installed"),
    (
        "ImportError: cannot import name 'x' from partially initialized module 'lib' (most likely due to a circular"
        " import) (/a/lib.py)",
        "still being imported: x",
    ),
    ("AttributeError: partially initialized module 'random' has no attribute 'seed'", "still being imported: random"),
    ("AttributeError: module 'numpy' has no attribute 'bool'.", "uses bool, which the installed version does not have"),
    ("TypeError: Net.__init__() got an unexpected keyword argument 'heads'", "uses heads"),
    ("ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected 96", "version of NumPy"),
    ("RuntimeError: operator torchvision::nms does not exist", "torch and torchvision"),
    ("FloatingPointError: Minimum loss scale reached (0.0001). Your loss is probably exploding.", "loss scale"),
    ("RuntimeError: Function 'PowBackward0' returned nan values in its 0th output.", "NaN in PowBackward0"),
    ("RuntimeError: Loss is nan, stopping training", "loss became NaN"),
    ("RuntimeError: mat1 and mat2 shapes cannot be multiplied (32x512 and 256x10)", "Shapes of tensors"),
    (
        "RuntimeError: The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 1",
        "Shapes of tensors",
    ),
    ("InvalidArgumentError: Incompatible shapes: [8,3] vs. [8,4] [Op:AddV2]", "Shapes of tensors"),
    ('ValueError: Input 0 of layer "dense" is incompatible with the layer: expected axis -1', "Shapes of tensors"),
    (
        "RuntimeError: Input type (torch.FloatTensor) and weight type (torch.cuda.FloatTensor) should be the same",
        "on different devices",
    ),
    (
        "RuntimeError: Input type (torch.cuda.HalfTensor) and weight type (torch.cuda.FloatTensor) should be the same",
        "different types",
    ),
    ("RuntimeError: Input type (double) and bias type (float) should be the same", "different types"),
    ("RuntimeError: mat1 and mat2 must have the same dtype, but got Half and Float", "different types"),
    ("RuntimeError: \"LayerNormKernelImpl\" not implemented for 'Half'", "other types only, not for Half"),
    (
        "TypeError: can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor first.",
        "given to NumPy",
    ),
    ("RuntimeError: Trying to backward through the graph a second time", "gradient cannot be computed"),
    ("ValueError: Attempting to unscale FP16 gradients.", "mixed precision"),
    (
        "ValueError: Expected more than 1 value per channel when training, got input size torch.Size([1, 8])",
        "one sample",
    ),
    (
        "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one.",
        "parameters got no gradient",
    ),
    ("ValueError: Default process group has not been initialized, please make sure to call", "init_process_group"),
    ("AssertionError: Check batch related parameters. train_batch_size is not equal to 64", "numbers of the job"),
    ("AttributeError: Can't pickle local object 'main.<locals>.collate'", "sent to a new process: main.<locals>"),
    ("RuntimeError: Error(s) in loading state_dict for Net:", "does not fit the model"),
    ("RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory", "damaged"),
    ("UnpicklingError: invalid load key, 'v'.", "damaged"),
    ("UnpicklingError: Weights only load failed. This file can still be loaded", "more than weights"),
    ("RuntimeError: Parent directory /a/b does not exist.", "folder does not exist: /a/b"),
    ("FileNotFoundError: [Errno 2] No such file or directory: 'data/train.csv'", "does not exist: data/train.csv"),
    ("PermissionError: [Errno 13] Permission denied: '/a/cache'", "may not write or read /a/cache"),
    ("ValueError: num_samples should be a positive integer value, but got num_samples=0", "dataset is empty"),
    ("GatedRepoError: 403 Client Error. Access to model a/b is restricted", "Hugging Face refuses"),
    (
        "ConnectionError: HTTPSConnectionPool(host='a.example', port=443): Max retries exceeded with url: /x",
        "could not be downloaded",
    ),
    ("Exception: The wandb backend process has shutdown", "wandb"),
    ("OSError: [Errno 10048] error while attempting to bind on address ('127.0.0.1', 8080)", "port is taken"),
    ("BrokenPipeError: [Errno 32] Broken pipe", "read the program's output"),
    ("NameError: name 'optimzer' is not defined", "error of the program's code"),
    ("KeyError: 'input_ids'", "program's own data or settings"),
)  # fmt: skip


@pytest.mark.parametrize(("error", "said"), ERRORS, ids=[error[:50] for error, _ in ERRORS])
def test_what_ended_the_program(error: str, said: str) -> None:
    log = ["epoch 1: loss 0.4", "Traceback (most recent call last):", '  File "/a/train.py", line 7, in <module>']
    found = explain([*log, "    main()", error])
    assert (found.primary, said in found.findings[0].title) == ("unknown", True), found.findings[0].title
    assert found.findings[0].action
    assert found.findings[0].severity == "error"


def test_every_pattern_compiles_and_its_title_needs_no_more_than_its_group() -> None:
    meaning("none of them")
    for title, _, patterns in KNOWN:
        assert "{0}" not in title or all("(" in pattern for pattern in patterns)


def test_the_type_says_nothing_where_the_message_names_a_gpu() -> None:
    assert by_type("KeyError: 'CUDA_HOME'") is None
    assert by_type("RuntimeError: something") is None
    assert by_type("IndexError: list index out of range") is not None


def test_ends_of_clusters_and_machines_that_the_last_lines_report() -> None:
    pod = "Warning  FailedScheduling  9s  default-scheduler  0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    assert "free GPU for the pod" in explain(["Events:", pod]).findings[0].title
    scheduled = [
        "Normal  Scheduled  5s  default-scheduler  Successfully assigned a/b to n1",
        *["epoch 1/3: loss 0.4"] * 20,
    ]
    assert explain([pod, *scheduled]).primary == "healthy"
    cgroup = "slurmstepd: error: Unable to move pid 4711 to init root cgroup (null)"
    assert "cgroup" in explain([cgroup]).findings[0].title
    worked = [f"step {number}: loss 0.1" for number in range(30)]
    assert explain([cgroup, *worked]).primary == "healthy"


def test_fewer_gpus_than_the_program_requires() -> None:
    found = explain(["ValueError: require 4 GPUs, but only 2 GPUs available"])
    assert found.primary == "distribution.devices-missing"


def test_the_error_of_a_process_is_told_before_its_launcher() -> None:
    log = ["Traceback (most recent call last):", '  File "/a/train.py", line 7, in <module>', "    main()"]
    ended = [
        *log,
        "RuntimeError: Error(s) in loading state_dict for Net:",
        "srun: error: n1: task 0: Exited with exit code 1",
    ]
    assert "does not fit the model" in explain(ended).findings[0].title
