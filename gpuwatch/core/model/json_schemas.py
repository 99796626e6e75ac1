"""The JSON Schemas of the documents: what ``gpuwatch schema`` prints.

A field is described by the docstring below it in its class, else by its name in :data:`FIELDS`, which holds what a
reader of the code does not need to be told; ``Class.field`` goes before ``field``.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from typing import Any, get_args, get_type_hints

import msgspec

DIALECT = "https://json-schema.org/draft/2020-12/schema"

FIELDS: dict[str, str] = {
    "CauseName.id": "Id of the cause.",
    "CausePage.id": "Id of the cause.",
    "Check.state": "`pass`, `warn`, `fail` or `skip`.",
    "Connection.missing": "Why the connection is not known; null where it is.",
    "DeviceCopy.source": "Device on which the input was.",
    "Diagnostic.missing": "Parts that could not be gathered or were omitted.",
    "Excerpt.lines": "What it printed.",
    "Explanation.lines": "Number of lines read.",
    "Library.state": "`loaded`, `missing` or `broken`.",
    "Problem.source": "Who could not do it: `nvml`, `host`, `collector`.",
    "Run.devices": "What the framework listed.",
    "RunProcess.devices": "What the framework listed.",
    "Snapshot.devices": "The GPUs in the order of their indices.",
    "Snapshot.host": "The machine around the GPUs.",
    "actual": "Device on which it ran.",
    "allocator": "Name of the allocator that failed, as the framework prints it.",
    "allocator_bytes": "Bytes that the framework's allocator had handed out.",
    "allocator_limit_bytes": "Largest number of bytes that the framework's allocator may take.",
    "allocator_peak_bytes": "Largest number of bytes that the framework's allocator had handed out.",
    "answer": "What the experiment found.",
    "asked": "The requested value.",
    "bytes_per_second": "Bytes copied per second.",
    "causes": "The causes, each with its id and title.",
    "certainty": "`fact`: a driver or framework said so; `likely`: inferred.",
    "checks": "The checks in the order in which they are printed.",
    "columns": "Columns of the comparison table, by id.",
    "command": "Command line, with secrets masked.",
    "compile_seconds": "Seconds that compilation took, outside the measured steps.",
    "compute_capability": "CUDA compute capability, `9.0`.",
    "compute_instance": "Id of the compute instance.",
    "compute_slices": "Compute slices of the compute instance.",
    "computes": "Whether NVML saw kernels of the run on the device in this sample; null if it does not report that.",
    "config": "Name of the configuration; `run` for a watched program.",
    "connections": "How each pair of GPUs is connected.",
    "container": "Container in which the process runs; null outside a container.",
    "context_bytes": "Bytes of a CUDA context; known only for simulated devices.",
    "copies": "Inputs that TensorFlow copied between devices by itself.",
    "correct": "Whether the result was right.",
    "count": "Number of times.",
    "cpu_count": "Number of logical CPUs.",
    "cuda_ordinal": "CUDA's device number inside the process.",
    "cuda_visible_devices": "CUDA_VISIBLE_DEVICES of the process; null where it is not set or cannot be read.",
    "destination": "Device to which the input was copied.",
    "detail": "What was found, in words.",
    "device": "The device.",
    "device_index": "NVML's index of the GPU.",
    "device_init_seconds": "Seconds from the first use of a device until it was ready.",
    "device_map": "Which physical GPU each of the framework's devices is.",
    "device_total_bytes": "Memory of the device in bytes.",
    "device_used_bytes": "Bytes in use on the device, by all owners together.",
    "device_uuid": "UUID of the GPU.",
    "differences": "What differs between runs, explained.",
    "distributions": "Installed Python distributions related to GPUs.",
    "doctor": "What `gpuwatch doctor` found.",
    "driver": "Version of the driver; null without one.",
    "driver_reserved_bytes": "Bytes that the driver keeps for itself.",
    "driver_version": "Version of the NVIDIA driver.",
    "dtype": "Data type, `float32`.",
    "effect": "What the variable does: `effect`, `warning`, `misspelt`, `too-late` or `unknown`.",
    "effective": "The value that took effect; null where it is not known.",
    "effects": "What changed with it.",
    "error": "What failed; null if nothing did.",
    "errors": "Exceptions of the framework.",
    "examples_per_second": "Examples per second.",
    "exit_code": "Exit code; null where a signal ended the process.",
    "expected": "Whether the configuration is supposed to fail like this.",
    "fallbacks": "Ops that did not run on the requested device.",
    "findings": "Causes that were found, the most important first.",
    "first": "UUID of the GPU with the lower index.",
    "first_step_seconds": "Seconds that the first step took.",
    "flops_per_second": "Floating-point operations per second.",
    "framework": "The framework; null where none was loaded or recognized.",
    "framework_device": "The framework's name of the device, `/device:GPU:0`.",
    "frameworks": "Frameworks that wrote the log, with versions where it has them.",
    "fresh": "Whether it ran in an interpreter of its own instead of a fork.",
    "gpu_instance": "Id of the GPU instance.",
    "gpu_percent": "GPU utilization in percent.",
    "gpu_slices": "Compute slices of the GPU instance.",
    "gpuwatch_version": "Version of gpuwatch.",
    "granted_bytes": "Bytes that the framework's allocator was granted.",
    "group": "Group of the configuration.",
    "held_bytes": "Bytes that it holds.",
    "hint": "What helps; empty if nothing is known to help.",
    "host": "Name of the machine.",
    "hostname": "Name of the machine.",
    "import_seconds": "Seconds that importing the framework took.",
    "in_use_bytes": "Bytes that the allocator had handed out when it failed.",
    "index": "NVML's index of the GPU, in the order of PCI bus ids.",
    "interpreter": "Path of the Python interpreter.",
    "largest_free_bytes": "Largest free block in bytes.",
    "last_seconds": "Seconds after the start at which it was last seen.",
    "libraries": "The libraries.",
    "limit_bytes": "Largest number of bytes that the allocator may take.",
    "load": "Load averages of 1, 5 and 15 minutes.",
    "log_tail": "Last lines of the log, with those that decide.",
    "logical": "Logical devices.",
    "median_seconds": "The median in seconds.",
    "median_step_seconds": "Median time of a step in seconds.",
    "memory": "GPU memory of the run.",
    "memory_total_bytes": "The host's memory in bytes.",
    "memory_used_bytes": "The host's memory in use, in bytes.",
    "message": "The message.",
    "missing": "What could not be read, by id, with the reason.",
    "missing_libraries": "Libraries that could not be loaded.",
    "multiprocessors": "Streaming multiprocessors of the instance.",
    "name": "The name.",
    "node": "Name of the node, as the launcher calls it.",
    "note": "Further notes.",
    "nvml_before_bytes": "Bytes in use on the device before the start, according to NVML.",
    "nvml_bytes": "Bytes that NVML showed for the process.",
    "nvml_version": "Version of NVML.",
    "ooms": "Out-of-memory failures of GPU memory.",
    "op": "Name of the op.",
    "others": "Other processes that held memory of the device.",
    "others_before_bytes": "Bytes that other processes held before the start.",
    "outcome": "How the process ended.",
    "p10_step_seconds": "10th percentile of the time of a step, in seconds.",
    "p90_step_seconds": "90th percentile of the time of a step, in seconds.",
    "median_low_seconds": "Lower end of the 95 % interval of the median time of a step, in seconds.",
    "median_high_seconds": "Upper end of the 95 % interval of the median time of a step, in seconds.",
    "part": "Part of the report.",
    "path": "Path of the file.",
    "pci_bus_id": "PCI bus id.",
    "peak_bytes": "Largest number of bytes that was seen.",
    "phases": "Where the time went.",
    "physical": "Physical devices that the framework listed.",
    "physical_index": "NVML's index of the GPU.",
    "pid": "Process id.",
    "placements": "On which device each op ran.",
    "places": "Where each GPU sits in the machine.",
    "primary": "Id of the most important cause.",
    "probes": "The probes.",
    "problems": "What could not be observed, and why.",
    "process_bytes": "Bytes of GPU memory that the process held, according to NVML.",
    "processes": "Processes that use GPUs: one entry for each GPU that a process uses.",
    "python_version": "Version of Python.",
    "ran_on": "Device on which the result was computed.",
    "readings": "Values by id; what could not be read is in `missing`.",
    "redacted": "Whether users, hosts and paths were replaced.",
    "reason": "Why, as a word of a fixed list.",
    "requested": "Requested device; null if none was requested.",
    "requested_bytes": "Requested bytes.",
    "runs": "The runs.",
    "schema": "Kind and version of the document.",
    "settings": "Settings by name, as requested and as they took effect.",
    "sentence": "The answer in one sentence.",
    "severity": "`error`, `warning` or `info`.",
    "signal": "Number of the signal that ended the process; null where none did.",
    "simulated": "Whether the GPUs are simulated.",
    "snapshot": "The machine when the report was created.",
    "started_at": "When it was started.",
    "state_detail": "The state in words.",
    "steps": "Number of measured steps.",
    "steps_per_second": "Steps per second.",
    "swap_total_bytes": "Swap space in bytes.",
    "swap_used_bytes": "Swap space in use, in bytes.",
    "taken_at": "When it was taken.",
    "tests": "One op on each device.",
    "throughput": "Speed of the workload; null where it was not measured.",
    "timed_out": "Whether it was ended at its deadline.",
    "timeline": "Device memory over time.",
    "title": "One line for people.",
    "took_seconds": "Seconds that it took.",
    "total_bytes": "Memory of the device in bytes.",
    "total_seconds": "Seconds from start to end.",
    "type": "Type of the exception.",
    "uptime_seconds": "Seconds since the machine was started.",
    "used_bytes": "Bytes in use, by all owners together.",
    "user": "Name of the user; null where it cannot be read.",
    "uuid": "UUID of the GPU.",
    "value": "The value, with secrets masked.",
    "variables": "Environment variables related to GPUs.",
    "verdict": "How it ended: `ok`, `fallback`, `oom`, `error`, `timeout`, `skipped` or `interrupted`.",
    "verdict_reason": "Why it ended that way, in one sentence.",
    "version": "The version.",
    "versions": "Versions by name.",
    "virtual": "Virtual devices that the program created.",
    "visible": "Devices that are visible to the framework.",
    "warmup_steps": "Steps before the measured ones.",
    "why": "Why it could not be gathered, or was omitted.",
    "workers": "Processes that shared the device or worked together.",
    "workload": "Name of the work that was done.",
    "workload_parameters": "Sizes of the work, by name.",
    "worst_run": "Column to the run that is worst in it, by index in `runs`.",
}
_ROLE = re.compile(r":\w+:`~?([^`]+)`")


def json_schema(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The schema of a document, with a title and a description for every field."""
    schema: dict[str, Any] = msgspec.json.schema(kind)
    tag = str(kind.__struct_config__.tag)
    definitions = schema["$defs"]
    for struct in _structs(kind, {}):
        docs = _docstrings(struct)
        definition = definitions[struct.__name__]
        definition["description"] = _plain(inspect.getdoc(struct) or "")
        for name, field in definition["properties"].items():
            field["title"] = name.replace("_", " ").capitalize()
            field["description"] = _plain(docs.get(name) or FIELDS.get(f"{struct.__name__}.{name}") or FIELDS[name])
    return {
        "$schema": DIALECT,
        "$id": f"urn:{tag.replace('.', ':', 1)}",
        "title": tag,
        "description": definitions[kind.__name__]["description"],
        **schema,
    }


def _structs(kind: Any, seen: dict[type[msgspec.Struct], None]) -> list[type[msgspec.Struct]]:
    """A struct and those that its fields hold."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        if kind not in seen:
            seen[kind] = None
            for hint in get_type_hints(kind).values():
                _structs(hint, seen)
    else:
        for argument in get_args(kind):
            _structs(argument, seen)
    return list(seen)


@cache
def _docstrings(struct: type[msgspec.Struct]) -> dict[str, str]:
    """The docstrings below the fields of a class and of those that it extends."""
    found: dict[str, str] = {}
    for origin in reversed(struct.__mro__):
        if origin.__module__.startswith("gpuwatch."):
            found |= dict(_own_docstrings(origin))
    return found


def _own_docstrings(origin: type) -> Iterator[tuple[str, str]]:
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(origin))).body
    assert isinstance(definition, ast.ClassDef)
    for field, below in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            text = ast.literal_eval(below.value)
            yield field.target.id, inspect.cleandoc(text)


def _plain(text: str) -> str:
    """Without the markup of docstrings, and on one line."""
    return " ".join(_ROLE.sub(r"`\1`", text).replace("``", "`").split())
