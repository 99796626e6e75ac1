"""The arguments of the tools: their JSON Schemas are made from these classes, which also check the limits."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from gpuwatch.core import input_size_limits
from gpuwatch.core.errors import UsageError
from gpuwatch.core.model.gpu_time_usage import GroupBy
from gpuwatch.core.safe_text import printable, shorten
from gpuwatch.experiment.probing.probe_scripts import MEASUREMENT_SECONDS, Workload

_MAX_QUOTED_CHARS = 300
"""Characters of an error, which may quote an argument."""

_LOG_PATH = f"Or a log file on this machine: *.log, *.out, *.err, *.txt, at most {input_size_limits.MCP_LOG.size_text}."

Framework = Literal["tensorflow", "torch"]
Word = Annotated[str, Meta(min_length=1, max_length=200)]
PathText = Annotated[str, Meta(min_length=1, max_length=4096)]


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of a tool; as it is, of one that takes none."""


class SnapshotArguments(Arguments, frozen=True):
    """How much of a snapshot is returned."""

    metrics: Annotated[
        Literal["core", "all"],
        Meta(description="core: load, memory, temperature, power, clocks, errors. all: everything that NVML reports."),
    ] = "core"
    processes: Annotated[
        int, Meta(ge=0, le=200, description="Return at most this many processes, largest GPU memory first.")
    ] = 20
    topology: Annotated[bool, Meta(description="Also how GPUs and CPUs are connected (NVLink, PCIe, NUMA).")] = False


class DoctorArguments(Arguments, frozen=True):
    """Which framework is checked."""

    framework: Annotated[
        Framework | None, Meta(description="The framework to check; without it TensorFlow, else PyTorch.")
    ] = None


class ExplainArguments(Arguments, frozen=True):
    """The log of ``explain_log``: its text, or where it is."""

    text: Annotated[
        Annotated[str, Meta(min_length=1, max_length=input_size_limits.MCP_TEXT.bytes)] | None,
        Meta(description="The log itself, with the lines before the error: they explain it."),
    ] = None
    path: Annotated[PathText | None, Meta(description=_LOG_PATH)] = None


class CauseArguments(Arguments, frozen=True):
    """Which page of causes is returned."""

    id: Annotated[str, Meta(min_length=1, max_length=100, description="A cause id, for example memory.fragmented.")]


class FreeGpusArguments(Arguments, frozen=True):
    """What the GPUs of ``find_free_gpus`` must offer."""

    count: Annotated[int, Meta(ge=1, le=1024, description="Number of GPUs.")] = 1
    free_gib: Annotated[
        Annotated[float, Meta(gt=0, le=1 << 20)] | None,
        Meta(description="Only GPUs with this much free memory, in GiB (2**30 bytes)."),
    ] = None
    idle: Annotated[bool, Meta(description="Only idle GPUs: no process computes on them.")] = False


class UsageArguments(Arguments, frozen=True):
    """Which time is summed up, and by what."""

    since: Annotated[
        Word | None, Meta(description="Start: 7d, 24h, 14:05, 2026-05-11T14:05 (default: 7d before the end).")
    ] = None
    until: Annotated[Word | None, Meta(description="End, in the same format (default: the end of the recording).")] = (
        None
    )
    by: Annotated[GroupBy, Meta(description="Group the hours by this.")] = "user"


class CompareArguments(Arguments, frozen=True):
    """Which runs are compared: the newest, those of configurations, or files."""

    configs: Annotated[
        Annotated[tuple[Word, ...], Meta(max_length=20)],
        Meta(
            description="Compare the newest saved run of each of these configurations; run: one of the user's programs."
        ),
    ] = ()
    last: Annotated[int, Meta(ge=1, le=20, description="Without configs and paths: compare the newest runs.")] = 5
    paths: Annotated[
        Annotated[tuple[PathText, ...], Meta(max_length=20)],
        Meta(description="Instead: JSON documents that gpuwatch saved: runs, or reports of several machines."),
    ] = ()


class ProbeArguments(Arguments, frozen=True):
    """Which configurations run, for how long, and with which values."""

    configs: Annotated[
        Annotated[tuple[Word, ...], Meta(min_length=1, max_length=10)],
        Meta(description="Configurations, for example default, growth, limit, fraction, async-allocator, torch-map."),
    ]
    seconds: Annotated[float, Meta(ge=0.01, le=30, description="Measure each for this long.")] = MEASUREMENT_SECONDS
    workload: Annotated[Workload | None, Meta(description="The workload (default: the configuration's own).")] = None
    memory_limit_mb: Annotated[
        Annotated[int, Meta(ge=1, le=1 << 24)] | None,
        Meta(description="Memory limit in MB, for configurations that set one."),
    ] = None
    fraction: Annotated[
        Annotated[float, Meta(gt=0, le=1)] | None, Meta(description="Memory fraction, for configurations that set one.")
    ] = None


class TryArguments(Arguments, frozen=True):
    """The program, its settings, and the time for all runs."""

    command: Annotated[
        Annotated[tuple[Annotated[str, Meta(max_length=4096)], ...], Meta(min_length=1, max_length=100)],
        Meta(description='The program and its arguments, for example ["python", "train.py", "--batch", "{BATCH}"].'),
    ]
    folder: Annotated[PathText | None, Meta(description="Its working folder.")] = None
    configs: Annotated[
        Annotated[tuple[Word, ...], Meta(max_length=10)],
        Meta(description="Settings, for example default, growth, limit=6GiB (default: those that suit the framework)."),
    ] = ()
    vary: Annotated[
        Annotated[tuple[Word, ...], Meta(max_length=5)],
        Meta(description="NAME=A,B,...: replaces {NAME} in the command with each of these values."),
    ] = ()
    largest: Annotated[
        Word | None, Meta(description="NAME=LOW..HIGH: finds the largest value for {NAME} that fits in GPU memory.")
    ] = None
    recover: Annotated[
        bool, Meta(description="If the program runs out of memory: find a setting that makes it pass, and verify it.")
    ] = False
    rounds: Annotated[int, Meta(ge=1, le=10, description="Runs of each setting.")] = 3
    budget_seconds: Annotated[
        int, Meta(ge=10, le=3600, description="Rounds, then settings, are dropped to stay within this time.")
    ] = 600


_ArgumentsT = TypeVar("_ArgumentsT", bound=Arguments)


def parse_arguments(arguments: object, arguments_type: type[_ArgumentsT]) -> _ArgumentsT:
    """The arguments of a call; :class:`UsageError` names the first that is wrong."""
    try:
        msgspec.json.encode(arguments)  # half a surrogate pair is no text
        return msgspec.convert({} if arguments is None else arguments, arguments_type)
    except (msgspec.ValidationError, UnicodeEncodeError, RecursionError) as error:
        raise UsageError(shorten(printable(f"wrong arguments: {error}"), _MAX_QUOTED_CHARS)) from error


def input_schema(arguments_type: type[Arguments]) -> dict[str, Any]:
    """The JSON Schema of the arguments of a tool."""
    schema = msgspec.json.schema(arguments_type)
    schema_of_arguments: dict[str, Any] = schema["$defs"].pop(arguments_type.__name__)
    assert not schema["$defs"], "arguments are plain values"
    return {name: value for name, value in schema_of_arguments.items() if name not in ("title", "description")} | {
        "additionalProperties": False
    }
