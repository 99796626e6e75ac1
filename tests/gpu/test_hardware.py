"""On a real GPU: NVML's own answers, and the probes on hardware."""

from __future__ import annotations

import json

import pytest

from gpuwatch.model.metrics import METRICS
from tests.conftest import gpuwatch

pytestmark = pytest.mark.gpu


def test_every_metric_has_a_value_or_a_reason() -> None:
    result = gpuwatch("snapshot", "--json")
    assert result.code == 0, result.err
    snapshot = json.loads(result.out)
    assert not snapshot["simulated"]
    for device in snapshot["devices"]:
        answered = device["readings"].keys() | device["missing"].keys()
        assert {spec.id for spec in METRICS} <= answered
        assert device["readings"]["memory.total_bytes"] > 2**28
        assert 0 < device["readings"]["temperature.gpu_celsius"] < 120
        for metric_id, lack in device["missing"].items():
            assert lack["detail"], metric_id


@pytest.mark.tensorflow
@pytest.mark.parametrize(("config", "least", "most"), [("default", 0.7, 1.0), ("growth", 0.0, 0.2)])
def test_memory_that_nvml_sees(config: str, least: float, most: float) -> None:
    result = gpuwatch("probe", "--config", config, "--json", timeout=300)
    run = json.loads(result.out)
    assert run["verdict"] == "ok", run["verdict_reason"]
    share = run["memory"]["nvml_peak_bytes"] / run["memory"]["device_total_bytes"]
    assert least <= share <= most
    assert run["device_map"][0]["uuid"].startswith("GPU-")
