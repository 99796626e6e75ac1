"""Of a colocation group, the op that has no kernel is named; of an op, the type that rules its kernels out."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec

from gpuwatch.core.model.run import DeviceMapping, Fallback, Placement, Run
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.rule_engine import diagnose
from gpuwatch.explain.diagnosis.rules.op_placement import _member_without_kernel
from gpuwatch.explain.diagnosis.runs.finished_run import complete
from gpuwatch.explain.diagnosis.runs.op_fallbacks import PLACED_TOGETHER, _with_causes_of_resources
from gpuwatch.explain.logs.log_facts import LogFacts
from gpuwatch.explain.logs.log_parser import parse
from tests.diagnosis.cases import machine, on_gpus
from tests.probing.test_watcher import load

_REPORT = """x.cc:1] Could not satisfy explicit device specification '/device:GPU:0' because no supported kernel for GPU
Colocation Debug Info:
Colocation group had the following types and supported devices:
Root Member(assigned_device_name_index_=-1 requested_device_name_='/device:GPU:0' assigned_device_name_='' \
resource_device_name_='' supported_device_types_=[CPU] possible_devices_=[]
Const: GPU CPU
AssignVariableOp: CPU
VarHandleOp: CPU

Colocation members, user-requested devices, and framework assigned devices, if any:
  zero (Const) /device:GPU:0
  assign (AssignVariableOp) /device:GPU:0
  counter (VarHandleOp) /device:GPU:0

Op: Const
"""


def test_the_variable_is_to_blame_not_the_constant_beside_it() -> None:
    (report,) = parse(_REPORT).colocations
    assert report.lacking == ("AssignVariableOp", "VarHandleOp")
    assert _member_without_kernel(report, "Const").node == "counter"
    assert _member_without_kernel(report, "AssignVariableOp").node == "assign"
    (found,) = [one for one in diagnose(Evidence(log=parse(_REPORT))) if one.id == "placement.no-kernel"]
    assert (
        "kernels for CPU: AssignVariableOp assign, VarHandleOp counter (with it, colocated: 1 more)"
        in found.evidence[-1]
    )


def test_what_uses_a_variable_has_its_cause_if_one_scope_asked_for_both() -> None:
    def entry(op: str, reason: str, scope: str) -> Fallback:
        return Fallback(op=op, requested="GPU:0", actual="CPU:0", reason=reason, detail=reason, scope=scope)

    found = _with_causes_of_resources(
        [
            entry("VarHandleOp", "placement.no-kernel", "a.py:1"),
            entry("AssignVariableOp", PLACED_TOGETHER, "a.py:1"),
            entry("AssignAddVariableOp", PLACED_TOGETHER, "a.py:2"),
        ]
    )
    assert [one.reason for one in found] == ["placement.no-kernel", "placement.no-kernel", PLACED_TOGETHER]


def _kernel(device: str, **allowed: list[int]) -> SimpleNamespace:
    constraints = [
        SimpleNamespace(name=name, allowed_values=SimpleNamespace(list=SimpleNamespace(type=types)))
        for name, types in allowed.items()
    ]
    return SimpleNamespace(device_type=device, constraint=constraints)


def test_a_kernel_fits_if_all_its_types_do() -> None:
    kernels = load("_gpuwatch_kernels")
    found = [_kernel("GPU", T=[1, 2], output_type=[9]), _kernel("CPU", T=[1, 2, 3], output_type=[9])]
    assert kernels._has_fitting_kernel(found, {"T": 1, "output_type": 9}, ("GPU",))
    assert not kernels._has_fitting_kernel(found, {"T": 3, "output_type": 9}, ("GPU",))
    assert kernels._has_fitting_kernel(found, {"T": 3, "output_type": 9}, ("CPU",))
    # Both types rule it out: none alone is to blame.
    assert kernels._excluding_type(found, {"T": 3, "output_type": 3}, ("GPU",)) is None
    assert kernels._excluding_type(found, {"T": 1, "output_type": 9}, ("GPU",)) is None


def _told(*placements: Placement, simulation: str | None = None) -> Run:
    mapped = (DeviceMapping(framework_device="/device:GPU:0"),)
    run = on_gpus("run", placements=placements, device_map=mapped, simulation=simulation)
    return complete(msgspec.structs.replace(run, group="run"), LogFacts(), machine())


def _moved(op: str, why: str = "", *, lacks: bool = False, some_type: bool = True) -> Placement:
    return Placement(
        op=op,
        dtype="float32",
        requested="/device:GPU:0",
        scope="ads.py:3",
        why=why,
        actual="/device:CPU:0",
        gpu_kernel=not lacks,
        cuda_kernel=not lacks,
        some_type=some_type,
    )


def test_what_is_colocated_has_the_reason_of_the_op_without_a_kernel_and_its_advice() -> None:
    with_it = [_moved(op, "colocated:SparseApplyFtrl") for op in ("Assign", "VariableV2", "Identity")]
    run = _told(*with_it, _moved("SparseApplyFtrl", lacks=True, some_type=False))
    assert [one.op for one in run.fallbacks] == ["SparseApplyFtrl", "VariableV2", "Assign", "Identity"]
    assert {one.detail for one in run.fallbacks[1:]} == {"colocated with SparseApplyFtrl, which has no GPU kernel"}
    (finding,) = [one for one in run.findings if one.id == "placement.no-kernel"]
    assert finding.title.startswith("SparseApplyFtrl and 3 more")
    assert "another optimizer" in (finding.action or "")


def test_another_type_is_advised_where_that_helps_what_the_others_are_with() -> None:
    run = _told(_moved("Identity", "colocated:VariableV2"), _moved("VariableV2", lacks=True))
    (finding,) = [one for one in run.findings if one.id == "placement.no-kernel"]
    assert finding.title.startswith("VariableV2 float32 and 1 more")
    assert "use a type that has a GPU kernel" in (finding.action or "")


def test_a_sparse_update_without_a_kernel_does_not_blame_its_variable() -> None:
    run = _told(_moved("ResourceSparseApplyFtrl", "resource", lacks=True, some_type=False))
    assert "ResourceSparseApplyFtrl" in run.fallbacks[0].detail


def test_a_group_that_only_a_simulated_gpu_splits_lacks_no_kernel() -> None:
    run = _told(_moved("VariableV2", "colocated:"), simulation="plugin")
    assert [one.reason for one in run.fallbacks] == ["simulation.limit"]
    assert run.verdict == "ok"
