"""Lines of a profiler that gpuwatch starts are kept from the program's output; all other bytes are passed on."""

from __future__ import annotations

import pytest

from gpuwatch.experiment.probing.profiler_log_filter import ProfilerLogFilter

_HEAD = "I0000 00:00:1795695153.343333    8330 profiler_session.cc:103] "
OWN = "".join(
    f"{line}\n"
    for line in (
        "W0000 00:00:1795695153.343333    8330 session_manager.cc:98] host_tracer_level expects an i64 value.",
        f"{_HEAD}Profiler session initializing.",
        "2024-07-01 10:00:00.123456: I tsl/profiler_session.cc:104] Profiler session started.",
        "I0000 00:00:1795695153.343333    8330 save_profile.cc:150] Collecting XSpace to repository: /tmp/x.pb",
    )
)  # fmt: skip
OTHERS = "epoch 1\r 3/10 [==>\nI0000 00:00:1.2    8330 port.cc:153] oneDNN\nProfiler session started.\nopen"


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
def test_only_lines_of_our_profiler_are_left_out_however_they_come(size: int) -> None:
    text = "".join(f"{line}\n{OWN}" for line in OTHERS.split("\n")[:-1]) + OTHERS.split("\n")[-1]
    lines, passed = ProfilerLogFilter(), b""
    for at in range(0, len(text), size):
        lines.add(text.encode()[at : at + size])
        passed += lines.take_output(program_profiles_itself=False)
    assert passed.decode() == OTHERS, "an open line is not kept back"
    assert lines.take_output(program_profiles_itself=False, is_last=True) == b""


def test_a_program_that_profiles_itself_sees_all_lines() -> None:
    lines = ProfilerLogFilter()
    lines.add(OWN.encode())
    assert lines.has_profiler_line
    assert lines.take_output(program_profiles_itself=True).decode() == OWN


def test_a_beginning_that_may_be_ours_is_kept_until_its_line_ends_or_the_program_does() -> None:
    lines = ProfilerLogFilter()
    lines.add(_HEAD.encode())
    assert lines.take_output(program_profiles_itself=False) == b""
    assert lines.take_output(program_profiles_itself=False, is_last=True).decode() == _HEAD
