"""A log by itself, as ``gpuwatch explain`` tells it."""

from __future__ import annotations

import json

import msgspec
import pytest

from gpuwatch.diagnosis.explain import explain
from gpuwatch.model.codec import to_json
from gpuwatch.model.explanation import Explanation
from tests.logs.logs import MIB, NAMES, text


def of(name: str) -> Explanation:
    return explain(text(name).splitlines(keepends=True))


def test_an_oom_is_explained_with_its_numbers_and_its_cause() -> None:
    found = of("stub_tf221_gpu_bfc_oom")
    assert found.frameworks == ("tensorflow",)
    assert [(oom.requested_bytes, oom.verdict) for oom in found.ooms] == [(400 * MIB, "memory.request-too-large")]
    assert found.primary == "memory.request-too-large"
    assert "400 MiB > limit of 256 MiB" in " ".join(found.findings[0].evidence)


def test_soft_placement_tells_its_request_in_the_colocation_report() -> None:
    found = of("stub_tf221_int32_soft_fallback")
    assert {(f.op, f.requested, f.actual, f.reason) for f in found.fallbacks} == {
        ("VariableV2", "GPU:0", "CPU:0", "placement.no-kernel"),
        ("Assign", "GPU:0", "CPU:0", "placement.no-kernel"),
        ("Identity", "GPU:0", "CPU:0", "placement.no-kernel"),
    }


def test_a_refusal_is_no_fallback() -> None:
    assert of("stub_tf221_int32_hard_no_kernel").fallbacks == ()


@pytest.mark.parametrize("name", NAMES)
def test_every_explanation_is_one_document(name: str) -> None:
    found = of(name)
    document = json.loads(to_json(found))
    assert document["schema"] == "gpuwatch.explanation/1"
    assert msgspec.convert(document, Explanation) == found
    assert found.primary is not None


def test_nothing_is_explained_as_nothing() -> None:
    found = explain([])
    assert (found.lines, found.primary, found.ooms, found.device_map) == (0, "healthy", (), ())
