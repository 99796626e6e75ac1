"""Of a colocation group, the op that has no kernel is named; of an op, the type that rules its kernels out."""

from __future__ import annotations

from types import SimpleNamespace

from gpuwatch.core.model.run import Fallback
from gpuwatch.explain.diagnosis.engine import diagnose
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.rules.placement import _to_blame
from gpuwatch.explain.diagnosis.runs.fallbacks import TOGETHER, _with_their_makers
from gpuwatch.explain.logs.log_parser import parse
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
    assert _to_blame(report, "Const").node == "counter"
    assert _to_blame(report, "AssignVariableOp").node == "assign"
    (found,) = [one for one in diagnose(Evidence(log=parse(_REPORT))) if one.id == "placement.no-kernel"]
    assert (
        "kernels for CPU: AssignVariableOp assign, VarHandleOp counter (with it, colocated: 1 more)"
        in found.evidence[-1]
    )


def test_what_uses_a_variable_has_its_cause_if_one_scope_asked_for_both() -> None:
    def entry(op: str, reason: str, scope: str) -> Fallback:
        return Fallback(op=op, requested="GPU:0", actual="CPU:0", reason=reason, detail=reason, scope=scope)

    found = _with_their_makers(
        [
            entry("VarHandleOp", "placement.no-kernel", "a.py:1"),
            entry("AssignVariableOp", TOGETHER, "a.py:1"),
            entry("AssignAddVariableOp", TOGETHER, "a.py:2"),
        ]
    )
    assert [one.reason for one in found] == ["placement.no-kernel", "placement.no-kernel", TOGETHER]


def _kernel(device: str, **allowed: list[int]) -> SimpleNamespace:
    constraints = [
        SimpleNamespace(name=name, allowed_values=SimpleNamespace(list=SimpleNamespace(type=types)))
        for name, types in allowed.items()
    ]
    return SimpleNamespace(device_type=device, constraint=constraints)


def test_a_kernel_fits_if_all_its_types_do() -> None:
    kernels = load("_gpuwatch_kernels")
    found = [_kernel("GPU", T=[1, 2], output_type=[9]), _kernel("CPU", T=[1, 2, 3], output_type=[9])]
    assert kernels._fit(found, {"T": 1, "output_type": 9}, ("GPU",))
    assert not kernels._fit(found, {"T": 3, "output_type": 9}, ("GPU",))
    assert kernels._fit(found, {"T": 3, "output_type": 9}, ("CPU",))
    # Both types rule it out: none alone is to blame.
    assert kernels._blamed(found, {"T": 3, "output_type": 3}, ("GPU",)) is None
    assert kernels._blamed(found, {"T": 1, "output_type": 9}, ("GPU",)) is None
