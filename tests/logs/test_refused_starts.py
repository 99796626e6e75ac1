"""What an interpreter, a shell, an argument parser or the program's own imports refused, told in its own words."""

from __future__ import annotations

from gpuwatch.explain.diagnosis.explain_log import explain
from tests.every import every

_LAUNCHER = """\
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
train.py FAILED
Root Cause (first observed failure):
[0]:
  exitcode  : 2 (pid: 3312)"""
REFUSED = [
    ("python: can't open file 'a/train.py': [Errno 2] No such file or directory", "a/train.py does not exist", "cd to"),
    ("/usr/bin/python3: No module named pip", "has no pip", "ensurepip"),
    ("/env/bin/python: No module named yolo.__main__; 'yolo' is a package", "yolo is a package that", "-m yolo.MODULE"),
    ("C:\\Py\\python.exe: No module named vllm", "vllm, which python -m", "pip install"),
    (
        f"usage: train.py [-h]\ntrain.py: error: unrecognized arguments: --lrr 3\n{_LAUNCHER}",
        "arguments --lrr 3",
        "help",
    ),
    (f"train.py: error: unrecognized arguments: --local-rank=0\n{_LAUNCHER}", "passes --local-rank=0", "torchrun"),
    ("vllm: error: the following arguments are required: model_tag", "without model_tag", "command line"),
    ("x.py: error: argument --net: invalid choice: 'r9' (choose from 'r18')", "--net does not accept", "lists"),
    ("x.py: error: argument --gpu: expected one argument", "--gpu has a wrong value", "--help"),
    ("bash: accelerate: command not found", "command accelerate", "environment"),
    ("/bin/sh: 1: nvcc: not found", "nvcc, CUDA's compiler", "PATH"),
    (
        "'torchrun' is not recognized as an internal or external command,\nline 2",
        "command torchrun",
        "environment",
    ),
    ("zsh: command not found: torchrun", "command torchrun", "environment"),
    ("a.sh: line 3: lr=0.1: command not found", "argument as a separate command: lr=0.1", "\\"),
    ("a.sh: 7: a.sh: Bad substitution", "bash", "bash FILE"),
    ("a.sh: 3: [[: not found", "bash", "bash FILE"),
    ("a.sh: line 4: syntax error near unexpected token `('\na.sh: line 4: `f(x)'", "a syntax error", "bash -n"),
    ("a.sh: line 2: $'\\r': command not found", "Windows line end", "dos2unix"),
    ("bash: ./run.py: /opt/py: bad interpreter: No such file or directory", "does not exist: /opt/py", "first|line"),
    ("bash: ./server: cannot execute binary file: Exec format error", "./server was built for another", "uname"),
    ("a.sh: line 9: /env/bin/python: Permission denied", "no permission to execute", "chmod"),
]
RAISED = [
    ("ImportError: cannot import name 'f' from 'models' (/p/models.py)", "own module models", "Define it"),
    ("ImportError: cannot import name 'f' from 'x' (/e/site-packages/x.py)", "installed version", "pip check"),
    ("ImportError: cannot import name 'Tensor' from 'torch' (/p/torch.py)", "in its place: /p/torch.py", "Rename"),
    ("ImportError: cannot import name 'Mapping' from 'collections' (/usr/lib/python3.12/a.py)", "older", "Update"),
    ("ModuleNotFoundError: No module named 'utils.metrics'", "the program's own", "PYTHONPATH"),
    ("AttributeError: module 'random' has no attribute 'x' (consider renaming '/p/random.py' since it has the same name"
     " as the standard library module)", "/p/random.py", "Rename"),
    ("AttributeError: `np.Inf` was removed in the NumPy 2.0 release. Use `np.inf` instead.", "np.Inf", "np.inf"),
    ("AttributeError: 'EasyDict' object has no attribute 'LOSS'", "AttributeError", "configuration without LOSS"),
    ("AttributeError: 'Namespace' object has no attribute 'amp'", "AttributeError", "--amp"),
    ("KeyError: 'LOCAL_RANK'", "LOCAL_RANK, which a launcher", "torchrun"),
    ("RecursionError: maximum recursion depth exceeded", "calls itself", "loop"),
    ("OSError: broken data stream when reading image file", "truncated", "skip it"),
    ("openai.NotFoundError: 404 page not found", "answered 404", "base_url"),
    ("Exception: The wandb backend process has shutdown", "own process ended", "offline"),
]  # fmt: skip


@every(REFUSED)
def test_what_was_not_started(log: str, title: str, action: str) -> None:
    found = explain(log.split("\n")).findings[0]
    assert found.severity == "error"
    assert title in found.title
    assert any(words in found.action for words in action.split("|"))


@every(RAISED)
def test_what_was_raised(error: str, title: str, action: str) -> None:
    log = f'Traceback (most recent call last):\n  File "/p/train.py", line 3, in <module>\n    main()\n{error}'
    found = explain(log.split("\n")).findings[0]
    assert title in found.title
    assert action in found.action


def test_a_variable_of_the_environment_that_is_not_set() -> None:
    log = """Traceback (most recent call last):
  File "/p/train.py", line 3, in <module>
    root = os.environ["DATA"]
KeyError: 'DATA'"""
    assert "DATA is not set" in explain(log.split("\n")).findings[0].title


def test_a_script_that_went_on_and_worked_was_started() -> None:
    steps = [f"Epoch {n}/40 loss: 0.{n}" for n in range(40)]
    for log in (["a.sh: line 3: module: command not found", *steps], [*steps, "a.sh: line 3: x: command not found"]):
        assert (explain(log).primary == "healthy") is log[-1].startswith("Epoch")
