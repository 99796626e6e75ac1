"""Why a program is on no GPU: a cause only where the evidence rules out the others."""

from __future__ import annotations

from gpuwatch.explain.diagnosis.conditions.program_on_cpu import cpu_reason, not_simulated, why_maybe_on_gpu
from gpuwatch.machine.sources.procfs import ELSEWHERE, HIDDEN
from gpuwatch.sim.environment import ENV_STATE
from tests.diagnosis.watching import gpu, program, sample
from tests.every import every

GPUS = (gpu(), gpu(1))


@every(
    [
        ({"cuda_visible_devices": ""}, None, "visibility.hidden", "it sees no GPU"),
        ({"cuda_visible_devices": "-1"}, None, "visibility.hidden", "CUDA_VISIBLE_DEVICES=-1: it sees no GPU"),
        ({"cuda_visible_devices": "5"}, None, "visibility.bad-ordinal", "5 is not a GPU here"),
        ({"framework": "torch 2.11.0+cpu"}, None, "build.cpu-only", "is a build without CUDA"),
        ({"framework": "tensorflow 2.21.0+cpu"}, None, "build.cpu-only", "is a build without CUDA"),
        ({"cuda_loaded": False}, {}, "unknown", "it has not loaded libcuda"),
        ({"cuda_loaded": True}, {}, "unknown", "CUDA failed, the program chose the CPU"),
        ({}, {}, "unknown", "nothing in its environment prevents it from using the GPUs"),
        ({}, {"NVIDIA_VISIBLE_DEVICES": "void"}, "unknown", "its container was started without GPUs"),
        ({"note": "permission denied: environment"}, None, "unknown", "its environment cannot be read: permission"),
        ({"note": "permission denied: cgroup"}, None, "unknown", "CUDA_VISIBLE_DEVICES does not hide the GPUs"),
        ({}, None, "unknown", "CUDA_VISIBLE_DEVICES does not hide the GPUs from it"),
    ]
)
def test_the_cause_and_its_evidence(
    facts: dict[str, object], environment: dict[str, str] | None, cause: str, evidence: str
) -> None:
    found = cpu_reason(program(31, gpu=None, **facts), GPUS, environment)  # type: ignore[arg-type]
    assert found is not None
    assert found.cause == cause
    assert evidence in " | ".join(found.evidence)
    assert found.action


def test_a_build_without_cuda_is_the_cause_also_where_gpus_are_hidden() -> None:
    both = program(31, gpu=None, framework="torch 2.11.0+cpu", cuda_visible_devices="-1")
    found = cpu_reason(both, GPUS)
    assert found is not None
    assert found.cause == "build.cpu-only"
    assert len(found.evidence) == 2
    assert "CUDA build" in found.action
    assert "unset CUDA_VISIBLE_DEVICES" in found.action


def test_mig_instances_are_not_judged() -> None:
    assert cpu_reason(program(31, gpu=None, cuda_visible_devices="MIG-41b3"), GPUS) is None


def test_in_a_container_it_may_be_a_process_that_nvml_lists_by_another_pid() -> None:
    one = program(31, gpu=None)
    foreign = program(7, held=4.0, note=ELSEWHERE)
    assert "1 process by a pid" in why_maybe_on_gpu(one, sample(0, [gpu()], [foreign]))
    assert not why_maybe_on_gpu(program(31, gpu=None, cuda_loaded=False), sample(0, [gpu()], [foreign]))
    assert not why_maybe_on_gpu(one, sample(0, [gpu()], [program(7, held=4.0, note=f"{HIDDEN}hidepid=2")]))
    assert not why_maybe_on_gpu(one, sample(0, [gpu()], [program(7, held=4.0)]))


def test_only_simulated_gpus_need_a_program_that_was_started_on_them() -> None:
    shot = sample(0, [gpu()])
    assert not not_simulated(shot, {})
    import msgspec

    simulated = msgspec.structs.replace(shot, simulated=True)
    assert not_simulated(simulated, {})
    assert not not_simulated(simulated, {ENV_STATE: "/tmp/x"})
    assert not not_simulated(simulated, None)


def test_a_list_that_cannot_be_resolved_is_told_as_that() -> None:
    mixed = (gpu(name="A"), gpu(1, name="B"))
    found = cpu_reason(program(31, gpu=None, cuda_visible_devices="1"), mixed)
    assert found is not None
    assert found.cause == "unknown"
    assert "CUDA_DEVICE_ORDER" in found.evidence[0]
    unloaded = cpu_reason(program(31, gpu=None, cuda_visible_devices="1", cuda_loaded=False), mixed, {})
    assert unloaded is not None
    assert len(unloaded.evidence) == 2
    unset = cpu_reason(program(31, gpu=None), mixed)
    assert unset is not None
    assert "does not hide" in unset.evidence[0]
