"""Results of dcgmi diag -j, in the forms of DCGM 3 and 4 (nvvs/include/NvvsJsonStrings.h of NVIDIA/DCGM)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpuwatch.explain.diagnosis.explain_trace_file import explain_trace_file, file_kind
from gpuwatch.explain.traces import InvalidTrace
from gpuwatch.explain.traces.dcgm_diagnostic import is_diagnostic, read


def _category(name: str, **tests: list[dict[str, Any]]) -> dict[str, Any]:
    return {"category": name, "tests": [{"name": test, "results": results} for test, results in tests.items()]}


PASSED = _category("Deployment", software=[{"status": "Pass", "entity_group": "GPU", "entity_id": 0}])
FOUR = {
    "DCGM Diagnostic": {
        "test_categories": [
            PASSED,
            _category(
                "Hardware",
                memory=[
                    {"status": "Pass", "entity_group": "GPU", "entity_group_id": 1, "entity_id": 0},
                    {
                        "status": "Fail",
                        "entity_group": "GPU",
                        "entity_id": 1,
                        "warnings": [{"warning": "A DBE occurred.", "error_id": 6, "error_severity": 3}],
                    },
                ],
                pulse_test=[{"status": "Skip", "entity_group": "GPU", "entity_id": 0}],
            ),
        ]
    },
    "metadata": {"Driver Version Detected": "580.65.06", "version": "4.2.3"},
}
THREE = {
    "DCGM GPU Diagnostic": {
        "test_categories": [
            {
                "category": "Deployment",
                "tests": [{"name": "Denylist", "results": [{"gpu_ids": "0,1", "status": "PASS"}]}, None],
            },
            _category("Stress", **{"SM Stress": [{"gpu_ids": "0", "status": "Warn", "warnings": ["slow", None]}]}),
        ],
        "version": "3.2.0",
    }
}


def explained(document: object) -> Any:
    return explain_trace_file("DCGM diagnostic", json.dumps(document).encode(), "diag.json")


def test_what_failed_is_named_with_its_gpu() -> None:
    found = explained(FOUR)
    assert (found.primary, found.findings[0].severity) == ("hardware.fault", "error")
    assert found.findings[0].title == "dcgmi diag: memory on GPU 1 failed"
    assert found.findings[0].evidence == ("memory on GPU 1: A DBE occurred.",)
    assert found.frameworks == ("DCGM 4.2.3", "driver 580.65.06")
    assert [(test.name, test.gpus, test.status) for test in found.gpu_tests] == [
        ("software", "GPU 0", "pass"),
        ("memory", "GPU 0", "pass"),
        ("memory", "GPU 1", "fail"),
        ("pulse_test", "GPU 0", "skip"),
    ]


def test_older_forms_are_read_too() -> None:
    raw = b"WARNING: deprecated\n" + json.dumps(THREE, indent=1).encode()
    assert file_kind(raw) == "DCGM diagnostic"
    found = explain_trace_file("DCGM diagnostic", raw, "diag.json")
    assert [(test.gpus, test.status, test.messages) for test in found.gpu_tests] == [
        ("GPUs 0, 1", "pass", ()),
        ("GPU 0", "warn", ("slow",)),
    ]
    assert (found.findings[0].id, found.findings[0].severity) == ("hardware.fault", "warning")


@pytest.mark.parametrize(
    ("category", "status", "cause", "severity"),
    [
        ("Deployment", "Fail", "unknown", "error"),
        ("Integration", "Fail", "hardware.fault", "error"),
        ("Hardware", "Pass", "healthy", "info"),
        ("Hardware", "Skip", "unknown", "warning"),
        ("Hardware", "Not Run", "unknown", "warning"),
    ],
)
def test_the_category_tells_hardware_from_software(category: str, status: str, cause: str, severity: str) -> None:
    found = explained({"DCGM Diagnostic": {"test_categories": [_category(category, one=[{"status": status}])]}})
    assert (found.findings[0].id, found.findings[0].severity) == (cause, severity)


def test_what_could_not_be_run_is_not_healthy() -> None:
    found = explained({"DCGM Diagnostic": {"runtime_error": "Unable to run diagnostic on unsupported GPU 0"}})
    assert found.primary == "unknown"
    assert "unsupported GPU" in found.findings[0].evidence[0]


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[" * 100_000, b'{"DCGM Diagnostic": 3}', b'{"DCGM Diagnostic": {', b"\xff"]
)
def test_other_text_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidTrace):
        read(data)
    assert not is_diagnostic(b'{"schema": "gpuwatch.run/1"}')


def test_odd_values_are_left_out() -> None:
    odd = {
        "test_categories": [3, {"tests": [None, {"results": [1, {"status": 7, "gpu_ids": [1], "warnings": {"a": 1}}]}]}]
    }
    (test,) = read(json.dumps({"DCGM Diagnostic": odd}).encode()).tests
    assert (test.name, test.gpus, test.status, test.messages) == ("a test without a name", "", "skip", ())
