"""What the stack of an allocation (PyTorch, JAX) shows: the program's line, the op, and what the memory was for.

Frames come innermost first. PyTorch's stacks have frames of C++ among those of Python
(torch/csrc/profiler/combined_traceback.cpp). A C++ frame names the op (``at::_ops::bmm::call``) and the node of the
backward pass (``BmmBackward0``); a Python frame has a file, a function and a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gpuwatch.explain.traces import InvalidTrace

MAX_FRAMES = 400
_MAX_FRAMES_READ = 16_000_000
"""Frames that are looked at in all stacks of a file."""
_MAX_SAME_NAMED_FILES = 10
"""Files of one name that are told apart."""
_MAX_TEXT_CHARS, _MAX_PATH_CHARS = 160, 4096

Kind = Literal["native", "framework", "hidden", "library", "program"]
"""``hidden``: the interpreter, the standard library, launchers, generated code."""
Role = Literal[
    "", "workspace", "backward", "optimizer", "zero_grad", "state", "weights", "gradients", "cache", "forward",
    "inputs", "computed", "created",
]  # fmt: skip
"""What the frames say the memory is for: ``state`` of an optimizer; ``zero_grad`` clears gradients; ``computed``
by an op outside of a module, ``created`` by one such as ``torch.zeros``."""

_PACKAGE = re.compile(r"/(?:site|dist)-packages/([^/]+)")
_FRAMEWORK = re.compile(
    r"(?:^|/)torch/(?:_|(?:amp|ao|autograd|backends|compiler|cuda|distributed|distributions|export|fft|func|functional"
    r"|futures|fx|hub|jit|library|linalg|masked|mtia|multiprocessing|nested|nn|onnx|optim|overrides|package|profiler"
    r"|quantization|random|serialization|signal|sparse|special|storage|utils|xpu)(?:/|\.py))|/(?:site|dist)-packages/(?:torch|jax|jaxlib)/"
)
_HIDDEN = re.compile(
    r"/lib(?:64)?/python\d[\d.]*/(?!(?:site|dist)-packages/)|/[Pp]ython\d+/[Ll]ib/(?!site-packages/)|/torchinductor_"
    r"|/bin/[^/.]+$|^<(?!ipython-input|stdin>|command-|cell )"
)
_NATIVE = re.compile(r"^(?:\?\?)?$|\.(?:c|cc|cpp|cxx|cu|cuh|h|hpp|hh|inl|tcc|S|pyx|pxd|rs)$|\.so[.\d]*$")
_LAUNCHERS = frozenset(
    {
        *("IPython", "_pytest", "accelerate", "click", "debugpy", "fire", "hydra", "ipykernel", "joblib", "pluggy"),
        *("pytest", "ray", "tornado", "traitlets", "typer", "uvloop"),
    }
)
_NOTEBOOK_CELL = re.compile(r"/ipykernel_\d+/(\d+)\.py$|^<ipython-input-(\d+)|/ipython-input-(\d+)")
_MODULE = "torch/nn/modules/module.py"

_OP = re.compile(r"at::_ops::(\w+)::(?:call|redispatch)")
_OVERLOAD = re.compile(r"(?<=[a-z0-9])_[A-Z]\w*$")
_KERNEL = re.compile(r"at::native::(?:\w+::)*(?!impl$|operator)(\w+)$")
_NODE = re.compile(r"torch::autograd::(?:\w+::)*?(\w*Backward\w*?)(?:_apply_functional\w*)?(?:::|$)")
_ENGINE = re.compile(r"torch::autograd::(?:Engine|AccumulateGrad|Node|PyNode|python::PythonEngine)::")
_WORKSPACE = re.compile(r"[wW]orkspace|CUDABlasHandle|createCublas|CuFFT|cub::|radix_sort")
_COPYING_OP = re.compile(r"(?:to_(?:dtype_layout|device|prim\w*)|_to_copy|cuda|copy_?)$")
_FACTORY_OP = re.compile(
    r"_?(?:empty|zeros|ones|full|rand|arange|linspace|eye|normal|tensor|scalar_tensor|new_|from_|lift|efficientzero)"
)

_OPTIMIZERS = r"/optim(?:izers?)?/|/\w*(?:optim|adam|adagrad|adafactor|lion|muon|lamb|sgd|shampoo)\w*\.py$"
_SHARDED = r"torch/distributed/|torch/nn/parallel/|/deepspeed/|/megatron/"
_ROLES: tuple[tuple[str, str, Role], ...] = (
    (r"", r"_?clear_cuda_memory$|_cuda_clearCublas", "workspace"),
    (r"torch/optim/lr_scheduler", r"", ""),
    (r"torch/optim/swa_utils", r"", "weights"),
    (_OPTIMIZERS, r"zero_grad$", "zero_grad"),
    (_OPTIMIZERS, r"_?(?:init_(?:group|states?)|init_optimizer_states?|initialize_optimizer_states|load_state_dict)$",
     "state"),
    (r"torch/optim/|torch/amp/grad_scaler|/clip_grad", r"", "optimizer"),
    (_OPTIMIZERS + r"|/zero/stage", r"_?(?:step|update|optimizer_step|_take_model_step|adamw?|update_\w+)$",
     "optimizer"),
    (_SHARDED, r".*(?:all_?gather|unshard|alloc_padded|convert_to_deepspeed)", "weights"),
    (_SHARDED, r".*(?:reduce|_grads?(?:$|_))", "gradients"),
    (r"torch/autograd/|torch/_tensor\.py", r"(?:backward|grad|_engine_run_backward)$", "backward"),
    (r"", r"_?backward(?:_impl|_prologue)?$", "backward"),
    (r"/cache_utils\.py|/kv_?cache|/cache_engine", r"", "cache"),
    (r"", r".*kv_?cache|_?(?:init|alloc|allocate|create|setup|build|reserve)_(?:\w+_)?caches?(?:$|_)", "cache"),
    (_MODULE, r"(?:convert|_apply|to_empty|load_state_dict|_load_from_state_dict)$", "weights"),
    (r"torch/nn/(?:init|parameter)\.py|/safetensors/|torch/(?:serialization|_utils)\.py", r"", "weights"),
    (r"torch/nn/modules/", r"(?:reset_parameters|__init__)$", "weights"),
    (r"/accelerate/utils/modeling|/modeling_utils\.py|/core_model_loading|/model_loader/",
     r".*(?:load|init|set_module)", "weights"),
    (r"", r"from_pretrained$|_?load_(?:checkpoint|state_dict|model|pretrained|shard\w*)$|reset_parameters$"
     r"|_?(?:init|load|create|alloc|allocate|process|materialize)_(?:\w+_)?weights?(?:$|_)", "weights"),
    (_MODULE, r"_call_impl$", "forward"),
    (r"torch/nn/|torch/autograd/function\.py|/torchinductor_|torch/utils/checkpoint\.py|/runtime_wrappers\.py",
     r"(?:forward|apply|call|recompute_fn)$", "forward"),
)  # fmt: skip
"""File, function (from its start) and role; the first that fits counts."""
_ROLE_PATTERNS = tuple((re.compile(file), re.compile(function), role) for file, function, role in _ROLES)


@dataclass(frozen=True, slots=True)
class Stack:
    """What the frames of an allocation or a free tell."""

    line: str = ""
    """``train.py:12 in forward``: the innermost frame of the program; empty if there is none."""
    layer_line: str = ""
    """The line of a library's layer that the program called; empty if the layer is its own."""
    op: str = ""
    """``bmm``, or ``BmmBackward0`` in the backward pass; empty without C++ frames."""
    role: Role = ""
    known: bool = False
    """Whether there were any frames."""
    native: bool = False
    """Whether there were C++ frames."""


@dataclass(frozen=True, slots=True)
class _Frame:
    kind: Kind
    role: Role
    op: str = ""
    node: str = ""
    package: str = ""
    path: str = ""
    function: str = ""


NO_STACK = Stack()


class StackReader:
    """Reads stacks, each of them once."""

    def __init__(self) -> None:
        self._frames_left = _MAX_FRAMES_READ
        self._stacks: dict[int, Stack] = {}
        self._read_lists: list[Any] = []
        """Lists that were read, kept so that no other object gets their id."""
        self._frames: dict[tuple[str, str], _Frame] = {}
        self._paths: dict[str, set[str]] = {}
        self._shortened: dict[str, str] = {}

    def read(self, frames: Any) -> Stack:
        """The stack of ``frames``; :class:`InvalidTrace` if a file has too many of them."""
        if not isinstance(frames, (list, tuple)) or not frames:
            return NO_STACK
        known = self._stacks.get(id(frames))
        if known is None:
            self._frames_left -= min(len(frames), MAX_FRAMES)
            if self._frames_left < 0:
                raise InvalidTrace(f"its stacks have more than {_MAX_FRAMES_READ:,} frames")
            known = self._stacks[id(frames)] = self._read(frames[:MAX_FRAMES])
            self._read_lists.append(frames)
        return known

    def _read(self, frames: Sequence[Any]) -> Stack:
        seen = [(frame, entry) for entry in frames if (frame := self._frame(entry)) is not None]
        frame_with_role = next((frame for frame, _ in seen if frame.role), None)
        role: Role = frame_with_role.role if frame_with_role is not None else ""
        op = (frame_with_role is not None and frame_with_role.node) or _called_op(frame for frame, _ in seen)
        place = _program_frame([frame for frame, _ in seen])
        native = any(frame.kind == "native" for frame, _ in seen)
        if place is None:
            return Stack("", "", op, role or _role_of_op(op), known=True, native=native)
        called = [at for at, (frame, _) in enumerate(seen[:place]) if frame.path.endswith(_MODULE)]
        layer = next((at for at, (frame, _) in enumerate(seen[:place]) if frame.kind == "library"), place)
        layer_line = self._line(*seen[layer]) if called and layer < called[-1] else ""
        return Stack(self._line(*seen[place]), layer_line, op, role or _role_of_op(op), known=True, native=native)

    def _frame(self, entry: Any) -> _Frame | None:
        if not isinstance(entry, dict):
            return None
        file, function = entry.get("filename"), entry.get("name")
        if not isinstance(file, str) or not isinstance(function, str):
            return None
        key = file[:_MAX_PATH_CHARS], function[:_MAX_PATH_CHARS]
        known = self._frames.get(key)
        if known is None:
            known = self._frames[key] = _frame(*key)
        return known

    def _line(self, frame: _Frame, entry: dict[str, Any]) -> str:
        base = frame.path.rpartition("/")[2]
        paths = self._paths.setdefault(base, set())
        if len(paths) < _MAX_SAME_NAMED_FILES:
            paths.add(frame.path)
        number = entry.get("line")
        line = number if type(number) is int and 0 <= number < 1 << 31 else 0
        return f"{frame.path}:{line} in {frame.function}"

    def shorten(self, line: str) -> str:
        """A line with as little of its file's path as tells it from the others; an empty one stays empty."""
        if line not in self._shortened:
            self._shortened[line] = self._shorten(line)
        return self._shortened[line]

    def _shorten(self, line: str) -> str:
        path, colon, rest = line.rpartition(":")
        cell = _NOTEBOOK_CELL.search(path)
        if cell:
            return f"notebook cell {cell[1] or cell[2] or cell[3]}{colon}{rest}"[:_MAX_TEXT_CHARS]
        parts = path.split("/")
        others = [other.split("/") for other in self._paths.get(parts[-1], ()) if other != path]
        count = 1
        while count < len(parts) and any(other[-count:] == parts[-count:] for other in others):
            count += 1
        return f"{'/'.join(parts[-count:])}{colon}{rest}"[:_MAX_TEXT_CHARS]


def _frame(file: str, function: str) -> _Frame:
    path = file.replace("\\", "/")
    if not path.endswith(".py") and (_NATIVE.search(path) or "::" in function or "(" in function):
        name = function.replace("(anonymous namespace)", "_").partition("(")[0].rpartition(" ")[2]
        return _Frame(
            "native",
            _native_role(name),
            _OVERLOAD.sub("", _first_group(_OP, name) or _first_group(_KERNEL, name)),
            _first_group(_NODE, name),
        )
    role: Role = next((role for at, of, role in _ROLE_PATTERNS if at.search(path) and of.match(function)), "")
    package = _first_group(_PACKAGE, path)
    kind: Kind = "program"
    if _FRAMEWORK.search(path):
        kind = "framework"
    elif _HIDDEN.search(path):
        kind = "hidden"
    elif package:
        kind = "library"
    return _Frame(kind, role, package=package, path=path, function=function)


def _native_role(name: str) -> Role:
    if _WORKSPACE.search(name):
        return "workspace"
    if name.startswith("c10d::Reducer::"):  # buckets of DistributedDataParallel
        return "gradients"
    return "backward" if _NODE.match(name) or _ENGINE.match(name) else ""


def _first_group(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return found[1] if found else ""


def _program_frame(frames: Sequence[_Frame]) -> int | None:
    """The innermost frame of the program.

    One that is installed, and run by ``python -m`` or its script, is the package that stands outermost. What is given
    to ``python -c``, and a script that lies in a folder ``bin``, count where there is nothing else.
    """
    # A program without the suffix of Python is told from a binary, whose frames have files too, by its module.
    scripts = {frame.path for frame in frames if frame.function == "<module>"}
    for at, frame in enumerate(frames):
        if frame.kind == "program" and (frame.path.endswith(".py") or frame.path in scripts or frame.path[0] == "<"):
            return at
    package = next(
        (frame.package for frame in reversed(frames) if frame.kind == "library" and frame.package not in _LAUNCHERS), ""
    )
    for at, frame in enumerate(frames):
        if frame.kind == "library" and frame.package == package:
            return at
    for at, frame in enumerate(frames):
        if frame.kind == "hidden" and (frame.path == "<string>" or "/bin/" in frame.path):
            return at
    return None


def _called_op(frames: Iterable[_Frame]) -> str:
    """The op that Python, or a node of the backward pass, called."""
    op = ""
    for frame in frames:
        if frame.kind != "native" or frame.role == "backward":
            return op
        op = frame.op or op
    return op


def _role_of_op(op: str) -> Role:
    if not op:
        return ""
    if _FACTORY_OP.match(op):
        return "created"
    return "inputs" if _COPYING_OP.match(op) else "computed"
