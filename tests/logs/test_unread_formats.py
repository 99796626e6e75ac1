"""Output of other tools that gpuwatch does not read: it says so instead of judging it as a log."""

from __future__ import annotations

import pytest

from gpuwatch.explain.diagnosis.explain_log import explain

TRACE = ["", "  {", '    "schemaVersion": 1,', '    "deviceProperties": [', "    ],", '  "traceEvents": [', "  ]}"]
QUERY = ["timestamp, name, utilization.gpu [%], memory.used [MiB]", *["2026/05/04 08:09:10.1, A 1, 3 %, 17 MiB"] * 3]
_OWN_HEADER = "time,gpu_index,gpu_name,gpu_util_percent,mem_used_mb,temp_c,power_w"
OWN_TABLE = [_OWN_HEADER, *["2026-05-06 10:06:45,2026/05/06 10:06:45.521, 0, NVIDIA L4, 0, 410, 42, 2.01"] * 3]
NO_HEADER = ["2026-05-06 10:06:45, 2026/05/06 10:06:45.521, 0, NVIDIA L4, 3 %, 410 MiB"] * 3
DMON = ["# gpu    pwr  gtemp     sm", "# Idx      W      C      %", *["    0     79     40      0"] * 30]
TOPOLOGY = [
    "\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\x1b[0m",
    "GPU0\t X \tNV4\tPIX\t0-31",
    "GPU1\tNV4\t X \tSYS\t0-31",
    "Legend:",
    "  X    = Self",
    "NIC Legend:",
    "  NIC0: mlx5_0",
]


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        (TRACE, "Chrome's format"),
        (['{"schemaVersion": 1, "trace_id": "A, B", "traceEvents": []}'], "Chrome's format"),
        (['[{"name": "f", "ph": "X", "ts": 1}]'], "Chrome's format"),
        (QUERY, "--query-gpu"),
        (["index,power.draw", "0,71.2"], "--query-gpu"),
        (OWN_TABLE, "a table (CSV)"),
        (["Date Time,utilization.gpu [%],memory.used [MiB]", "26-5-4 10:06,3 %,17 MiB"], "a table (CSV)"),
        (["GPUId,TimeStampUs,Field,Values", "0,1718783836956328,power_usage_instant,71.20"], "a table (CSV)"),
        (NO_HEADER, "without their header"),
        (DMON, "dmon"),
        (TOPOLOGY, "topo"),
        (["RAM 2274/6834MB (lfb 27x4MB) CPU [99%@1189,off] GR3D_FREQ 22%"] * 3, "tegrastats"),
    ],
)
def test_a_format_is_named(lines: list[str], named: str) -> None:
    found = explain(lines)
    (finding,) = found.findings
    assert (found.primary, finding.severity) == ("unknown", "info")
    assert finding.title.startswith("A file that gpuwatch does not read: ")
    assert named in finding.title


@pytest.mark.parametrize("start", [QUERY, OWN_TABLE, NO_HEADER, DMON, TOPOLOGY])
@pytest.mark.parametrize(
    ("rest", "primary"),
    [("step 9: loss 0.3", "healthy"), ("Segmentation fault (core dumped)", None), ("RuntimeError: x", None)],
)
def test_a_log_that_begins_so_is_a_log(start: list[str], rest: str, primary: str | None) -> None:
    found = explain([*start, rest])
    assert "does not read" not in str(found.findings)
    assert primary in (None, found.primary)


def test_other_tables_and_sentences_are_no_samples_of_a_gpu() -> None:
    for lines in (
        ["step,loss,accuracy", "1,0.3,0.9"],
        ["My GPU, with memory, stays idle: why?", "3 of 4, they say, too"],
        ["step 1, loss 0.3, gpu 3 %, lr 0.1", "step 2, loss 0.3, gpu 3 %, lr 0.1"],
    ):
        assert "does not read" not in str(explain(lines).findings), lines


def test_json_that_is_no_trace_is_searched_in_little_time() -> None:
    assert "does not read" not in str(explain(['{"a": 1, ' + '"b": 2, ' * 400 + '"c": 3}']).findings)
