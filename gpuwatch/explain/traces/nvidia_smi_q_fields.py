"""The names in the tree that ``nvidia-smi -q`` and ``-q -x`` print, by metric, and what their values mean."""

from __future__ import annotations

import re

_CEILING = "power/gpu_ceiling_power_limit"
"""Where nvidia-smi 610 prints what earlier ones print as power limits."""
_LINK = ("pci/gpu_link_info", "pci/pci_gpu_link_info")

FIELDS: dict[str, tuple[str, ...]] = {
    "utilization.gpu_percent": ("utilization/gpu", "utilization/gpu_util"),
    "utilization.memory_percent": ("utilization/memory", "utilization/memory_util"),
    "utilization.encoder_percent": ("utilization/encoder", "utilization/encoder_util"),
    "utilization.decoder_percent": ("utilization/decoder", "utilization/decoder_util"),
    "utilization.jpeg_percent": ("utilization/jpeg", "utilization/jpeg_util"),
    "utilization.ofa_percent": ("utilization/ofa", "utilization/ofa_util"),
    "encoder.sessions": ("encoder_stats/active_sessions", "encoder_stats/session_count"),
    "encoder.frames_per_second": ("encoder_stats/average_fps",),
    "memory.total_bytes": ("fb_memory_usage/total",),
    "memory.used_bytes": ("fb_memory_usage/used",),
    "memory.free_bytes": ("fb_memory_usage/free",),
    "memory.reserved_bytes": ("fb_memory_usage/reserved",),
    "memory.addressing": ("addressing_mode",),
    "bar1.total_bytes": ("bar1_memory_usage/total",),
    "bar1.used_bytes": ("bar1_memory_usage/used",),
    "temperature.gpu_celsius": ("temperature/gpu_current_temp", "temperature/gpu_temp"),
    "temperature.memory_celsius": ("temperature/memory_current_temp", "temperature/memory_temp"),
    "temperature.margin_celsius": (
        "temperature/gpu_t.limit_temp",
        "temperature/gpu_current_t.limit_temp",
        "temperature/gpu_temp_tlimit",
    ),
    "temperature.operating_max_celsius": (
        "temperature/gpu_max_operating_temp",
        "temperature/gpu_temp_max_gpu_threshold",
    ),
    "temperature.slowdown_celsius": ("temperature/gpu_slowdown_temp", "temperature/gpu_temp_slow_threshold"),
    "temperature.shutdown_celsius": ("temperature/gpu_shutdown_temp", "temperature/gpu_temp_max_threshold"),
    "temperature.memory_max_celsius": (
        "temperature/memory_max_operating_temp",
        "temperature/gpu_temp_max_mem_threshold",
    ),
    "temperature.operating_max_margin_celsius": (
        "temperature/gpu_max_operating_t.limit_temp",
        "temperature/gpu_temp_max_gpu_tlimit_threshold",
    ),
    "temperature.slowdown_margin_celsius": (
        "temperature/gpu_slowdown_t.limit_temp",
        "temperature/gpu_temp_slow_tlimit_threshold",
    ),
    "temperature.shutdown_margin_celsius": (
        "temperature/gpu_shutdown_t.limit_temp",
        "temperature/gpu_temp_max_tlimit_threshold",
    ),
    "temperature.memory_max_margin_celsius": (
        "temperature/memory_max_operating_t.limit_temp",
        "temperature/gpu_temp_max_mem_tlimit_threshold",
    ),
    "power.draw_watts": (
        "power/power_draw",
        "power/average_power_draw",
        "power/instantaneous_power_draw",
        "power/instant_power_draw",
    ),
    "power.limit_watts": ("power/enforced_power_limit", "power/current_power_limit", f"{_CEILING}/current_power_limit"),
    "power.average_watts": ("power/average_power_draw",),
    "power.instant_watts": ("power/instantaneous_power_draw", "power/instant_power_draw"),
    "power.requested_limit_watts": (
        "power/requested_power_limit",
        "power/power_limit",
        f"{_CEILING}/requested_power_limit",
    ),
    "power.default_limit_watts": ("power/default_power_limit", f"{_CEILING}/default_power_limit"),
    "power.min_limit_watts": ("power/min_power_limit",),
    "power.max_limit_watts": ("power/max_power_limit",),
    "clocks.sm_mhz": ("clocks/sm", "clocks/sm_clock"),
    "clocks.sm_max_mhz": ("max_clocks/sm", "max_clocks/sm_clock"),
    "clocks.memory_mhz": ("clocks/memory", "clocks/mem_clock"),
    "clocks.memory_max_mhz": ("max_clocks/memory", "max_clocks/mem_clock"),
    "clocks.graphics_mhz": ("clocks/graphics", "clocks/graphics_clock"),
    "clocks.graphics_max_mhz": ("max_clocks/graphics", "max_clocks/graphics_clock"),
    "clocks.video_mhz": ("clocks/video", "clocks/video_clock"),
    "clocks.video_max_mhz": ("max_clocks/video", "max_clocks/video_clock"),
    "performance.state": ("performance_state",),
    "fan.speed_percent": ("fan_speed",),
    "pcie.generation": tuple(
        f"{link}/pcie_gen{end}" for link in _LINK for end in ("eration/current", "/current_link_gen")
    ),
    "pcie.max_generation": tuple(f"{link}/pcie_gen{end}" for link in _LINK for end in ("eration/max", "/max_link_gen")),
    "pcie.width": tuple(f"{link}/link_width{end}" for link in _LINK for end in ("/current", "s/current_link_width")),
    "pcie.max_width": tuple(f"{link}/link_width{end}" for link in _LINK for end in ("/max", "s/max_link_width")),
    "pcie.tx_bytes_per_second": ("pci/tx_throughput", "pci/tx_util"),
    "pcie.rx_bytes_per_second": ("pci/rx_throughput", "pci/rx_util"),
    "pcie.replays": ("pci/replays_since_reset", "pci/replay_counter"),
    "fabric.state": ("fabric/state",),
    "fabric.health": ("fabric/health/summary",),
    "ecc.mode": ("ecc_mode/current", "ecc_mode/current_ecc"),
    "ecc.mode_pending": ("ecc_mode/pending", "ecc_mode/pending_ecc"),
    "ecc.sram_threshold_exceeded": ("ecc_errors/aggregate/sram_threshold_exceeded",),
    "remapped_rows.correctable": ("remapped_rows/correctable_error", "remapped_rows/remapped_row_corr"),
    "remapped_rows.uncorrectable": ("remapped_rows/uncorrectable_error", "remapped_rows/remapped_row_unc"),
    "remapped_rows.pending": ("remapped_rows/pending", "remapped_rows/remapped_row_pending"),
    "remapped_rows.failure": ("remapped_rows/remapping_failure_occurred", "remapped_rows/remapped_row_failure"),
    "retired_pages.single_bit": (
        "retired_pages/single_bit_ecc",
        "retired_pages/multiple_single_bit_retirement/retired_count",
    ),
    "retired_pages.double_bit": (
        "retired_pages/double_bit_ecc",
        "retired_pages/double_bit_retirement/retired_count",
    ),
    "retired_pages.pending": ("retired_pages/pending_page_blacklist", "retired_pages/pending_retirement"),
    "health.recovery_action": ("gpu_recovery_action",),
    "mode.compute": ("compute_mode",),
    "mode.persistence": ("persistence_mode",),
    "mode.display_attached": ("display_attached", "display_mode"),
    "mode.display_active": ("display_active",),
    "mig.mode": ("mig_mode/current", "mig_mode/current_mig"),
    "identity.architecture": ("product_architecture",),
    "identity.vbios": ("vbios_version",),
    "identity.serial": ("serial_number", "serial"),
    "identity.part_number": ("board_part_number",),
    "identity.gsp_version": ("gsp_firmware_version",),
}
"""The names of each metric in the tree, of text and of XML; the first that has a value counts."""
_CORRECTED = ("sram_correctable", "dram_correctable", "single_bit/total")
_UNCORRECTED = ("sram_uncorrectable", "dram_uncorrectable", "double_bit/total")
ECC_SUMS = {
    "ecc.corrected": ("volatile", _CORRECTED),
    "ecc.corrected_lifetime": ("aggregate", _CORRECTED),
    "ecc.sram_uncorrected": ("volatile", ("sram_uncorrectable",)),
    "ecc.sram_uncorrected_lifetime": ("aggregate", ("sram_uncorrectable",)),
    "ecc.uncorrected": ("volatile", _UNCORRECTED),
    "ecc.uncorrected_lifetime": ("aggregate", _UNCORRECTED),
}
"""Metrics that are sums of counters: the branch of the tree, and the names of the counters. GPUs before Turing, and all
GPUs of older drivers, count by bits instead of by kind of memory."""
ECC_ERROR_SUFFIXES = ("", "_parity", "_secded", "_sec-ded")
"""Newer drivers print uncorrectable SRAM errors by kind, in place of their number."""
CLOCK_REASON_IDS = {
    "applications_clocks_setting": "applications-clocks",
    "hw_thermal_slowdown": "hw-thermal",
    "hw_power_brake_slowdown": "hw-power-brake",
    "sw_thermal_slowdown": "sw-thermal",
    "display_clock_setting": "display-clocks",
    "display_clocks_setting": "display-clocks",
}
"""Clock event reasons whose names in gpuwatch are not theirs with dashes for underscores."""
CLOCK_REASON_PATTERN = re.compile(
    r"clocks_(?:event|throttle)_reasons/(?:hw_slowdown/)?(?:clocks_(?:event|throttle)_reason_)?(.+)$"
)
VALUE_NAMES = {
    "mode.display_attached": {"enabled": "yes", "disabled": "no"},
    "mode.display_active": {"enabled": "yes", "disabled": "no"},
    "health.recovery_action": {"reset": "gpu-reset", "reboot": "node-reboot"},
    "identity.architecture": {"ada lovelace": "Ada"},
}
"""gpuwatch's names of values by metric, where they are not the printed ones in lower case with dashes."""
VERBATIM_METRIC_PREFIXES = ("identity.", "performance.")
"""Beginnings of the ids of metrics whose values are kept as they are printed."""
