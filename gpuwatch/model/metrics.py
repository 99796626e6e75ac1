"""THE list of device metrics. Dashboard, JSON, CSV, exporter and HTML iterate over it.

To add a metric: one :class:`MetricSpec` here, and a value in ``tests/fixtures``. The source
(:mod:`gpuwatch.sources.nvml`) calls NVML functions by the names written here, once per call and
tick even where several metrics pick from one answer, and all field values of a lane in one call. A
metric whose ``call`` is empty is derived in the collector from other readings.

Names and units follow NVML; the JSON carries sizes as ``_bytes``, percentages as ``_percent``.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping

import msgspec


class Unit(enum.StrEnum):
    """What a number of a metric counts."""

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


class Lane(enum.StrEnum):
    """How often a metric is asked for (design: fast every tick, slow every 5-10 s)."""

    FAST = "fast"
    SLOW = "slow"
    ONCE = "once"
    """What does not change while the device is there: asked until it answers."""
    ON_DEMAND = "on-demand"


class Axis(msgspec.Struct, frozen=True):
    """A fixed axis, so that noise never fills a graph.

    ``high`` is a number, or the id of the metric that bounds this one (memory used by total).
    """

    low: float
    high: float | str
    high_known: str = ""
    """The metric that bounds this one on devices that tell it; ``high`` on the others."""

    def ends(self, number: Callable[[str], float | None]) -> tuple[float, float] | None:
        """Both ends, with ``number`` to read another metric; None where the upper one is not known."""
        high = number(self.high_known) if self.high_known else None
        if not high:
            high = number(self.high) if isinstance(self.high, str) else self.high
        return (self.low, high) if high else None


class MetricSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One device metric: what it is called, and the NVML call that answers it."""

    id: str
    title: str
    short: str
    """At most six characters, for column heads."""
    unit: Unit
    lane: Lane
    call: str = ""
    """NVML function, by its name in pynvml; empty for derived metrics."""
    fallback: str = ""
    """The older name of the same function, tried where the driver lacks ``call``."""
    args: tuple[int | str, ...] = ()
    """Further arguments after the handle; a string is the name of a pynvml constant.

    Of nvmlDeviceGetFieldValues: the field, and its scope where it has one.
    """
    pick: str = ""
    """Attribute (or ``[0]`` index) of the answer; empty when the answer is the value."""
    scale: float = 1.0
    """NVML's number times ``scale`` is the number in our unit."""
    names: Mapping[int, str] = {}
    """For enumerations: number to name."""
    flags: Mapping[int, str] = {}
    """For bit masks: bit to name; the value is the names joined with ``+``, or ``none``."""
    axis: Axis | None = None
    counter: bool = False
    """True for a total that only grows; its rate is derived where a metric names it."""
    rate_of: str = ""
    """For derived rates: the counter whose growth per second, times ``scale``, is the value."""


_PERCENT = Axis(0, 100)

# nvmlPstates_t
_PSTATES = {n: f"P{n}" for n in range(16)}
# nvmlComputeMode_t
_COMPUTE_MODES = {0: "default", 1: "exclusive-thread", 2: "prohibited", 3: "exclusive-process"}
_ENABLED = {0: "disabled", 1: "enabled"}
_YES = {0: "no", 1: "yes"}
# nvmlDeviceAddressingMode_t: how the GPU shares the address space of the host
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
"""Scope of an NVLink field: the sum over all links."""
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

METRICS: tuple[MetricSpec, ...] = (
    MetricSpec(
        id="utilization.gpu_percent",
        title="GPU utilization",
        short="GPU",
        unit=Unit.PERCENT,
        lane=Lane.FAST,
        call="nvmlDeviceGetUtilizationRates",
        pick="gpu",
        axis=_PERCENT,
    ),
    MetricSpec(
        id="utilization.memory_percent",
        title="Memory controller utilization",
        short="MBW",
        unit=Unit.PERCENT,
        lane=Lane.FAST,
        call="nvmlDeviceGetUtilizationRates",
        pick="memory",
        axis=_PERCENT,
    ),
    MetricSpec(
        id="utilization.encoder_percent",
        title="Encoder utilization",
        short="ENC",
        unit=Unit.PERCENT,
        lane=Lane.FAST,
        call="nvmlDeviceGetEncoderUtilization",
        pick="[0]",
        axis=_PERCENT,
    ),
    MetricSpec(
        id="utilization.decoder_percent",
        title="Decoder utilization",
        short="DEC",
        unit=Unit.PERCENT,
        lane=Lane.FAST,
        call="nvmlDeviceGetDecoderUtilization",
        pick="[0]",
        axis=_PERCENT,
    ),
    MetricSpec(
        id="utilization.jpeg_percent",
        title="JPEG engine utilization",
        short="JPEG",
        unit=Unit.PERCENT,
        lane=Lane.SLOW,
        call="nvmlDeviceGetJpgUtilization",
        pick="[0]",
        axis=_PERCENT,
    ),
    MetricSpec(
        id="utilization.ofa_percent",
        title="Optical flow engine utilization",
        short="OFA",
        unit=Unit.PERCENT,
        lane=Lane.SLOW,
        call="nvmlDeviceGetOfaUtilization",
        pick="[0]",
        axis=_PERCENT,
    ),
    MetricSpec(
        id="encoder.sessions",
        title="Encoder sessions",
        short="ENCSES",
        unit=Unit.COUNT,
        lane=Lane.SLOW,
        call="nvmlDeviceGetEncoderStats",
        pick="[0]",
    ),
    MetricSpec(
        id="encoder.frames_per_second",
        title="Encoder frames per second, mean",
        short="ENCFPS",
        unit=Unit.COUNT,
        lane=Lane.SLOW,
        call="nvmlDeviceGetEncoderStats",
        pick="[1]",
    ),
    MetricSpec(
        id="memory.total_bytes",
        title="Memory total",
        short="TOTAL",
        unit=Unit.BYTES,
        lane=Lane.FAST,
        call="nvmlDeviceGetMemoryInfo",
        pick="total",
    ),
    MetricSpec(
        id="memory.used_bytes",
        title="Memory used",
        short="MEM",
        unit=Unit.BYTES,
        lane=Lane.FAST,
        call="nvmlDeviceGetMemoryInfo",
        pick="used",
        axis=Axis(0, "memory.total_bytes"),
    ),
    MetricSpec(
        id="memory.free_bytes",
        title="Memory free",
        short="FREE",
        unit=Unit.BYTES,
        lane=Lane.FAST,
        call="nvmlDeviceGetMemoryInfo",
        pick="free",
        axis=Axis(0, "memory.total_bytes"),
    ),
    MetricSpec(
        id="memory.reserved_bytes",
        title="Memory reserved by the driver",
        short="RESV",
        unit=Unit.BYTES,
        lane=Lane.FAST,
        call="nvmlDeviceGetMemoryInfo",
        pick="reserved",
        axis=Axis(0, "memory.total_bytes"),
    ),
    MetricSpec(
        id="memory.unexplained_bytes",
        title="Memory used that no listed process owns",
        short="UNEXPL",
        unit=Unit.BYTES,
        lane=Lane.FAST,
        axis=Axis(0, "memory.total_bytes"),
    ),
    MetricSpec(
        id="memory.addressing",
        title="Address space shared with the host",
        short="ADDR",
        unit=Unit.NAME,
        lane=Lane.ONCE,
        call="nvmlDeviceGetAddressingMode",
        names=_ADDRESSING,
    ),
    MetricSpec(
        id="bar1.total_bytes",
        title="BAR1 (mapped for the host) total",
        short="BAR1TO",
        unit=Unit.BYTES,
        lane=Lane.SLOW,
        call="nvmlDeviceGetBAR1MemoryInfo",
        pick="bar1Total",
    ),
    MetricSpec(
        id="bar1.used_bytes",
        title="BAR1 (mapped for the host) used",
        short="BAR1",
        unit=Unit.BYTES,
        lane=Lane.SLOW,
        call="nvmlDeviceGetBAR1MemoryInfo",
        pick="bar1Used",
        axis=Axis(0, "bar1.total_bytes"),
    ),
    MetricSpec(
        id="temperature.gpu_celsius",
        title="GPU temperature",
        short="TEMP",
        unit=Unit.CELSIUS,
        lane=Lane.FAST,
        call="nvmlDeviceGetTemperature",
        args=("NVML_TEMPERATURE_GPU",),
        axis=Axis(30, 100, high_known="temperature.shutdown_celsius"),
    ),
    MetricSpec(
        id="temperature.memory_celsius",
        title="Memory temperature",
        short="MTEMP",
        unit=Unit.CELSIUS,
        lane=Lane.FAST,
        call="nvmlDeviceGetFieldValues",
        args=("NVML_FI_DEV_MEMORY_TEMP",),
        axis=Axis(30, 110, high_known="temperature.memory_max_celsius"),
    ),
    MetricSpec(
        id="temperature.margin_celsius",
        title="Margin to the nearest slowdown",
        short="TMARG",
        unit=Unit.CELSIUS,
        lane=Lane.SLOW,
        call="nvmlDeviceGetMarginTemperature",
    ),
    MetricSpec(
        id="temperature.operating_max_celsius",
        title="Highest operating temperature",
        short="TMAX",
        unit=Unit.CELSIUS,
        lane=Lane.ONCE,
        call="nvmlDeviceGetTemperatureThreshold",
        args=("NVML_TEMPERATURE_THRESHOLD_GPU_MAX",),
    ),
    MetricSpec(
        id="temperature.slowdown_celsius",
        title="Slowdown temperature",
        short="TSLOW",
        unit=Unit.CELSIUS,
        lane=Lane.ONCE,
        call="nvmlDeviceGetTemperatureThreshold",
        args=("NVML_TEMPERATURE_THRESHOLD_SLOWDOWN",),
    ),
    MetricSpec(
        id="temperature.shutdown_celsius",
        title="Shutdown temperature",
        short="TSHUT",
        unit=Unit.CELSIUS,
        lane=Lane.ONCE,
        call="nvmlDeviceGetTemperatureThreshold",
        args=("NVML_TEMPERATURE_THRESHOLD_SHUTDOWN",),
    ),
    MetricSpec(
        id="temperature.memory_max_celsius",
        title="Highest memory temperature",
        short="MTMAX",
        unit=Unit.CELSIUS,
        lane=Lane.ONCE,
        call="nvmlDeviceGetTemperatureThreshold",
        args=("NVML_TEMPERATURE_THRESHOLD_MEM_MAX",),
    ),
    # Since Hopper thresholds are told as margins: what temperature.margin_celsius is when they are reached.
    MetricSpec(
        id="temperature.operating_max_margin_celsius",
        title="Highest operating temperature, as a margin",
        short="TMAXR",
        unit=Unit.CELSIUS,
        lane=Lane.ONCE,
        call="nvmlDeviceGetFieldValues",
        args=("NVML_FI_DEV_TEMPERATURE_GPU_MAX_TLIMIT",),
    ),
    MetricSpec(
        id="temperature.slowdown_margin_celsius",
        title="Slowdown, as a margin",
        short="TSLOWR",
        unit=Unit.CELSIUS,
        lane=Lane.ONCE,
        call="nvmlDeviceGetFieldValues",
        args=("NVML_FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT",),
    ),
    MetricSpec(
        id="temperature.shutdown_margin_celsius",
        title="Shutdown, as a margin",
        short="TSHUTR",
        unit=Unit.CELSIUS,
        lane=Lane.ONCE,
        call="nvmlDeviceGetFieldValues",
        args=("NVML_FI_DEV_TEMPERATURE_SHUTDOWN_TLIMIT",),
    ),
    MetricSpec(
        id="temperature.memory_max_margin_celsius",
        title="Highest memory temperature, as a margin",
        short="MTMAXR",
        unit=Unit.CELSIUS,
        lane=Lane.ONCE,
        call="nvmlDeviceGetFieldValues",
        args=("NVML_FI_DEV_TEMPERATURE_MEM_MAX_TLIMIT",),
    ),
    MetricSpec(
        id="power.draw_watts",
        title="Power draw",
        short="PWR",
        unit=Unit.WATT,
        lane=Lane.FAST,
        call="nvmlDeviceGetPowerUsage",
        scale=1e-3,
        axis=Axis(0, "power.limit_watts"),
    ),
    MetricSpec(
        id="power.limit_watts",
        title="Enforced power limit",
        short="PLIM",
        unit=Unit.WATT,
        lane=Lane.SLOW,
        call="nvmlDeviceGetEnforcedPowerLimit",
        scale=1e-3,
    ),
    MetricSpec(
        id="power.average_watts",
        title="Power, mean of one second",
        short="PAVG",
        unit=Unit.WATT,
        lane=Lane.SLOW,
        call="nvmlDeviceGetFieldValues",
        args=("NVML_FI_DEV_POWER_AVERAGE",),
        scale=1e-3,
        axis=Axis(0, "power.limit_watts"),
    ),
    MetricSpec(
        id="power.instant_watts",
        title="Power at this moment",
        short="PNOW",
        unit=Unit.WATT,
        lane=Lane.SLOW,
        call="nvmlDeviceGetFieldValues",
        args=("NVML_FI_DEV_POWER_INSTANT",),
        scale=1e-3,
        axis=Axis(0, "power.limit_watts"),
    ),
    MetricSpec(
        id="power.requested_limit_watts",
        title="Power limit that was asked for",
        short="PREQ",
        unit=Unit.WATT,
        lane=Lane.SLOW,
        call="nvmlDeviceGetPowerManagementLimit",
        scale=1e-3,
    ),
    MetricSpec(
        id="power.default_limit_watts",
        title="Default power limit",
        short="PDEF",
        unit=Unit.WATT,
        lane=Lane.ONCE,
        call="nvmlDeviceGetPowerManagementDefaultLimit",
        scale=1e-3,
    ),
    MetricSpec(
        id="power.min_limit_watts",
        title="Lowest power limit that can be set",
        short="PMIN",
        unit=Unit.WATT,
        lane=Lane.ONCE,
        call="nvmlDeviceGetPowerManagementLimitConstraints",
        pick="[0]",
        scale=1e-3,
    ),
    MetricSpec(
        id="power.max_limit_watts",
        title="Highest power limit that can be set",
        short="PMAX",
        unit=Unit.WATT,
        lane=Lane.ONCE,
        call="nvmlDeviceGetPowerManagementLimitConstraints",
        pick="[1]",
        scale=1e-3,
    ),
    MetricSpec(
        id="clocks.sm_mhz",
        title="SM clock",
        short="SM",
        unit=Unit.MEGAHERTZ,
        lane=Lane.FAST,
        call="nvmlDeviceGetClockInfo",
        args=("NVML_CLOCK_SM",),
        axis=Axis(0, "clocks.sm_max_mhz"),
    ),
    MetricSpec(
        id="clocks.sm_max_mhz",
        title="Maximum SM clock",
        short="SMMAX",
        unit=Unit.MEGAHERTZ,
        lane=Lane.SLOW,
        call="nvmlDeviceGetMaxClockInfo",
        args=("NVML_CLOCK_SM",),
    ),
    MetricSpec(
        id="clocks.memory_mhz",
        title="Memory clock",
        short="MCLK",
        unit=Unit.MEGAHERTZ,
        lane=Lane.FAST,
        call="nvmlDeviceGetClockInfo",
        args=("NVML_CLOCK_MEM",),
        axis=Axis(0, "clocks.memory_max_mhz"),
    ),
    MetricSpec(
        id="clocks.memory_max_mhz",
        title="Maximum memory clock",
        short="MCMAX",
        unit=Unit.MEGAHERTZ,
        lane=Lane.SLOW,
        call="nvmlDeviceGetMaxClockInfo",
        args=("NVML_CLOCK_MEM",),
    ),
    MetricSpec(
        id="clocks.graphics_mhz",
        title="Graphics clock",
        short="GCLK",
        unit=Unit.MEGAHERTZ,
        lane=Lane.SLOW,
        call="nvmlDeviceGetClockInfo",
        args=("NVML_CLOCK_GRAPHICS",),
        axis=Axis(0, "clocks.graphics_max_mhz"),
    ),
    MetricSpec(
        id="clocks.graphics_max_mhz",
        title="Maximum graphics clock",
        short="GCMAX",
        unit=Unit.MEGAHERTZ,
        lane=Lane.SLOW,
        call="nvmlDeviceGetMaxClockInfo",
        args=("NVML_CLOCK_GRAPHICS",),
    ),
    MetricSpec(
        id="clocks.video_mhz",
        title="Video clock",
        short="VCLK",
        unit=Unit.MEGAHERTZ,
        lane=Lane.SLOW,
        call="nvmlDeviceGetClockInfo",
        args=("NVML_CLOCK_VIDEO",),
        axis=Axis(0, "clocks.video_max_mhz"),
    ),
    MetricSpec(
        id="clocks.video_max_mhz",
        title="Maximum video clock",
        short="VCMAX",
        unit=Unit.MEGAHERTZ,
        lane=Lane.SLOW,
        call="nvmlDeviceGetMaxClockInfo",
        args=("NVML_CLOCK_VIDEO",),
    ),
    MetricSpec(
        id="clocks.event_reasons",
        title="Clock event (throttle) reasons",
        short="THROT",
        unit=Unit.NAME,
        lane=Lane.FAST,
        call="nvmlDeviceGetCurrentClocksEventReasons",
        fallback="nvmlDeviceGetCurrentClocksThrottleReasons",
        flags=_EVENT_REASONS,
    ),
    # The newer fields for hardware slowdown and power brake changed their numbers between driver branches
    # (251-253, then 269-271), so a driver can answer them with another quantity: these are the stable ones.
    MetricSpec(
        id="events.power_seconds",
        title="Clocks held by power limit, in all",
        short="EVPWR",
        unit=Unit.SECOND,
        lane=Lane.SLOW,
        call="nvmlDeviceGetFieldValues",
        args=("NVML_FI_DEV_PERF_POLICY_POWER",),
        scale=1e-9,
        counter=True,
    ),
    MetricSpec(
        id="events.power_percent",
        title="Clocks held by power limit, share of time",
        short="EVPWR%",
        unit=Unit.PERCENT,
        lane=Lane.SLOW,
        scale=100.0,
        axis=_PERCENT,
        rate_of="events.power_seconds",
    ),
    MetricSpec(
        id="events.thermal_seconds",
        title="Clocks held by temperature, in all",
        short="EVTHM",
        unit=Unit.SECOND,
        lane=Lane.SLOW,
        call="nvmlDeviceGetFieldValues",
        args=("NVML_FI_DEV_PERF_POLICY_THERMAL",),
        scale=1e-9,
        counter=True,
    ),
    MetricSpec(
        id="events.thermal_percent",
        title="Clocks held by temperature, share of time",
        short="EVTHM%",
        unit=Unit.PERCENT,
        lane=Lane.SLOW,
        scale=100.0,
        axis=_PERCENT,
        rate_of="events.thermal_seconds",
    ),
    MetricSpec(
        id="events.sync_boost_seconds",
        title="Clocks held by sync boost, in all",
        short="EVSYN",
        unit=Unit.SECOND,
        lane=Lane.SLOW,
        call="nvmlDeviceGetFieldValues",
        args=("NVML_FI_DEV_PERF_POLICY_SYNC_BOOST",),
        scale=1e-9,
        counter=True,
    ),
    MetricSpec(
        id="events.sync_boost_percent",
        title="Clocks held by sync boost, share of time",
        short="EVSYN%",
        unit=Unit.PERCENT,
        lane=Lane.SLOW,
        scale=100.0,
        axis=_PERCENT,
        rate_of="events.sync_boost_seconds",
    ),
    MetricSpec(
        id="events.board_limit_seconds",
        title="Clocks held by board limit, in all",
        short="EVBRD",
        unit=Unit.SECOND,
        lane=Lane.SLOW,
        call="nvmlDeviceGetFieldValues",
        args=("NVML_FI_DEV_PERF_POLICY_BOARD_LIMIT",),
        scale=1e-9,
        counter=True,
    ),
    MetricSpec(
        id="events.board_limit_percent",
        title="Clocks held by board limit, share of time",
        short="EVBRD%",
        unit=Unit.PERCENT,
        lane=Lane.SLOW,
        scale=100.0,
        axis=_PERCENT,
        rate_of="events.board_limit_seconds",
    ),
    MetricSpec(
        id="events.reliability_seconds",
        title="Clocks held by voltage reliability, in all",
        short="EVREL",
        unit=Unit.SECOND,
        lane=Lane.SLOW,
        call="nvmlDeviceGetFieldValues",
        args=("NVML_FI_DEV_PERF_POLICY_RELIABILITY",),
        scale=1e-9,
        counter=True,
    ),
    MetricSpec(
        id="events.reliability_percent",
        title="Clocks held by voltage reliability, share of time",
        short="EVREL%",
        unit=Unit.PERCENT,
        lane=Lane.SLOW,
        scale=100.0,
        axis=_PERCENT,
        rate_of="events.reliability_seconds",
    ),
    MetricSpec(
        id="performance.state",
        title="Performance state",
        short="PSTATE",
        unit=Unit.NAME,
        lane=Lane.FAST,
        call="nvmlDeviceGetPerformanceState",
        names=_PSTATES,
    ),
    MetricSpec(
        id="fan.speed_percent",
        title="Fan speed",
        short="FAN",
        unit=Unit.PERCENT,
        lane=Lane.SLOW,
        call="nvmlDeviceGetFanSpeed",
        axis=_PERCENT,
    ),
    MetricSpec(
        id="energy_joules",
        title="Energy since the driver was loaded",
        short="ENERGY",
        unit=Unit.JOULE,
        lane=Lane.SLOW,
        call="nvmlDeviceGetTotalEnergyConsumption",
        scale=1e-3,
        counter=True,
    ),
    MetricSpec(
        id="pcie.generation",
        title="PCIe link generation now",
        short="PGEN",
        unit=Unit.COUNT,
        lane=Lane.SLOW,
        call="nvmlDeviceGetCurrPcieLinkGeneration",
    ),
    MetricSpec(
        id="pcie.max_generation",
        title="PCIe link generation at most",
        short="PGMAX",
        unit=Unit.COUNT,
        lane=Lane.SLOW,
        call="nvmlDeviceGetMaxPcieLinkGeneration",
    ),
    MetricSpec(
        id="pcie.width",
        title="PCIe link width now",
        short="PWID",
        unit=Unit.COUNT,
        lane=Lane.SLOW,
        call="nvmlDeviceGetCurrPcieLinkWidth",
    ),
    MetricSpec(
        id="pcie.max_width",
        title="PCIe link width at most",
        short="PWMAX",
        unit=Unit.COUNT,
        lane=Lane.SLOW,
        call="nvmlDeviceGetMaxPcieLinkWidth",
    ),
    MetricSpec(
        id="pcie.tx_bytes_per_second",
        title="PCIe transmit (GPU to host)",
        short="PCIETX",
        unit=Unit.BYTES_PER_SECOND,
        lane=Lane.ON_DEMAND,
        call="nvmlDeviceGetPcieThroughput",
        args=("NVML_PCIE_UTIL_TX_BYTES",),
        scale=1000.0,  # NVML answers in KB/s, decimal
    ),
    MetricSpec(
        id="pcie.rx_bytes_per_second",
        title="PCIe receive (host to GPU)",
        short="PCIERX",
        unit=Unit.BYTES_PER_SECOND,
        lane=Lane.ON_DEMAND,
        call="nvmlDeviceGetPcieThroughput",
        args=("NVML_PCIE_UTIL_RX_BYTES",),
        scale=1000.0,
    ),
    MetricSpec(
        id="pcie.tx_bytes",
        title="PCIe sent (GPU to host), in all",
        short="PTXTOT",
        unit=Unit.BYTES,
        lane=Lane.SLOW,
        call="nvmlDeviceGetFieldValues",
        args=("NVML_FI_DEV_PCIE_COUNT_TX_BYTES",),
        counter=True,
    ),
    MetricSpec(
        id="pcie.rx_bytes",
        title="PCIe received (host to GPU), in all",
        short="PRXTOT",
        unit=Unit.BYTES,
        lane=Lane.SLOW,
        call="nvmlDeviceGetFieldValues",
        args=("NVML_FI_DEV_PCIE_COUNT_RX_BYTES",),
        counter=True,
    ),
    MetricSpec(
        id="pcie.tx_mean_bytes_per_second",
        title="PCIe transmit, mean since the last look",
        short="PTX5S",
        unit=Unit.BYTES_PER_SECOND,
        lane=Lane.SLOW,
        rate_of="pcie.tx_bytes",
    ),
    MetricSpec(
        id="pcie.rx_mean_bytes_per_second",
        title="PCIe receive, mean since the last look",
        short="PRX5S",
        unit=Unit.BYTES_PER_SECOND,
        lane=Lane.SLOW,
        rate_of="pcie.rx_bytes",
    ),
    MetricSpec(
        id="pcie.replays",
        title="PCIe replays",
        short="REPLAY",
        unit=Unit.COUNT,
        lane=Lane.SLOW,
        call="nvmlDeviceGetPcieReplayCounter",
        counter=True,
    ),
    MetricSpec(
        id="nvlink.links",
        title="NVLinks",
        short="NVL",
        unit=Unit.COUNT,
        lane=Lane.SLOW,
        call="nvmlDeviceGetNvLinkState",
        pick="[0]",
    ),
    MetricSpec(
        id="nvlink.links_active",
        title="NVLinks that are up",
        short="NVLUP",
        unit=Unit.COUNT,
        lane=Lane.SLOW,
        call="nvmlDeviceGetNvLinkState",
        pick="[1]",
        axis=Axis(0, "nvlink.links"),
    ),
    MetricSpec(
        id="nvlink.tx_bytes",
        title="NVLink sent, in all",
        short="NVTX",
        unit=Unit.BYTES,
        lane=Lane.SLOW,
        call="nvmlDeviceGetFieldValues",
        args=("NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX", _ALL_LINKS),
        scale=1024.0,
        counter=True,
    ),
    MetricSpec(
        id="nvlink.rx_bytes",
        title="NVLink received, in all",
        short="NVRX",
        unit=Unit.BYTES,
        lane=Lane.SLOW,
        call="nvmlDeviceGetFieldValues",
        args=("NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX", _ALL_LINKS),
        scale=1024.0,
        counter=True,
    ),
    MetricSpec(
        id="nvlink.tx_bytes_per_second",
        title="NVLink transmit, mean since the last look",
        short="NVTX/S",
        unit=Unit.BYTES_PER_SECOND,
        lane=Lane.SLOW,
        rate_of="nvlink.tx_bytes",
    ),
    MetricSpec(
        id="nvlink.rx_bytes_per_second",
        title="NVLink receive, mean since the last look",
        short="NVRX/S",
        unit=Unit.BYTES_PER_SECOND,
        lane=Lane.SLOW,
        rate_of="nvlink.rx_bytes",
    ),
    MetricSpec(
        id="nvlink.crc_errors",
        title="NVLink CRC errors",
        short="NVCRC",
        unit=Unit.COUNT,
        lane=Lane.SLOW,
        call="nvmlDeviceGetFieldValues",
        args=("NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",),
        counter=True,
    ),
    MetricSpec(
        id="nvlink.replays",
        title="NVLink replays",
        short="NVRPL",
        unit=Unit.COUNT,
        lane=Lane.SLOW,
        call="nvmlDeviceGetFieldValues",
        args=("NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",),
        counter=True,
    ),
    MetricSpec(
        id="nvlink.recoveries",
        title="NVLink recoveries",
        short="NVRCV",
        unit=Unit.COUNT,
        lane=Lane.SLOW,
        call="nvmlDeviceGetFieldValues",
        args=("NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",),
        counter=True,
    ),
    MetricSpec(
        id="ecc.mode",
        title="ECC mode",
        short="ECC",
        unit=Unit.NAME,
        lane=Lane.SLOW,
        call="nvmlDeviceGetEccMode",
        pick="[0]",
        names=_ENABLED,
    ),
    MetricSpec(
        id="ecc.mode_pending",
        title="ECC mode after the next restart",
        short="ECCPND",
        unit=Unit.NAME,
        lane=Lane.SLOW,
        call="nvmlDeviceGetEccMode",
        pick="[1]",
        names=_ENABLED,
    ),
    MetricSpec(
        id="ecc.corrected",
        title="ECC errors corrected since boot",
        short="ECCCOR",
        unit=Unit.COUNT,
        lane=Lane.SLOW,
        call="nvmlDeviceGetTotalEccErrors",
        args=("NVML_MEMORY_ERROR_TYPE_CORRECTED", "NVML_VOLATILE_ECC"),
        counter=True,
    ),
    MetricSpec(
        id="ecc.uncorrected",
        title="ECC errors not corrected since boot",
        short="ECCUNC",
        unit=Unit.COUNT,
        lane=Lane.SLOW,
        call="nvmlDeviceGetTotalEccErrors",
        args=("NVML_MEMORY_ERROR_TYPE_UNCORRECTED", "NVML_VOLATILE_ECC"),
        counter=True,
    ),
    MetricSpec(
        id="ecc.corrected_lifetime",
        title="ECC errors corrected in its lifetime",
        short="ECCCLT",
        unit=Unit.COUNT,
        lane=Lane.SLOW,
        call="nvmlDeviceGetTotalEccErrors",
        args=("NVML_MEMORY_ERROR_TYPE_CORRECTED", "NVML_AGGREGATE_ECC"),
        counter=True,
    ),
    MetricSpec(
        id="ecc.uncorrected_lifetime",
        title="ECC errors not corrected in its lifetime",
        short="ECCULT",
        unit=Unit.COUNT,
        lane=Lane.SLOW,
        call="nvmlDeviceGetTotalEccErrors",
        args=("NVML_MEMORY_ERROR_TYPE_UNCORRECTED", "NVML_AGGREGATE_ECC"),
        counter=True,
    ),
    MetricSpec(
        id="remapped_rows.correctable",
        title="Memory rows remapped for correctable errors",
        short="RMCOR",
        unit=Unit.COUNT,
        lane=Lane.SLOW,
        call="nvmlDeviceGetRemappedRows",
        pick="[0]",
        counter=True,
    ),
    MetricSpec(
        id="remapped_rows.uncorrectable",
        title="Memory rows remapped for uncorrectable errors",
        short="RMUNC",
        unit=Unit.COUNT,
        lane=Lane.SLOW,
        call="nvmlDeviceGetRemappedRows",
        pick="[1]",
        counter=True,
    ),
    MetricSpec(
        id="remapped_rows.pending",
        title="Row remapping waits for a reset",
        short="RMPEND",
        unit=Unit.NAME,
        lane=Lane.SLOW,
        call="nvmlDeviceGetRemappedRows",
        pick="[2]",
        names=_YES,
    ),
    MetricSpec(
        id="remapped_rows.failure",
        title="Row remapping failed",
        short="RMFAIL",
        unit=Unit.NAME,
        lane=Lane.SLOW,
        call="nvmlDeviceGetRemappedRows",
        pick="[3]",
        names=_YES,
    ),
    MetricSpec(
        id="retired_pages.single_bit",
        title="Memory pages retired for single-bit errors",
        short="RPSBE",
        unit=Unit.COUNT,
        lane=Lane.SLOW,
        call="nvmlDeviceGetFieldValues",
        args=("NVML_FI_DEV_RETIRED_SBE",),
        counter=True,
    ),
    MetricSpec(
        id="retired_pages.double_bit",
        title="Memory pages retired for double-bit errors",
        short="RPDBE",
        unit=Unit.COUNT,
        lane=Lane.SLOW,
        call="nvmlDeviceGetFieldValues",
        args=("NVML_FI_DEV_RETIRED_DBE",),
        counter=True,
    ),
    MetricSpec(
        id="retired_pages.pending",
        title="Page retirement waits for a restart",
        short="RPPEND",
        unit=Unit.NAME,
        lane=Lane.SLOW,
        call="nvmlDeviceGetFieldValues",
        args=("NVML_FI_DEV_RETIRED_PENDING",),
        names=_YES,
    ),
    MetricSpec(
        id="health.recovery_action",
        title="What the driver asks for to recover",
        short="RECOV",
        unit=Unit.NAME,
        lane=Lane.SLOW,
        call="nvmlDeviceGetFieldValues",
        args=("NVML_FI_DEV_GET_GPU_RECOVERY_ACTION",),
        names=_RECOVERY,
    ),
    MetricSpec(
        id="mode.compute",
        title="Compute mode",
        short="COMPUT",
        unit=Unit.NAME,
        lane=Lane.SLOW,
        call="nvmlDeviceGetComputeMode",
        names=_COMPUTE_MODES,
    ),
    MetricSpec(
        id="mode.persistence",
        title="Persistence mode",
        short="PERSIS",
        unit=Unit.NAME,
        lane=Lane.SLOW,
        call="nvmlDeviceGetPersistenceMode",
        names=_ENABLED,
    ),
    MetricSpec(
        id="mode.display_attached",
        title="A display is attached",
        short="DISPLA",
        unit=Unit.NAME,
        lane=Lane.SLOW,
        call="nvmlDeviceGetDisplayMode",
        names=_YES,
    ),
    MetricSpec(
        id="mode.display_active",
        title="A display is drawn on it",
        short="DISPON",
        unit=Unit.NAME,
        lane=Lane.SLOW,
        call="nvmlDeviceGetDisplayActive",
        names=_YES,
    ),
    MetricSpec(
        id="mig.mode",
        title="MIG mode",
        short="MIG",
        unit=Unit.NAME,
        lane=Lane.SLOW,
        call="nvmlDeviceGetMigMode",
        pick="[0]",
        names=_ENABLED,
    ),
    MetricSpec(
        id="mig.instances",
        title="MIG devices",
        short="MIGDEV",
        unit=Unit.COUNT,
        lane=Lane.SLOW,
        call="nvmlDeviceGetMigDeviceHandleByIndex",
    ),
    MetricSpec(
        id="identity.architecture",
        title="Architecture",
        short="ARCH",
        unit=Unit.NAME,
        lane=Lane.ONCE,
        call="nvmlDeviceGetArchitecture",
        names=_ARCHITECTURES,
    ),
    MetricSpec(
        id="identity.cuda_cores",
        title="CUDA cores",
        short="CORES",
        unit=Unit.COUNT,
        lane=Lane.ONCE,
        call="nvmlDeviceGetNumGpuCores",
    ),
    MetricSpec(
        id="identity.memory_bus_bits",
        title="Memory bus width in bits",
        short="BUSBIT",
        unit=Unit.COUNT,
        lane=Lane.ONCE,
        call="nvmlDeviceGetMemoryBusWidth",
    ),
    MetricSpec(
        id="identity.vbios",
        title="VBIOS version",
        short="VBIOS",
        unit=Unit.NAME,
        lane=Lane.ONCE,
        call="nvmlDeviceGetVbiosVersion",
    ),
    MetricSpec(
        id="identity.serial",
        title="Serial number",
        short="SERIAL",
        unit=Unit.NAME,
        lane=Lane.ONCE,
        call="nvmlDeviceGetSerial",
    ),
    MetricSpec(
        id="identity.part_number",
        title="Board part number",
        short="PART",
        unit=Unit.NAME,
        lane=Lane.ONCE,
        call="nvmlDeviceGetBoardPartNumber",
    ),
    MetricSpec(
        id="identity.gsp_mode",
        title="GSP firmware",
        short="GSP",
        unit=Unit.NAME,
        lane=Lane.ONCE,
        call="nvmlDeviceGetGspFirmwareMode",
        pick="[0]",
        names=_ENABLED,
    ),
    MetricSpec(
        id="identity.gsp_version",
        title="GSP firmware version",
        short="GSPVER",
        unit=Unit.NAME,
        lane=Lane.ONCE,
        call="nvmlDeviceGetGspFirmwareVersion",
    ),
    MetricSpec(
        id="identity.host_numa_nodes",
        title="NUMA nodes of the host beside it",
        short="NUMA",
        unit=Unit.NAME,
        lane=Lane.ONCE,
        call="nvmlDeviceGetMemoryAffinity",
    ),
    MetricSpec(
        id="identity.numa_node",
        title="NUMA node of its own memory",
        short="GPUNOD",
        unit=Unit.COUNT,
        lane=Lane.ONCE,
        call="nvmlDeviceGetNumaNodeId",
    ),
)

BY_ID: Mapping[str, MetricSpec] = {spec.id: spec for spec in METRICS}


def metric(metric_id: str) -> MetricSpec:
    """The spec of ``metric_id``; KeyError for an id that is not in the table."""
    return BY_ID[metric_id]
