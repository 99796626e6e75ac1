"""Whatever a probe does, its run is true, comes in time, and leaves nothing behind."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.core.model.run import Run
from gpuwatch.experiment.probing.interpreter import Interpreter
from gpuwatch.experiment.probing.probe_runner import ProbeOptions, ProbeRunner
from gpuwatch.experiment.probing.probe_scripts import ProbeScript, probe_folder
from gpuwatch.explain.diagnosis.runs.finished_run import complete
from tests.probing.test_process import assert_gone

HEAD = f"""
import json, os, signal, subprocess, sys, time
sys.path.insert(0, {str(probe_folder())!r})
import _gpuwatch_probe
probe = _gpuwatch_probe.Probe({{"name": "odd", "workload": "matmul", "framework": "tensorflow"}})
fd = int(os.environ["GPUWATCH_EVENT_FD"])
probe.emit("start", config="odd", pid=os.getpid(), options=json.loads(os.environ["GPUWATCH_PROBE_OPTIONS"]))
"""
_OOM_LINE = (
    "2026-01-01 00:00:00.000000: W tensorflow/core/common_runtime/bfc_allocator.cc:479] Allocator (GPU_0_bfc) "
    "ran out of memory trying to allocate 400.00MiB (rounded to 419430400)requested by op Fill\n"
)
END = "\nprobe.emit('end', ok=True)\n"


def run(
    folder: Path, code: str, *, deadline: float = 20.0, verdict: str = "ok", own_work: bool = False, **own: Any
) -> Run:
    path = folder / "odd.py"
    path.write_text(HEAD + code)
    script = ProbeScript(
        name="odd",
        title="Odd",
        summary="Odd.",
        group="memory",
        framework="tensorflow",
        workload="matmul",
        verdict=verdict,
        own_work=own_work,
        fresh=True,
        environment={},
        path=path,
    )
    interpreters = {"tensorflow": Interpreter(sys.executable, "tensorflow")}
    with ProbeRunner(ProbeOptions(interpreters=interpreters, deadline=deadline, config_options=own)) as runner:
        draft = runner.run(script)
    assert draft.run.pid is not None
    assert_gone(draft.run.pid)
    return complete(draft.run, draft.log, draft.before)


def test_killed_outright(tmp_path: Path) -> None:
    seen = run(tmp_path, "probe.setting('limit', asked=5)\nos.kill(os.getpid(), signal.SIGKILL)")
    assert (seen.verdict, seen.outcome.signal, seen.outcome.ended) == ("error", 9, False)
    assert "SIGKILL" in seen.verdict_reason
    assert seen.settings["limit"].asked == 5, "what was said before is kept"


def test_a_hundred_megabytes_on_stderr(tmp_path: Path) -> None:
    code = "line = b'E' * 99 + b'\\n'\nfor _ in range(1000): os.write(2, line * 1000)" + END
    began = time.monotonic()
    seen = run(tmp_path, code)
    assert seen.verdict == "ok"
    assert len(seen.log_tail) <= 100
    assert time.monotonic() - began < 30


def test_half_a_json_line(tmp_path: Path) -> None:
    seen = run(tmp_path, "os.write(fd, b'{\"kind\": ')\nos._exit(0)")
    assert seen.verdict == "error"
    assert "exited early" in seen.verdict_reason
    assert any("broken event" in problem for problem in seen.problems)


def test_events_that_lie(tmp_path: Path) -> None:
    code = "probe.emit('throughput', steps='many')\nprobe.emit('placement')\nprobe.emit('memory', device='x')" + END
    seen = run(tmp_path, code)
    assert len([problem for problem in seen.problems if "missing or invalid field" in problem]) == 3
    assert seen.throughput is None


def test_a_child_is_left_and_the_probe_exits(tmp_path: Path) -> None:
    code = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])" + END
    began = time.monotonic()
    assert run(tmp_path, code).verdict == "ok"
    assert time.monotonic() - began < 6


def test_sigterm_is_ignored(tmp_path: Path) -> None:
    seen = run(tmp_path, "signal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(60)", deadline=1.0)
    assert (seen.verdict, seen.outcome.timed_out) == ("timeout", True)


def test_an_exception_and_an_exit_code(tmp_path: Path) -> None:
    seen = run(tmp_path, "probe.error(ValueError('bad\\nthing'))\nprobe.emit('end', ok=False)\nos._exit(1)")
    assert seen.verdict == "error"
    assert "ValueError: bad" in seen.verdict_reason
    assert "exit code 3" in run(tmp_path, "os._exit(3)").verdict_reason


@pytest.mark.parametrize(
    ("verdict", "expected", "ends"), [("oom", True, "oom"), ("ok", True, "ok"), ("ok", False, "oom")]
)
def test_running_out_of_memory(tmp_path: Path, verdict: str, expected: bool, ends: str) -> None:
    code = f"""
class ResourceExhaustedError(Exception): pass
sys.stderr.write({_OOM_LINE!r})
probe.error(ResourceExhaustedError("OOM when allocating tensor"), expected={expected})
probe.emit("end", ok={expected})
"""
    seen = run(tmp_path, code, verdict=verdict)
    assert seen.verdict == ends
    (oom,) = seen.ooms
    assert oom.requested_bytes == 419430400
    assert oom.expected == expected


def test_options_reach_the_probe(tmp_path: Path) -> None:
    seen = run(tmp_path, END, memory_limit=256)
    assert seen.workload_parameters["memory_limit"] == 256


@pytest.mark.parametrize(("own_work", "done"), [(True, "matmul"), (False, "conv")])
def test_work_that_is_not_done_is_no_label(tmp_path: Path, own_work: bool, done: str) -> None:
    seen = run(tmp_path, END, own_work=own_work, workload="conv")
    assert seen.workload == done
    assert seen.workload_parameters.get("workload") == (None if own_work else "conv")


def test_a_subject_that_cannot_be_shown(tmp_path: Path) -> None:
    seen = run(tmp_path, "probe.emit('skip', reason='needs two GPUs, found one')" + END)
    assert (seen.verdict, seen.verdict_reason) == ("skipped", "needs two GPUs, found one")
