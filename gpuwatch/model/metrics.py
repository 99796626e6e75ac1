"""THE list of device metrics. Dashboard, JSON, CSV, exporter and HTML iterate over it.

To add a metric: one :class:`MetricSpec` here, and a value in ``tests/fixtures``. The source
(:mod:`gpuwatch.sources.nvml`) calls NVML functions by the names written here, once per call and
tick even where several metrics pick from one answer. A metric whose ``call`` is empty is derived in
the collector from other readings.

Names and units follow NVML; the JSON carries sizes as ``_bytes``, percentages as ``_percent``.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

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
    COUNT = ""
    NAME = "name"


class Lane(enum.StrEnum):
    """How often a metric is asked for (design: fast every tick, slow every 5-10 s)."""

    FAST = "fast"
    SLOW = "slow"
    ON_DEMAND = "on-demand"


class Axis(msgspec.Struct, frozen=True):
    """A fixed axis, so that noise never fills a graph.

    ``high`` is a number, or the id of the metric that bounds this one (memory used by total).
    """

    low: float
    high: float | str


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
    """Further arguments after the handle; a string is the name of a pynvml constant."""
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


_PERCENT = Axis(0, 100)

# nvmlPstates_t
_PSTATES = {n: f"P{n}" for n in range(16)}
# nvmlComputeMode_t
_COMPUTE_MODES = {0: "default", 1: "exclusive-thread", 2: "prohibited", 3: "exclusive-process"}
_ENABLED = {0: "disabled", 1: "enabled"}
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
        id="temperature.gpu_celsius",
        title="GPU temperature",
        short="TEMP",
        unit=Unit.CELSIUS,
        lane=Lane.FAST,
        call="nvmlDeviceGetTemperature",
        args=("NVML_TEMPERATURE_GPU",),
        axis=Axis(30, 100),
    ),
    MetricSpec(
        id="temperature.memory_celsius",
        title="Memory temperature",
        short="MTEMP",
        unit=Unit.CELSIUS,
        lane=Lane.FAST,
        call="nvmlDeviceGetFieldValues",
        args=("NVML_FI_DEV_MEMORY_TEMP",),
        axis=Axis(30, 110),
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
        id="clocks.event_reasons",
        title="Clock event (throttle) reasons",
        short="THROT",
        unit=Unit.NAME,
        lane=Lane.FAST,
        call="nvmlDeviceGetCurrentClocksEventReasons",
        fallback="nvmlDeviceGetCurrentClocksThrottleReasons",
        flags=_EVENT_REASONS,
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
        id="mig.mode",
        title="MIG mode",
        short="MIG",
        unit=Unit.NAME,
        lane=Lane.SLOW,
        call="nvmlDeviceGetMigMode",
        pick="[0]",
        names=_ENABLED,
    ),
)

BY_ID: Mapping[str, MetricSpec] = {spec.id: spec for spec in METRICS}


def metric(metric_id: str) -> MetricSpec:
    """The spec of ``metric_id``; KeyError for an id that is not in the table."""
    return BY_ID[metric_id]
