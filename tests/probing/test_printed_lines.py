"""Lines that a program only prints are no failures of it; the same lines of a process that had them are."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.experiment.probing.quoted_failures import FailureCounts, was_written_before, without_quoted_failures
from gpuwatch.explain.logs.log_parser import parse
from tests.forked import gpuwatch_forked
from tests.probing.watched import read, with_torch

_STARTED = datetime.datetime(2025, 6, 1, 12, 0, tzinfo=datetime.UTC)
_LOG = """\
Allocator (GPU_0_bfc) ran out of memory trying to allocate 4.00GiB (rounded to 4294967296)requested by op Mul
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 139.81 GiB of \
which 1.00 GiB is free.
Could not create cudnn handle: CUDNN_STATUS_INTERNAL_ERROR
NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus
E external/local_xla/xla/stream_executor/cuda/cuda_driver.cc:282] failed call to cuInit: CUDA_ERROR_NO_DEVICE: no device
CUDA error: device-side assert triggered
"""
_PRINT = f"print({_LOG!r})\n"


@pytest.mark.fast
@pytest.mark.parametrize(
    ("line", "older"),
    [
        ("W0000 00:00:1748779199.123456   12345 bfc_allocator.cc:501] Allocator", False),
        ("W0000 00:00:1748692799.123456   12345 bfc_allocator.cc:501] Allocator", True),
        ("2025-05-31 23:59:59.123456: W external/x/bfc_allocator.cc:497] Allocator", False),
        ("2025-05-29 23:59:59.123456: W external/x/bfc_allocator.cc:497] Allocator", True),
        ("2025-13-99 23:59:59.123456: W external/x/bfc_allocator.cc:497] Allocator", False),
        ("Allocator (GPU_0_bfc) ran out of memory trying to allocate 4.00GiB", False),
    ],
)
def test_a_line_older_than_the_program(line: str, older: bool) -> None:
    assert was_written_before(line, _STARTED) is older


@pytest.mark.fast
def test_what_a_count_denies_and_what_it_leaves() -> None:
    facts = parse(_LOG)
    assert without_quoted_failures(facts, None) is facts
    counted = FailureCounts(failed_allocations=1, other_failures=0, used_framework=True, used_gpus=True)
    assert without_quoted_failures(facts, counted) is facts
    uncounted = without_quoted_failures(
        facts, FailureCounts(failed_allocations=0, other_failures=None, used_framework=True, used_gpus=True)
    )
    assert not uncounted.ooms
    assert "memory.masked" in uncounted.topics
    assert "hardware.fault" in uncounted.topics
    on_cpu = without_quoted_failures(
        facts, FailureCounts(failed_allocations=0, other_failures=0, used_framework=True, used_gpus=False)
    )
    assert not on_cpu.ooms
    assert on_cpu.cuinit_error is not None
    fine = without_quoted_failures(
        facts, FailureCounts(failed_allocations=0, other_failures=0, used_framework=True, used_gpus=True)
    )
    assert not fine.ooms
    assert not fine.topics
    assert fine.cuinit_error is None
    assert fine.line_count == facts.line_count
    assert facts.ooms
    assert facts.topics
    none = FailureCounts(failed_allocations=0, other_failures=None, used_framework=False, used_gpus=False)
    assert without_quoted_failures(facts, none).error_places == facts.error_places != {}


def _run(tmp_path: Path, code: str) -> dict[str, Any]:
    script, out = tmp_path / "train.py", tmp_path / "run.json"
    script.write_text(code)
    command = [sys.executable, "-m", "gpuwatch", "run", "-q", "--no-save", "-o", str(out), "--", sys.executable]
    done = subprocess.run(
        [*command, str(script)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=with_torch(tmp_path),
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert "out of memory" in done.stdout
    return read(out)


@pytest.mark.parametrize(
    "code",
    [
        _PRINT,
        "import subprocess, sys\nsubprocess.run(['cat', __file__])\nprint('out of memory')\n" + _PRINT,
        "import torch\ntorch.hold(1 << 20)\n" + _PRINT.replace("Could not create cudnn", "Could create cudnn"),
    ],
    ids=["no framework", "a small child", "PyTorch counts none"],
)
def test_printed_only(tmp_path: Path, code: str) -> None:
    run = _run(tmp_path, code)
    assert run["verdict"] == "ok"
    assert not run["ooms"]
    assert not [one for one in run["findings"] if one["id"].startswith("memory.")], run["findings"]


_UNWATCHED = f"import time\n{_PRINT}time.sleep(1.2)"


@pytest.mark.parametrize(
    "code",
    [
        "import torch\ntry:\n    torch.refuse()\nexcept torch.OutOfMemoryError as error:\n    print(error)\n",
        f"import subprocess, sys\nimport torch\nsubprocess.run([sys.executable, '-I', '-c', {_UNWATCHED!r}])\n",
        f"import os, sys\nos.execv(sys.executable, [sys.executable, '-I', '-c', {_UNWATCHED!r}])\n",
        f"import os\nimport torch\nif os.fork() == 0:\n    {_PRINT}\nelse:\n    os.wait()\n",
        f"import os\nimport torch\n_LOG = {_LOG!r}\nopen('log', 'w').write(_LOG)\nos.system('cat log')\n",
        f"import os\nimport torch\n_LOG = {_LOG!r}\nopen('log', 'w').write(_LOG)\n"
        "os.waitpid(os.posix_spawn('/bin/cat', ['cat', 'log'], os.environ), 0)\n",
        f"import os, socket\n{_PRINT}",
        f"import os, sys\n{_PRINT}sys.stdout.flush()\nos._exit(0)\n",
    ],
    ids=[
        *("caught", "a child without watcher", "exec", "a fork", "os.system", "posix_spawn"),
        *("perhaps from elsewhere", "without last words"),
    ],
)
def test_not_ruled_out(tmp_path: Path, code: str) -> None:
    assert _run(tmp_path, code)["ooms"]


def test_functions_that_start_processes_stay_the_ones_of_os(tmp_path: Path) -> None:
    _run(tmp_path, "import os, pickle, torch\nassert pickle.loads(pickle.dumps(os.system)) is os.system\n" + _PRINT)


@pytest.mark.tensorflow
@pytest.mark.parametrize("fails", [False, True])
def test_tensorflow_counts(tmp_path: Path, fails: bool) -> None:
    script, out = tmp_path / "train.py", tmp_path / "run.json"
    size = "[1 << 20, 1 << 12]" if fails else "[10]"
    caught = "try:\n    {}\nexcept tf.errors.ResourceExhaustedError:\n    pass\n".format(f"tf.ones({size})")
    script.write_text(f"import sys, tensorflow as tf\n{caught}sys.stderr.write({_LOG!r})\n")
    command = ("run", "-q", "--no-save", "--sim", "1x4GiB", "-o", str(out), "--")
    gpuwatch_forked(*command, sys.executable, str(script), environment=dict(os.environ), tier="plugin")
    run = read(out)
    assert bool(run["ooms"]) is fails
    told = {one["id"] for one in run["findings"]}
    assert "memory.request-too-large" in told if fails else told == {"healthy"}
