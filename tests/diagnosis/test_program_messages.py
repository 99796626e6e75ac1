# ruff: noqa: E501 - texts as they are printed
"""Errors of the program's own code, data and services are told as such; of a GPU's nothing is said."""

from __future__ import annotations

import pytest

from gpuwatch.explain.diagnosis.explain_log import explain
from gpuwatch.explain.diagnosis.rules.error_meanings import MACHINE, PROGRAM, SYSTEM, message_meaning
from gpuwatch.explain.logs.python_exceptions import essential_line
from tests.every import every

ERRORS = (
    ("KeyError: 'Net3 is not in the mmdet::model registry. Please check whether it was registered'", "Net3 is not registered in mmdet::model"),
    ("KeyError: \"No object named 'fpn9' found in 'BACKBONE' registry!\"", "fpn9 is not registered in BACKBONE"),
    ("AttributeError: 'torch.dtype' object has no attribute 'kind'", "passed to pandas or NumPy"),
    ("TypeError: Case.test_a() missing 1 required positional argument: 'self'", "Case.test_a() got no self"),
    ("RuntimeError: shape '[7, 5]' is invalid for input of size 40", "A tensor with 40 elements cannot be reshaped to [7, 5]"),
    ("IOError: [Errno 2] No such file or directory: 'pull_3.xvg'", "A file or folder does not exist: pull_3.xvg"),
    ("ModuleNotFoundError: No module named 'flash_attn'", "module flash_attn is not installed"),
    ("ImportError: cannot import name 'Trainer' from 'lib' (/env/lib/__init__.py)", "Trainer is not in the program's own"),
    (
        "ImportError: cannot import name 'x' from partially initialized module 'lib' (most likely due to a circular"
        " import) (/a/lib.py)",
        "still being imported: x",
    ),
    ("AttributeError: partially initialized module 'random' has no attribute 'seed'", "in its place: random"),
    ("AttributeError: module 'numpy' has no attribute 'bool'.", "alias np.bool"),
    ("ValueError: Received an invalid value for `units`, expected a positive integer. Received: units=2", "no Python integer: units=2"),
    ("RuntimeError: `tf.data.Dataset` only supports Python-style iteration in eager mode or within tf.function.", "in graph mode"),
    ("ValueError: setting an array element with a sequence. The requested array has an inhomogeneous shape after 2 dimensions.", "arrays of different shapes"),
    ("TypeError: Net.__init__() got an unexpected keyword argument 'heads'", "argument heads, which it does not"),
    ("TypeError: Blur.run() missing 1 required positional argument: 'size'", "without 'size', which it requires"),
    ("AttributeError: 'NoneType' object has no attribute 'cpu'", "A value is None, and its cpu is used"),
    ("ImportError: You must install pydot (`pip install pydot`) for `plot_model` to work.", "module pydot is not installed"),
    ("TBNotInstalledError: TensorBoard is not installed, missing implementation for tf.summary.scalar", "TensorBoard"),
    ("ModuleNotFoundError: No module named 'utils.loader'", "utils.loader was not found; by its name"),
    ("AttributeError: module 'tensorflow' has no attribute 'consant'", "consant, which the installed version does not"),
    ("AttributeError: module 'tensorflow._api.v2.train' has no attribute 'placeholder'", "uses placeholder"),
    ("AttributeError: module 'requests' has no attribute 'Session'", "uses Session, which the installed version does not"),
    ("ModuleNotFoundError: No module named 'tensorflow.python.feature_column'", "missing from the installed version of its package"),
    ("ModuleNotFoundError: No module named 'fcntl'", "exists only on Unix"),
    ("ModuleNotFoundError: No module named 'fcntlib'", "module fcntlib is not installed"),
    ("ModuleNotFoundError: No module named 'custom_nodes.core_a'", "custom node of ComfyUI is missing: custom_nodes.core_a"),
    ("ValueError: Unknown format code 'f' for object of type 'str'", "type str is being formatted as a number"),
    ("ValueError: operands could not be broadcast together with shapes (7,2) (7,)", "NumPy arrays in one operation have different shapes"),
    ("ImportError: the package flash_attn seems to be not installed. Please refer to its documentation", "module flash_attn is not"),
    ("ImportError: A `device_map` requires Accelerate: `pip install 'accelerate>=0.26.0'`", "missing from the environment that ran, or is too old: accelerate"),
    ("HfHubHTTPError: 429 Client Error: Too Many Requests for url: https://huggingface.co/api/models/a", "too many requests"),
    ("AuthenticationError: Error code: 401 - Incorrect API key provided", "A service refused the program's key"),
    ("ValueError: `.to` is not supported for `4-bit` models. Please use the model as it is", "quantized by bitsandbytes was moved"),
    ("RendezvousConnectionError: The connection to the C10d store has failed. See inner exception", "could not reach the rendezvous process"),
    ("RuntimeError: NCCL communicator was aborted on rank 3.", "NCCL's communicator was aborted"),
    ("IndexError: too many indices for array: array is 1-dimensional, but 2 were indexed", "An index has more dimensions"),
    ("ValueError: Mix type of y not allowed, got types {'unknown', 'binary'}", "Labels and predictions"),
    ("ValueError: The train_dataset does not implement __len__, max_steps has to be specified.", "has no length"),
    ("Exception: Dataset not found.", "dataset that the configuration names"),
    ("IndexError: index out of range in self", "An index is outside of the table"),
    ("InvalidArgumentError: indices[0,3] = 90 is not in [0, 64)", "An index is outside of the table"),
    ("ImportError: 'Node2Vec' requires 'pyg-lib>=0.6.0'.", "missing from the environment that ran, or is too old: pyg-lib"),
    ("RuntimeError: 0 active drivers ([]). There should only be one.", "Triton found no GPU"),
    ("ValueError: Your setup doesn't support bf16/gpu. You need torch>=1.10", "bfloat16 was requested"),
    ("RuntimeError: PassManager::run failed", "Triton could not compile"),
    ("RuntimeError: Tried to instantiate class '_ext_C.Kind', but it does not exist! Ensure that", "compiled part of a package"),
    ("AttributeError: '_OpNamespace' '_moe_C' object has no attribute 'topk'", "compiled part of a package is missing, or was built for another PyTorch: _moe_C"),
    ("RuntimeError: stack expects each tensor to be equal size, but got [3, 9] at entry 0 and [1, 9] at entry 1", "Samples of different sizes"),
    ("NotFoundError: Key dense/kernel not found in checkpoint", "does not match the model"),
    ("NotFoundError: Not found: /data/7.png; No such file or directory", "does not exist: /data/7.png"),
    ("EOFError: EOF when reading a line", "no terminal to read it from"),
    (
        "IPython.core.error.StdinNotImplementedError: raw_input was called, but this frontend does not support input.",
        "no terminal to read it from",
    ),
    ("sqlite3.OperationalError: database is locked", "database file is in use"),
    ("ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected 96", "version of NumPy"),
    ("RuntimeError: operator torchvision::nms does not exist", "torch and torchvision"),
    ("FloatingPointError: Minimum loss scale reached (0.0001). Your loss is probably exploding.", "loss scale"),
    ("RuntimeError: Function 'PowBackward0' returned nan values in its 0th output.", "NaN in PowBackward0"),
    ("RuntimeError: Loss is nan, stopping training", "loss became NaN"),
    ("RuntimeError: mat1 and mat2 shapes cannot be multiplied (32x512 and 256x10)", "Tensor shapes do not match"),
    (
        "RuntimeError: The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 1",
        "Tensor shapes do not match",
    ),
    ("InvalidArgumentError: Incompatible shapes: [8,3] vs. [8,4] [Op:AddV2]", "Tensor shapes do not match"),
    ('ValueError: Input 0 of layer "dense" is incompatible with the layer: expected axis -1', "Tensor shapes do not match"),
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
    ("RuntimeError: \"LayerNormKernelImpl\" not implemented for 'Half'", "only for other types, not for Half"),
    (
        "TypeError: can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor first.",
        "passed to NumPy",
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
    ("AssertionError: Check batch related parameters. train_batch_size is not equal to 64", "sizes contradict each other"),
    ("AttributeError: Can't pickle local object 'main.<locals>.collate'", "pickled to send it to a new process: main.<locals>"),
    ("RuntimeError: Error(s) in loading state_dict for Net:", "does not match the model"),
    ("RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory", "damaged"),
    ("RuntimeError: [enforce fail at inline_container.cc:595] . unexpected pos 7040 vs 6934", "could not be written"),
    ("UnpicklingError: invalid load key, 'v'.", "damaged"),
    ("UnpicklingError: Weights only load failed. This file can still be loaded", "more than weights"),
    ("RuntimeError: Parent directory /a/b does not exist.", "folder does not exist: /a/b"),
    ("FileNotFoundError: [Errno 2] No such file or directory: 'data/train.csv'", "does not exist: data/train.csv"),
    ("PermissionError: [Errno 13] Permission denied: '/a/cache'", "permission to write or read /a/cache"),
    ("ValueError: num_samples should be a positive integer value, but got num_samples=0", "dataset is empty"),
    ("GatedRepoError: 403 Client Error. Access to model a/b is restricted", "Hugging Face refuses"),
    (
        "ConnectionError: HTTPSConnectionPool(host='a.example', port=443): Max retries exceeded with url: /x",
        "could not be reached",
    ),
    ("Exception: The wandb backend process has shutdown", "wandb"),
    ("OSError: [Errno 10048] error while attempting to bind on address ('127.0.0.1', 8080)", "port is in use"),
    ("BrokenPipeError: [Errno 32] Broken pipe", "reader of the program's output"),
    ("NameError: name 'optimzer' is not defined", "The name optimzer is used before"),
    ("RuntimeError: Input type (CUDABFloat16Type) and weight type (torch.FloatTensor) should be the same", "on different"),
    ("RuntimeError: Expected tensor for argument #1 'indices' to have one of the following scalar types: Long", "Indices must be"),
    ("RuntimeError: a Tensor with 16 elements cannot be converted to Scalar", "A tensor with several elements"),
    ("RuntimeError: Expected 4-dimensional input for 4-dimensional weight [64, 1, 4, 4]", "Tensor shapes"),
    ("TypeError: cannot assign 'torch.cuda.FloatTensor' as parameter 'bias'", "the program's own error"),
    ("omegaconf.errors.ConfigAttributeError: Missing key lr", "unknown key: lr"),
    ("RuntimeError: view size is not compatible with input tensor's size and stride", "Tensor shapes do not match"),
    ("RuntimeError: torch.cat(): expected a non-empty list of Tensors", "Tensor shapes do not match"),
    ("RuntimeError: Tensor for argument #2 'mat1' is on CPU, but expected it to be on GPU", "on different devices"),
    ("RuntimeError: Cannot copy out of meta tensor; no data!", "on the meta device"),
    ("LinAlgError: linalg.cholesky: The factorization could not be completed because the input", "not positive definite"),
    ("DatasetNotFoundError: Dataset 'x/y' doesn't exist on the Hub or cannot be accessed.", "Hugging Face refuses"),
    ("HTTPError: HTTP Error 404: Not Found", "could not be reached"),
    ("KeyError: 'input_ids'", "the program's own error"),
)  # fmt: skip


@every(ERRORS)
def test_what_ended_the_program(error: str, said: str) -> None:
    log = ["epoch 1: loss 0.4", "Traceback (most recent call last):", '  File "/a/train.py", line 7, in <module>']
    found = explain([*log, "    main()", error])
    assert said in found.findings[0].title
    machine = ("port is in use", "reader of the program's output", "bfloat16 was requested", "Triton could not compile")
    machine += ("Triton found no GPU",)
    machine += ("database file is in use", "could not reach the rendezvous process", "NCCL's communicator was aborted")
    assert found.primary == ("unknown" if said in machine else "program.error")
    assert found.findings[0].action
    assert found.findings[0].severity == "error"


_HEAD, _FRAME = "Traceback (most recent call last):", '  File "/a/train.py", line 7, in <module>'


@pytest.mark.parametrize(
    ("code", "error", "does"),
    [
        ("x = 1 / n", "ZeroDivisionError: division by zero", "Open train.py, line 7: the divisor is 0"),
        ("a = o.b", "AttributeError: 'Net' object has no attribute 'b'", "an object of Net has no b"),
        ("f(1)", "TypeError: f() takes 0 positional arguments but 1 was given", "differ in their number of arguments"),
        ("x = r['a']", "TypeError: string indices must be integers", "json.loads"),
        ("x = f(1)", "TypeError: bad operand type for unary -: 'f'", "print the types"),
        ("a, b = c", "ValueError: not enough values to unpack (expected 2, got 1)", "print what is unpacked"),
        ("run()", "ValueError: no run there", "where it comes from (an argument"),
        ("f = open(p, 'w')", "FileNotFoundError: [Errno 2] No such file or directory: 'out/a'", "os.makedirs"),
        ("f = open(p)", "FileNotFoundError: [Errno 2] No such file or directory: 'out/a'", "full path"),
    ],
)
def test_what_to_do_names_the_place_and_what_to_look_for(code: str, error: str, does: str) -> None:
    assert does in explain([_HEAD, _FRAME, f"    {code}", error]).findings[0].action


def test_of_exceptions_that_were_raised_one_after_another_the_first_is_shown() -> None:
    first = [
        _HEAD,
        _FRAME,
        "    load()",
        "HTTPError: 404 Client Error: Not Found for url: https://api.wandb.ai/graphql",
    ]
    chained = [*first, "", "During handling of the above exception, another exception occurred:", ""]
    found = explain([*chained, _HEAD, _FRAME, "    eval(text)", "SyntaxError: invalid syntax"]).findings[0]
    assert "wandb" in found.title
    assert any("404 Client Error" in line for line in found.evidence)


@pytest.mark.parametrize(
    ("lines", "frameworks"),
    [
        (["epoch 3: loss 0.2"], ()),
        (["1/9 [==>...] - ETA: 3s - loss: 0.2"], ("tensorflow",)),
        (["torch.OutOfMemoryError: CUDA out of memory."], ("pytorch",)),
    ],
)
def test_a_program_that_only_imports_tensorflow_is_none_of_it(lines: list[str], frameworks: tuple[str, ...]) -> None:
    start = "I tensorflow/core/util/port.cc:113] oneDNN custom operations are on. You may see different results"
    assert explain([start, *lines]).frameworks == frameworks


LAST_LINES = (
    (["Segmentation fault at address 0x7c"], "It crashed with SIGSEGV"),
    (["installed the segmentation fault handler", "step 3: loss 0.2"], "No failure in the log"),
    (["Caught signal 11 (Segmentation fault). Server aborting"], "The X server (Xorg) failed"),
    (["could not read: the database is locked by ana"], "The last lines report a failure"),
    (
        ["kern  :warn  : 2026-01-21T04:41:44+00:00 train[71]: segfault at 7f ip 00 sp 7f error 4 in liba.so.2"],
        "train[71]",
    ),
    (["waiting: failed", 'Thread 1 "a" received signal SIGINT, Interrupt.', "(gdb) bt"], "interrupted in a debugger"),
    (
        ["ERROR:root:  - Required input is missing: denoise", "ERROR:root:ignored"],
        "ComfyUI rejected the workflow: Required",
    ),
    (["RNA pipeline failed: clusters are required for the picture."], "itself reports what failed: clusters are"),
    (["RNA pipeline failed: no CUDA device for the picture."], "The last lines report a failure"),
)


@pytest.mark.parametrize(("lines", "said"), LAST_LINES)
def test_what_the_last_lines_report(lines: list[str], said: str) -> None:
    assert said in explain(["reading the data", *lines]).findings[0].title


@pytest.mark.parametrize(
    ("errors", "said"),
    [
        ("OSError: [Errno 12] Cannot allocate memory|KeyError: 'a'|KeyError: 'b'|KeyError: 'c'", "program's own error"),
        ("OSError: [Errno 12] Cannot allocate memory|KeyError: 'a'", "host's memory (RAM)"),
        ("KeyError: 'a'|KeyError: 'b'|KeyError: 'c'|OSError: [Errno 12] Cannot allocate memory", "host's memory (RAM)"),
    ],
)
def test_memory_that_an_earlier_cell_of_a_notebook_lacked(errors: str, said: str) -> None:
    cells = [[f"{one.partition(':')[0]}      Traceback (most recent call last)", one] for one in errors.split("|")]
    assert said in explain([line for cell in cells for line in cell]).findings[0].title


def test_every_pattern_compiles_and_its_title_needs_no_more_than_its_group() -> None:
    message_meaning("none of them")
    for title, _, patterns, *_ in (*SYSTEM, *PROGRAM, *MACHINE):
        assert "{0}" not in title or all("(" in pattern for pattern in patterns)


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
    assert "does not match the model" in explain(ended).findings[0].title


_TRACE = ["Traceback (most recent call last):", '  File "train.py", line 3, in <module>', "    x = work()"]
_RAISED = [*_TRACE[:2], "    raise RuntimeError(why)"]
NOT_OWN = (
    "RuntimeError: the loader is gone",
    "RuntimeError: CUDA error: an illegal memory access was encountered",
    "AttributeError: module 'torch._C' has no attribute '_cuda_setDevice'",
    "FileNotFoundError: [Errno 2] No such file or directory: 'nvidia-smi'",
    "ImportError: libcudart.so.11.0: cannot open shared object file: No such file or directory",
    "AssertionError: no NVIDIA device",
    "ConnectionResetError: [Errno 104] Connection reset by peer",
)


@pytest.mark.parametrize("error", NOT_OWN)
def test_errors_that_may_follow_from_a_gpu(error: str) -> None:
    assert explain([*_TRACE, error]).primary != "program.error"


@pytest.mark.parametrize(
    "error",
    ["TransportTableFull: 7 rows", "OSError: [Errno 9] Bad file descriptor", "KeyError: 7", "ShapeGuard: odd 3"],
)
def test_an_exception_that_nobody_knows_is_told_with_its_message_and_line(error: str) -> None:
    found = explain([*_TRACE[:2], "    ids = [workers[rank].pid for rank in gone]", error]).findings[0]
    assert found.title.startswith(f"It ended in {error}"[:30])
    assert "raised at train.py, line 3: ids = [workers[rank].pid for rank in gone]" in found.evidence


def test_the_last_line_of_a_package_is_told_if_a_traceback_has_none_of_the_program() -> None:
    package = '  File "/env/lib/python3.11/site-packages/pool/pin.py", line 9, in setup'
    found = explain(
        [_TRACE[0], package, "    os.sched_setaffinity(0, self.cores)", "OSError: [Errno 22] Invalid argument"]
    )
    assert "line 9: os.sched_setaffinity(" in found.findings[0].evidence[1]


def test_the_message_of_an_op_stands_below_its_heading() -> None:
    heads = ["Graph execution error:", "", "Detected at node 'ReadFile' defined at (most recent call last):"]
    below = ["Node: 'ReadFile'", "2 root error(s) found.", "  (0) NOT_FOUND:  /data/7.png; No such file or directory"]
    for lines in ([*heads, *below], below[1:], [*heads, below[0], "/data/7.png; No such file or directory"]):
        head = f"tensorflow.python.framework.errors_impl.NotFoundError: {lines[0]}"
        found = explain([*_TRACE, head, *lines[1:], "\t [[{{node ReadFile}}]]"]).findings[0]
        assert found.title.endswith(": /data/7.png")
        assert "raised at train.py, line 3: x = work()" in found.evidence


def test_an_error_that_the_program_raises_itself_is_its_own_unless_it_passes_another_on() -> None:
    assert explain([*_RAISED, "RuntimeError: the loader is gone"]).primary == "program.error"
    before = [*_TRACE, "RuntimeError: CUDA error: no kernel image is available for execution on the device", ""]
    assert explain([*before, *_RAISED, "RuntimeError: the step failed"]).primary == "build.gpu-unsupported"


def test_the_own_error_of_a_process_that_a_launcher_reports() -> None:
    report = "srun: error: n7: task 0: Exited with exit code 1"
    (found,) = explain([*_TRACE, "KeyError: 'label'", report]).findings
    assert found.title.startswith("A process of the job failed")
    assert report in found.evidence
    assert explain([*_TRACE, "RuntimeError: lost", report]).primary == "unknown"
    few = explain([*_TRACE, "ValueError: require 4 GPUs, but only 1 GPUs available", report])
    assert few.primary == "distribution.devices-missing"


@pytest.mark.parametrize("error", ["hipErrorOutOfMemory", "cudaErrorMemoryAllocation"])
def test_memory_that_ran_out_by_the_name_of_the_error(error: str) -> None:
    lines = [f"GPUassert: {error} src/lists.cu 12", "srun: error: n7: task 0: Exited with exit code 1"]
    assert explain(lines).primary == "memory.model-too-large"


def test_jax_on_a_tpu_has_no_build_for_cpus() -> None:
    line = "Unable to initialize backend 'gpu': NOT_FOUND: Could not find registered platform with name: \"cuda\"."
    line += " Available platform names are: Interpreter Host"
    assert explain([line, "step 3: loss 0.2"]).primary == "build.cpu-only"
    assert explain([f"{line} TPU", "step 3: loss 0.2"]).primary == "healthy"


AROUND = (
    ("slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-05-04T10:11:12 DUE TO NODE FAILURE, SEE SLURMCTLD ***", "node failed"),
    ("slurmstepd: error: Job 7 exceeded memory limit (4210 > 4096), being killed", "than it had requested"),
    ("EnvironmentNameNotFound: Could not find conda environment: lab", "Could not find conda environment: lab"),
    ('Lmod has detected the following error: The following module(s) are unknown: "cuda/12.9"', "environment module"),
    ("/var/spool/job7/slurm_script: line 9: venv/bin/activate: No such file or directory", "not exist: venv/bin/activate"),
    ("ImportError: libGL.so.1: cannot open shared object file: No such file or directory", "not one of CUDA's: libGL.so.1"),
    ("ImportError: /lib/libc.so.6: version `GLIBC_2.34' not found (required by /env/x.so)", "built for a newer system"),
    ("SignalException: Process 4711 got signal: 15", "ended by SIGTERM"),
    ("MissingMandatoryValue: Missing mandatory value: data.path", "unknown key: data.path"),
    ("Error: No such option: --lrr", "arguments --lrr"),
    ("llama_model_load: error loading model: unknown model architecture: 'abc'", "kind of model: abc"),
    ("Error: model requires more system memory (12.3 GiB) than is available (7.1 GiB)", "host's memory"),
    ("Error response from daemon: pull access denied for x, repository does not exist", "could not be pulled"),
    ("exec /usr/bin/python: exec format error", "another kind of CPU"),
    ("Warning  Evicted  2m  kubelet  The node was low on resource: ephemeral-storage.", "removed the pod"),
    ("[ERROR]: Install of driver component failed. Consult the driver log.", "its own log says why"),
    ("E: Unable to locate package nvidia-container-toolkit", "not in this system's package repositories"),
    ("ERROR: No matching distribution found for torch==9.9", "pip found no build"),
    ("ERROR: No matching distribution found for numpy==9.9", "pip found no build"),
    ("ERROR: No matching distribution found for setuptools>=40.8.0", "pip could not download setuptools"),
    ("ValueError: Input contains NaN.", "Values passed to a function"),
    ("ValueError: Input y contains infinity or a value too large for dtype('float64').", "Values passed to a function"),
    ("ValueError: array must not contain infs or NaNs", "Values passed to a function"),
    ("ValueError: the loss contains NaN at step 3", "The loss became NaN"),
    ("ERROR: Failed building wheel for flash-attn", "pip could not build"),
    ("CMake Error: CMAKE_CUDA_ARCHITECTURES must be non-empty if set.", "CMake found no CUDA compiler"),
    ("RuntimeError: Distributed package doesn't have NCCL built in", "built without NCCL"),
    ("RuntimeError: cuFFT error: CUFFT_INTERNAL_ERROR", "transforms or solvers"),
    ("Warning  BackOff  kubelet  Back-off restarting failed container trainer in pod t-0", "restarts the container again"),
    ('Warning  FailedMount  kubelet  MountVolume.SetUp failed for volume "data"', "volume of the pod could not be mounted"),
    ("n1:7:9 [0] bootstrap.cc:45 NCCL WARN Bootstrap : no socket interface found", "no network interface for the ranks"),
    ("Error: llama runner process has terminated: signal: killed", "runner process was killed"),
    ("Error: llama runner process has terminated: exit status 2", "runner process ended"),
    ("llama_model_load: error loading model: tensor 'b' data is not within the file bounds", "is damaged, truncated"),
    ("Error: No such file or directory: 'data/a.csv'", "does not exist: data/a.csv"),
    ("/usr/bin/env: 'python': No such file or directory", "names does not exist: python"),
    ("RuntimeError: FlashAttention is only supported on CUDA 11.7 and above.", "is too old to build the package"),
    ("Key 'depth' is not in struct: Error executing job", "unknown key: depth"),
    ("[rank: 0] Received SIGTERM: 15", "ended by SIGTERM"),
    ("2026-11-24 04:13:57.870606: Terminated", "ended by SIGTERM"),
    ("[Error] [omni.physx.plugin] PhysX error: Synchronizing GPU Narrowphase failed! 700", "PhysX failed on the GPU"),
    ("nvcc fatal   : Unsupported gpu architecture 'compute_35'", "This nvcc cannot build for compute_35"),
    ("make[2]: *** [/b/Kbuild:181: module_symvers_sanity_check] Error 1", "Module.symvers is missing"),
    ("OutOfMemoryError: CUD", "It ended in OutOfMemoryError: CUD"),
    ("[2019-04-13 14:00:31.874338: W horovod/common/operations.cc:588] HorovodBroadcast_bias_0 [missing ranks: 1]", "Horovod job are waiting"),
    ("[2026-02-20 20:27:14,902] [INFO] [launch.py:328:sigkill_handler] Main process received SIGINT, exiting", "interrupted"),
    ("RuntimeError: Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but got CUDABFloat16Type", "Indices must be integers"),
    ("[rank0]:[F1108 10:00:00.1 ProcessGroupNCCL.cpp:1557] Terminating the process, due to a watchdog hang.", "until the wait"),
    ("absl::Status: DEADLINE_EXCEEDED: Barrier timed out. Id: [Init]Wait_for_all", "A rank of the job never joined"),
    ("RuntimeError: Socket Timeout", "until the wait timed out"),
    ("/usr/bin/ld: cannot find -lcuda", "libcuda, which belongs to the driver"),
    ("OSError: [Errno 116] Stale file handle: '/home/u/x'", "A file system failed"),
    ("DistStoreError: Timed out after 901 seconds waiting for clients. 1/2 clients joined.", "A rank of the job never joined"),
)  # fmt: skip


@every(AROUND)
def test_what_is_around_the_program(line: str, said: str) -> None:
    raised = line.split(":")[0].endswith(("Error", "Exception", "Value"))
    found = explain(["epoch 1: loss 0.4", *(_TRACE if raised and " " not in line.split(":")[0] else ()), line])
    assert (found.primary in ("unknown", "program.error"), said in found.findings[0].title) == (True, True)
    assert found.findings[0].action


def test_the_telling_one_of_the_last_lines_is_named() -> None:
    last = [
        "ERROR: Unable to find the kernel source tree for the currently running kernel.",
        "ERROR: Installation has failed.",
    ]
    found = explain(last).findings[0]
    assert "sources (headers)" in found.title
    assert found.evidence == (last[0].removeprefix("ERROR: "),) or last[0] in found.evidence[0]


def test_a_package_that_is_too_old_is_not_called_missing() -> None:
    found = explain(["Traceback (most recent call last):", '  File "a.py", line 1', "ImportError: pip install -U x"])
    assert "not installed" not in found.findings[0].title


_IN_A_FUNCTION = 'in user code:\n\n    File "train.py", line 7, in step  *\n        y = model(x)\n\n    {error}\n    \n    Arguments:'


@pytest.mark.parametrize(
    "message",
    [
        _IN_A_FUNCTION.format(error="ValueError: no such layer"),
        "Exception encountered when calling Model.call().\n\n\x1b[1m"
        + _IN_A_FUNCTION.format(error="ValueError: no such layer"),
        _IN_A_FUNCTION.format(
            error="ValueError: Exception encountered when calling M.call().\n\n\x1b[1mno such layer\x1b[0m"
        ),
        "Exception encountered when calling Model.call().\n\n\x1b[1mno such layer\x1b[0m",
    ],
)
def test_the_message_within_a_function_is_told(message: str) -> None:
    """AutoGraph and Keras write headings, colours and the traceback before it."""
    assert essential_line(message) == "no such layer"


def test_an_exception_of_a_package_that_knows_no_gpu_is_the_programs_own() -> None:
    raised = ["Traceback (most recent call last):", '  File "/a/store.py", line 7, in put', "    db.execute(row)"]
    found = explain([*raised, "sqlite3.OperationalError: table runs has 3 columns but 2 values were supplied"])
    assert found.primary == "program.error"
    assert "raised at /a/store.py, line 7: db.execute(row)" in found.findings[0].evidence
    for error in (
        "torch.jit.Broken: bad",
        "ray.exceptions.TaskTimeout: slow",
        "docker.errors.ApiError: cuda",
        "Broken: cuda",
    ):
        assert explain([*raised, error]).primary == "unknown", error


_RAYLET = "(raylet) A worker died or was killed while executing a task by an unexpected system error. Worker PID: 7"


def test_what_rays_raylet_says_of_a_worker_that_died_is_evidence() -> None:
    raised = ["Traceback (most recent call last):", '  File "/a/fit.py", line 7, in fit', "    ray.get(jobs)"]
    for error in (
        "ActorUnavailableError: The actor 7d is unavailable: RpcError",
        "WorkerCrashedError: The worker died",
    ):
        found = explain([*raised, f"ray.exceptions.{error}", _RAYLET]).findings[0]
        assert "Ray worker process died" in found.title
        assert _RAYLET in found.evidence
    assert "node of the Ray cluster" in explain([*raised, "ray.exceptions.NodeDiedError: gone"]).findings[0].title


def test_an_error_whose_text_is_cut_off_is_not_called_the_programs_own() -> None:
    raised = ["Traceback (most recent call last):", '  File "/a/fit.py", line 7, in fit', "    model.fit(x)"]
    name = "tensorflow.python.framework.errors_impl.InvalidArgumentError"
    assert explain([*raised, f"{name}: Graph execution error:"]).primary == "unknown"
    assert explain([*raised, f"{name}: bad shape"]).primary == "program.error"


@pytest.mark.parametrize(
    ("code", "said"), [("self = reduction.pickle.load(from_parent)", "what its parent sent"), ("load(f)", "is damaged")]
)
def test_what_a_new_process_could_not_read_is_no_file(code: str, said: str) -> None:
    lines = [_TRACE[0], '  File "/a/multiprocessing/spawn.py", line 1, in _main', f"    {code}"]
    assert said in explain([*lines, "_pickle.UnpicklingError: pickle data was truncated"]).findings[0].title


@pytest.mark.parametrize(
    ("below", "said"),
    [
        (["  Value error, steps (3) are fewer than warm-up (9) [type=value_error, input_value=3]"], "fewer than warm-up (9)"),
        (["depth", "  Input should be a valid integer [type=int_type, input_value='a']", "    For further"],
         "Settings: depth: Input should be a valid integer"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("prefix", ["", "(Server pid=7) "])
def test_the_reason_of_a_validation_error_stands_below_it(below: list[str], said: str, prefix: str) -> None:
    lines = [
        *_TRACE,
        '  File "loop.pyx", line 7, in run',
        "pydantic_core.ValidationError: 1 validation error for Settings",
    ]
    found = explain([prefix + line for line in [*lines, *below]]).findings[0]
    assert said in found.title
    assert not any("[type=" in line or ".pyx" in line for line in found.evidence)


@pytest.mark.parametrize(
    ("script", "said"), [("/var/spool/slurmd/job7/slurm_script", "scheduler's copy"), ("/a/t.py", "program's own")]
)
def test_a_module_that_a_copy_of_the_script_does_not_find(script: str, said: str) -> None:
    lines = [_TRACE[0], f'  File "{script}", line 3, in <module>', "    import net"]
    assert said in explain([*lines, "ModuleNotFoundError: No module named 'net'"]).findings[0].title


def test_an_exception_that_only_tells_of_retries() -> None:
    again, chained = (
        [*_TRACE, "Exception: retry() exceeds the maximum"],
        "During handling of the above exception, another",
    )
    own = [*_TRACE, "AssertionError: 79 not less than 45"]
    assert "AssertionError" in explain([*own, "", f"{chained} exception occurred:", "", *again]).findings[0].title
    assert "retry()" in explain([*own, "", *again]).findings[0].title


def test_an_exception_with_a_name_in_lower_case() -> None:
    raised = ["Traceback (most recent call last):", '  File "/a/fit.py", line 7, in fit', "    unpack(data)"]
    assert (
        "It ended in error" in explain([*raised, "struct.error: unpack requires a buffer of 4 bytes"]).findings[0].title
    )


def test_a_program_that_requires_a_gpu_and_finds_none() -> None:
    raised = ["Traceback (most recent call last):", '  File "/a/fit.py", line 7, in fit', "    Trainer()"]
    error = "lightning.fabric.utilities.exceptions.MisconfigurationException: No supported gpu backend found!"
    found = explain([*raised, error])
    assert [(one.severity, "requires a GPU and finds none" in one.title) for one in found.findings] == [("error", True)]
    assert explain([error.partition(": ")[2], "step 3"]).findings[0].severity != "error"


OF_A_KIND = (
    ("AttributeError: 'int' object has no attribute 'pop'", "of type int, which has no pop"),
    ("AttributeError: 'tuple' object has no attribute 'shape'", "of type tuple, which has no shape"),
    ("AttributeError: 'QuestionAnsweringModelOutput' object has no attribute 'logits'", "the head for the task"),
    ("TypeError: unsupported format string passed to tuple.__format__", "of type tuple is formatted"),
    ("TypeError: unsupported format string passed to NoneType.__format__", "of type NoneType is formatted"),
    ("TypeError: iteration over a 0-d tensor", "a single number"),
    ("TypeError: len() of unsized object", "a single number"),
    ("RuntimeError: masked_fill only supports boolean masks, but got dtype Long", "mask.bool()"),
    ("RuntimeError: Mask shape should match input", "the shapes there do not match"),
    ("ScopeParamShapeError: Initializer expected to generate shape (1, 9) but got shape (1, 3)", "the shapes there"),
    ("TabError: inconsistent use of tabs and spaces in indentation", "python -m tabnanny"),
    ("KeyError: 'SLURM_NTASKS'", "only if the matching option is given"),
    (
        "/usr/bin/python3: Error while finding module specification for 'torch.distributed.launch'"
        " (ModuleNotFoundError: No module named 'torch')",
        "The Python module torch is not installed",
    ),
    ("IndexError: Target 12 is out of bounds.", "outside the range of the classes: Target 12"),
    (
        "jinja2.exceptions.TemplateError: Conversation roles must alternate user/assistant",
        "messages: Conversation roles must",
    ),
    (
        "AssertionError: Error in memory profiling. Initial free memory 10.0 GiB, current free memory 12.0 GiB.",
        "released GPU memory",
    ),
    ("acme.errors.DatasetMissing: annotation file not found: data/coco/val.json", "does not exist: data/coco/val.json"),
    ("MyError: could not open /data/7.h5: No such file or directory", "does not exist: /data/7.h5"),
    ("ConfigError: Config file 'conf/a.yaml' does not exist", "does not exist: conf/a.yaml"),
    ("RuntimeError: Unable to open scene file scenes/room.usd: No such file", "does not exist: scenes/room.usd"),
    ("Exception: checkpoint /ckpt/last.pth not found", "does not exist: /ckpt/last.pth"),
    ("hydra.errors.X: Path '/data/train' doesn't exist", "does not exist: /data/train"),
    ("AssertionError: /data/kitti/training does not exist", "does not exist: /data/kitti/training"),
    ("nibabel.filebasedimages.ImageFileError: Empty file: '/d/a.nii.gz'", "download or write it again"),
    ("gzip.BadGzipFile: Not a gzipped file (b'<!')", "download or write it again"),
    ("EOFError: Compressed file ended before the end-of-stream marker was reached", "download or write it again"),
    (
        "pyarrow.lib.ArrowInvalid: Parquet magic bytes not found in footer. Either the file is corrupted or this is not a parquet file.",
        "download or write it again",
    ),
    (
        "OSError: Unable to synchronously open file (truncated file: eof = 96, sblock->base_addr = 0)",
        "download or write it again",
    ),
    ("tarfile.ReadError: unexpected end of data", "download or write it again"),
    ("zipfile.BadZipFile: Bad CRC-32 for file 'a.npy'", "download"),
    (
        "tensorflow.python.framework.errors_impl.InvalidArgumentError: cannot compute MatMul as input #1(zero-based) was expected to be a float tensor but is a double tensor [Op:MatMul]",
        "tf.cast",
    ),
    ("ValueError: Tensor conversion requested dtype float32 for Tensor with dtype int64: <tf.Tensor>", "tf.cast"),
    ("TypeError: Input 'y' of 'Mul' Op has type float32 that does not match type float16 of argument 'x'.", "tf.cast"),
    (
        "ValueError: Unknown loss function: 'crossentropi'. Please ensure you are using a `keras.utils.custom_object_scope`",
        "ensure you are using",
    ),
    ("ValueError: Invalid mode 'trian', should be one of train, eval", "choose one of those"),
    ("ValueError: num_heads (12) must be divisible by num_kv_heads (5)", "out of range there"),
    ("ValueError: batch_size should be a positive integer value, but got batch_size=0", "out of range there"),
    ("ValueError: All the layers should have unique names: names should be unique", "its own name"),
    ("ValueError: Duplicate node name in graph: 'x'", "its own name"),
    ("ValueError: need at least one array to stack", "the collection used there is empty"),
    ("RuntimeError: No samples were found in the training set", "the collection used there is empty"),
    ("ValueError: Found input variables with inconsistent numbers of samples: [100, 90]", "different lengths"),
    ("ValueError: X has 12 features, but StandardScaler is expecting 13 features as input.", "different lengths"),
    ("ValueError: could not convert string to float: 'n/a'", "a header"),
    ("ValueError: invalid literal for int() with base 10: ''", "a header"),
    ("traci.exceptions.FatalTraCIError: Connection closed by SUMO.", "closed it"),
    ("TimeoutError: The operation timed out after 600 s", "the wait timed out"),
    ("TypeError: 'type' object is not subscriptable", "needs a newer interpreter"),
    ("TypeError: 'ABCMeta' object is not subscriptable", "needs a newer interpreter"),
    ("TypeError: unsupported operand type(s) for |: 'type' and 'NoneType'", "needs a newer interpreter"),
    ("TypeError: type 'collections.deque' is not subscriptable", "needs a newer interpreter"),
    ("TypeError: 'NoneType' object is not subscriptable", "value there is None"),
    ("TypeError: 'method' object is not subscriptable", "print the types"),
    ("ImportError: cannot import name 'Self' from 'typing' (/usr/lib/python3.10/typing.py)", "newer Python than"),
    ("ModuleNotFoundError: No module named 'tomllib'", "newer Python than"),
    ("ModuleNotFoundError: No module named 'imp'", "for an older Python"),
    ("ModuleNotFoundError: No module named 'distutils.util'", "for an older Python"),
    ("ModuleNotFoundError: No module named 'important'", "not installed"),
    ("bdb.BdbQuit", "breakpoint"),
    ("ConnectionRefusedError: [Errno 111] Connection refused", "Nothing listens"),
    (
        "redis.exceptions.ConnectionError: Error 111 connecting to localhost:6379. Connection refused.",
        "Nothing listens",
    ),
    ("zmq.error.ZMQError: Address already in use (addr='ipc:///tmp/a_port_1')", "socket file /tmp/a_port_1"),
    ("zmq.error.ZMQError: Address already in use (addr='tcp://*:5555')", "port is in use"),
    ("ollama._types.ResponseError: model 'llama9:1b' not found (status code: 404)", "ollama pull llama9:1b"),
    ("openai.NotFoundError: Error code: 404 - {'error': {'message': 'The model `q7b` does not exist.'}}", "model"),
    ("ModuleNotFoundError: No module named 'projlib.readers'", "start from the project's root"),
    ("ModuleNotFoundError: No module named 'transformers.models.newone'", "installed version of its package"),
    (
        "ValueError: Dimensions must be equal, but are 14 and 16 for '{{node loss/mean_squared_error/SquaredDifference}} = SquaredDifference[T=DT_FLOAT](a, b)' with input shapes: [8,14], [8,16].",
        "output and its targets",
    ),
    ("IsADirectoryError: [Errno 21] Is a directory: '/d'", "a folder, but a file is expected"),
    ("TypeError: expected str, bytes or os.PathLike object, not NoneType", "value there is None"),
    ("KeyError: 'timeout'", "print the keys"),
)


@every(OF_A_KIND)
def test_what_to_do_is_told_by_the_kind_of_an_error(error: str, said: str) -> None:
    found = explain(["epoch 1: loss 0.4", _HEAD, _FRAME, "    main()", error]).findings[0]
    assert said in f"{found.title} {found.action}"
    assert "print what it is given" not in found.action


def _raised(command: str) -> list[str]:
    error = f"subprocess.CalledProcessError: Command {command} returned non-zero exit status 1."
    return [_HEAD, _FRAME, "    subprocess.check_call(command)", error]


@every(
    [
        (["step 1 loss 0.4", "error: invalid value for '--threads': abc is not a number"], "lists what it accepts"),
        (
            [
                "step 1 loss 0.4",
                "main.c:3:10: fatal error: cudnn.h: No such file or directory",
                "compilation terminated.",
            ],
            "header cudnn.h",
        ),
        (["[1/3] building", "nvcc fatal   : Unsupported gpu architecture 'compute_90+PTX'"], "plain number"),
        (["[1/3] building", "nvcc fatal   : Unknown option '-std=c++20'"], "rejected its command line"),
        (["step 1 loss 0.4", "FATAL: mesh file meshes/wing.msh not found"], "does not exist: meshes/wing.msh"),
        (["step 1 loss 0.4", "[ERROR] could not read image in/7.png: file is truncated"], "again"),
        (["step 1 loss 0.4", "error: connect to http://localhost:8000: Connection refused"], "Nothing listens"),
        (
            [
                "[ 3%] Building CUDA object a.cu.o",
                "nvcc fatal   : Unsupported gpu architecture 'compute_30'",
                "make[2]: *** [a.cu.o] Error 1",
                "make[1]: *** [all] Error 2",
                "make: *** [all] Error 2",
            ],
            "cannot build for compute_30",
        ),
        (
            [
                "g++ -c x.cc",
                "x.cc:3:10: fatal error: hdf5.h: No such file or directory",
                " #include <hdf5.h>",
                "compilation terminated.",
                "make: *** [Makefile:7: x.o] Error 1",
            ],
            "header hdf5.h",
        ),
        (
            [
                "/usr/bin/ld: a.o: in function `main':",
                "a.cc:(.text+0x1): undefined reference to `H5Fopen'",
                "collect2: error: ld returned 1 exit status",
                "make: *** [a] Error 1",
            ],
            "H5Fopen",
        ),
        (
            [
                "nvcc a.cu",
                'a.cu(17): error: identifier "foo" is undefined',
                "",
                '1 error detected in the compilation of "a.cu".',
                "make[1]: *** [a.o] Error 2",
            ],
            "a.cu(17): error: identifier",
        ),
        (
            [
                "[2/9] Building CXX object",
                "FAILED: x.o",
                "/p/x.cpp:12:5: error: 'foo' was not declared in this scope",
                "ninja: build stopped: subcommand failed.",
            ],
            "x.cpp:12:5: error:",
        ),
        (
            [
                "/usr/bin/ld: cannot find -lcublas",
                "collect2: error: ld returned 1 exit status",
                "make: *** [Makefile:3: run] Error 1",
            ],
            "library cublas",
        ),
        (["epoch 1", "make: *** [Makefile:3: run] Error 1"], "A command that make ran failed"),
        (
            [
                "make: Entering directory",
                "python train.py",
                "Traceback (most recent call last):",
                '  File "/a/train.py", line 7, in <module>',
                "    x()",
                "ValueError: bad",
                "make: *** [Makefile:3: run] Error 1",
            ],
            "ValueError",
        ),
        (
            [
                "[I] start",
                "[E] 2: [virtualMemoryBuffer.cpp::resizePhysical::127] Error Code 2: OutOfMemory (no further information)",
            ],
            "smaller workspace",
        ),
        (["step 1", "Internal error (bug):", "Failed to compile NBNXN kernels for GPU #NVIDIA L4"], "GMX_GPU=CUDA"),
        (["step 1 loss 0.4", "free(): invalid pointer"], "aborted because native code damaged the heap"),
        (["[1/3] building", "nvcc fatal: Unsupported gpu architecture 'compute_86'"], "cannot build for compute_86"),
        (
            ["I get \"nvcc fatal : Unsupported gpu architecture 'compute_89' ninja: build stopped\" on it, any idea?"],
            "cannot build for compute_89",
        ),
        (
            [
                "nvcc fatal   : Unsupported gpu architecture 'compute_61",
                "error: command '/usr/bin/nvcc' failed with exit status 1",
            ],
            "cannot build for compute_61",
        ),
        (["[2/9] cc", "clang: error: unsupported CUDA gpu architecture: sm_120"], "cannot build for sm_120"),
        (["nvcc fatal   : Unsupported gpu architecture 'compute_None'", "make: *** [a.o] Error 1"], "is not a number"),
        (["nvcc fatal   : Unsupported gpu architecture 'compute_'", "make: *** [a.o] Error 1"], "is not a number"),
        (["nvcc fatal   : Unsupported gpu architecture 'sm_@ARCH@'", "make: *** [a.o] Error 1"], "is not a number"),
        (["[1/9] cc", "/bin/sh: 1: /opt/llvm/bin/tblgen: Permission denied", *_raised("['ninja', '-j8']")], "chmod +x"),
        (["[1/9] cc", "/bin/sh: 1: protoc: not found", "make: *** [a] Error 127", *_raised("['make']")], "protoc"),
        (["a.cpp:3:10: fatal error: a.hpp: No such file or directory", *_raised("['cmake', '--build', '.']")], "a.hpp"),
        (["step 1", *_raised("['ffmpeg', '-i', 'a.mp4']")], "A command that the program ran failed: ffmpeg"),
        (["step 1", *_raised("'git clone https://example.org/y'")], "A command that the program ran failed: git"),
        (["step 1", *_raised("['/usr/bin/python3', '-u', 'a.py', '--local_rank=0']")], "A process of the job failed"),
        (
            [
                "FATAL ERROR: variable in data clause is partially present on the device: name=a",
                " file:/home/u/main.c solve line:116",
                "The target application returned non-zero exit code 1",
                "Processing events...",
            ],
            "OpenACC does not find",
        ),
        (["FATAL ERROR: data in PRESENT clause was not found on device 1: name=u"], "OpenACC does not find"),
        (["step 1", "The target application returned non-zero exit code 3", "Processing events..."], "process"),
        (
            [
                "[05/05/2022-10:00:00] [E] [TRT] ModelImporter.cpp:720: Found unsupported datatype (11) when importing"
                " initializer: norm.total_ops",
                "[05/05/2022-10:00:00] [E] Failed to parse onnx file",
                "[05/05/2022-10:00:00] [E] Engine set up failed",
            ],
            "does not support a type",
        ),
    ]
)
def test_what_a_tool_said_outranks_what_follows_from_it(lines: list[str], said: str) -> None:
    """A compiler's or a parser's own line, before the lines of make, ninja or a usage."""
    found = explain(lines).findings[0]
    assert said in f"{found.title} {found.action}"


@pytest.mark.parametrize(
    ("file", "code", "told"),
    [
        ("features/extract.py", "import features.creator as data", "The module features is the script's own folder"),
        (
            "C:\\w\\features\\extract.py",
            "from features.creator import a",
            "The module features is the script's own folder",
        ),
        ("/w/features/extract.py", "import features", "The Python module features is not installed"),
        ("/w/extract.py", "import features.creator", "The Python module features is not installed"),
    ],
)
def test_a_script_in_the_folder_that_it_imports_is_started_from_the_one_above(file: str, code: str, told: str) -> None:
    head = ["Traceback (most recent call last):", f'  File "{file}", line 1, in <module>', f"    {code}"]
    found = explain([*head, "ModuleNotFoundError: No module named 'features'"])
    assert found.findings[0].title.startswith(told)
