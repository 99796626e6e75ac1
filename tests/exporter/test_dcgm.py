"""dcgm-exporter's names: what its own dashboard asks for is there."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from gpuwatch.core.model.metrics import BY_ID
from gpuwatch.core.model.xids import Xid
from gpuwatch.share import metric_families as families
from gpuwatch.share.dcgm_metrics import DCGM_METRICS
from gpuwatch.share.exporter.metric_series import ScrapeContent
from gpuwatch.share.exporter.metrics_page import MetricsPage
from tests.exporter.machines import OPTIONS, device, every_reading, found, mig_device, names_of, one, process, snapshot
from tests.exporter.test_series import promtool, with_gpm

DCGM = OPTIONS._replace(dcgm=True)
LABELS = {
    "gpu": "3",
    "UUID": "GPU-00000003-0000-0000-0000-000000000000",
    "pci_bus_id": "00000000:03:00.0",
    "device": "nvidia3",
    "modelName": "NVIDIA H100 80GB HBM3",
    "hostname": "node7",
    "Hostname": "node7",
    "DCGM_FI_DRIVER_VERSION": "580.95",
}


def test_labels_and_units_are_those_of_dcgm_exporter() -> None:
    samples = found(snapshot(device(3)), DCGM)
    assert one(samples, "DCGM_FI_DEV_GPU_UTIL", **LABELS) == 87
    assert one(samples, "DCGM_FI_DEV_SM_CLOCK", **LABELS) == 1680
    assert one(samples, "DCGM_FI_DEV_FB_USED", **LABELS) == 20 * 1024
    assert one(samples, "DCGM_FI_DEV_FB_FREE", **LABELS) == 59 * 1024
    assert one(samples, "DCGM_FI_DEV_XID_ERRORS", **LABELS) == 0
    assert one(samples, "DCGM_FI_DEV_ROW_REMAP_FAILURE", **LABELS) == 0
    energy = every_reading()["energy_joules"]
    assert isinstance(energy, int)
    assert one(samples, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", **LABELS) == energy * 1000
    assert "gpuwatch_gpu_memory_used_bytes" not in names_of(samples)
    assert one(samples, families.GPU_FREE) == 0  # who is on it, and what is wrong, is told beside them


def test_the_last_xid_is_told() -> None:
    samples = found(snapshot(device(xids=(Xid(1.0, 31), Xid(2.0, 79)))), DCGM)
    assert one(samples, "DCGM_FI_DEV_XID_ERRORS") == 79


def test_what_is_missing_is_absent_and_no_enormous_number() -> None:
    readings = every_reading()
    del readings["temperature.memory_celsius"]
    samples = found(snapshot(device(readings=readings)), DCGM)
    assert "DCGM_FI_DEV_MEMORY_TEMP" not in names_of(samples)
    assert all(float(number) < 2**62 for number in samples.values())


def test_every_metric_of_ours_that_is_used_exists() -> None:
    assert {metric.metric_id for metric in DCGM_METRICS} <= BY_ID.keys()
    listed = [metric.family.name for metric in DCGM_METRICS]
    assert len(listed) == len(set(listed))


def test_profiling_metrics_come_from_gpm_and_are_absent_without() -> None:
    plain = snapshot(device())
    assert not any(name.startswith("DCGM_FI_PROF") for name in names_of(found(plain, DCGM)))
    samples = found(with_gpm(plain), DCGM)
    for name in ("GR_ENGINE_ACTIVE", "PIPE_TENSOR_ACTIVE", "DRAM_ACTIVE", "SM_ACTIVE"):
        assert one(samples, f"DCGM_FI_PROF_{name}") == 0.5
    assert one(samples, "DCGM_FI_PROF_PCIE_TX_BYTES") == 50


def test_jobs_have_a_series_each_as_in_dcgm_exporter() -> None:
    gpu = device()
    rows = [process(n, gpu, container=f"slurm job {job}") for n, job in ((1, 7), (2, 7), (3, 8))]
    samples = found(snapshot(gpu, processes=tuple(rows)), DCGM)
    assert one(samples, "DCGM_FI_DEV_GPU_UTIL", hpc_job="7") == 87
    assert one(samples, "DCGM_FI_DEV_GPU_UTIL", hpc_job="8") == 87
    alone = found(snapshot(gpu, processes=(replace(rows[0], container="pod train-0"),)), DCGM)
    assert one(alone, "DCGM_FI_DEV_GPU_UTIL", pod="train-0") == 87


def test_memory_of_a_divided_gpu_is_that_of_its_instances() -> None:
    samples = found(snapshot(mig_device()), DCGM)
    for instance in ("1", "2"):
        assert one(samples, "DCGM_FI_DEV_FB_USED", GPU_I_ID=instance, GPU_I_PROFILE="3g.40gb") == 1024
    assert len([key for key in samples if key.startswith("DCGM_FI_DEV_FB_USED{")]) == 2
    assert len([key for key in samples if key.startswith("DCGM_FI_DEV_GPU_TEMP{")]) == 1


def test_compute_instances_are_told_as_their_gpu_instance() -> None:
    gpu = mig_device()
    first, second = gpu.mig_instances
    halves = (
        replace(first, profile="1c.3g.40gb"),
        replace(first, id="1/1", index=3, compute_instance=1, profile="1c.3g.40gb"),
        second,
    )
    samples = found(snapshot(replace(gpu, mig_instances=halves)), DCGM)
    assert len([key for key in samples if key.startswith("DCGM_FI_DEV_FB_USED{")]) == 2
    assert one(samples, "DCGM_FI_DEV_FB_USED", GPU_I_ID="1", GPU_I_PROFILE="3g.40gb") == 1024


def test_prometheus_client_reads_it() -> None:
    text = MetricsPage(ScrapeContent(snapshot(device()), driver_answers=True), DCGM, 0.0).body("plain").decode()
    kinds = {family.name: family.type for family in text_string_to_metric_families(text)}
    assert kinds["DCGM_FI_DEV_GPU_TEMP"] == "gauge"
    assert "# TYPE DCGM_FI_DEV_PCIE_REPLAY_COUNTER counter\n" in text
    assert "\nDCGM_FI_DEV_PCIE_REPLAY_COUNTER{" in text


@pytest.mark.prometheus
def test_promtool_only_dislikes_nvidias_spelling() -> None:
    content = ScrapeContent(with_gpm(snapshot(device())), driver_answers=True)
    code, said = promtool(MetricsPage(content, DCGM._replace(metrics="all"), 0.0))
    assert code == 3
    for line in said.splitlines():
        assert re.match(r"DCGM_FI_\w+ ", line), line
        assert re.search(r"snake_case|camelCase|abbreviated|\"_total\"|no help|include type|base units", line), line
