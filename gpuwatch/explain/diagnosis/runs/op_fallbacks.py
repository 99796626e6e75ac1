"""Ops that did not run on the requested device, and why."""

from __future__ import annotations

import re
from collections import Counter

import msgspec

from gpuwatch.core.model.causes import NO_GPU
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.run import Fallback, Placement, Run
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.rules.missing_gpus import hidden_on_purpose
from gpuwatch.explain.diagnosis.rules.op_placement import CREATED_THERE_DETAIL, OTHER_PROCESS_DETAIL
from gpuwatch.explain.diagnosis.rules.simulation_limits import SIMULATION_LIMIT
from gpuwatch.explain.logs.device_names import device_name, is_gpu
from gpuwatch.explain.logs.log_facts import LogFacts
from gpuwatch.explain.logs.op_placement_lines import RESOURCE_OPS

_NO_REQUEST = "auto"
"""In place of the requested device, where TensorFlow chose one."""
PLACED_TOGETHER = "placement.together"
"""Reason of an op that runs where its variable is, where TensorFlow made it, or where XLA compiles its function."""
_FUNCTION_CALLS = frozenset(
    {"PartitionedCall", "StatefulPartitionedCall", "While", "StatelessWhile", "If", "StatelessIf"}
    | {"Case", "StatelessCase"}
)
"""Ops that call functions, whose contents are placed separately."""
_FOLLOWS_TEXTS = {
    "resource": "TensorFlow runs it where its variable, table or queue is",
    "framework": CREATED_THERE_DETAIL,
    "compiled": "XLA compiles its function (jit_compile=True) for one device: tf.device inside has no effect",
}
_DEVICE_TYPE = re.compile(r"(?:^|device:)([A-Z_]+)(?=:)")
_TENSORFLOW_DEVICE_TYPES = ("CPU", "GPU", "TPU", "XLA_", "COMPOSITE")
"""Device types of TensorFlow; a plugin's own is among the logical devices."""
_READ_VARIABLE = "ReadVariableOp"
_NO_KERNEL_OF_VARIABLE = "TensorFlow has no GPU kernel for its {}"
_CUDA_KERNEL_UNKNOWN = "whether TensorFlow has a CUDA kernel for it is unknown here"
_COLOCATED_PREFIX = "colocated:"
"""Why an op is where it is, with the op that has no kernel: the watcher's word (_gpuwatch_colocation.py)."""
_LIMITED_GROUP = f"an op of its colocation group has no kernel for this simulated GPU; {_CUDA_KERNEL_UNKNOWN}"
_FLOAT_TYPE = re.compile(r"float|half|double|bfloat|complex", re.IGNORECASE)
# Ops that nobody wants on the CPU of a machine with a GPU.
_HEAVY_OP = re.compile(r"MatMul|Conv\dD|FusedBatchNorm|CudnnRNN|Einsum|^(?:train|multi|one)_step", re.IGNORECASE)


def _no_gpu_cause(findings: tuple[Finding, ...]) -> tuple[str, str]:
    """Why no GPU was usable: cause id and title; ``unknown`` if nothing says why."""
    for severity in ("error", "warning", "info"):
        for found in findings:
            if found.severity == severity and found.id in NO_GPU:
                return found.id, found.title
    return "unknown", "no GPU was usable, and nothing says why"


def find_fallbacks(run: Run, evidence: Evidence, findings: tuple[Finding, ...]) -> tuple[Fallback, ...]:
    """The fallbacks among the placements; empty if the run hid the GPUs on purpose."""
    # A probe's events name the ops of its work; its log, without types and requested devices, also shows preparation.
    probe = not run.is_program and (run.framework is not None or run.outcome.ended or bool(run.settings))
    placements = [
        placement
        for placement in run.placements
        if not probe or placement.dtype is not None or placement.requested is not None
    ]
    merged: dict[tuple[object, ...], Fallback] = {}
    for entry in filter(None, (_fallback_of(placement, run, evidence, findings) for placement in placements)):
        key = (entry.op, entry.dtype, entry.requested, entry.actual, entry.reason, entry.scope, entry.in_data)
        same = merged.get(key)
        merged[key] = entry if same is None else msgspec.structs.replace(same, count=same.count + entry.count)

    def order(entry: Fallback) -> tuple[bool, bool, bool]:
        """What has no kernel itself before what is with it, and what makes a variable or table before what uses it."""
        return entry.reason == SIMULATION_LIMIT, entry.colocated is not None, RESOURCE_OPS.search(entry.op) is None

    return tuple(sorted(_with_causes_of_resources(list(merged.values())), key=order))


def _with_causes_of_resources(entries: list[Fallback]) -> list[Fallback]:
    """What uses a variable or table has the cause of that, if the same scope asked for both.

    Other reads of variables are left out: they only copy the value of a variable on another device to where it is used.
    """
    resource_fallbacks = [
        entry for entry in entries if entry.scope and entry.reason != PLACED_TOGETHER and RESOURCE_OPS.search(entry.op)
    ]
    explained = []
    for entry in entries:
        place = (entry.scope, entry.requested, entry.actual)
        alike = [
            resource
            for resource in resource_fallbacks
            if (resource.scope, resource.requested, resource.actual) == place
        ]
        alike = [resource for resource in alike if resource.dtype in (None, entry.dtype)]
        if entry.reason == PLACED_TOGETHER and alike:
            first, ops = alike[0], " or ".join(resource.op for resource in alike)
            detail = first.detail if len(alike) == 1 else _NO_KERNEL_OF_VARIABLE.format(ops)
            entry = msgspec.structs.replace(entry, reason=first.reason, detail=detail, some_type=first.some_type)
        if entry.op != _READ_VARIABLE or entry.reason != PLACED_TOGETHER:
            explained.append(entry)
    return explained


def fallbacks_in_log(facts: LogFacts, evidence: Evidence, findings: tuple[Finding, ...]) -> tuple[Fallback, ...]:
    """Members of colocation groups that the placer moved: the only requests that a log shows."""
    ran_on = {placement.op: placement.actual for placement in facts.placements}
    counts = Counter(
        (member.op, member.requested, actual)
        for report in facts.colocations
        for member in report.members
        if not report.failed and member.requested.startswith("GPU")
        if (actual := ran_on.get(member.op, "CPU:0" if report.supported == ("CPU",) else "")).startswith("CPU")
    )
    if evidence.gpu_usable and evidence.simulation == "plugin":
        reason, detail = SIMULATION_LIMIT, _LIMITED_GROUP
    elif evidence.gpu_usable:
        reason, detail = "placement.no-kernel", "an op of its colocation group has no GPU kernel"
    else:
        reason, detail = _no_gpu_cause(findings)
    return tuple(
        Fallback(op=op, requested=requested, actual=actual, reason=reason, detail=detail, count=count)
        for (op, requested, actual), count in counts.items()
    )


def _fallback_of(placement: Placement, run: Run, evidence: Evidence, findings: tuple[Finding, ...]) -> Fallback | None:
    if not placement.actual:
        return None
    actual = device_name(placement.actual)
    requested = device_name(placement.requested) if placement.requested else None
    usable = evidence.gpu_usable
    if requested is not None:
        device_type = _DEVICE_TYPE.search(requested)
        type_exists = (
            device_type is None
            or device_type[1].startswith(_TENSORFLOW_DEVICE_TYPES)
            or any(device_type[0] in name for name in run.devices.logical)
        )
        if device_type is not None and not type_exists:
            detail = f"TensorFlow has no device type {device_type[1]} (a GPU is /device:GPU:0)"
            return _new_fallback(
                placement, requested.removeprefix("/device:"), actual, "placement.device-missing", detail
            )
        if (
            actual == requested
            or not requested.startswith("GPU")
            or placement.op in _FUNCTION_CALLS
            or _any_device_fits(requested, actual)
        ):
            return None
        if placement.process_has:
            detail = f"{OTHER_PROCESS_DETAIL} {placement.process_has}"
            return _new_fallback(placement, requested, actual, "placement.device-missing", detail)
        reason, detail = (
            _reason(requested, usable, run, findings) if placement.process_has is None else ("placement.no-kernel", "")
        )
        # A variable for a device that does not exist is on another one, and so are the ops that use it.
        if placement.why in _FOLLOWS_TEXTS and usable and reason != "placement.device-missing":
            is_read = placement.op == _READ_VARIABLE
            if placement.why == "resource" and placement.cuda_kernel is False and run.is_program and not is_read:
                fallback = _without_kernel(placement, requested, actual, run, evidence)
                uses_variable = "Variable" in placement.op or placement.op.startswith("Resource")
                of_variable = uses_variable and placement.dtype is not None and placement.some_type is not False
                detail = (
                    _NO_KERNEL_OF_VARIABLE.format(f"VarHandleOp {placement.dtype}") if of_variable else fallback.detail
                )
                return msgspec.structs.replace(fallback, detail=detail)
            return _new_fallback(placement, requested, actual, PLACED_TOGETHER, _FOLLOWS_TEXTS[placement.why])
        if reason != "placement.no-kernel" or not run.is_program:
            return _new_fallback(placement, requested, actual, reason, detail)
        return _without_kernel(placement, requested, actual, run, evidence)
    is_heavy = _HEAVY_OP.search(placement.op) is not None
    is_float = is_heavy if placement.dtype is None else _FLOAT_TYPE.search(placement.dtype) is not None
    if not actual.startswith("CPU") or not is_float:
        return None
    if not usable:
        if hidden_on_purpose(evidence, findings):
            return None
        return _new_fallback(placement, _NO_REQUEST, actual, *_no_gpu_cause(findings))
    if not is_heavy:
        return None
    if run.is_program:
        # A function without a requested device can be on the CPU as a whole, as in tf.data.
        lacks_kernel = placement.gpu_kernel is False
        return _without_kernel(placement, _NO_REQUEST, actual, run, evidence) if lacks_kernel else None
    return _new_fallback(
        placement, _NO_REQUEST, actual, "placement.no-kernel", "TensorFlow chose the CPU although a GPU is mapped"
    )


def _any_device_fits(requested: str, actual: str) -> bool:
    """``GPU:*``, as of ``tf.device("/GPU")``, is any GPU."""
    return requested.endswith(":*") and requested.partition(":")[0] == actual.partition(":")[0]


def _reason(requested: str, usable: bool, run: Run, findings: tuple[Finding, ...]) -> tuple[str, str]:
    logical = [device_name(name) for name in run.devices.logical if is_gpu(name)]
    logical = logical or [device_name(mapping.framework_device) for mapping in run.device_map]
    if usable and (requested in logical or any(_any_device_fits(requested, name) for name in logical)):
        return "placement.no-kernel", f"{requested} exists, but the op has no kernel for it"
    if usable:
        return "placement.device-missing", f"the framework has {', '.join(dict.fromkeys(logical))} only"
    cause, detail = _no_gpu_cause(findings)
    if requested != "GPU:0":
        return "placement.device-missing", f"the framework has no GPU at all: {detail}"
    return cause, detail


def _without_kernel(placement: Placement, requested: str, actual: str, run: Run, evidence: Evidence) -> Fallback:
    """The fallback of an op despite a GPU, explained by this process's kernel registry."""
    op_and_type = f"{placement.op} {placement.dtype}" if placement.dtype else placement.op
    reason = "placement.no-kernel"
    if placement.cuda_kernel is False and placement.some_type is False:
        placement = msgspec.structs.replace(placement, dtype=None)
        detail = f"TensorFlow has no GPU kernel for {placement.op}, of any type"
    elif placement.cuda_kernel is False:
        detail = f"TensorFlow has no GPU kernel for {op_and_type}"
    elif placement.why.startswith(_COLOCATED_PREFIX):
        op = placement.why.removeprefix(_COLOCATED_PREFIX)
        reason = reason if op else SIMULATION_LIMIT
        detail = f"colocated with {op}, which has no GPU kernel" if op else _LIMITED_GROUP
    elif placement.gpu_kernel and any(
        member.op == placement.op
        for report in evidence.log.colocations
        if not report.failed
        for member in report.members
    ):
        detail = "an op of its colocation group has no GPU kernel"
    elif placement.gpu_kernel:
        reason, detail = "unknown", f"TensorFlow has a GPU kernel for {op_and_type}: why it was moved is unknown"
    elif run.simulation != "plugin":
        reason, detail = "unknown", f"whether TensorFlow has a GPU kernel for {op_and_type} could not be read"
    elif placement.cuda_kernel:
        reason, detail = SIMULATION_LIMIT, f"only on this simulated GPU: TensorFlow has a CUDA kernel for {op_and_type}"
    else:
        reason, detail = SIMULATION_LIMIT, f"only on this simulated GPU; {_CUDA_KERNEL_UNKNOWN}"
    return _new_fallback(placement, requested, actual, reason, detail)


def _new_fallback(placement: Placement, requested: str, actual: str, reason: str, detail: str) -> Fallback:
    return Fallback(
        op=placement.op,
        dtype=placement.dtype,
        requested=requested,
        scope=placement.scope,
        actual=actual,
        reason=reason,
        detail=detail,
        some_type=placement.some_type if reason == "placement.no-kernel" else None,
        line=placement.line,
        in_data=placement.why == "data",
        colocated=placement.why.partition(_COLOCATED_PREFIX)[2] or None,
        count=placement.count,
    )
