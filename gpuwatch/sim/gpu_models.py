"""Simulated GPUs by model (``--sim 2xh100``): what NVML supports on each, as nvidia-smi -q shows it on real ones.

A model has a name, a size and traits; a trait is the NVML functions that it lacks, and those that it has and plain
simulated GPUs lack. Values are those of a healthy, idle GPU; what a model does not set is simulated as on any GPU.
A :class:`DescribedGpu` answers each NVML call as a real GPU did.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from gpuwatch.core.model.nvml_return import NvmlReturn
from gpuwatch.sim.mig_layout import SimInstance, parse_layout

MAX_NUMBERS: Final = 4
NOT_AVAILABLE: Final = -1
"""As a number of an answer: NVML_VALUE_NOT_AVAILABLE, in any width."""


@dataclass(frozen=True, slots=True)
class SimAnswer:
    """What one NVML function answers (gws_answer of state.h)."""

    function: str
    argument: int = 0
    """Tells calls of a function apart: the clock, sensor or field; of memory, the MIG instance plus 1."""
    code: int = 0
    """nvmlReturn_t."""
    numbers: tuple[int, ...] = ()
    """In NVML's units, in the order of the function's outputs."""
    text: str = ""
    until_used: bool = False
    """Whether the simulation takes over once a program uses the GPU."""


class SimCard(NamedTuple):
    """What a model's NVIDIA data sheet and nvidia-smi say of it."""

    capability: int
    """CUDA compute capability: 90 is 9.0."""
    multiprocessors: int
    power_limit_mw: int
    """Default and maximum."""
    sm_clock_mhz: int
    """Maximum."""
    memory_clock_mhz: int
    """Maximum."""


@dataclass(frozen=True, slots=True)
class DescribedGpu:
    """One GPU of a described machine."""

    name: str
    memory_bytes: int
    taken_bytes: int
    """What programs cannot have: the driver's reserve, and what others held when it was described."""
    answers: tuple[SimAnswer, ...]
    mig: tuple[SimInstance, ...] | None = None
    """None: MIG is off."""
    card: SimCard | None = None
    """None: that of plain simulated GPUs."""


_FIELD: Final = "nvmlDeviceGetFieldValues"
_MEMORY_TEMPERATURE_FIELD, _AVERAGE_POWER_FIELD, _RECOVERY_FIELD = 82, 185, 230
_RETIRED_PAGE_FIELDS: Final = (29, 30, 31)
_MARGIN_FIELDS: Final = {196: 0, 194: -2, 193: -5}
"""Fields of the temperatures, as distance to the operating maximum: that itself, slowdown, shutdown."""
_SHUTDOWN_MARGIN_FIELD, _MEMORY_MARGIN_FIELD, _INSTANT_POWER_FIELD, _MIN_POWER_LIMIT_FIELD = 193, 195, 186, 187
_POLICY_TIME_FIELDS: Final = (74, 75, 76, 77, 79)
"""Fields of the time in which power, heat, sync boost, the board and reliability lowered the clocks."""
_ARCHITECTURES: Final = {"turing": 6, "ampere": 7, "ada": 8, "hopper": 9, "blackwell": 10}
_MAX_RESERVED_BYTES: Final = 256 << 20
_POWER_LIMITS: Final = ("EnforcedPowerLimit", *(f"PowerManagement{of}" for of in ("Limit", "DefaultLimit")))
_MEMORY_CLOCK: Final = 2


def _unsupported(function: str, *arguments: int) -> tuple[SimAnswer, ...]:
    return tuple(SimAnswer(function, argument, code=NvmlReturn.NOT_SUPPORTED) for argument in arguments or (0,))


def _supported(function: str, *numbers: int, argument: int = 0, idle: bool = False) -> SimAnswer:
    return SimAnswer(function, argument, numbers=numbers, until_used=idle)


def _idle_answers(watts: int, sm_mhz: int) -> tuple[SimAnswer, ...]:
    """Until a program uses it."""
    milliwatts = watts * 1000
    return (
        _supported("nvmlDeviceGetPowerUsage", milliwatts, idle=True),
        *(
            _supported(_FIELD, milliwatts, argument=field, idle=True)
            for field in (_AVERAGE_POWER_FIELD, _INSTANT_POWER_FIELD)
        ),
        *(_supported("nvmlDeviceGetClockInfo", sm_mhz, argument=clock, idle=True) for clock in (0, 1)),
    )


_TRAITS: Final[dict[str, tuple[SimAnswer, ...]]] = {
    "any": (
        *(_supported(f"nvmlDeviceGet{engine}Utilization", 0, 0) for engine in ("Encoder", "Decoder", "Jpg", "Ofa")),
        _supported("nvmlDeviceGetEncoderStats", 0, 0),
        _supported("nvmlDeviceGetPcieReplayCounter", 0),
        _supported(_FIELD, 0, argument=_RECOVERY_FIELD),
    ),
    **{name: (_supported("nvmlDeviceGetArchitecture", code),) for name, code in _ARCHITECTURES.items()},
    "no margin": _unsupported("nvmlDeviceGetMarginTemperature"),
    "no average power": _unsupported(_FIELD, _AVERAGE_POWER_FIELD),
    "thresholds as margins": (
        *_unsupported("nvmlDeviceGetTemperatureThreshold", 0, 1, 2, 3),
        *(_supported(_FIELD, margin, argument=field) for field, margin in _MARGIN_FIELDS.items()),
    ),
    "no mig": _unsupported("nvmlDeviceGetMigMode"),
    "no fan": _unsupported("nvmlDeviceGetFanSpeed"),
    "ecc off": (_supported("nvmlDeviceGetEccMode", 0, 0),),
    "ecc": (
        _supported("nvmlDeviceGetEccMode", 1, 1),
        *(
            _supported("nvmlDeviceGetTotalEccErrors", 0, argument=kind | ever << 32)
            for kind in (0, 1)
            for ever in (0, 1)
        ),
        _supported("nvmlDeviceGetSramEccErrorStatus", 0, 0, 0),
    ),
    "ecc without threshold": (_supported("nvmlDeviceGetSramEccErrorStatus", 0, 0, NOT_AVAILABLE),),
    "remapped rows": (_supported("nvmlDeviceGetRemappedRows", 0, 0, 0, 0),),
    "retired pages": tuple(_supported(_FIELD, 0, argument=field) for field in _RETIRED_PAGE_FIELDS),
    "hbm": (_supported(_FIELD, 40, argument=_MEMORY_TEMPERATURE_FIELD),),
    "hbm maximum": (_supported("nvmlDeviceGetTemperatureThreshold", 95, argument=2),),
    "hbm margin": (_supported(_FIELD, 0, argument=_MEMORY_MARGIN_FIELD),),
    "sxm": (
        _supported("nvmlDeviceGetPerformanceState", 0),
        _supported("nvmlDeviceGetPersistenceMode", 1),
        _supported("nvmlDeviceGetDisplayMode", 1),
        _supported("nvmlDeviceGetGspFirmwareMode", 1, 1),
        *(_supported(f"nvmlDeviceGet{which}PcieLinkGeneration", 5) for which in ("Curr", "Max")),
        _supported("nvmlDeviceGetPowerManagementLimitConstraints", 200_000, 700_000),
        _supported(_FIELD, 200_000, argument=_MIN_POWER_LIMIT_FIELD),
        _supported(_FIELD, -8, argument=_SHUTDOWN_MARGIN_FIELD),
    ),
    "h100": (*_idle_answers(70, 345), _supported("nvmlDeviceGetClockInfo", 2619, argument=_MEMORY_CLOCK)),
    "h200": (
        *_idle_answers(82, 345),
        _supported("nvmlDeviceGetClockInfo", 3201, argument=_MEMORY_CLOCK),
        _supported("nvmlDeviceGetMemoryBusWidth", 6016),
        *(
            _supported("nvmlDeviceGetTemperatureThreshold", at, argument=kind)
            for kind, at in enumerate((95, 89, 95, 87))
        ),
        *(_supported(_FIELD, 0, argument=field) for field in _POLICY_TIME_FIELDS),
    ),
    "fabric": (_supported("nvmlDeviceGetGpuFabricInfoV", 3, 0, 0, 0),),
    "mig on": tuple(
        lack
        for engine in ("Encoder", "Decoder", "Jpg", "Ofa")
        for lack in _unsupported(f"nvmlDeviceGet{engine}Utilization")
    ),
    "no bar1": _unsupported("nvmlDeviceGetBAR1MemoryInfo"),
    "no power limit": (
        *(lack for limit in _POWER_LIMITS for lack in _unsupported(f"nvmlDeviceGet{limit}")),
        *_unsupported("nvmlDeviceGetPowerManagementLimitConstraints"),
    ),
    "unified memory": (
        *_unsupported("nvmlDeviceGetMemoryInfo"),
        *_unsupported("nvmlDeviceGetClockInfo", _MEMORY_CLOCK),
        *_unsupported("nvmlDeviceGetMaxClockInfo", _MEMORY_CLOCK),
    ),
    "windows": (*_unsupported("nvmlDeviceGetAddressingMode"), *_unsupported("nvmlDeviceGetPersistenceMode")),
}

_GEFORCE: Final = ("no mig", "no margin")
_TURING: Final = ("turing", "no margin", "no average power")
_DATA_CENTER: Final = ("no fan", "ecc")
_HOPPER: Final = ("hopper", *_DATA_CENTER, "thresholds as margins", "hbm", "hbm margin", "fabric")

_H100_TRAITS: Final = (*_HOPPER, "sxm", "h100")
_H200_TRAITS: Final = (*_HOPPER, "sxm", "h200")


@dataclass(frozen=True, slots=True)
class SimModel:
    """A model of GPU."""

    name: str
    """As NVML gives it."""
    memory_mib: int
    card: SimCard
    traits: tuple[str, ...]
    known_from: str
    """What of a real one was compared: the output, and the drivers that wrote it."""
    mig: str = "off"
    reserved_mib: int | None = None
    """By the driver; None: as of any simulated GPU."""

    @property
    def memory_bytes(self) -> int:
        """What NVML calls total."""
        return self.memory_mib << 20

    def described(self) -> DescribedGpu:
        answers = {
            (answer.function, answer.argument): answer for trait in ("any", *self.traits) for answer in _TRAITS[trait]
        }
        usual = min(self.memory_bytes // 32, _MAX_RESERVED_BYTES)
        reserved = usual if self.reserved_mib is None else self.reserved_mib << 20
        return DescribedGpu(
            self.name, self.memory_bytes, reserved, tuple(answers.values()), parse_layout(self.mig), self.card
        )


_H100 = ("NVIDIA H100 80GB HBM3", 81559, SimCard(90, 132, 700_000, 1980, 2619))
_H200 = ("NVIDIA H200", 143771, SimCard(90, 132, 700_000, 1980, 3201))
_HOPPER_SMI: Final = "nvidia-smi -q, driver 590.48.01"
_RTX2080 = ("NVIDIA GeForce RTX 2080 SUPER", 8192, SimCard(75, 48, 250_000, 2145, 7751))

MODELS: Final[dict[str, SimModel]] = {
    "rtx2080super": SimModel(*_RTX2080, (*_GEFORCE, *_TURING), "nvidia-smi -q, drivers 595.71.05 and 610.57.04"),
    "rtx2080superwindows": SimModel(
        *_RTX2080, (*_GEFORCE, *_TURING, "windows"), "nvidia-smi -q, drivers 591.86 and 610.62"
    ),
    "rtx4080super": SimModel(
        "NVIDIA GeForce RTX 4080 SUPER",
        16376,
        SimCard(89, 80, 320_000, 3165, 11501),
        ("ada", *_GEFORCE),
        "nvidia-smi -q, driver 595.71.05",
    ),
    "rtx4000ada": SimModel(
        "NVIDIA RTX 4000 SFF Ada Generation",
        20475,
        SimCard(89, 48, 70_000, 3105, 7001),
        ("ada", "no mig", "thresholds as margins", "ecc off", "remapped rows"),
        "nvidia-smi -q -x, driver 595.84",
    ),
    "t4": SimModel(
        "Tesla T4",
        15360,
        SimCard(75, 40, 70_000, 1590, 5001),
        (*_DATA_CENTER, *_TURING, "no mig", "ecc without threshold", "retired pages"),
        "nvidia-smi -q -x, driver 515.105.01",
    ),
    "a10g": SimModel(
        "NVIDIA A10G",
        23028,
        SimCard(86, 80, 300_000, 1710, 6251),
        ("ampere", "ecc", "no mig", "ecc without threshold", "remapped rows"),
        "nvidia-smi -q -x, driver 515.105.01",
    ),
    "a100mig": SimModel(
        "NVIDIA A100-SXM4-80GB",
        81920,
        SimCard(80, 108, 500_000, 1410, 1593),
        (*_DATA_CENTER, "no margin", "ecc without threshold", "hbm", "hbm maximum", "mig on"),
        "nvidia-smi -q -x, driver 535.54.03",
        "1g,1g,2g,3g",
    ),
    "l40s": SimModel(
        "NVIDIA L40S",
        46068,
        SimCard(89, 142, 350_000, 2520, 9001),
        ("ada", *_DATA_CENTER, "thresholds as margins", "no mig", "remapped rows"),
        "nvidia-smi -q, driver 595.80",
    ),
    "rtx5090": SimModel(
        "NVIDIA GeForce RTX 5090",
        32607,
        SimCard(120, 170, 575_000, 3090, 14001),
        ("blackwell", "no mig", "thresholds as margins"),
        "nvidia-smi -q, driver 570.124.06",
    ),
    "gb10": SimModel(
        "NVIDIA GB10",
        124610,
        SimCard(121, 48, 140_000, 3003, 0),
        ("blackwell", "no mig", "no fan", "no bar1", "no power limit", "unified memory"),
        "public reports of nvidia-smi and NVML, drivers 580.95.05 to 580.173.02",
    ),
    "gh200": SimModel(
        "NVIDIA GH200 480GB",
        97871,
        SimCard(90, 132, 900_000, 1980, 2619),
        (*_HOPPER, "remapped rows", "no bar1"),
        "public reports of nvidia-smi; what Hopper has, as on H100",
    ),
    "h100": SimModel(*_H100, (*_H100_TRAITS, "remapped rows"), _HOPPER_SMI, reserved_mib=479),
    "h100mig": SimModel(*_H100, (*_H100_TRAITS, "mig on"), _HOPPER_SMI, "1g,1g,2g,3g", reserved_mib=479),
    "h200": SimModel(
        *_H200,
        (*_H200_TRAITS, "remapped rows"),
        f"{_HOPPER_SMI}; gpuwatch on one, driver 580.159.04, 2026-11-26",
        reserved_mib=615,
    ),
    "h200mig": SimModel(*_H200, (*_H200_TRAITS, "mig on"), _HOPPER_SMI, "1g,1g,1g,1g,3g", reserved_mib=615),
}
"""By the word that ``--sim`` takes."""
