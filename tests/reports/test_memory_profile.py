"""Memory profiles in every format: who held the most first, pictures where they can be drawn."""

from __future__ import annotations

import re

import msgspec
import pytest

from gpuwatch.core.masking.masked_documents import masked_for_sending
from gpuwatch.core.model.memory_profile import MemoryProfile
from gpuwatch.core.model.run import Run
from gpuwatch.explain.diagnosis.explain_trace_file import explain_trace_file
from gpuwatch.explain.traces.memory_profiles import tensorflow_profiles
from gpuwatch.explain.traces.tensorflow_allocation_purposes import AllocationPurposes, Variable
from gpuwatch.share.reports.formats.memory_charts import profile_memory_chart
from gpuwatch.share.reports.report_elements import MemoryAreas
from gpuwatch.share.reports.report_formats import render
from tests.reports.documents import bare_run
from tests.traces.hostile import SNAPSHOT
from tests.traces.profiles import Profile

MIB = 1 << 20
CALL = "StatefulPartitionedCall/"


@pytest.fixture(scope="module")
def profile() -> MemoryProfile:
    """Two windows of a training: weights, steps with activations and gradients."""
    windows = []
    kept = Profile()
    for number in range(2):
        made = kept if number == 0 else Profile(in_use=kept.in_use)
        if number == 0:
            made.allocate(1 << 30, 4 * MIB, "AddV2", "[1024,1024]")
        for step in range(40):
            made.allocate(2 << 30, 3 * MIB, f"{CALL}net/conv/Conv2D", "[768,1024]")
            made.allocate(3 << 30, MIB + 1024 * step, f"{CALL}gradient_tape/net/conv/Conv2DBackpropFilter", "[9]")
            made.free(3 << 30, MIB + 1024 * step)
            made.free(2 << 30, 3 * MIB)
        windows.append((made.encoded(), 5.0 * number, (40 * number, 40 * number + 40)))
    names = AllocationPurposes((Variable("net/dense/kernel", (1024, 1024), "float32", "weight"),))
    (found,) = tensorflow_profiles(windows, names, pid=7)
    return found


@pytest.fixture(scope="module")
def run(profile: MemoryProfile) -> Run:
    return msgspec.structs.replace(bare_run(), memory_profiles=(profile,))


@pytest.mark.parametrize("name", ["text", "markdown", "html"])
def test_who_held_the_most_is_in_every_format(name: str, run: Run) -> None:
    shown = " ".join(re.sub(r"<wbr>|\\", "", render(run, name)).split())
    assert "the most: 4.0 MiB (50 %)" in shown
    assert "net/dense/kernel" in shown
    assert "net/conv/Conv2D" in shown


def test_csv_has_the_sentence(run: Run) -> None:
    head, row = render(run, "csv").splitlines()
    assert "held_most" in head.split(",")
    assert "the weights held the most" in row


def test_the_picture_has_an_area_of_each_group_and_a_gap_between_windows(profile: MemoryProfile) -> None:
    drawn = str(profile_memory_chart(MemoryAreas("Memory", profile)))
    assert [drawn.count(f'<path class="area {kind}"') for kind in ("weights", "activations", "gradients")] == [2, 2, 2]
    assert drawn.count('class="line in-use"') == 2
    assert "Gaps: not recorded" in drawn
    assert ", step 40" in drawn
    assert "nan" not in drawn


def test_a_profile_without_moments_has_no_picture(profile: MemoryProfile) -> None:
    assert (
        profile_memory_chart(MemoryAreas("Memory", msgspec.structs.replace(profile, moments=profile.moments[:1])))
        is None
    )
    assert profile_memory_chart(MemoryAreas("Memory", msgspec.structs.replace(profile, moments=()))) is None


def test_redaction_replaces_paths() -> None:
    found = explain_trace_file("PyTorch snapshot", SNAPSHOT, "/home/alice/snapshot.pickle")
    shown = render(masked_for_sending(found, redact=True), "text")
    assert "alice" not in shown


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_too_long(width: int, run: Run) -> None:
    assert max(map(len, render(run, "text", width=width).splitlines())) <= width
