"""Ops that did not run on the requested device, and strategies on devices that do not exist."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpuwatch.core.formatting.sentences import and_more, first_and_more
from gpuwatch.core.group_by import group_by
from gpuwatch.core.model.findings import Finding, Severity
from gpuwatch.core.model.run import Fallback, Run
from gpuwatch.core.safe_text import printable
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.rule_registry import finding, info_finding, rule
from gpuwatch.explain.diagnosis.rules.error_evidence import error_lines, stated_error
from gpuwatch.explain.diagnosis.rules.simulation_limits import SIMULATION_LIMIT
from gpuwatch.explain.logs.device_names import NOT_SIMULATED, device_name
from gpuwatch.explain.logs.log_facts import ColocatedOp, ColocationReport
from gpuwatch.explain.logs.log_parser import parse
from gpuwatch.explain.logs.message_topics import topics_of
from gpuwatch.explain.logs.op_placement_lines import RESOURCE_OPS

REFUSED = "refused"
"""Why an op did not run: the watcher's word (_gpuwatch_placement.py)."""
CREATED_THERE_DETAIL = "TensorFlow creates it there, regardless of the request"
_DEVICE_MISSING = "missing"
"""Why it is not known where an op ran that requested a GPU which does not exist: the watcher's word."""
_NOT_RUN = "absent"
"""The same without soft placement: it did not run."""
_CPU_HOPS = "cpu_hops"
"""Name of the watcher's result with ops that each call of a function leaves the GPU for (_gpuwatch_cpu_only_ops.py)."""
_MIN_HOP_CALLS = 5
"""Calls of a function below which an op in it may be part of a preparation."""
_DEVICE_ACTION = "Request a device that exists (tf.config.list_logical_devices() lists them), or do not request one."
OTHER_PROCESS_DETAIL = "the process that ran it has"
_PROCESS_ACTION = "Let that process see the GPU (CUDA_VISIBLE_DEVICES), or remove tf.device from what it runs."
_LIMIT_ACTION = (
    "Nothing to change for a real GPU: simulated GPUs that compute lack some kernels. To check the devices of ops,"
    " use GPUs simulated below CUDA (sim --tier driver), which place every op as real ones do."
)
_KERNEL_ACTION = "Leave it on the CPU, or use a type that has a GPU kernel, if the values allow that."
_LACKING_ACTION = (
    "{} has no GPU kernel, so what it works on is on the CPU too: use another op (for an update, another optimizer "
    "or a dense gradient), or leave both on the CPU."
)
_OUTPUT_ACTION = (
    "Harmless: ops that print or write belong on the CPU. To avoid the copy to the CPU in each step, print less often."
)
_RESOURCE_ACTION = "Create and use it outside tf.device: no GPU can hold it."
_TABLE_ACTION = (
    f"{_RESOURCE_ACTION} If a step looks up values in a table that does not change, do that earlier, in the dataset's"
    " map."
)
_NO_TYPE_ACTION = (
    "Leave it on the CPU: no other type helps. If it works on a step's input, do it earlier, in the dataset's map."
)
_REFUSED_ACTION = (
    "Leave these ops on the CPU (tf.device('/CPU:0')), or allow that: tf.config.set_soft_device_placement(True), or "
    "for a session allow_soft_placement=True in its ConfigProto."
)
_OTHER_TYPE = " A type that has a GPU kernel helps too, if the values allow another."
_IN_DATASET_ACTION = (
    "Do it in the dataset (dataset.map(layer), for a layer such as TextVectorization), which works ahead of the steps."
)
_CPU_OP_ACTION = (
    "It runs on the CPU, regardless of its type: keep it out of the step, or accept the copies back and forth."
)
_DATA_OP = re.compile(r"String|Regex|Unicode|Decode|Encode|Parse|Lookup|HashTable|Hash|Bucketize|ReadFile|Json|Csv")
"""Ops whose input is data: text, files, tables, encoded examples; they can be done in the dataset."""
_OUTPUT_OP = re.compile(r"^Print|^StringFormat$|^Assert$|Summar|WriteFile$")
_RESOURCE_OP = re.compile(r"Dataset|Lookup|HashTable|Queue|Barrier|^Stack|Staging|Variable|VarHandle|^Resource")
"""Ops that make or use a dataset, variable, table or queue."""
_TOGETHER_ACTION = "TensorFlow runs it where its variable or table is: to move it, change the line that creates that{}."

_UNKNOWN_ACTION = (
    "Run it once with tf.config.set_soft_device_placement(False): TensorFlow then raises an error that says why the op"
    " cannot run on the requested device."
)
_NO_GPU_ACTION = "Run gpuwatch doctor: it says whether TensorFlow gets a GPU on this machine, and if not, why."
_MADE_THERE_ACTION = "Move it out of the tf.device scope: TensorFlow creates such an object on its own device."
REPLICAS = "replicas"
"""Name of the watcher's result with the devices of a MirroredStrategy."""
_KERNEL = re.compile(r"device='([^']*)'(?:; (\w+) in \[([^\]]*)\])?")
_ATTRIBUTES = re.compile(r"^Op: (\w+)\s*\nNode attrs: ([^\n]*)", re.MULTILINE)
_ATTRIBUTE = re.compile(r"(\w+)=(DT_\w+)")
_UNREGISTERED = re.compile(r"No registered '(\w+)' OpKernel for '?GPU'? devices")
"""At the start of a session or function: the message lists the kernels, not the types of this node."""
_NO_DEVICE = re.compile(
    r"Could not satisfy device specification '([^']{1,200})'(?:.*All available devices \[([^\]]*)\])?", re.DOTALL
)
_EAGER_OP = re.compile(r"\[Op:(\w+)\]")
_GPU_TYPES = re.compile(r"Supported device types \[([^\]]*)\]")
_FEWER_PROCESSES_ACTION = (
    "Start no more processes than there are GPUs (torchrun --nproc-per-node, the tensor-parallel size; a strategy: only"
    " devices of tf.config.list_logical_devices('GPU')), or request more from the scheduler (Slurm: --gres=gpu:N)."
)
_NO_GPU_SEEN_ACTION = (
    "Request a GPU (Slurm: --gres=gpu:1; docker run --gpus all), or run gpuwatch doctor there to see why none is "
    "visible; to run on the CPU: Trainer(accelerator='cpu')."
)


@rule("placement.device-missing")
def device_missing(evidence: Evidence) -> Iterator[Finding]:
    """A device was requested by name that the framework does not have."""
    cause = "placement.device-missing"
    yield from stated_error(evidence, cause, _DEVICE_ACTION, _refused_device(evidence))
    fallbacks = _fallbacks_of(evidence, cause)
    for of_process, entries in group_by(fallbacks, lambda entry: entry.detail.startswith(OTHER_PROCESS_DETAIL)).items():
        action = _PROCESS_ACTION if of_process else _DEVICE_ACTION
        yield from _fallback_findings(evidence, cause, action, entries)
    run = evidence.run
    reasons = (_DEVICE_MISSING,) if error_lines(evidence, cause)[0] else (_DEVICE_MISSING, _NOT_RUN)
    placements = [placement for placement in run.placements if placement.why in reasons] if run is not None else []
    in_fallbacks = {(entry.op, entry.requested, entry.scope) for entry in fallbacks}  # in a later run's graph
    missing = [(entry, device_name(entry.requested or "")) for entry in placements]
    missing = [(entry, device) for entry, device in missing if (entry.op, device, entry.scope) not in in_fallbacks]
    if missing:
        requested = ", ".join(dict.fromkeys(device for _, device in missing))
        none_ran = all(entry.why == _NOT_RUN for entry, _ in missing)
        continued = run is not None and run.verdict != "error" and none_ran
        yield finding(
            cause,
            "info" if continued else "warning",
            title=printable(f"{requested} was requested and does not exist"),
            evidence=[
                printable(f"{entry.scope}: {entry.op} requested {device}; ")
                + ("where it ran is not known" if entry.why == _DEVICE_MISSING else "it did not run")
                for entry, device in missing
            ],
            action=_DEVICE_ACTION,
        )


def _refused_device(evidence: Evidence) -> str:
    """``GPU:5 was requested and does not exist: TensorFlow has GPU:0, CPU:0``; empty if an error does not say that."""
    run = evidence.run
    for error in run.errors if run is not None else ():
        if match := _NO_DEVICE.search(error.message):
            existing = ", ".join(dict.fromkeys(map(device_name, match[2].split(",")))) if match[2] else ""
            devices_text = f": TensorFlow has {existing}" if existing else ""
            return printable(f"{device_name(match[1])} was requested and does not exist{devices_text}")
    return ""


@rule("placement.no-kernel")
def no_kernel(evidence: Evidence) -> Iterator[Finding]:
    """An op has no kernel for the requested device or type."""
    cause = "placement.no-kernel"
    lines, expected = error_lines(evidence, cause)
    reports = evidence.log.colocations
    moved = bool(reports) and not any(report.failed for report in reports)
    for report in reports:
        if report.requested and report.supported:
            blamed = [member for member in report.members if member.op in report.lacking] or report.members
            names = ", ".join(f"{member.op} {member.node}" for member in blamed[:4])
            others = len(report.members) - len(blamed)
            lines.append(
                f"requested {report.requested}, kernels for {', '.join(report.supported)}: {names or 'the group'}"
                + (f" (with it, colocated: {others} more)" if others else "")
            )
    asks_gpu_without_any = not evidence.gpu_usable and moved
    if lines and _simulated_only(evidence, moved=moved) is not None:
        return
    fallbacks = _fallbacks_of(evidence, cause)
    if lines and not asks_gpu_without_any:
        by_design = evidence.run is not None and moved
        lines += _by_scope(fallbacks) if by_design else ()
        severity: Severity = "info" if expected or by_design else "error" if not moved else "warning"
        title = _refused_op(evidence, cause) or _fallbacks_text(fallbacks)
        action = next(iter(_by_advice(fallbacks)), _KERNEL_ACTION)
        if not moved and evidence.run is not None:
            action = _REFUSED_ACTION + (_OTHER_TYPE if _other_type_helps(evidence.run, cause) else "")
        yield finding(cause, severity, title=title, evidence=lines, action=action)
    else:
        for action, alike in _by_advice(fallbacks).items():
            yield from _fallback_findings(evidence, cause, action, alike)


def _by_advice(entries: list[Fallback]) -> dict[str, list[Fallback]]:
    """The fallbacks by what helps with them, most of them first."""
    by_op = {entry.op: entry for entry in entries if not entry.colocated}
    colocating_ops = {entry.colocated for entry in entries}

    def advice_for(entry: Fallback) -> str:
        blamed = by_op.get(entry.colocated or "", entry)
        together = blamed.op in colocating_ops and blamed.some_type is False
        return _LACKING_ACTION.format(blamed.op) if together else _kernel_advice(blamed)

    return dict(sorted(group_by(entries, advice_for).items(), key=lambda kind: -len(kind[1])))


def _other_type_helps(run: Run, cause: str) -> bool:
    """Whether a GPU has a kernel of the refused op for some type, by the error's list; True without one."""
    message = next((error.message for error in run.errors if cause in topics_of(error.message)), "")
    devices = {device for device, _, _ in _KERNEL.findall(message)}
    return not devices or not devices.isdisjoint(("GPU", "DEFAULT", NOT_SIMULATED))


def _kernel_advice(fallback: Fallback) -> str:
    """What helps with an op that has no kernel for a GPU, by what it works on."""
    if fallback.colocated:
        return _LACKING_ACTION.format(fallback.colocated)
    if fallback.in_data:
        return "Remove tf.device from the dataset's functions: tf.data runs them on the CPU, ahead of the steps."
    if fallback.dtype != "string" and fallback.some_type is not False:
        return _KERNEL_ACTION
    if _OUTPUT_OP.search(fallback.op):
        return _OUTPUT_ACTION
    if _RESOURCE_OP.search(fallback.op):
        return _TABLE_ACTION if "Table" in fallback.op else _RESOURCE_ACTION
    return _NO_TYPE_ACTION if fallback.dtype == "string" or _DATA_OP.search(fallback.op) else _CPU_OP_ACTION


@rule("placement.no-kernel")
def hops_to_the_cpu(evidence: Evidence) -> Iterator[Finding]:
    """Functions whose every call leaves the GPU for ops that no GPU can compute, and goes back with their results."""
    for function, calls, ops in evidence.result(_CPU_HOPS, list) if evidence.gpu_usable else ():
        if calls < _MIN_HOP_CALLS:
            continue
        first, more = next(iter(ops)), f" and {len(ops) - 1} more, which have" if len(ops) > 1 else ", which has"
        lines: dict[str, list[str]] = {}
        for op, (_, line) in ops.items():
            lines.setdefault(line, []).append(op)
        op_lines = (f"{f'{line}: ' if line else ''}{', '.join(names)}" for line, names in lines.items())
        yield info_finding(
            "placement.no-kernel",
            title=printable(f"Each of the {calls} calls of {function} goes to the CPU for {first}{more} no GPU kernel"),
            evidence=[
                *map(printable, op_lines),
                "results of this are copied to the GPU, by the function's placed graph",
            ],
            action=_IN_DATASET_ACTION if _DATA_OP.search(first) else _CPU_OP_ACTION,
        )


@rule("placement.no-kernel", needs="run")
def refused_and_caught(evidence: Evidence, run: Run) -> Iterator[Finding]:
    """Without soft placement, ops that a GPU has no kernel for, in a program that caught the errors."""
    error_text = " ".join(error_lines(evidence, "placement.no-kernel")[0])
    # A GPU that is simulated as a plug-in lacks kernels that real ones have.
    refused = [placement for placement in run.placements if placement.why == REFUSED and placement.op not in error_text]
    refused = [placement for placement in refused if run.simulation != "plugin" or placement.some_type is False]
    if refused:
        more = and_more(len(refused) - 1)
        yield finding(
            "placement.no-kernel",
            "warning" if run.verdict == "error" else "info",
            title=f"{refused[0].op}{more} requested {refused[0].requested} and did not run: no GPU kernel, and soft"
            " placement is off",
            evidence=[
                printable(
                    f"{placement.line or placement.scope}: {placement.op} requested {placement.requested},"
                    f" refused ×{placement.count}"
                )
                for placement in refused
            ],
            action=_REFUSED_ACTION,
        )


@rule("placement.together")
def moved_with_its_resource(evidence: Evidence) -> Iterator[Finding]:
    """An op ran where its variable or table is, although the program requested another device."""
    fallbacks = evidence.run.fallbacks if evidence.run is not None else ()
    created_there = any(entry.detail == CREATED_THERE_DETAIL for entry in fallbacks)
    action = _MADE_THERE_ACTION if created_there else _TOGETHER_ACTION.format(_resource_makers_text(evidence))
    moved = _fallbacks_of(evidence, "placement.together")
    yield from _fallback_findings(evidence, "placement.together", action, moved)


def _resource_makers_text(evidence: Evidence) -> str:
    """What the program requested for the variables and tables of the types and devices of such ops."""
    resources = {(entry.dtype, entry.actual) for entry in _fallbacks_of(evidence, "placement.together")}
    placements = evidence.run.placements if evidence.run is not None else ()
    makers = [placement for placement in placements if RESOURCE_OPS.search(placement.op)]
    matching = [placement for placement in makers if (placement.dtype, device_name(placement.actual)) in resources]
    requested = (entry for entry in matching if entry.scope and entry.requested)
    requests = dict.fromkeys(f"{entry.scope} requests {entry.requested}" for entry in requested)
    as_requested = all(entry.requested == entry.actual for entry in matching)
    intended = ": nothing to do if that is intended" if as_requested else ""
    return f" ({', '.join(list(requests)[:3])}{intended})" if requests else ""


@rule("unknown")
def moved_for_an_unknown_reason(evidence: Evidence) -> Iterator[Finding]:
    """An op ran on another device than the requested one, and nothing says why."""
    action = _UNKNOWN_ACTION if evidence.gpu_usable else _NO_GPU_ACTION
    yield from _fallback_findings(evidence, "unknown", action, _fallbacks_of(evidence, "unknown"))


@rule("simulation.limit", needs="run")
def simulated_limit(evidence: Evidence, run: Run) -> Iterator[Finding]:
    """Ops without a kernel on GPUs simulated as a plugin, which says nothing about real GPUs."""
    if limits := _fallbacks_of(evidence, SIMULATION_LIMIT):
        kind = limits[0].kind + and_more(len(limits) - 1)
        yield info_finding(
            SIMULATION_LIMIT,
            title=printable(f"Only on this simulated GPU: it has no kernel for {kind}, so the CPU computed them"),
            evidence=[
                f"{entry.op} {entry.dtype or ''} ran on {entry.actual}: {entry.detail}".replace("  ", " ")
                for entry in limits
            ],
            action=_LIMIT_ACTION,
        )
    lines, _ = error_lines(evidence, "placement.no-kernel")
    if lines and (detail := _simulated_only(evidence, moved=False)):
        yield finding(
            SIMULATION_LIMIT,
            "error",
            "fact" if detail.startswith("TensorFlow has") else "likely",
            title=printable(f"Only on this simulated GPU: {detail}"),
            evidence=lines,
            action=_LIMIT_ACTION,
        )


def _simulated_only(evidence: Evidence, *, moved: bool) -> str | None:
    """What the simulated GPU lacks, as text; None if real GPUs have no kernel either, or nothing failed."""
    run = evidence.program
    if run is None or run.simulation != "plugin":
        return None
    if moved:
        return None if _fallbacks_of(evidence, "placement.no-kernel") else ""
    message = next((error.message for error in run.errors if "placement.no-kernel" in topics_of(error.message)), None)
    if message is None:
        return None
    kernels = [found for found in _KERNEL.findall(message) if found[0] in (NOT_SIMULATED, "DEFAULT")]
    # Without the build's answer, or the list of the op's types with a CUDA kernel, nobody knows.
    known, types = run.framework is not None and bool(run.framework.gpu_build), list[str]()
    if (head := _ATTRIBUTES.search(message)) is not None:
        op, types_of_node = head[1], dict(_ATTRIBUTE.findall(head[2]))
        if known and any(not name or types_of_node.get(name) in allowed.split(", ") for _, name, allowed in kernels):
            return f"TensorFlow has a CUDA kernel for {' '.join([op, *types_of_node.values()][:2]).replace('DT_', '')}"
    elif (unregistered := _UNREGISTERED.search(message)) is not None:
        op = unregistered[1]
        listed = (kind.strip().replace("DT_", "").lower() for _, _, kinds in kernels for kind in kinds.split(","))
        types = list(dict.fromkeys(filter(None, listed)))
    else:
        result, eager = evidence.result("kernels", dict), _EAGER_OP.search(message)
        op = eager[1] if eager is not None else "the op"
        known = eager is not None and result.get("op") == op and result.get("cuda") is not None
        types = list(map(str, result["cuda"])) if known else []
    if types:
        return f"it has no kernel for {op}; TensorFlow has CUDA kernels for it in {', '.join(types)}"
    return None if known else f"it has no kernel for {op}; whether TensorFlow has one for CUDA is not known"


def _refused_op(evidence: Evidence, cause: str) -> str:
    """``MatMul requested /GPU:0, its type int32 has only a CPU kernel``; empty if not known."""
    run = evidence.run
    message = next((error.message for error in run.errors if cause in topics_of(error.message)), "") if run else ""
    reports = [*(parse(message).colocations if "Colocation" in message else ()), *evidence.log.colocations]
    report = next((entry for entry in reports if entry.failed and entry.members), None)
    results = run.results if run is not None and message else {}
    op, dtype, requested = (str(results.get(name) or "") for name in ("op", "dtype", "requested"))
    supported: tuple[str, ...] = ()
    colocated_text = ""
    if report is not None:
        first = _member_without_kernel(report, op)
        supported = report.supported
        requested = requested or report.requested or first.requested
        op = f"{first.op} `{first.node}`"
        others = [f"{member.op} `{member.node}`" for member in report.members if member is not first]
        colocated_text = f", and it is colocated with {first_and_more(others, 3)}" if others else ""
    elif match := _GPU_TYPES.search(message):
        supported = tuple(part.strip() for part in match[1].split(",") if part.strip())
    if not op or not requested:
        return ""
    kind = f"its type {dtype}" if dtype else "it"
    lacking_text = f"has only a {' and '.join(supported)} kernel" if supported else "has no kernel for it"
    if supported and not dtype and report is None:
        lacking_text += " for the types of its inputs"
    return printable(f"{op} requested /{device_name(requested).upper()}, {kind} {lacking_text}{colocated_text}")


def _member_without_kernel(report: ColocationReport, op_name: str) -> ColocatedOp:
    """The member of the group that has no kernel; what makes a variable or table before what uses it."""
    lacking = [member for member in report.members if member.op in report.lacking] or list(report.members)
    makers = [member for member in lacking if RESOURCE_OPS.search(member.op)]
    return next((member for member in lacking if member.op == op_name), (makers or lacking)[0])


def _fallbacks_of(evidence: Evidence, cause: str) -> list[Fallback]:
    return [entry for entry in evidence.run.fallbacks if entry.reason == cause] if evidence.run is not None else []


def _fallbacks_text(entries: list[Fallback]) -> str:
    """``Eig float32 and 2 more requested GPU:0, ran on CPU:0: …``; empty without any."""
    if not entries:
        return ""
    first = entries[0]
    alike = [entry for entry in entries if (entry.requested, entry.actual) == (first.requested, first.actual)]
    kind_count = len({fallback.kind for fallback in alike})
    other_count = len({entry.kind for entry in entries if entry not in alike})
    requested = f" requested {first.requested}," if first.requested != "auto" else ""
    ran = f"ran on {first.actual}: {first.detail}" + (
        f" ({other_count} more with other devices)" if other_count else ""
    )
    return printable(f"{first.kind}{and_more(kind_count - 1)}{requested} {ran}")


def _fallback_findings(evidence: Evidence, cause: str, action: str, entries: list[Fallback]) -> Iterator[Finding]:
    """Fallbacks of a cause. What a probe requests by name is its subject, so the finding is no alarm."""
    if evidence.run is None or not entries:
        return
    requested_by_name = all(entry.requested != "auto" for entry in entries)
    title = _fallbacks_text(entries) if evidence.run.is_program else ""
    if cause == "placement.device-missing" and title:
        requested = ", ".join(dict.fromkeys(entry.requested for entry in entries))
        title = printable(f"{requested} was requested and does not exist: {entries[0].detail}")
    severity: Severity = "info" if requested_by_name and cause != "unknown" else "warning"
    yield finding(cause, severity, title=title, evidence=_by_scope(entries), action=action)


def _by_scope(entries: list[Fallback]) -> Iterator[str]:
    """One line for each line of the program and device: a scope around a whole model has many ops."""

    def line_and_device(entry: Fallback) -> tuple[str | None, str, str, str | None]:
        return entry.scope, entry.requested, entry.actual, None if entry.scope else f"{entry.op} {entry.dtype}"

    groups = group_by(entries, line_and_device)
    for (scope, requested, actual, _), group in groups.items():
        ops = list(dict.fromkeys(_op_text(fallback) for fallback in group))
        names = first_and_more(ops, 6)
        details = list(dict.fromkeys(entry.detail for entry in group if entry.detail))
        why = f": {details[0]}" + (f" (and {len(details) - 1} more)" if len(details) > 1 else "") if details else ""
        yield printable(f"{f'{scope}: ' if scope else ''}{names} requested {requested}, ran on {actual}{why}")


def _op_text(fallback: Fallback) -> str:
    return f"{fallback.kind} ({fallback.line})" if fallback.line and fallback.line != fallback.scope else fallback.kind


@rule("distribution.devices-missing")
def strategy_devices_missing(evidence: Evidence) -> Iterator[Finding]:
    """MirroredStrategy on devices that do not exist: it creates replicas anyway, since 2.15 without a message."""
    run, result = evidence.run, evidence.result(REPLICAS, dict)
    if run is None or not (missing := result.get("missing")):
        none = any("machine only has: []" in line for line in evidence.log.lines_of("gpu.none"))
        title = "The program requests GPUs, but the process sees none" if none else ""
        action = _NO_GPU_SEEN_ACTION if none else _FEWER_PROCESSES_ACTION
        yield from stated_error(evidence, "distribution.devices-missing", action, title)
        return
    listed = ", ".join(printable(str(name)).removeprefix("/device:") for name in missing)
    yield finding(
        "distribution.devices-missing",
        "error" if evidence.gpu_usable else "warning",  # without any GPU, why there is none comes first
        title=f"The strategy has replicas on {listed}, which do not exist: they run on other devices",
        evidence=(
            f"the strategy's devices: {', '.join(map(str, result.get('devices', ())))}",
            f"logical devices: {', '.join(run.devices.logical)}",
        ),
        action="Pass the strategy only devices of tf.config.list_logical_devices('GPU').",
    )
