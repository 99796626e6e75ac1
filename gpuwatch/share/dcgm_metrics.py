"""The metrics of NVIDIA's dcgm-exporter: names, texts, units, and which of ours each is.

By its ``etc/default-counters.csv`` (2026). Not among them: DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL and the violation times,
whose units differ between its documents; vGPU licenses, which gpuwatch does not read.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from gpuwatch.share.openmetrics_text import Family


class DcgmFamily(Family):
    """A family of dcgm-exporter's: its counters do not end in ``_total``."""

    @property
    def sample_name(self) -> str:
        return self.name


class DcgmMetric(NamedTuple):
    """What gpuwatch reports under a name of dcgm-exporter's."""

    name: str
    """Without ``DCGM_FI_``."""
    help: str
    metric_id: str
    factor: float = 1.0
    counter: bool = False
    default: bool = True
    """Whether dcgm-exporter shows it by default, or has it commented out in its file."""
    digits: int = 0
    per_mig_instance: bool = False
    """Whether there is a series for each MIG instance, instead of one for the GPU that is divided."""

    @property
    def family(self) -> DcgmFamily:
        return DcgmFamily(f"DCGM_FI_{self.name}", "counter" if self.counter else "gauge", "", self.help)


_counter = partial(DcgmMetric, counter=True)
_optional = partial(DcgmMetric, counter=True, default=False)
_per_mig = partial(DcgmMetric, per_mig_instance=True)
_memory = partial(_per_mig, factor=1 / 2**20)
_ratio = partial(_per_mig, factor=0.01, digits=6)
"""A profiling metric, from GPM."""
DCGM_METRICS = (
    DcgmMetric("DEV_SM_CLOCK", "SM clock frequency (in MHz).", "clocks.sm_mhz"),
    DcgmMetric("DEV_MEM_CLOCK", "Memory clock frequency (in MHz).", "clocks.memory_mhz"),
    DcgmMetric("DEV_MEMORY_TEMP", "Memory temperature (in C).", "temperature.memory_celsius"),
    DcgmMetric("DEV_GPU_TEMP", "GPU temperature (in C).", "temperature.gpu_celsius"),
    DcgmMetric("DEV_POWER_USAGE", "Power draw (in W).", "power.draw_watts", digits=3),
    _counter("DEV_TOTAL_ENERGY_CONSUMPTION", "Total energy since boot (in mJ).", "energy_joules", 1000.0),
    _counter("DEV_PCIE_REPLAY_COUNTER", "Total number of PCIe retries.", "pcie.replays"),
    DcgmMetric("DEV_GPU_UTIL", "GPU utilization (in %).", "utilization.gpu_percent"),
    DcgmMetric("DEV_MEM_COPY_UTIL", "Memory utilization (in %).", "utilization.memory_percent"),
    DcgmMetric("DEV_ENC_UTIL", "Encoder utilization (in %).", "utilization.encoder_percent"),
    DcgmMetric("DEV_DEC_UTIL", "Decoder utilization (in %).", "utilization.decoder_percent"),
    _memory("DEV_FB_FREE", "Framebuffer memory free (in MiB).", "memory.free_bytes"),
    _memory("DEV_FB_USED", "Framebuffer memory used (in MiB).", "memory.used_bytes"),
    _memory("DEV_FB_RESERVED", "Framebuffer memory reserved (in MiB).", "memory.reserved_bytes"),
    _counter(
        "DEV_UNCORRECTABLE_REMAPPED_ROWS",
        "Number of remapped rows for uncorrectable errors",
        "remapped_rows.uncorrectable",
    ),
    _counter(
        "DEV_CORRECTABLE_REMAPPED_ROWS", "Number of remapped rows for correctable errors", "remapped_rows.correctable"
    ),
    DcgmMetric("DEV_ROW_REMAP_FAILURE", "Whether remapping of rows has failed", "remapped_rows.failure"),
    _optional("DEV_ECC_SBE_VOL_TOTAL", "Total number of single-bit volatile ECC errors.", "ecc.corrected"),
    _optional("DEV_ECC_DBE_VOL_TOTAL", "Total number of double-bit volatile ECC errors.", "ecc.uncorrected"),
    _optional("DEV_ECC_SBE_AGG_TOTAL", "Total number of single-bit persistent ECC errors.", "ecc.corrected_lifetime"),
    _optional("DEV_ECC_DBE_AGG_TOTAL", "Total number of double-bit persistent ECC errors.", "ecc.uncorrected_lifetime"),
    _optional("DEV_RETIRED_SBE", "Total number of retired pages due to single-bit errors.", "retired_pages.single_bit"),
    _optional("DEV_RETIRED_DBE", "Total number of retired pages due to double-bit errors.", "retired_pages.double_bit"),
    _optional(
        "DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "Total number of NVLink flow-control CRC errors.", "nvlink.crc_errors"
    ),
    _optional(
        "DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", "Total number of NVLink data CRC errors.", "nvlink.data_crc_errors"
    ),
    _optional("DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "Total number of NVLink retries.", "nvlink.replays"),
    _optional("DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "Total number of NVLink recovery errors.", "nvlink.recoveries"),
    DcgmMetric("DEV_POWER_MGMT_LIMIT", "Power limit (in W).", "power.limit_watts", default=False),
    _memory("DEV_FB_TOTAL", "Total framebuffer memory (in MiB).", "memory.total_bytes", default=False),
    _ratio("PROF_GR_ENGINE_ACTIVE", "Ratio of time the graphics engine is active.", "activity.graphics_percent"),
    _ratio("PROF_SM_ACTIVE", "Ratio of cycles an SM has at least 1 warp assigned.", "activity.sm_percent"),
    _ratio("PROF_SM_OCCUPANCY", "Ratio of warps resident on an SM.", "activity.sm_occupancy_percent"),
    _ratio("PROF_PIPE_TENSOR_ACTIVE", "Ratio of cycles the tensor (HMMA) pipe is active.", "activity.tensor_percent"),
    _ratio("PROF_DRAM_ACTIVE", "Ratio of cycles the memory interface is active.", "activity.dram_percent"),
    _ratio("PROF_PIPE_FP64_ACTIVE", "Ratio of cycles the fp64 pipe is active.", "activity.fp64_percent"),
    _ratio("PROF_PIPE_FP32_ACTIVE", "Ratio of cycles the fp32 pipe is active.", "activity.fp32_percent"),
    _ratio("PROF_PIPE_FP16_ACTIVE", "Ratio of cycles the fp16 pipe is active.", "activity.fp16_percent"),
    _per_mig("PROF_PCIE_TX_BYTES", "Rate of data sent over PCIe (in B/s).", "activity.pcie_tx_bytes_per_second"),
    _per_mig("PROF_PCIE_RX_BYTES", "Rate of data received over PCIe (in B/s).", "activity.pcie_rx_bytes_per_second"),
)
