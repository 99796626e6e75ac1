"""Single rules, the order of causes, and the engine around them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.core.model.causes import CAUSES, ENDED_WORK, NO_GPU
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.run import Fallback, Framework, Oom
from gpuwatch.core.model.run_memory import Memory
from gpuwatch.core.model.snapshot import Problem
from gpuwatch.core.model.visible_devices import read_visible, visible_devices
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.memory.oom_facts import OomFacts
from gpuwatch.explain.diagnosis.memory.oom_verdict import judge
from gpuwatch.explain.diagnosis.rule_engine import diagnose, primary_cause, rules_for
from gpuwatch.explain.diagnosis.rule_registry import RULES, Rule, finding, rule
from gpuwatch.explain.diagnosis.rules import op_placement
from gpuwatch.explain.diagnosis.rules.causes_stated_in_log import STATED_CAUSES, stated_by_the_log
from gpuwatch.explain.diagnosis.rules.gpu_environment_variables import KNOWN_VARIABLES, edit_distance
from gpuwatch.explain.logs.log_facts import CuInitError, LogFacts
from gpuwatch.explain.logs.log_parser import parse
from tests.diagnosis.cases import GIB, MIB, NO_DRIVER, draft, log, machine, on_gpus, process
from tests.every import every
from tests.logs.logs import NAMES, text


def causes(evidence: Evidence) -> dict[str, str]:
    return {found.id: found.severity for found in diagnose(evidence)}


# -- driver ---------------------------------------------------------------------------------------


@every(
    [
        ("lab_tf221_import_no_gpu", "driver.missing"),
        ("lab_tf215_import_no_gpu", "driver.missing"),
        ("lab_tf210_import_no_gpu", "driver.missing"),
        ("stub_tf221_cuinit803", "driver.mismatch"),
        ("stub_tf215_cuinit999", "driver.bad-state"),
        ("stub_tf_dlopen_218", "cuda.libraries-missing"),
        ("stub_tf_dlopen_218_vmodule", "cuda.libraries-missing"),
        ("stub_tf210_ignoring_cc30", "build.gpu-unsupported"),
        ("stub_tf221_hard_gpu5", "placement.device-missing"),
        ("lab_tf221_session_hard_gpu1", "placement.device-missing"),
        ("stub_tf221_int32_hard_no_kernel", "placement.no-kernel"),
        ("stub_tf221_growth_late", "config.too-late"),
        ("stub_tf221_growth_differ", "config.inconsistent"),
        ("lab_tf221_bfc_fragmentation_cpu", "memory.fragmented"),
        ("stub_tf221_gpu_bfc_oom", "memory.request-too-large"),
        ("lab_tf210_bfc_exhaust_cpu", "memory.model-too-large"),
        ("stub_tf215_ctx_oom", "memory.context-failed"),
        ("stub_tf221_map_default", "healthy"),
    ]
)
def test_primary_cause_of_a_log_alone(log_name: str, cause: str) -> None:
    assert primary_cause(diagnose(Evidence(log=log(log_name)))) == cause


def test_could_not_find_cuda_drivers_does_not_mean_that_the_driver_is_missing() -> None:
    only_cudart = LogFacts(cudart_missing=True)
    found = causes(Evidence(log=only_cudart, snapshot=machine()))
    assert "driver.missing" not in found
    assert found["cuda.libraries-missing"] == "error"


def test_a_driver_that_answers_is_never_missing() -> None:
    assert "driver.missing" not in causes(Evidence(log=log("lab_tf215_import_no_gpu"), snapshot=machine()))


def test_nvml_without_libcuda_is_half_a_driver() -> None:
    evidence = Evidence(log=log("lab_tf221_import_no_gpu"), snapshot=machine())
    (found,) = [found for found in diagnose(evidence) if found.id == "driver.missing"]
    assert "libcuda.so.1 is missing" in found.title


def test_no_driver_is_a_fact_when_nvml_says_so_without_any_log() -> None:
    (found,) = [entry for entry in diagnose(Evidence(snapshot=NO_DRIVER)) if entry.id == "driver.missing"]
    assert (found.severity, found.certainty) == ("error", "fact")
    assert "libnvidia-ml" in " ".join(found.evidence)
    assert found.action


def test_a_framework_with_gpus_proves_a_driver_whatever_nvml_says() -> None:
    assert "driver.missing" not in causes(Evidence(snapshot=NO_DRIVER, log=log("stub_tf221_map_default")))


def test_nvml_mismatch_is_not_a_missing_driver() -> None:
    problem = Problem(source="nvml", reason="driver.mismatch", detail="Driver/library version mismatch")
    found = causes(Evidence(snapshot=machine(driver=False, problems=(problem,))))
    assert found["driver.mismatch"] == "error"
    assert "driver.missing" not in found


def test_cuda_without_devices_beside_an_answering_nvml() -> None:
    no_device = LogFacts(cuinit_error=CuInitError(name="CUDA_ERROR_NO_DEVICE", code=100, text=""))
    assert "container.lost-devices" in causes(Evidence(snapshot=machine(), log=no_device))
    hidden = Evidence(snapshot=machine(), log=no_device, environment={"CUDA_VISIBLE_DEVICES": "-1"})
    assert "container.lost-devices" not in causes(hidden)
    assert causes(hidden)["visibility.hidden"] == "error"


@pytest.mark.parametrize(
    "evidence",
    [
        Evidence(log=parse("AssertionError: Torch not compiled with CUDA enabled")),
        Evidence(run=draft("torch-map", framework=Framework(name="torch", version="2.13.0+cpu", gpu_build=False))),
    ],
    ids=["log", "run"],
)
def test_a_pytorch_without_cuda_is_told_to_install_pytorch(evidence: Evidence) -> None:
    (found,) = [entry for entry in diagnose(evidence) if entry.id == "build.cpu-only"]
    assert "pytorch.org" in found.action
    assert "tensorflow" not in found.action


# -- visibility -----------------------------------------------------------------------------------


@every(
    [
        ("0,1", ("0", "1"), None),
        ("1", ("1",), None),
        ("-1", (), "-1"),
        ("", (), None),
        ("NoDevFiles", (), None),
        ("-1,0", (), "-1"),
        ("0,2,-1,1", ("0",), "2"),
        ("0,0", (), "0"),
        ("0,1,0", (), "0"),
        ("0,9,0", ("0",), "9"),
        ("0 1", ("0",), None),
        ("0-1", ("0",), None),
        ("0x1", ("0",), None),
        ("1.0", ("1",), None),
        ("+1, 0", ("1", "0"), None),
        ("1gpu2,0ampere", ("1", "0"), None),
        ("0,GPU-1", ("0",), "GPU-1"),
        ("GPU-1,0", ("GPU-1",), "0"),
        ("MIG-aaaa", (), "MIG-aaaa"),
        ("GPU-", (), "GPU-"),
        ("GPU-1", ("GPU-1",), None),
        ("GPU-nowhere,0", (), "GPU-nowhere"),
        ("abc", (), "abc"),
    ]
)
def test_the_list_ends_at_the_first_entry_that_is_not_valid(
    value: str, kept: tuple[str, ...], ended_at: str | None
) -> None:
    seen = read_visible(value, machine().devices)
    assert (seen.entries, seen.invalid_entry) == (kept, ended_at)


ENTRIES = ["0", "1", "2", "-1", "GPU-1", "gpu-0", "GPU-", "x", "0 1", "0-1", "1.0", "+1", "0x1", " 1 ", "", "1gpu2"]


@given(st.lists(st.sampled_from(ENTRIES), min_size=1, max_size=5))
def test_agrees_with_the_map_of_processes(entries: list[str]) -> None:
    devices = machine().devices
    seen = read_visible(",".join(entries), devices)
    mapped = visible_devices(",".join(entries), "PCI_BUS_ID", devices)
    assert [entry.upper().removeprefix("GPU-") for entry in seen.entries] == [str(entry.index) for entry in mapped.map]
    assert mapped.hidden or (seen.invalid_entry or None) == (mapped.invalid or None)


@pytest.mark.parametrize(
    ("value", "misread", "meant"),
    [
        ("0 1", "'0 1' is read as 0", "0,1"),
        ("0;1", "'0;1' is read as 0", "0,1"),
        ("0-1", "'0-1' is read as 0", "0,1"),
        ("0-3", "'0-3' is read as 0", "0,1,2,3"),
        ("0x1", "'0x1' is read as 0", "0"),
        ("1.0", "'1.0' is read as 1", "1"),
        ("0,1", "", ""),
        ("+1", "", ""),
    ],
)
def test_what_cuda_reads_of_an_entry_that_is_no_number_is_told(value: str, misread: str, meant: str) -> None:
    seen = read_visible(value, machine().devices)
    assert (seen.misread_text, seen.probable_value) == (misread, meant)
    findings = diagnose(Evidence(snapshot=machine(), environment={"CUDA_VISIBLE_DEVICES": value}))
    told = [found for found in findings if found.id == "visibility.bad-ordinal"]
    assert [found.severity for found in told] == (["warning"] if misread else [])
    assert not misread or (misread in told[0].title and meant in told[0].action)


def test_a_gpu_named_twice_hides_every_gpu() -> None:
    environment = {"CUDA_VISIBLE_DEVICES": "0,0"}
    log = parse("2026-01-01 00:00:00.000000: E external/local_xla/xla/stream_executor/cuda/cuda_platform.cc:51] "
                "failed call to cuInit: INTERNAL: CUDA error: Failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected")  # fmt: skip  # noqa: E501
    findings = diagnose(Evidence(snapshot=machine(), log=log, environment=environment))
    assert [found.id for found in findings] == ["visibility.bad-ordinal"]
    assert "twice" in findings[0].title
    assert "CUDA then shows no GPU at all" in " ".join(findings[0].evidence)


@pytest.mark.parametrize("known", [True, False])
def test_a_mig_instance_that_does_not_exist(known: bool) -> None:
    environment = {"CUDA_VISIBLE_DEVICES": "MIG-aaaa"}
    log = parse(
        "2026-01-01 00:00:00.000000: E external/local_xla/xla/stream_executor/cuda/cuda_platform.cc:51] "
        "failed call to cuInit: INTERNAL: CUDA error: Failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable "
        "device is detected\n"
        "2026-01-01 00:00:00.000000: I external/local_xla/xla/stream_executor/cuda/cuda_diagnostics.cc:204] "
        "kernel reported version is: 580.1.0\n"
    )
    findings = diagnose(Evidence(snapshot=machine() if known else None, log=log, environment=environment))
    assert [(found.id, found.severity) for found in findings] == [("mig.misuse", "error")]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("CUDA_VISIBLE_DIVICES", "CUDA_VISIBLE_DEVICES"),
        ("CUDA_VISIBLE_DEVICE", "CUDA_VISIBLE_DEVICES"),
        ("CUDA_VISIABLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
        ("CUDA_VISIBEL_DEVICES", "CUDA_VISIBLE_DEVICES"),
        ("TF_FORCE_GPU_ALLOW_GROWTH_", "TF_FORCE_GPU_ALLOW_GROWTH"),
        ("TF_FORCE_GPU_ALLOW_GROWHT", "TF_FORCE_GPU_ALLOW_GROWTH"),
    ],
)
def test_misspelt_variables(name: str, meant: str) -> None:
    (found,) = [e for e in diagnose(Evidence(environment={name: "1"})) if e.id == "visibility.misspelt"]
    assert meant in found.title
    assert f"{meant}=1" in found.action


@every([*KNOWN_VARIABLES, "PATH", "CUDA_ARCH_LIST", "NVIDIA_REQUIRE_CUDA", "TF_CONFIG"])
def test_variables_that_are_spelt_right_or_are_others(name: str) -> None:
    value = "true" if name == "TF_FORCE_GPU_ALLOW_GROWTH" else "0"
    assert "visibility.misspelt" not in causes(Evidence(environment={name: value}))


@pytest.mark.parametrize("value", ["ture", "1", "True", ""])
def test_a_growth_that_tensorflow_cannot_read_is_told(value: str) -> None:
    found = diagnose(Evidence(environment={"TF_FORCE_GPU_ALLOW_GROWTH": value}))
    assert [(entry.id, entry.severity) for entry in found] == [("visibility.misspelt", "warning")]
    assert f"={value} is neither" in found[0].title


@pytest.mark.parametrize("value", ["true", "false"])
def test_a_growth_that_tensorflow_reads_is_no_finding(value: str) -> None:
    assert causes(Evidence(environment={"TF_FORCE_GPU_ALLOW_GROWTH": value})) == {"healthy": "info"}


@given(st.text("abc", max_size=6), st.text("abc", max_size=6))
def test_edit_distance_is_symmetric_and_small_only_for_near_words(one: str, other: str) -> None:
    assert edit_distance(one, other, 2) == edit_distance(other, one, 2)
    assert (edit_distance(one, other, 2) == 0) == (one == other)


# -- memory ---------------------------------------------------------------------------------------


@every(
    [
        (400, 256, 0, 256, OomFacts(), "memory.request-too-large"),
        (100, 256, 200, 56, OomFacts(), "memory.model-too-large"),
        (64, 256, 110, 28, OomFacts(), "memory.fragmented"),
        (400, 256, 0, 256, OomFacts(total_bytes=24 * GIB, limit_set=True), "memory.limit-too-small"),
        (400, 256, 0, 256, OomFacts(total_bytes=300 * MIB, limit_set=True), "memory.request-too-large"),
        # What TensorFlow 2.21 takes by itself of 8 GiB: no limit that anybody set.
        (64, 6074, 6074, 0, OomFacts(total_bytes=8 * GIB, held_by_others=False), "memory.model-too-large"),
        (64, 4000, 4000, 0, OomFacts(total_bytes=8 * GIB, held_by_others=False), "memory.limit-too-small"),
        (400, 313, 0, 313, OomFacts(total_bytes=24 * GIB), "memory.other-process"),
        (400, 256, 0, 256, OomFacts(total_bytes=24 * GIB), "memory.limit-too-small"),
        (64, 256, 230, 26, OomFacts(total_bytes=22 * GIB, total_from_name=True), "memory.limit-too-small"),
        (64, 313, 300, 13, OomFacts(total_bytes=22 * GIB, total_from_name=True), "memory.other-process"),
        (400, 313, 0, 313, OomFacts(total_bytes=22 * GIB, total_from_name=True), "memory.request-too-large"),
        # Of 4 GiB that others leave TensorFlow takes more than 256 MiB by itself: a round number is somebody's.
        (400, 256, 0, 256, OomFacts(total_bytes=24 * GIB, others_bytes=20 * GIB), "memory.limit-too-small"),
        (400, 313, 0, 313, OomFacts(total_bytes=24 * GIB, others_bytes=20 * GIB), "memory.other-process"),
        (400, 255, 0, 255, OomFacts(total_bytes=2 * GIB, others_bytes=1729 * MIB), "memory.other-process"),
        # An allocator without a free block, below its limit: the driver refused it more.
        (
            48,
            2047,
            1335,
            0,
            OomFacts(total_bytes=5 * GIB, others_bytes=3620 * MIB, least_free_bytes=0),
            "memory.other-process",
        ),
        (48, 2047, 1335, 0, OomFacts(total_bytes=5 * GIB, least_free_bytes=64 * MIB), "unknown"),
        (25 * 1024, 22 * 1024, 0, 22 * 1024, OomFacts(total_bytes=24 * GIB), "memory.request-too-large"),
        (5 * 1024, 22 * 1024, 20 * 1024, 100, OomFacts(total_bytes=24 * GIB), "memory.model-too-large"),
        (64, 256, 110, None, OomFacts(), "memory.other-process"),
        (64, 2560, 10, 8, OomFacts(refusals=40), "memory.other-process"),
    ]
)
def test_the_verdict_follows_from_the_numbers(
    asked: int, limit: int, used: int, block: int | None, around: OomFacts, cause: str
) -> None:
    oom = Oom(
        requested_bytes=asked * MIB,
        limit_bytes=limit * MIB,
        in_use_bytes=used * MIB,
        largest_free_bytes=None if block is None else block * MIB,
    )
    judgement = judge(oom, around)
    assert judgement.cause == cause
    # The arithmetic is shown, not only the verdict.
    assert len(judgement.lines) >= 2 or " limit − " in judgement.lines[0]


_AMOUNT = st.one_of(st.none(), st.integers(0, 1 << 62))


@given(
    st.builds(Oom, requested_bytes=_AMOUNT, limit_bytes=_AMOUNT, in_use_bytes=_AMOUNT, largest_free_bytes=_AMOUNT),
    st.builds(OomFacts, total_bytes=_AMOUNT, others_bytes=_AMOUNT, limit_set=st.booleans()),
)
def test_every_combination_of_numbers_has_a_verdict(oom: Oom, around: OomFacts) -> None:
    judgement = judge(oom, around)
    assert judgement.cause in CAUSES
    assert judgement.lines


def test_who_held_the_memory_is_named() -> None:
    before = machine(used=23 * GIB, processes=(process(48121, 23 * GIB),))
    run = on_gpus("default", ooms=(Oom(device="GPU:0"),))
    found = diagnose(Evidence(snapshot=before, run=run, log=log("stub_tf221_map_default")))[0]
    assert found.id == "memory.other-process"
    assert any("48121" in line and "alice" in line for line in found.evidence)


def test_quoted_command_lines_hold_no_secrets() -> None:
    holder = msgspec.structs.replace(
        process(7, 23 * GIB), command="python train.py --api-key abc123 --password hunter2"
    )
    before = machine(used=23 * GIB, processes=(holder,))
    run = on_gpus("default", ooms=(Oom(device="GPU:0"),))
    for evidence in (
        Evidence(snapshot=before),
        Evidence(snapshot=before, run=run, log=log("stub_tf221_map_default")),
    ):
        told = " ".join(line for found in diagnose(evidence) for line in found.evidence)
        assert "train.py" in told
        assert "abc123" not in told
        assert "hunter2" not in told


def test_an_oom_wins_over_a_grumble_about_the_driver() -> None:
    assert primary_cause(diagnose(Evidence(log=log("lab_tf221_bfc_fragmentation_cpu")))) == "memory.fragmented"


# -- idle -----------------------------------------------------------------------------------------


def test_memory_mapped_by_default_and_not_used() -> None:
    memory = Memory(
        allocator_peak_bytes=100 * MIB,
        allocator_limit_bytes=22 * GIB,
        nvml_peak_bytes=22 * GIB,
        device_total_bytes=24 * GIB,
    )
    assert causes(Evidence(run=on_gpus("default", memory=memory)))["idle.memory-held"] == "info"
    growth = Memory(
        allocator_peak_bytes=100 * MIB,
        allocator_limit_bytes=22 * GIB,
        nvml_peak_bytes=600 * MIB,
        device_total_bytes=24 * GIB,
    )
    assert "idle.memory-held" not in causes(Evidence(run=on_gpus("growth", memory=growth)))


def test_a_process_on_an_idle_device() -> None:
    snapshot = machine(processes=(process(7, 20 * GIB),))
    once = Evidence(snapshot=snapshot)
    (found,) = [entry for entry in diagnose(once) if entry.id == "idle.memory-held"]
    assert (found.severity, found.pid, found.device_uuid) == ("info", 7, "GPU-0")


@pytest.mark.parametrize(
    "snapshot",
    [machine(busy=50.0, processes=(process(7, 20 * GIB),)), machine(processes=(process(7, 500 * MIB),))],
    ids=["busy device", "little memory"],
)
def test_memory_that_is_used_or_small_is_no_finding(snapshot: object) -> None:
    assert "idle.memory-held" not in causes(Evidence(snapshot=snapshot))  # type: ignore[arg-type]


# -- the device itself ----------------------------------------------------------------------------


def with_readings(*, state: str = "ok", busy: float = 90.0, **readings: object) -> Evidence:
    snapshot = machine(gpus=1, busy=busy)
    device = snapshot.devices[0]
    changed = msgspec.structs.replace(
        device, state=state, readings={**device.readings, **{k.replace("__", "."): v for k, v in readings.items()}}
    )
    return Evidence(snapshot=msgspec.structs.replace(snapshot, devices=(changed,)))


LINK = {"pcie__generation": 1, "pcie__width": 16, "pcie__max_generation": 4, "pcie__max_width": 16}


@every(
    [
        (with_readings(state="lost"), "hardware.fault", "error"),
        (with_readings(ecc__uncorrected=3), "hardware.fault", "warning"),
        (with_readings(remapped_rows__failure="yes", remapped_rows__pending="yes"), "hardware.fault", "error"),
        (with_readings(remapped_rows__pending="yes"), "hardware.fault", "warning"),
        (with_readings(retired_pages__pending="yes"), "hardware.fault", "warning"),
        (with_readings(health__recovery_action="gpu-reset"), "hardware.fault", "error"),
        (with_readings(clocks__event_reasons="sw-power-cap+sw-thermal"), "throttle.thermal", "warning"),
        (with_readings(clocks__event_reasons="sw-power-cap"), "throttle.power", "info"),
        (with_readings(clocks__event_reasons="hw-power-brake"), "throttle.power", "warning"),
        (with_readings(mode__compute="prohibited"), "mode.exclusive", "warning"),
        (with_readings(mode__compute="exclusive-process"), "mode.exclusive", "info"),
    ]
)
def test_what_the_device_says(evidence: Evidence, cause: str, severity: str) -> None:
    (found,) = [entry for entry in diagnose(evidence) if entry.id == cause]
    assert (found.severity, found.device_uuid) == (severity, "GPU-0")
    assert found.action


@pytest.mark.parametrize(
    "evidence",
    [
        with_readings(busy=0.0, **LINK),
        with_readings(**LINK),  # one sample of a busy device may hold the link of its rest; see test_conditions.py
        with_readings(**{**LINK, "pcie__generation": 4}),
        with_readings(clocks__event_reasons="none"),
        with_readings(clocks__event_reasons="idle", busy=0.0),
        with_readings(ecc__uncorrected=0),
        with_readings(remapped_rows__failure="no", remapped_rows__pending="no", health__recovery_action="none"),
        with_readings(state="asleep"),
    ],
)
def test_what_is_normal_is_no_finding(evidence: Evidence) -> None:
    assert [entry.id for entry in diagnose(evidence)] == ["healthy"]


# -- engine ---------------------------------------------------------------------------------------


def test_a_rule_that_raises_is_seen_and_stops_no_other() -> None:
    def breaks(evidence: Evidence) -> Iterator[Finding]:
        raise ZeroDivisionError("by zero")

    found = diagnose(
        Evidence(snapshot=NO_DRIVER), [Rule("breaks", ("unknown",), breaks), *rules_for(Evidence(snapshot=NO_DRIVER))]
    )
    ids = [entry.id for entry in found]
    assert "driver.missing" in ids
    (broken,) = [entry for entry in found if entry.id == "unknown"]
    assert "breaks" in broken.title
    assert any("by zero" in line for line in broken.evidence)


def test_a_rule_may_only_name_known_causes() -> None:
    with pytest.raises(ValueError, match=r"no\.such"):
        rule("no.such")(list)


def test_nothing_known_is_healthy_and_never_an_error() -> None:
    (found,) = diagnose(Evidence())
    assert (found.id, found.severity) == ("healthy", "info")


def test_every_rule_yields_only_what_it_declares() -> None:
    every = [
        Evidence(log=log(name), snapshot=snapshot, run=run)
        for name, snapshot, run in itertools.product(
            ("lab_tf221_import_no_gpu", "stub_tf221_gpu_bfc_oom", "stub_tf221_growth_late", "stub_tf_dlopen_218"),
            (None, NO_DRIVER, machine(processes=(process(7, 20 * GIB),))),
            (None, draft(), on_gpus("x")),
        )
    ]
    for entry in rules_for(every[0]):
        for evidence in every:
            assert {found.id for found in entry.find(evidence)} <= set(entry.causes), entry.name


@pytest.mark.parametrize("state", ["ok", "lost", "recovering", "unknown"])
@pytest.mark.parametrize(
    "readings",
    [{"mode.compute": "prohibited"}, {"mig.mode": "enabled"}, {"memory.used_bytes": 24 * GIB}, {}],
    ids=["prohibited", "mig", "full", "usual"],
)
def test_rules_left_out_of_a_working_machine_would_find_nothing(state: str, readings: dict[str, object]) -> None:
    seen = machine(processes=(process(7, 20 * GIB),))
    changed = [
        msgspec.structs.replace(device, state=state, readings={**device.readings, **readings})
        for device in seen.devices
    ]
    evidence = Evidence(snapshot=msgspec.structs.replace(seen, devices=tuple(changed)))
    chosen = rules_for(evidence)
    assert len(rules_for(Evidence(snapshot=NO_DRIVER))) > len(chosen) > 1
    assert not [found for entry in RULES["evidence"] if entry not in chosen for found in entry.find(evidence)]


SEVERITIES = st.sampled_from(["error", "warning", "info"])


@given(st.lists(st.tuples(st.sampled_from(sorted(CAUSES)), SEVERITIES), max_size=6), st.randoms())
def test_primary_ignores_the_order_and_prefers_what_is_severe(pairs: list[tuple[str, str]], random: object) -> None:
    found = [finding(cause, severity, "fact") for cause, severity in pairs]  # type: ignore[arg-type]
    main = primary_cause(found)
    shuffled = list(found)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert primary_cause(shuffled) == main
    errors = [entry.id for entry in found if entry.severity == "error"]
    if errors:
        assert main in errors
        ended = [cause for cause in ENDED_WORK if cause in errors]
        no_gpu = [cause for cause in NO_GPU if cause in errors]
        if ended:
            assert main == ended[0]
        elif no_gpu:
            assert main == no_gpu[0]
    elif not found:
        assert main is None


SCRAPS = st.sampled_from(
    [line for name in NAMES for line in text(name).splitlines() if "evice" in line or "emory" in line or "rror" in line]
)


@pytest.mark.thorough
@settings(max_examples=150, deadline=None)
@given(st.lists(SCRAPS, max_size=12), st.booleans(), st.booleans())
def test_no_rule_breaks_on_any_mixture_of_lines(lines: list[str], driver: bool, with_run: bool) -> None:
    evidence = Evidence(log=parse("\n".join(lines)), snapshot=machine(driver=driver), run=draft() if with_run else None)
    found = diagnose(evidence)
    assert not [entry for entry in found if "own rule" in entry.title]
    assert primary_cause(found) in CAUSES


def test_a_reason_why_there_is_no_gpu_comes_before_the_error_of_an_import() -> None:
    found = [finding("program.error", "error", "fact"), finding("cuda.libraries-missing", "error", "likely")]
    assert primary_cause(found) == "cuda.libraries-missing"


def test_the_order_of_the_table_of_causes_is_the_order_of_primary_causes() -> None:
    order = [*ENDED_WORK, *NO_GPU]
    assert list(CAUSES)[: len(order)] == order


@every(STATED_CAUSES)
def test_a_cause_that_a_log_states_is_an_error_unless_it_ends_nothing(cause: str) -> None:
    """One that ended something comes before the error of the program; what says nothing would come after it."""
    (found,) = stated_by_the_log(Evidence(log=LogFacts(evidence={cause: ["a line that states it"]})))
    assert found.id == cause
    ranked = cause in (*ENDED_WORK, *NO_GPU)
    assert found.severity == ("error" if ranked else "warning")
    assert found.action
    own = finding("program.error", "error", "fact")
    assert primary_cause([own, found]) == (cause if ranked else "program.error")


@pytest.mark.parametrize(
    ("requested", "expected"),
    [("GPU:7", "MatMul float32 requested GPU:7, ran on CPU:0: why"), ("auto", "MatMul float32 ran on CPU:0: why")],
)
def test_a_fallback_in_words(requested: str, expected: str) -> None:
    entry = Fallback(op="MatMul", dtype="float32", requested=requested, actual="CPU:0", reason="unknown", detail="why")
    assert op_placement._fallbacks_text([entry]) == expected


def test_the_numbers_of_a_failure_begin_with_the_request() -> None:
    oom = Oom(requested_bytes=2 * GIB, limit_bytes=GIB, in_use_bytes=0, device="GPU:0")
    assert judge(oom, OomFacts()).lines[0].startswith("requested 2.0 GiB on GPU:0: limit 1.0 GiB")
