"""Answers that take more than one call, or that say one by one what they lack."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pynvml
import pytest

from gpuwatch.model.metrics import BY_ID, METRICS, Lane
from gpuwatch.model.reading import Missing, Value
from gpuwatch.sources import nvml as module
from gpuwatch.sources.answers import number_or_name, pick
from gpuwatch.sources.nvml import Nvml, NvmlDevice
from tests.sources.test_nvml_faults import CODES

FIELDS = {spec.id: spec for spec in METRICS if spec.call == "nvmlDeviceGetFieldValues" and spec.lane is Lane.SLOW}
REFUSED = pynvml.NVML_ERROR_NOT_SUPPORTED


def refuse(*_: object) -> object:
    raise pynvml.NVMLError(REFUSED)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A driver that has the functions that are given, and refuses the others."""
    calls = {name for spec in METRICS for name in (spec.call, spec.fallback) if name}
    for name in (*calls, "nvmlDeviceGetMaxMigDeviceCount"):
        monkeypatch.setattr(pynvml, name, refuse)

    def give(**functions: Callable[..., object]) -> None:
        for name, function in functions.items():
            monkeypatch.setattr(pynvml, name, function)

    return give


def device() -> NvmlDevice:
    return NvmlDevice(0, 1, "GPU-a", "A", "0000:01:00.0", "9.0")


def ask(*lanes: Lane) -> dict[str, Value | Missing]:
    readings, missing = Nvml().sample(device(), lanes)
    assert not readings.keys() & missing.keys()
    return {**readings, **missing}


def field(kind: int = 1, code: int = 0, **value: float) -> SimpleNamespace:
    union = pynvml.c_nvmlValue_t(**value)
    return SimpleNamespace(nvmlReturn=code, valueType=kind, value=union)


@pytest.mark.parametrize("code", CODES)
def test_a_field_that_fails_takes_no_other_along(driver: Callable[..., None], code: int) -> None:
    bad = pynvml.NVML_FI_DEV_POWER_AVERAGE
    asked: list[int] = []

    def values(_: object, fields: Sequence[tuple[int, int]]) -> list[SimpleNamespace]:
        numbers = [number for number, _ in fields]
        asked.extend(numbers)
        return [field(code=code if number == bad else 0, uiVal=1000) for number in numbers]

    driver(nvmlDeviceGetFieldValues=values)
    nvml, gpu = Nvml(), device()
    readings, missing = nvml.sample(gpu, (Lane.SLOW,))
    assert readings.keys() >= FIELDS.keys() - {"power.average_watts"}
    assert readings["power.instant_watts"] == 1.0
    lack = missing["power.average_watts"]
    assert lack.code == code
    assert "NVML_FI_DEV_POWER_AVERAGE" in lack.detail
    assert asked.count(bad) == 1
    nvml.sample(gpu, (Lane.SLOW,))
    never = lack.reason == "not_supported"
    assert asked.count(bad) == (1 if never else 2), "what a driver lacks is asked once"
    assert never == (code in (*module._PERMANENT, pynvml.NVML_ERROR_INVALID_ARGUMENT))


def test_all_fields_of_a_lane_are_one_call(driver: Callable[..., None]) -> None:
    calls = []

    def values(_: object, fields: Sequence[tuple[int, int]]) -> list[SimpleNamespace]:
        calls.append(fields)
        return [field(3, ullVal=2) for _ in fields]

    driver(nvmlDeviceGetFieldValues=values)
    seen = ask(Lane.SLOW)
    (fields,) = [call for call in calls if len(call) > 1]
    assert len(fields) == len(FIELDS)
    assert (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, 0xFFFFFFFF) in fields, "summed over the links"
    assert seen["nvlink.tx_bytes"] == 2048.0
    assert seen["events.thermal_seconds"] == 2e-9
    assert seen["health.recovery_action"] == "node-reboot"


@pytest.mark.parametrize(
    ("kind", "value"),
    [(1, {"uiVal": 0xFFFFFFFF}), (3, {"ullVal": 2**64 - 1}), (4, {"sllVal": -1}), (99, {"uiVal": 1})],
)
def test_marks_of_no_value_are_no_numbers(driver: Callable[..., None], kind: int, value: dict[str, int]) -> None:
    driver(nvmlDeviceGetFieldValues=lambda _, fields: [field(kind, **value) for _ in fields])
    seen = ask(Lane.SLOW)
    for metric_id in FIELDS:
        lack = seen[metric_id]
        assert isinstance(lack, Missing)
        assert lack.reason == "not_supported"


@pytest.mark.parametrize("text", ["", " ", "N/A", b"[N/A]", b""])
def test_empty_text_is_no_value(text: str | bytes) -> None:
    lack = number_or_name(BY_ID["identity.serial"], text)
    assert isinstance(lack, Missing)
    assert lack.reason == "not_supported"


def test_text_and_structs() -> None:
    assert number_or_name(BY_ID["identity.vbios"], b"96.00.89\xff") == "96.00.89\N{REPLACEMENT CHARACTER}"
    assert isinstance(number_or_name(BY_ID["identity.numa_node"], -1), Missing)
    assert number_or_name(BY_ID["temperature.margin_celsius"], -3) == -3, "above the threshold"
    rows = (4, 2, 1, 0)
    assert [pick(BY_ID[f"remapped_rows.{name}"], rows) for name in ("correctable", "uncorrectable")] == [4, 2]
    assert [pick(BY_ID[f"remapped_rows.{name}"], rows) for name in ("pending", "failure")] == ["yes", "no"]
    bar1 = pynvml.c_nvmlBAR1Memory_t(bar1Total=256 << 20, bar1Free=250 << 20, bar1Used=6 << 20)
    assert pick(BY_ID["bar1.used_bytes"], bar1) == 6 << 20
    assert pick(BY_ID["power.max_limit_watts"], [100_000, 700_000]) == 700.0


def links(*states: int) -> Callable[[object, int], int]:
    """Each link 0 (down), 1 (up) or the code that it is refused with."""

    def state(_: object, link: int) -> int:
        code = states[link] if link < len(states) else pynvml.NVML_ERROR_INVALID_ARGUMENT
        if code > 1:
            raise pynvml.NVMLError(code)
        return code

    return state


@pytest.mark.parametrize(
    ("states", "total", "up"),
    [((1, 1, 1, 1), 4, 4), ((0, 0), 2, 0), ((1, REFUSED, 1), 2, 2), ((1,) * 36, 36, 36)],
)
def test_nvlinks_are_counted(driver: Callable[..., None], states: tuple[int, ...], total: int, up: int) -> None:
    driver(nvmlDeviceGetNvLinkState=links(*states))
    seen = ask(Lane.SLOW)
    assert (seen["nvlink.links"], seen["nvlink.links_active"]) == (total, up)


@pytest.mark.parametrize("code", [code for code in CODES if code not in (1, REFUSED, 2)])
def test_a_link_that_fails_leaves_no_count(driver: Callable[..., None], code: int) -> None:
    driver(nvmlDeviceGetNvLinkState=links(1, code, 1))
    assert isinstance(ask(Lane.SLOW)["nvlink.links"], Missing)


def test_mig_devices_behind_a_gap_are_counted(driver: Callable[..., None]) -> None:
    answers = [0, pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_INVALID_ARGUMENT, 0, 6, 6, 6]

    def handle(_: object, index: int) -> object:
        if answers[index]:
            raise pynvml.NVMLError(answers[index])
        return index

    mode = [1, 1]
    driver(
        nvmlDeviceGetMigMode=lambda _: mode,
        nvmlDeviceGetMaxMigDeviceCount=lambda _: len(answers),
        nvmlDeviceGetMigDeviceHandleByIndex=handle,
    )
    assert ask(Lane.SLOW)["mig.instances"] == 2
    answers[1] = pynvml.NVML_ERROR_NO_PERMISSION
    lack = ask(Lane.SLOW)["mig.instances"]
    assert isinstance(lack, Missing)
    assert lack.reason == "permission_denied"
    mode[0] = 0
    assert ask(Lane.SLOW)["mig.instances"] == 0


def test_numa_nodes(driver: Callable[..., None]) -> None:
    words = (ctypes.c_ulonglong * 16)(0b101, 1)
    driver(nvmlDeviceGetMemoryAffinity=lambda *_: words)
    assert ask(Lane.ONCE)["identity.host_numa_nodes"] == "0,2,64"


def test_what_is_read_once_is_asked_until_it_answers(driver: Callable[..., None]) -> None:
    asked: list[str] = []
    fails = [pynvml.NVML_ERROR_TIMEOUT]

    def vbios(_: object) -> bytes:
        asked.append("vbios")
        if fails:
            raise pynvml.NVMLError(fails.pop())
        return b"96.00"

    def serial(_: object) -> bytes:
        asked.append("serial")
        return b"17"

    driver(nvmlDeviceGetVbiosVersion=vbios, nvmlDeviceGetSerial=serial)
    nvml, gpu = Nvml(), device()
    first, missing = nvml.sample(gpu, (Lane.ONCE,))
    assert first["identity.serial"] == "17"
    assert missing["identity.vbios"].reason == "failed"
    for _ in range(3):
        later, missing = nvml.sample(gpu, (Lane.ONCE,))
    assert (later["identity.serial"], later["identity.vbios"]) == ("17", "96.00")
    assert "identity.vbios" not in missing
    assert sorted(asked) == ["serial", "vbios", "vbios"]
    kept, _ = nvml.sample(gpu, (Lane.FAST,))
    assert kept["identity.vbios"] == "96.00"


def test_thresholds_as_margins_are_signed_and_read_once(driver: Callable[..., None]) -> None:
    asked: list[int] = []
    kinds = {
        pynvml.NVML_FI_DEV_TEMPERATURE_SHUTDOWN_TLIMIT: field(5, siVal=-8),
        pynvml.NVML_FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT: field(1, uiVal=2**32 - 2),
        pynvml.NVML_FI_DEV_TEMPERATURE_GPU_MAX_TLIMIT: field(5, siVal=0),
        pynvml.NVML_FI_DEV_TEMPERATURE_MEM_MAX_TLIMIT: field(code=REFUSED),
    }

    def values(_: object, fields: Sequence[tuple[int, int]]) -> list[SimpleNamespace]:
        asked.extend(number for number, _ in fields)
        return [kinds.get(number, field(code=REFUSED)) for number, _ in fields]

    nvml, gpu = Nvml(), device()
    driver(nvmlDeviceGetFieldValues=values)
    for _ in range(2):
        readings, missing = nvml.sample(gpu, (Lane.ONCE,))
        ids = [f"temperature.{name}_margin_celsius" for name in ("shutdown", "slowdown", "operating_max")]
        assert [readings[metric_id] for metric_id in ids] == [-8, -2, 0]
        assert missing["temperature.memory_max_margin_celsius"].reason == "not_supported"
    assert sorted(set(asked) & kinds.keys()) == sorted(number for number in asked if number in kinds)
