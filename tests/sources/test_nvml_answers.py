"""Answers that take more than one call, or that say one by one what they lack."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pynvml
import pytest

from gpuwatch.core.model.metrics import BY_ID, METRICS, Lane
from gpuwatch.core.model.reading import Missing, Value
from gpuwatch.machine.sources.nvidia import nvml_errors
from gpuwatch.machine.sources.nvidia.decode_answers import number_or_name, picked_value
from gpuwatch.machine.sources.nvidia.mig import profile_name
from gpuwatch.machine.sources.nvidia.nvml_devices import NvmlDevice
from gpuwatch.machine.sources.nvidia.nvml_source import NvmlSource
from gpuwatch.machine.sources.nvidia.processes import ProcessLists
from tests.sources.test_nvml_faults import CODES

SLOW = [spec for spec in METRICS if spec.lane is Lane.SLOW]
FIELDS = {spec.id: spec for spec in SLOW if spec.call == "nvmlDeviceGetFieldValues" and spec.args}
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
    return NvmlDevice(0, "GPU-a", "A", "0000:01:00.0", "9.0", handle=1)


def ask(*lanes: Lane) -> dict[str, Value | Missing]:
    readings, missing = NvmlSource().sample(device(), lanes)
    assert not readings.keys() & missing.keys()
    return {**readings, **missing}


def field(kind: int = 1, code: int = 0, **value: float) -> SimpleNamespace:
    union = pynvml.c_nvmlValue_t(**value)
    return SimpleNamespace(nvmlReturn=code, valueType=kind, value=union)


@pytest.mark.parametrize("code", CODES)
def test_a_field_that_fails_takes_no_other_along(driver: Callable[..., None], code: int) -> None:
    bad = pynvml.NVML_FI_DEV_POWER_AVERAGE
    flags = {getattr(pynvml, str(spec.args[0])) for spec in FIELDS.values() if spec.names}
    asked: list[int] = []

    def values(_: object, fields: Sequence[tuple[int, int]]) -> list[SimpleNamespace]:
        numbers = [number for number, _ in fields]
        asked.extend(numbers)
        return [field(code=code if number == bad else 0, uiVal=1 if number in flags else 1000) for number in numbers]

    driver(nvmlDeviceGetFieldValues=values)
    nvml, gpu = NvmlSource(), device()
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
    assert never == (code in (*nvml_errors.PERMANENT, pynvml.NVML_ERROR_INVALID_ARGUMENT))


def test_all_fields_of_a_lane_are_one_call(driver: Callable[..., None]) -> None:
    calls = []

    def values(_: object, fields: Sequence[tuple[int, int]]) -> list[SimpleNamespace]:
        calls.append(fields)
        return [field(3, ullVal=2) for _ in fields]

    driver(nvmlDeviceGetFieldValues=values)
    seen = ask(Lane.SLOW)
    _fast_lane, fields = calls
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
    assert [picked_value(BY_ID[f"remapped_rows.{name}"], rows) for name in ("correctable", "uncorrectable")] == [4, 2]
    assert [picked_value(BY_ID[f"remapped_rows.{name}"], rows) for name in ("pending", "failure")] == ["yes", "no"]
    bar1 = pynvml.c_nvmlBAR1Memory_t(bar1Total=256 << 20, bar1Free=250 << 20, bar1Used=6 << 20)
    assert picked_value(BY_ID["bar1.used_bytes"], bar1) == 6 << 20
    assert picked_value(BY_ID["power.max_limit_watts"], [100_000, 700_000]) == 700.0


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
    nvml, gpu = NvmlSource(), device()
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

    nvml, gpu = NvmlSource(), device()
    driver(nvmlDeviceGetFieldValues=values)
    for _ in range(2):
        readings, missing = nvml.sample(gpu, (Lane.ONCE,))
        ids = [f"temperature.{name}_margin_celsius" for name in ("shutdown", "slowdown", "operating_max")]
        assert [readings[metric_id] for metric_id in ids] == [-8, -2, 0]
        assert missing["temperature.memory_max_margin_celsius"].reason == "not_supported"
    assert sorted(set(asked) & kinds.keys()) == sorted(number for number in asked if number in kinds)


class Card:
    """A GPU divided by MIG, as a driver answers for it; handles are indices of instances."""

    def __init__(self, give: Callable[..., None]) -> None:
        self.on = True
        self.layout: dict[int, tuple[int, int, int, int]] = {0: (1, 0, 1, 9728), 3: (2, 1, 1, 19968)}
        self.denied: set[str] = set()
        self.total = 81_559 << 20
        give(
            nvmlDeviceGetMigMode=lambda _: [int(self.on), int(self.on)],
            nvmlDeviceGetMaxMigDeviceCount=lambda _: 7,
            nvmlDeviceGetMigDeviceHandleByIndex=self.handle,
            nvmlDeviceGetUUID=self.answer("nvmlDeviceGetUUID", lambda at: f"MIG-{self.layout[at]}"),
            nvmlDeviceGetGpuInstanceId=self.answer("nvmlDeviceGetGpuInstanceId", lambda at: self.layout[at][0]),
            nvmlDeviceGetComputeInstanceId=self.answer("nvmlDeviceGetComputeInstanceId", lambda at: self.layout[at][1]),
            nvmlDeviceGetAttributes_v2=self.answer("nvmlDeviceGetAttributes_v2", self.attributes),
            nvmlDeviceGetName=self.answer("nvmlDeviceGetName", lambda _: "A"),
            nvmlDeviceGetMemoryInfo=self.memory,
        )

    def handle(self, _: object, index: int) -> str:
        if index not in self.layout:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return f"mig {index}"

    def answer(self, call: str, value: Callable[[int], object]) -> Callable[[object], object]:
        def give(handle: str) -> object:
            if call in self.denied:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_NO_PERMISSION)
            at = int(handle.split()[1])
            if at not in self.layout:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
            return value(at)

        return give

    def attributes(self, at: int) -> SimpleNamespace:
        slices = self.layout[at][2]
        return SimpleNamespace(
            multiprocessorCount=16 * slices,
            gpuInstanceSliceCount=slices + (at == 3),
            computeInstanceSliceCount=slices,
            memorySizeMB=self.layout[at][3],
        )

    def memory(self, handle: object, version: object = None) -> SimpleNamespace:
        if handle == 1:
            return SimpleNamespace(total=self.total, reserved=1, free=2, used=3)
        return self.answer(  # type: ignore[return-value]
            "nvmlDeviceGetMemoryInfo",
            lambda at: SimpleNamespace(total=self.layout[at][3] << 20, reserved=0, free=5, used=at),
        )(handle)


def test_mig_instances_are_told_with_all_they_have(driver: Callable[..., None]) -> None:
    Card(driver)
    nvml, gpu = NvmlSource(), device()
    nvml.sample(gpu, (Lane.SLOW,))
    first, second = gpu.mig_instances
    assert (first.id, first.index, first.uuid, first.profile) == ("1/0", 0, "MIG-(1, 0, 1, 9728)", "1g.10gb")
    assert (second.id, second.index, second.profile) == ("2/1", 3, "1c.2g.20gb"), "behind a gap"
    assert (second.gpu_slices, second.compute_slices, second.multiprocessors) == (2, 1, 16)
    assert second.readings["memory.used_bytes"] == 3
    assert not first.missing


def test_utilization_is_missing_because_of_mig_and_comes_back_without(driver: Callable[..., None]) -> None:
    card = Card(driver)
    driver(nvmlDeviceGetUtilizationRates=lambda _: refuse() if card.on else SimpleNamespace(gpu=7, memory=1))
    nvml, gpu = NvmlSource(), device()
    _, missing = nvml.sample(gpu, (Lane.SLOW,))
    for metric_id in ("utilization.gpu_percent", "utilization.encoder_percent"):
        assert "not supported while MIG is on" in missing[metric_id].detail
    assert "MIG" not in missing["fan.speed_percent"].detail
    card.on = False
    readings, _ = nvml.sample(gpu, (Lane.SLOW,))
    assert readings["utilization.gpu_percent"] == 7
    assert gpu.mig_instances == ()


def test_a_layout_that_changes_is_found_at_once(driver: Callable[..., None]) -> None:
    card = Card(driver)
    nvml, gpu = NvmlSource(), device()
    nvml.sample(gpu, (Lane.SLOW,))
    card.layout = {5: (4, 0, 3, 40_192)}
    nvml.sample(gpu, (Lane.FAST,))
    (only,) = gpu.mig_instances
    assert (only.id, only.index, only.profile) == ("4/0", 5, "3g.40gb")


def test_what_an_instance_withholds_has_its_reason(driver: Callable[..., None]) -> None:
    card = Card(driver)
    card.denied = {"nvmlDeviceGetMemoryInfo", "nvmlDeviceGetUUID", "nvmlDeviceGetGpuInstanceId"}
    nvml, gpu = NvmlSource(), device()
    nvml.sample(gpu, (Lane.SLOW,))
    first, _ = gpu.mig_instances
    assert (first.id, first.uuid, first.readings) == ("#0", None, {})
    assert {lack.reason for lack in first.missing.values()} == {"permission_denied"}
    assert first.missing.keys() >= {"uuid", "gpu_instance", "memory.used_bytes"}


@pytest.mark.parametrize("code", CODES)
def test_no_code_of_a_mig_call_is_a_crash(driver: Callable[..., None], code: int) -> None:
    def fail(*_: object) -> object:
        raise pynvml.NVMLError(code)

    mig_calls = (
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetMaxMigDeviceCount",
        "nvmlDeviceGetMigDeviceHandleByIndex",
        "nvmlDeviceGetAttributes_v2",
        "nvmlDeviceGetComputeInstanceId",
        "nvmlDeviceGetName",
        "nvmlDeviceGetMemoryInfo",
    )
    for call in mig_calls:
        Card(driver)
        driver(**{call: fail})
        nvml, gpu = NvmlSource(), device()
        _, missing = nvml.sample(gpu, (Lane.SLOW,))
        for instance in gpu.mig_instances:
            assert all(lack.code == code for lack in instance.missing.values())
        if "MigD" in call and code not in (pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_INVALID_ARGUMENT):
            assert missing["mig.instances"].reason


@pytest.mark.parametrize(
    ("slices", "mib", "total_mib", "name"),
    [
        ((1, 1), 4864, 40_536, "1g.5gb"),
        ((3, 3), 40_192, 81_920, "3g.40gb"),
        ((1, 1), 16_384, 143_771, "1g.18gb"),
        ((1, 1), 5952, 24_576, "1g.6gb"),
        ((3, 1), 19_968, 40_536, "1c.3g.20gb"),
    ],
)
def test_profiles_are_named_as_nvidia_does(slices: tuple[int, int], mib: int, total_mib: int, name: str) -> None:
    assert profile_name(*slices, mib << 20, total_mib << 20) == name


@pytest.mark.parametrize(
    ("mig_on", "asked", "instance"),
    [
        (False, {}, None),
        (None, {"mig": Missing("not_supported")}, None),
        (None, {}, "0/0"),  # nobody knows yet
        (True, {}, "0/0"),
    ],
)
def test_an_instance_is_believed_where_mig_can_be_on(
    monkeypatch: pytest.MonkeyPatch, mig_on: bool | None, asked: dict[str, Missing], instance: str | None
) -> None:
    """Some drivers answer instance 0 and 0 for the processes of a card without MIG."""
    monkeypatch.setattr(ProcessLists, "running", lambda _, handle, base: ([(4711, 2**30, 0, 0)], 0))
    one = device()
    one.mig_on, one.permanent = mig_on, asked
    lists = ProcessLists(pynvml)
    (row,), problems = lists.processes(one)
    assert (row.pid, row.mig_instance, problems) == (4711, instance, [])
    one.mig_on = True  # it is switched on: the same answer means something else
    (row,), _ = lists.processes(one)
    assert row.mig_instance == "0/0"
