"""The last lines of a log are kept; what nobody can do without outlives them, and what is missing is counted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.explain.logs.output_tail import OutputTail, is_decisive, omitted_line_count
from gpuwatch.share.reports.report_log_lines import condense_log

CREATED = "I0000 00:00:1795182270.000001 1 gpu_device.cc:2043] Created device GPU:0 with 6080 MB memory"
OOM = "W0000 00:00:1795182270.000002 1 bfc_allocator.cc:501] Allocator (GPU_0_bfc) ran out of memory trying to allocate"


def tail(lines: list[str]) -> tuple[str, ...]:
    made = OutputTail()
    for line in lines:
        made.add(line)
    return made.lines()


def test_a_short_log_is_kept_whole() -> None:
    assert tail([CREATED, "step 1"]) == (CREATED, "step 1")


def test_a_long_dump_leaves_the_device_the_failure_and_a_count() -> None:
    dump = [f"chunk {number}" for number in range(200)]
    first, second, mark, *rest = tail([CREATED, "step 1", OOM, *dump])
    assert (first, second) == (CREATED, OOM)
    assert mark == "… 121 earlier lines not kept"
    assert rest == dump[-80:]


def test_a_report_that_cuts_more_adds_the_two_counts() -> None:
    shown = condense_log(tail([CREATED, OOM, *[f"chunk {number}" for number in range(200)]]), 20, simulated=False)
    assert shown[1:4] == (CREATED, OOM, "… 180 earlier lines left out")
    assert len(shown) == 1 + 3 + 20


@given(st.lists(st.sampled_from([CREATED, OOM, "step", "a\rb"]), max_size=400))
def test_every_line_is_shown_or_counted_and_the_number_is_bounded(lines: list[str]) -> None:
    shown = tail(lines)
    marked = sum(map(omitted_line_count, shown))
    assert len(shown) - (1 if marked else 0) + marked == len(lines)
    assert len(shown) <= 80 + 12 + 1
    assert not any(is_decisive(line) for line in shown if omitted_line_count(line))
