"""What is read of made-up processes."""

from __future__ import annotations

from gpuwatch.machine.sources.process_details import ProcessDetails, Relative
from gpuwatch.session.process_history import Identity

ENVIRONMENT = {
    "PATH": "/opt/venv/bin:/usr/bin",
    "CUDA_VISIBLE_DEVICES": "1,0",
    "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True,max_split_size_mb:128",
    "HF_TOKEN": "hf_verysecret",
    "DATABASE": "postgres://bob:verysecret@db/train",
    "EVIL": "\x1b[31mred\n\u202eright",
    "LANG": "en_US.UTF-8",
}


def details_of(who: Identity) -> ProcessDetails:
    """Like a process of the same user; denied for bob's, gone without a start time."""
    pid, create_time = who
    if create_time is None:
        return ProcessDetails(problem="it is not visible here: another PID namespace, or it has exited")
    if pid == 51877:
        denied = "permission denied: it belongs to another user"
        return ProcessDetails(
            why={"environment": denied, "interpreter": denied}, parents=(Relative(1, 1, "/sbin/init"),)
        )
    return ProcessDetails(
        environment=dict(ENVIRONMENT),
        interpreter="/opt/venv/bin/python3.12",
        inner_pid=17 if pid == 48121 else None,
        parents=(Relative(4000, 1, "bash train.sh --token abcdef"), Relative(1, 2, "/sbin/init")),
        children=(
            Relative(pid + 1, 1, "python -c from multiprocessing.spawn import spawn_main"),
            Relative(pid + 2, 2, "nvcc --version"),
            Relative(pid + 3, 1, "[defunct]"),
        ),
    )
