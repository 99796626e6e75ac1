"""The table of device metrics. Dashboard, JSON, CSV and HTML iterate over it.

To add a metric: one row here, and a value in ``tests/fixtures``. The source
(:mod:`gpuwatch.machine.sources.nvidia.nvml_source`) calls the NVML functions named here: once per tick even if several
metrics pick from one answer, and all field values of a lane in one call. A metric without ``call`` is derived from
other readings.

Names and units follow NVML; the JSON carries sizes as ``_bytes``, percentages as ``_percent``.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any

import msgspec


class Unit(enum.StrEnum):
    """The unit of a metric."""

    PERCENT = "%"
    BYTES = "B"
    BYTES_PER_SECOND = "B/s"
    CELSIUS = "°C"
    WATT = "W"
    MEGAHERTZ = "MHz"
    JOULE = "J"
    SECOND = "s"
    COUNT = ""
    NAME = "name"


_PETA = 1e15
_COUNT_BOUNDS = (0, 1e6)
"""What a GPU has thousands of at most."""
_BOUNDS = {
    Unit.PERCENT: (0, 101),  # averages round up a little
    Unit.BYTES: (0, _PETA),
    Unit.BYTES_PER_SECOND: (0, _PETA),
    Unit.CELSIUS: (-100, 250),
    Unit.WATT: (0, 20_000),
    Unit.MEGAHERTZ: (0, 50_000),
    Unit.JOULE: (0, _PETA),
    Unit.SECOND: (0, 3e9),
    Unit.COUNT: (0, 1e12),
    Unit.NAME: (0, 0),
}
"""What a GPU can have at all, far beyond what any has today."""


class Lane(enum.StrEnum):
    """How often a metric is read: fast every tick, slow every 5-10 s."""

    FAST = "fast"
    SLOW = "slow"
    ONCE = "once"
    """Constant while the device is present: read until it answers."""
    ON_DEMAND = "on-demand"
    GPM = "gpm"
    """GPU performance monitoring (activity of SMs, tensor cores, DRAM): every tick, if the user opted in."""


class Axis(msgspec.Struct, frozen=True):
    """A fixed axis, so that noise never fills a graph."""

    low: float
    high: float | str
    """A number, or the id of the metric that bounds this one (memory used by total)."""
    high_known: str = ""
    """The metric that bounds this one on devices that report it; ``high`` applies to the others."""

    def ends(self, number: Callable[[str], float | None]) -> tuple[float, float] | None:
        """Both ends, using ``number`` to read another metric; None if the upper end is unknown."""
        high = number(self.high_known) if self.high_known else None
        if not high:
            high = number(self.high) if isinstance(self.high, str) else self.high
        return (self.low, high) if high else None


class MetricSpec(msgspec.Struct, frozen=True):
    """One device metric: its names, unit, and the NVML call that reads it."""

    id: str
    title: str
    short: str
    """At most six characters, for column heads."""
    unit: Unit
    lane: Lane
    call: str = ""
    """NVML function, by its name in pynvml; empty for derived metrics."""
    fallback: str = ""
    """The older name of the same function, for drivers without ``call``."""
    args: tuple[int | str, ...] = ()
    """Arguments after the handle; a string is the name of a pynvml constant.

    For nvmlDeviceGetFieldValues: the field, and its scope if it has one.
    """
    per_link: tuple[str, ...] = ()
    """Per-link fields with the same count, by NVLink generation, summed over the links of a device.

    For nvmlDeviceGetFieldValues, with the link number as scope; NVLink 4 and 5 count this way.
    """
    pick: str = ""
    """Attribute (or ``[0]`` index) of the answer; empty if the answer is the value."""
    scale: float = 1.0
    """Factor from NVML's unit to ours."""
    names: Mapping[int, str] = {}
    """For enumerations: number to name."""
    flags: Mapping[int, str] = {}
    """For bit masks: bit to name; the value is the names joined with ``+``, or ``none``."""
    axis: Axis | None = None
    counter: bool = False
    """A total that only grows."""
    within: tuple[float, float] | None = None
    """The values that it can have, where they differ from those of its unit."""
    rate_of: str = ""
    """For rates: the counter whose growth per second, times ``scale``, is the value."""

    @property
    def bounds(self) -> tuple[float, float]:
        """The lowest and the highest value that it can have; what lies beyond is a fault of the driver."""
        sent = self.counter and self.unit is Unit.BYTES
        return self.within or ((0, 1000 * _PETA) if sent else _BOUNDS[self.unit])


_PERCENT = Axis(0, 100)
_MIB = 1048576.0
_KIB = 1024.0
_KILO = 1000.0
"""PCIe throughput is in KB/s, decimal."""
_MILLI = 1e-3

# nvmlPstates_t
_PSTATES = {n: f"P{n}" for n in range(16)}
# nvmlComputeMode_t
_COMPUTE_MODES = {0: "default", 1: "exclusive-thread", 2: "prohibited", 3: "exclusive-process"}
_ENABLED = {0: "disabled", 1: "enabled"}
_YES = {0: "no", 1: "yes"}
# nvmlDeviceAddressingMode_t
_ADDRESSING = {0: "none", 1: "hmm", 2: "ats"}
# nvmlDeviceArchitecture_t
_ARCHITECTURES = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada",
    9: "Hopper",
    10: "Blackwell",
    13: "Rubin",
}
# nvmlDeviceGpuRecoveryAction_t
_RECOVERY = {
    0: "none",
    1: "gpu-reset",
    2: "node-reboot",
    3: "drain-p2p",
    4: "drain-and-reset",
    5: "recover-imex-domain",
    6: "bus-reset",
    7: "system-reboot",
}
_ALL_LINKS = 0xFFFFFFFF
"""NVLink field scope: the sum over all links."""
# nvmlClocksEventReason* bit masks (nvml.h)
_EVENT_REASONS = {
    0x1: "idle",
    0x2: "applications-clocks",
    0x4: "sw-power-cap",
    0x8: "hw-slowdown",
    0x10: "sync-boost",
    0x20: "sw-thermal",
    0x40: "hw-thermal",
    0x80: "hw-power-brake",
    0x100: "display-clocks",
}


def _percent(metric_id: str, title: str, short: str, lane: Lane, call: str = "", **options: Any) -> MetricSpec:
    """A share, drawn from 0 to 100 %."""
    return MetricSpec(metric_id, title, short, Unit.PERCENT, lane, call, axis=_PERCENT, **options)


def _count(metric_id: str, title: str, short: str, call: str, **options: Any) -> MetricSpec:
    """A total of errors or events."""
    return MetricSpec(metric_id, title, short, Unit.COUNT, Lane.SLOW, call, counter=True, **options)


def _name(metric_id: str, title: str, short: str, lane: Lane, call: str, **options: Any) -> MetricSpec:
    """A mode, version or flag."""
    return MetricSpec(metric_id, title, short, Unit.NAME, lane, call, **options)


def _field(
    metric_id: str, title: str, short: str, unit: Unit, lane: Lane, *field: str | int, **options: Any
) -> MetricSpec:
    """A field value: the name of the field, and its scope where it has one."""
    return MetricSpec(metric_id, title, short, unit, lane, "nvmlDeviceGetFieldValues", args=field, **options)


def _threshold(metric_id: str, title: str, short: str, name: str) -> MetricSpec:
    """A temperature that the card never changes."""
    call = "nvmlDeviceGetTemperatureThreshold"
    return MetricSpec(metric_id, title, short, Unit.CELSIUS, Lane.ONCE, call, args=(name,))


def _rate(metric_id: str, title: str, short: str, counter: str) -> MetricSpec:
    """Bytes per second, from the growth of a counter."""
    return MetricSpec(metric_id, title, short, Unit.BYTES_PER_SECOND, Lane.SLOW, rate_of=counter)


def _throttled(name: str, reason: str, short: str, field: str) -> tuple[MetricSpec, MetricSpec]:
    """How long a reason has throttled the GPU, and its share of the time since the previous sample."""
    total, share, title = f"events.{name}_seconds", f"events.{name}_percent", f"Throttled by {reason}"
    return (
        _field(total, f"{title}, total", short, Unit.SECOND, Lane.SLOW, field, scale=1e-9, counter=True),
        _percent(share, f"{title}, share of time", f"{short}%", Lane.SLOW, scale=100.0, rate_of=total),
    )


def _activity(metric_id: str, title: str, short: str, name: str, unit: Unit = Unit.PERCENT) -> MetricSpec:
    """A GPM metric: percent, or bytes per second, which NVML gives in MiB."""
    options: dict[str, Any] = {"axis": _PERCENT} if unit is Unit.PERCENT else {"scale": _MIB}
    return MetricSpec(metric_id, title, short, unit, Lane.GPM, "nvmlGpmMetricsGet", args=(name,), **options)


# fmt: off
METRICS: tuple[MetricSpec, ...] = (
    _percent("utilization.gpu_percent", "GPU utilization", "GPU", Lane.FAST,
        "nvmlDeviceGetUtilizationRates", pick="gpu"),
    _percent("utilization.memory_percent", "Memory controller utilization", "MBW", Lane.FAST,
        "nvmlDeviceGetUtilizationRates", pick="memory"),
    _percent("utilization.encoder_percent", "Encoder utilization", "ENC", Lane.FAST,
        "nvmlDeviceGetEncoderUtilization", pick="[0]"),
    _percent("utilization.decoder_percent", "Decoder utilization", "DEC", Lane.FAST,
        "nvmlDeviceGetDecoderUtilization", pick="[0]"),
    _percent("utilization.jpeg_percent", "JPEG engine utilization", "JPEG", Lane.SLOW,
        "nvmlDeviceGetJpgUtilization", pick="[0]"),
    _percent("utilization.ofa_percent", "Optical flow engine utilization", "OFA", Lane.SLOW,
        "nvmlDeviceGetOfaUtilization", pick="[0]"),
    MetricSpec("encoder.sessions", "Encoder sessions", "ENCSES", Unit.COUNT, Lane.SLOW,
        "nvmlDeviceGetEncoderStats", pick="[0]"),
    MetricSpec("encoder.frames_per_second", "Encoder frames per second, average", "ENCFPS",
        Unit.COUNT, Lane.SLOW, "nvmlDeviceGetEncoderStats", pick="[1]"),
    MetricSpec("memory.total_bytes", "Memory total", "TOTAL", Unit.BYTES, Lane.FAST,
        "nvmlDeviceGetMemoryInfo", pick="total", within=(1, _PETA)),
    MetricSpec("memory.used_bytes", "Memory used", "MEM", Unit.BYTES, Lane.FAST,
        "nvmlDeviceGetMemoryInfo", pick="used", axis=Axis(0, "memory.total_bytes")),
    MetricSpec("memory.free_bytes", "Memory free", "FREE", Unit.BYTES, Lane.FAST,
        "nvmlDeviceGetMemoryInfo", pick="free", axis=Axis(0, "memory.total_bytes")),
    MetricSpec("memory.reserved_bytes", "Memory reserved by the driver", "RESV", Unit.BYTES, Lane.FAST,
        "nvmlDeviceGetMemoryInfo", pick="reserved", axis=Axis(0, "memory.total_bytes")),
    MetricSpec("memory.unexplained_bytes", "Memory used by no listed process", "UNEXPL", Unit.BYTES, Lane.FAST,
        axis=Axis(0, "memory.total_bytes")),
    _name("memory.addressing", "Address space shared with the host", "ADDR", Lane.ONCE,
        "nvmlDeviceGetAddressingMode", names=_ADDRESSING),
    MetricSpec("bar1.total_bytes", "BAR1 (mapped for the host) total", "BAR1TO", Unit.BYTES, Lane.SLOW,
        "nvmlDeviceGetBAR1MemoryInfo", pick="bar1Total"),
    MetricSpec("bar1.used_bytes", "BAR1 (mapped for the host) used", "BAR1", Unit.BYTES, Lane.SLOW,
        "nvmlDeviceGetBAR1MemoryInfo", pick="bar1Used", axis=Axis(0, "bar1.total_bytes")),
    MetricSpec("temperature.gpu_celsius", "GPU temperature", "TEMP", Unit.CELSIUS, Lane.FAST,
        "nvmlDeviceGetTemperature", args=("NVML_TEMPERATURE_GPU",),
        axis=Axis(30, 100, high_known="temperature.shutdown_celsius")),
    _field("temperature.memory_celsius", "Memory temperature", "MTEMP", Unit.CELSIUS, Lane.FAST,
        "NVML_FI_DEV_MEMORY_TEMP", axis=Axis(30, 110, high_known="temperature.memory_max_celsius")),
    MetricSpec("temperature.margin_celsius", "Thermal margin to slowdown", "TMARG", Unit.CELSIUS, Lane.FAST,
        "nvmlDeviceGetMarginTemperature"),
    _threshold("temperature.operating_max_celsius", "Maximum operating temperature", "TMAX",
        "NVML_TEMPERATURE_THRESHOLD_GPU_MAX"),
    _threshold("temperature.slowdown_celsius", "Slowdown temperature", "TSLOW", "NVML_TEMPERATURE_THRESHOLD_SLOWDOWN"),
    _threshold("temperature.shutdown_celsius", "Shutdown temperature", "TSHUT", "NVML_TEMPERATURE_THRESHOLD_SHUTDOWN"),
    _threshold("temperature.memory_max_celsius", "Maximum memory temperature", "MTMAX",
        "NVML_TEMPERATURE_THRESHOLD_MEM_MAX"),
    # Hopper and later report thresholds as margins: the value of temperature.margin_celsius when they are reached.
    _field("temperature.operating_max_margin_celsius", "Maximum operating temperature, as a margin", "TMAXR",
        Unit.CELSIUS, Lane.ONCE, "NVML_FI_DEV_TEMPERATURE_GPU_MAX_TLIMIT"),
    _field("temperature.slowdown_margin_celsius", "Slowdown temperature, as a margin", "TSLOWR",
        Unit.CELSIUS, Lane.ONCE, "NVML_FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT"),
    _field("temperature.shutdown_margin_celsius", "Shutdown temperature, as a margin", "TSHUTR",
        Unit.CELSIUS, Lane.ONCE, "NVML_FI_DEV_TEMPERATURE_SHUTDOWN_TLIMIT"),
    _field("temperature.memory_max_margin_celsius", "Maximum memory temperature, as a margin", "MTMAXR",
        Unit.CELSIUS, Lane.ONCE, "NVML_FI_DEV_TEMPERATURE_MEM_MAX_TLIMIT"),
    MetricSpec("power.draw_watts", "Power draw", "PWR", Unit.WATT, Lane.FAST,
        "nvmlDeviceGetPowerUsage", scale=_MILLI, axis=Axis(0, "power.limit_watts")),
    MetricSpec("power.limit_watts", "Enforced power limit", "PLIM", Unit.WATT, Lane.SLOW,
        "nvmlDeviceGetEnforcedPowerLimit", scale=_MILLI),
    _field("power.average_watts", "Power draw, 1 s average", "PAVG",
        Unit.WATT, Lane.SLOW, "NVML_FI_DEV_POWER_AVERAGE", scale=_MILLI, axis=Axis(0, "power.limit_watts")),
    _field("power.instant_watts", "Power draw, instantaneous", "PNOW",
        Unit.WATT, Lane.FAST, "NVML_FI_DEV_POWER_INSTANT", scale=_MILLI, axis=Axis(0, "power.limit_watts")),
    MetricSpec("power.requested_limit_watts", "Requested power limit", "PREQ", Unit.WATT, Lane.SLOW,
        "nvmlDeviceGetPowerManagementLimit", scale=_MILLI),
    MetricSpec("power.default_limit_watts", "Default power limit", "PDEF", Unit.WATT, Lane.ONCE,
        "nvmlDeviceGetPowerManagementDefaultLimit", scale=_MILLI),
    MetricSpec("power.min_limit_watts", "Minimum power limit", "PMIN", Unit.WATT, Lane.ONCE,
        "nvmlDeviceGetPowerManagementLimitConstraints", pick="[0]", scale=_MILLI),
    MetricSpec("power.max_limit_watts", "Maximum power limit", "PMAX", Unit.WATT, Lane.ONCE,
        "nvmlDeviceGetPowerManagementLimitConstraints", pick="[1]", scale=_MILLI),
    MetricSpec("clocks.sm_mhz", "SM clock", "SM", Unit.MEGAHERTZ, Lane.FAST,
        "nvmlDeviceGetClockInfo", args=("NVML_CLOCK_SM",), axis=Axis(0, "clocks.sm_max_mhz")),
    MetricSpec("clocks.sm_max_mhz", "Maximum SM clock", "SMMAX", Unit.MEGAHERTZ, Lane.SLOW,
        "nvmlDeviceGetMaxClockInfo", args=("NVML_CLOCK_SM",)),
    MetricSpec("clocks.memory_mhz", "Memory clock", "MCLK", Unit.MEGAHERTZ, Lane.FAST,
        "nvmlDeviceGetClockInfo", args=("NVML_CLOCK_MEM",), axis=Axis(0, "clocks.memory_max_mhz")),
    MetricSpec("clocks.memory_max_mhz", "Maximum memory clock", "MCMAX", Unit.MEGAHERTZ, Lane.SLOW,
        "nvmlDeviceGetMaxClockInfo", args=("NVML_CLOCK_MEM",)),
    MetricSpec("clocks.graphics_mhz", "Graphics clock", "GCLK", Unit.MEGAHERTZ, Lane.FAST,
        "nvmlDeviceGetClockInfo", args=("NVML_CLOCK_GRAPHICS",), axis=Axis(0, "clocks.graphics_max_mhz")),
    MetricSpec("clocks.graphics_max_mhz", "Maximum graphics clock", "GCMAX", Unit.MEGAHERTZ, Lane.SLOW,
        "nvmlDeviceGetMaxClockInfo", args=("NVML_CLOCK_GRAPHICS",)),
    MetricSpec("clocks.video_mhz", "Video clock", "VCLK", Unit.MEGAHERTZ, Lane.SLOW,
        "nvmlDeviceGetClockInfo", args=("NVML_CLOCK_VIDEO",), axis=Axis(0, "clocks.video_max_mhz")),
    MetricSpec("clocks.video_max_mhz", "Maximum video clock", "VCMAX", Unit.MEGAHERTZ, Lane.SLOW,
        "nvmlDeviceGetMaxClockInfo", args=("NVML_CLOCK_VIDEO",)),
    _name("clocks.event_reasons", "Clock event (throttle) reasons", "THROT", Lane.FAST,
        "nvmlDeviceGetCurrentClocksEventReasons", fallback="nvmlDeviceGetCurrentClocksThrottleReasons",
        flags=_EVENT_REASONS),
    # The newer fields for hardware slowdown and power brake were renumbered between driver branches
    # (251-253, then 269-271), so a driver can answer with another quantity. These are stable.
    *_throttled("power", "power cap", "EVPWR", "NVML_FI_DEV_PERF_POLICY_POWER"),
    *_throttled("thermal", "temperature", "EVTHM", "NVML_FI_DEV_PERF_POLICY_THERMAL"),
    *_throttled("sync_boost", "sync boost", "EVSYN", "NVML_FI_DEV_PERF_POLICY_SYNC_BOOST"),
    *_throttled("board_limit", "board limit", "EVBRD", "NVML_FI_DEV_PERF_POLICY_BOARD_LIMIT"),
    *_throttled("reliability", "voltage reliability", "EVREL", "NVML_FI_DEV_PERF_POLICY_RELIABILITY"),
    _name("performance.state", "Performance state", "PSTATE", Lane.FAST,
        "nvmlDeviceGetPerformanceState", names=_PSTATES),
    _percent("fan.speed_percent", "Fan speed", "FAN", Lane.SLOW, "nvmlDeviceGetFanSpeed", within=(0, 255)),
    MetricSpec("energy_joules", "Total energy since driver load", "ENERGY", Unit.JOULE, Lane.SLOW,
        "nvmlDeviceGetTotalEnergyConsumption", scale=_MILLI, counter=True),
    MetricSpec("pcie.generation", "PCIe link generation", "PGEN", Unit.COUNT, Lane.SLOW,
        "nvmlDeviceGetCurrPcieLinkGeneration"),
    MetricSpec("pcie.max_generation", "Maximum PCIe link generation", "PGMAX", Unit.COUNT, Lane.SLOW,
        "nvmlDeviceGetMaxPcieLinkGeneration"),
    MetricSpec("pcie.width", "PCIe link width", "PWID", Unit.COUNT, Lane.SLOW, "nvmlDeviceGetCurrPcieLinkWidth"),
    MetricSpec("pcie.max_width", "Maximum PCIe link width", "PWMAX", Unit.COUNT, Lane.SLOW,
        "nvmlDeviceGetMaxPcieLinkWidth"),
    MetricSpec("pcie.tx_bytes_per_second", "PCIe transmit (GPU to host)", "PCIETX", Unit.BYTES_PER_SECOND,
        Lane.ON_DEMAND, "nvmlDeviceGetPcieThroughput", args=("NVML_PCIE_UTIL_TX_BYTES",), scale=_KILO),
    MetricSpec("pcie.rx_bytes_per_second", "PCIe receive (host to GPU)", "PCIERX", Unit.BYTES_PER_SECOND,
        Lane.ON_DEMAND, "nvmlDeviceGetPcieThroughput", args=("NVML_PCIE_UTIL_RX_BYTES",), scale=_KILO),
    # Not NVML_FI_DEV_PCIE_COUNT_TX_BYTES and ..._RX_BYTES: they have 32 bits (seen on H200, 580.159.04), so they wrap
    # every 4.3 GB, at full speed 15 times a second: neither a total nor, between two samples, a rate.
    _count("pcie.replays", "PCIe replays", "REPLAY", "nvmlDeviceGetPcieReplayCounter"),
    MetricSpec("nvlink.links", "NVLinks", "NVL", Unit.COUNT, Lane.SLOW, "nvmlDeviceGetNvLinkState", pick="[0]"),
    MetricSpec("nvlink.links_active", "Active NVLinks", "NVLUP", Unit.COUNT, Lane.SLOW,
        "nvmlDeviceGetNvLinkState", pick="[1]", axis=Axis(0, "nvlink.links")),
    _field("nvlink.tx_bytes", "NVLink sent, total", "NVTX",
        Unit.BYTES, Lane.SLOW, "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX", _ALL_LINKS, scale=_KIB, counter=True),
    _field("nvlink.rx_bytes", "NVLink received, total", "NVRX",
        Unit.BYTES, Lane.SLOW, "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX", _ALL_LINKS, scale=_KIB, counter=True),
    _rate("nvlink.tx_bytes_per_second", "NVLink transmit, average since last sample", "NVTX/S", "nvlink.tx_bytes"),
    _rate("nvlink.rx_bytes_per_second", "NVLink receive, average since last sample", "NVRX/S", "nvlink.rx_bytes"),
    _field("nvlink.crc_errors", "NVLink CRC errors", "NVCRC", Unit.COUNT, Lane.SLOW,
        "NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", per_link=("NVML_FI_DEV_NVLINK_ERROR_DL_CRC",), counter=True),
    _field("nvlink.data_crc_errors", "NVLink CRC errors in data", "NVDCRC", Unit.COUNT, Lane.SLOW,
        "NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", counter=True),
    _field("nvlink.ecc_errors", "NVLink ECC errors in data", "NVECC", Unit.COUNT, Lane.SLOW,
        "NVML_FI_DEV_NVLINK_ECC_DATA_ERROR_COUNT_TOTAL", counter=True),
    _field("nvlink.replays", "NVLink replays", "NVRPL", Unit.COUNT, Lane.SLOW,
        "NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", per_link=("NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY",), counter=True),
    _field("nvlink.recoveries", "NVLink recoveries", "NVRCV", Unit.COUNT, Lane.SLOW,
        "NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
        per_link=("NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY", "NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS"),
        counter=True),
    # NVLink 5 (Blackwell) counts per link only.
    _field("nvlink.failed_recoveries", "Failed NVLink recoveries", "NVRCVF", Unit.COUNT, Lane.SLOW,
        per_link=("NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS",), counter=True),
    _field("nvlink.receive_errors", "NVLink packets received with errors", "NVRERR", Unit.COUNT, Lane.SLOW,
        per_link=("NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS",), counter=True),
    _field("nvlink.effective_errors", "NVLink errors left after error correction", "NVEFF", Unit.COUNT, Lane.SLOW,
        per_link=("NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS",), counter=True),
    _name("fabric.state", "NVLink fabric registration", "FABRIC", Lane.SLOW, "nvmlDeviceGetGpuFabricInfoV", pick="[0]"),
    _name("fabric.health", "NVLink fabric health", "FABHLT", Lane.SLOW, "nvmlDeviceGetGpuFabricInfoV", pick="[1]"),
    _name("ecc.mode", "ECC mode", "ECC", Lane.SLOW, "nvmlDeviceGetEccMode", pick="[0]", names=_ENABLED),
    _name("ecc.mode_pending", "ECC mode after the next reboot", "ECCPND", Lane.SLOW,
        "nvmlDeviceGetEccMode", pick="[1]", names=_ENABLED),
    _count("ecc.corrected", "Corrected ECC errors since boot", "ECCCOR",
        "nvmlDeviceGetTotalEccErrors", args=("NVML_MEMORY_ERROR_TYPE_CORRECTED", "NVML_VOLATILE_ECC")),
    _count("ecc.uncorrected", "Uncorrected ECC errors since boot", "ECCUNC",
        "nvmlDeviceGetTotalEccErrors", args=("NVML_MEMORY_ERROR_TYPE_UNCORRECTED", "NVML_VOLATILE_ECC")),
    _count("ecc.corrected_lifetime", "Corrected ECC errors, lifetime",
        "ECCCLT", "nvmlDeviceGetTotalEccErrors", args=("NVML_MEMORY_ERROR_TYPE_CORRECTED", "NVML_AGGREGATE_ECC")),
    _count("ecc.uncorrected_lifetime", "Uncorrected ECC errors, lifetime",
        "ECCULT", "nvmlDeviceGetTotalEccErrors", args=("NVML_MEMORY_ERROR_TYPE_UNCORRECTED", "NVML_AGGREGATE_ECC")),
    _count("ecc.sram_uncorrected", "Uncorrected SRAM errors since boot", "SRAMUN",
        "nvmlDeviceGetSramEccErrorStatus", pick="[0]"),
    _count("ecc.sram_uncorrected_lifetime", "Uncorrected SRAM errors, lifetime",
        "SRAMLT", "nvmlDeviceGetSramEccErrorStatus", pick="[1]"),
    _name("ecc.sram_threshold_exceeded", "SRAM error threshold exceeded", "SRAMTH", Lane.SLOW,
        "nvmlDeviceGetSramEccErrorStatus", pick="[2]", names=_YES),
    _count("remapped_rows.correctable", "Memory rows remapped for correctable errors", "RMCOR",
        "nvmlDeviceGetRemappedRows", pick="[0]", within=_COUNT_BOUNDS),
    _count("remapped_rows.uncorrectable", "Memory rows remapped for uncorrectable errors", "RMUNC",
        "nvmlDeviceGetRemappedRows", pick="[1]", within=_COUNT_BOUNDS),
    _name("remapped_rows.pending", "Row remapping pending (needs a reset)", "RMPEND", Lane.SLOW,
        "nvmlDeviceGetRemappedRows", pick="[2]", names=_YES),
    _name("remapped_rows.failure", "Row remapping failed", "RMFAIL", Lane.SLOW,
        "nvmlDeviceGetRemappedRows", pick="[3]", names=_YES),
    _field("retired_pages.single_bit", "Memory pages retired for single-bit errors", "RPSBE", Unit.COUNT, Lane.SLOW,
        "NVML_FI_DEV_RETIRED_SBE", counter=True, within=_COUNT_BOUNDS),
    _field("retired_pages.double_bit", "Memory pages retired for double-bit errors", "RPDBE", Unit.COUNT, Lane.SLOW,
        "NVML_FI_DEV_RETIRED_DBE", counter=True, within=_COUNT_BOUNDS),
    _field("retired_pages.pending", "Page retirement pending (needs a reboot)", "RPPEND", Unit.NAME, Lane.SLOW,
        "NVML_FI_DEV_RETIRED_PENDING", names=_YES),
    _field("health.recovery_action", "Recovery action", "RECOV", Unit.NAME, Lane.SLOW,
        "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", names=_RECOVERY),
    _name("mode.compute", "Compute mode", "COMPUT", Lane.SLOW, "nvmlDeviceGetComputeMode", names=_COMPUTE_MODES),
    _name("mode.persistence", "Persistence mode", "PERSIS", Lane.SLOW, "nvmlDeviceGetPersistenceMode", names=_ENABLED),
    _name("mode.display_attached", "Display attached", "DISPLA", Lane.SLOW, "nvmlDeviceGetDisplayMode", names=_YES),
    _name("mode.display_active", "Display active", "DISPON", Lane.SLOW, "nvmlDeviceGetDisplayActive", names=_YES),
    _name("mig.mode", "MIG mode", "MIG", Lane.SLOW, "nvmlDeviceGetMigMode", pick="[0]", names=_ENABLED),
    MetricSpec("mig.instances", "MIG devices", "MIGDEV", Unit.COUNT, Lane.SLOW, "nvmlDeviceGetMigDeviceHandleByIndex"),
    _name("identity.architecture", "Architecture", "ARCH", Lane.ONCE,
        "nvmlDeviceGetArchitecture", names=_ARCHITECTURES),
    MetricSpec("identity.cuda_cores", "CUDA cores", "CORES", Unit.COUNT, Lane.ONCE, "nvmlDeviceGetNumGpuCores"),
    MetricSpec("identity.memory_bus_bits", "Memory bus width in bits", "BUSBIT", Unit.COUNT, Lane.ONCE,
        "nvmlDeviceGetMemoryBusWidth"),
    _name("identity.vbios", "VBIOS version", "VBIOS", Lane.ONCE, "nvmlDeviceGetVbiosVersion"),
    _name("identity.serial", "Serial number", "SERIAL", Lane.ONCE, "nvmlDeviceGetSerial"),
    _name("identity.part_number", "Board part number", "PART", Lane.ONCE, "nvmlDeviceGetBoardPartNumber"),
    _name("identity.gsp_mode", "GSP firmware", "GSP", Lane.ONCE,
        "nvmlDeviceGetGspFirmwareMode", pick="[0]", names=_ENABLED),
    _name("identity.gsp_version", "GSP firmware version", "GSPVER", Lane.ONCE, "nvmlDeviceGetGspFirmwareVersion"),
    _name("identity.host_numa_nodes", "Local NUMA nodes", "NUMA", Lane.ONCE, "nvmlDeviceGetMemoryAffinity"),
    MetricSpec("identity.numa_node", "NUMA node of GPU memory", "GPUNOD", Unit.COUNT, Lane.ONCE,
        "nvmlDeviceGetNumaNodeId"),
    # GPM. Percentages are of the time since the previous sample.
    _activity("activity.graphics_percent", "Graphics or compute engine active", "GRACT",
        "NVML_GPM_METRIC_GRAPHICS_UTIL"),
    _activity("activity.sm_percent", "SM activity, average", "SMACT", "NVML_GPM_METRIC_SM_UTIL"),
    _activity("activity.sm_occupancy_percent", "SM occupancy", "SMOCC", "NVML_GPM_METRIC_SM_OCCUPANCY"),
    _activity("activity.tensor_percent", "Tensor pipe active", "TENSOR", "NVML_GPM_METRIC_ANY_TENSOR_UTIL"),
    _activity("activity.tensor_fp64_percent", "Tensor pipe active, FP64", "TFP64", "NVML_GPM_METRIC_DFMA_TENSOR_UTIL"),
    _activity("activity.tensor_fp16_percent", "Tensor pipe active, FP16 and BF16",
        "TFP16", "NVML_GPM_METRIC_HMMA_TENSOR_UTIL"),
    _activity("activity.tensor_integer_percent", "Tensor pipe active, integers",
        "TINT", "NVML_GPM_METRIC_IMMA_TENSOR_UTIL"),
    _activity("activity.fp64_percent", "FP64 pipe active", "FP64", "NVML_GPM_METRIC_FP64_UTIL"),
    _activity("activity.fp32_percent", "FP32 pipe active", "FP32", "NVML_GPM_METRIC_FP32_UTIL"),
    _activity("activity.fp16_percent", "FP16 pipe active", "FP16", "NVML_GPM_METRIC_FP16_UTIL"),
    _activity("activity.integer_percent", "Integer pipe active", "INT", "NVML_GPM_METRIC_INTEGER_UTIL"),
    _activity("activity.dram_percent", "DRAM bandwidth used", "DRAM", "NVML_GPM_METRIC_DRAM_BW_UTIL"),
    _activity("activity.pcie_tx_bytes_per_second", "PCIe sent (activity)", "APCITX", "NVML_GPM_METRIC_PCIE_TX_PER_SEC",
        Unit.BYTES_PER_SECOND),
    _activity("activity.pcie_rx_bytes_per_second", "PCIe received (activity)", "APCIRX",
        "NVML_GPM_METRIC_PCIE_RX_PER_SEC", Unit.BYTES_PER_SECOND),
    _activity("activity.nvlink_tx_bytes_per_second", "NVLink sent (activity)", "ANVLTX",
        "NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC", Unit.BYTES_PER_SECOND),
    _activity("activity.nvlink_rx_bytes_per_second", "NVLink received (activity)", "ANVLRX",
        "NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC", Unit.BYTES_PER_SECOND),
)
# fmt: on

BY_ID: Mapping[str, MetricSpec] = {spec.id: spec for spec in METRICS}
