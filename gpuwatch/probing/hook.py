"""The folder in PYTHONPATH through which gpuwatch gets into a program's Python, or its simulation does.

probes/_gpuwatch_watch/sitecustomize.py tells what happens there.
"""

from __future__ import annotations

import os

from gpuwatch.probing.locate import probe_folder


def hooked(environment: dict[str, str]) -> dict[str, str]:
    """The environment with that folder first in PYTHONPATH, once."""
    hook = str(probe_folder() / "_gpuwatch_watch")
    others = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path not in ("", hook)]
    return {**environment, "PYTHONPATH": os.pathsep.join([hook, *others])}
