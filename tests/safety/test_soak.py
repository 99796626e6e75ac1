"""An hour of 100,000 processes that come and go: memory, descriptors and CPU a sample stay."""

from __future__ import annotations

import gc
import json
import statistics
import subprocess
import sys

import pytest

from gpuwatch.machine.history.gone_gpus import MAX_GONE_GPUS, forget_gone
from gpuwatch.machine.recording.gpu_time_and_energy import GpuTimeMeter
from tests.safety import churn
from tests.safety.soak import FRONT_ENDS, PARTS

SHARE, NOISE = 1.05, 1.25
"""How much more memory and descriptors, and CPU a sample, the later half may take; other work disturbs the CPU."""
COUNT = 520
"""Samples of the short form; before the later half of them, what has a bound has reached it."""


@pytest.mark.thorough
@pytest.mark.parametrize("front_end", churn.FRONT_ENDS)
def test_what_is_kept_of_processes_users_and_gpus_has_a_bound(front_end: str) -> None:
    """After an hour of the samples' time less than an object a process stays, although none ever comes again."""
    gpus_for = 0 if front_end == "recorder" else 3  # what it writes has each GPU
    take = churn.FRONT_ENDS[front_end]()
    blocks = []
    for number, sample in enumerate(churn.samples(COUNT, gpus_for=gpus_for)):
        take(sample)
        if number >= COUNT // 2 and number % 10 == 0:
            gc.collect()
            blocks.append(sys.getallocatedblocks())
    half = len(blocks) // 2
    assert max(blocks[half:]) - max(blocks[:half]) < 0.75 * churn.NEW * COUNT / 4, blocks


def test_of_gpus_that_are_gone_the_latest_are_known() -> None:
    known = {f"GPU-{number}": number for number in range(3 * MAX_GONE_GPUS)}
    counters = {(uuid, metric): 1 for uuid in known for metric in ("a", "b")}
    forget_gone({"GPU-0"}, known, counters)
    latest = ["GPU-0", *(f"GPU-{number}" for number in range(2 * MAX_GONE_GPUS, 3 * MAX_GONE_GPUS))]
    assert list(known) == latest
    assert list(counters) == [(uuid, metric) for uuid in latest for metric in ("a", "b")]


def test_gpu_time_keeps_no_process_of_a_gpu_that_is_gone() -> None:
    meter = GpuTimeMeter(1.0)
    for number, sample in enumerate(churn.samples(400, apart=1.0, gpus_for=2)):
        meter.add(sample)
        if not number % 60:
            meter.pop_hours()
    assert len(meter._latest_rows) < 400 < 400 * churn.NEW


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_an_hour_of_processes_that_come_and_go_leaves_nothing(front_end: str) -> None:
    command = [sys.executable, "-m", "tests.safety.soak", front_end]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    parts = [json.loads(line) for line in done.stdout.splitlines()]
    print(front_end, *parts, sep="\n")
    assert len(parts) == PARTS
    earlier, later = parts[: PARTS // 2], parts[PARTS // 2 :]
    for figure, share in {"memory": SHARE, "others_memory": SHARE, "descriptors": SHARE, "cpu": NOISE}.items():
        before, after = (statistics.median(one[figure] for one in some) for some in (earlier, later))
        assert after <= share * before, f"{figure}: {before:.1f}, then {after:.1f}"
