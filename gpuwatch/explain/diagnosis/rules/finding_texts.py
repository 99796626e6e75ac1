"""How findings name GPUs, processes and lines of programs."""

from __future__ import annotations

from gpuwatch.core.masking.mask_secrets import mask_text
from gpuwatch.core.model.snapshot import Process
from gpuwatch.core.safe_text import printable, shorten
from gpuwatch.explain.logs.tracebacks import Frame
from gpuwatch.machine.history.process_labels import process_label

_SETTINGS = {
    "tensorflow": "Set memory growth (TF_FORCE_GPU_ALLOW_GROWTH=true), with a memory_limit where others share the GPU;"
    " allocated memory is freed when the process exits.",
    "torch": "End the process or restart the notebook's kernel; torch.cuda.empty_cache() frees only unused blocks.",
    "jaxlib": "Set XLA_PYTHON_CLIENT_PREALLOCATE=false, or XLA_PYTHON_CLIENT_MEM_FRACTION; otherwise end the process.",
}


def setting_of(process: Process) -> str:
    """The framework's own setting against holding memory."""
    name = (process.framework or "").partition(" ")[0]
    owner = printable(process.user) if process.user else "its owner"
    if name not in _SETTINGS and process.create_time is None:
        return f"Find out on the host (nvidia-smi) whose process {process.pid} is, and whether it is still needed."
    return _SETTINGS.get(name, f"Ask {owner} whether the process is still needed.")


def process_name(process: Process) -> str:
    """``alice's train.py (4711)`` as in events, or ``process 4711, which is not visible here,``."""
    if process.create_time is None and not process.user and not process.name and not process.command:
        return f"process {process.pid}, which is not visible here,"
    return process_label(process)


def at_line(what: str, frame: Frame) -> str:
    """``requested at train.py, line 7: x = tf.zeros(shape)``, secrets masked."""
    code = f": {quoted(frame.code, 120)}" if frame.code else ""
    return f"{what} {printable(frame.file)}, line {frame.line}{code}"


def command(process: Process) -> str:
    """The command line, secrets masked; empty if it cannot be read."""
    return quoted(process.command or "", 120)


def quoted(text: str, most: int) -> str:
    """A line of a log or program, at most ``most`` characters of it, secrets masked."""
    return shorten(mask_text(printable(text)), most)
