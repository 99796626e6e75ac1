"""``--sim`` and ``--sim-tier``: simulated GPUs, also copied from a file, for a command and what it starts."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click
from click.core import ParameterSource

from gpuwatch.cli.completion import complete_names
from gpuwatch.cli.option_types import Choice
from gpuwatch.cli.output import print_line
from gpuwatch.cli.progress import compile_notice, print_over_progress
from gpuwatch.cli.shared_options import CommandFunction
from gpuwatch.core.errors import UsageError
from gpuwatch.core.formatting.path_text import printable_path

if TYPE_CHECKING:
    from gpuwatch.core.model.snapshot import Snapshot
    from gpuwatch.sim.libraries import Tier
    from gpuwatch.sim.machine_shape import SimShape
    from gpuwatch.sim.simulated_machine import SimMachine

_SHAPE_KEY = "gpuwatch.sim.machine_shape"
_FILE_NAME_END = re.compile(r"/|\.(?:xml|txt|log|json|gpuwatch|gz|xz|bz2|zst)$", re.IGNORECASE)
_FILE_HINT = "give the output of nvidia-smi -q or -q -x, a gpuwatch snapshot --json, or a recording"
SIM_NAME_KEY = "gpuwatch.sim.name"
"""Key in a context's ``meta``: the name of a simulated machine, where one was given."""
SIM_VALUE_KEY = "gpuwatch.sim.given"
"""Likewise: the value of ``--sim`` as it was given."""


def _remember_shape(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        from gpuwatch.sim.machine_shape import parse_machine

        ctx.meta[SIM_VALUE_KEY] = value
        file = _file_and_time(value)
        if file is None:
            ctx.meta[_SHAPE_KEY], name = parse_machine(value)
        else:
            with compile_notice():
                machine = machine_from_file(*file)
            ctx.call_on_close(machine.close)  # others can join until then
            ctx.meta[_SHAPE_KEY], name = machine.shape, machine.name
        if name is not None:
            ctx.meta[SIM_NAME_KEY] = name


sim_option = click.option(
    "--sim",
    metavar="NxSIZE[@NAME]|FILE",
    callback=_remember_shape,
    shell_complete=complete_names("sim"),
    expose_value=False,
    help="Use simulated GPUs, for example 2x24GiB or 2xh100; 2x24GiB@NAME shares a named machine. FILE: copy the "
    "GPUs from the output of nvidia-smi -q, a gpuwatch snapshot --json or a recording (RECORDING@14:05: at that time).",
)
"""``--sim NxSIZE``: the command then runs on simulated GPUs (:func:`enter_simulation`)."""


def sim_tier_option(*names: str) -> Callable[[CommandFunction], CommandFunction]:
    """``--sim-tier``, and other names for it: how the GPUs of ``--sim`` reach a framework."""
    return click.option(
        *("--sim-tier", *names, "tier"),
        type=Choice(["auto", "driver", "plugin"]),
        default="auto",
        show_default=True,
        help="How to simulate GPUs: plugin computes everything; driver has CUDA's log lines but computes only matrix "
        "products, and PyTorch needs it; auto chooses for the program.",
    )


def enter_simulation(
    ctx: click.Context, tier: str = "driver", command: Sequence[str] = (), *, private: bool = False
) -> None:
    """Makes this process and what it starts see the GPUs of ``--sim``, if it was given.

    ``command``: the program to start, for the tier ``auto``. Under ``gpuwatch sim``, ``--sim-tier`` works without
    ``--sim``. ``private``: GPUs that nobody else uses, removed when the command ends, unless they have a name or this
    runs under ``gpuwatch sim`` with the same shape.

    Raises:
        UsageError: ``--sim-tier`` without simulated GPUs.
    """
    shape = ctx.meta.get(_SHAPE_KEY)
    if shape is not None:
        name = ctx.meta.get(SIM_NAME_KEY)
        if private and name is None:
            _set_environment(_private_environment(ctx, shape, _choose_tier(tier, command)))
        else:
            _set_environment(simulated_environment(shape, tier, name=name, command=command))
        return
    if ctx.get_parameter_source("tier") is not ParameterSource.COMMANDLINE:
        return
    from gpuwatch.sim.simulated_machine import SimMachine

    machine = SimMachine.from_environment(os.environ)
    if machine is None:
        raise UsageError("--sim-tier needs simulated GPUs", hint="add --sim 2x24GiB")
    _set_environment(machine.environment(os.environ, tier=_choose_tier(tier, command)))


def _private_environment(ctx: click.Context, shape: SimShape, tier: Tier) -> dict[str, str]:
    from gpuwatch.sim.simulated_machine import SimMachine
    from gpuwatch.sim.state_files import private_name

    with compile_notice():
        outer = SimMachine.from_environment(os.environ) if os.environ.get("GPUWATCH_SIM") == str(shape) else None
        if outer is not None:
            return outer.environment(os.environ, tier=tier)
        machine = SimMachine.open(shape, name=private_name(), tier=tier)
    ctx.call_on_close(machine.remove)  # also keeps it open until then
    return machine.environment(os.environ)


def _set_environment(environment: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)


def shape_option_value(ctx: click.Context) -> SimShape | None:
    """The shape given by ``--sim``, here or before the command; None without it."""
    return cast("SimShape | None", ctx.meta.get(_SHAPE_KEY))


def simulated_environment(
    shape: SimShape, tier: str, *, name: str | None = None, command: Sequence[str] = (), hold: bool = False
) -> dict[str, str]:
    """The environment in which a program sees simulated GPUs; compiles them on first use.

    ``name``: of a machine that is not the shared one of this shape. ``hold``: this process becomes that program, and
    counts as a user of the GPUs from now on.
    """
    from gpuwatch.sim.simulated_machine import SimMachine

    chosen = _choose_tier(tier, command)
    with compile_notice():
        machine = SimMachine.open(shape, name=name, tier=chosen)
        if hold:
            machine.hold()
        return machine.environment(os.environ)


def _choose_tier(tier: str, command: Sequence[str]) -> Tier:
    """``auto`` is the plugin tier, which computes; the driver tier where that cannot work."""
    from gpuwatch.experiment.probing.simulation_tier import plugin_obstacle
    from gpuwatch.sim import library_cache

    if tier != "auto":
        return "plugin" if tier == "plugin" else "driver"
    if (error := library_cache.compiler_obstacle()) is not None:
        print_line(f"gpuwatch: {error.message}; only matrix products are computed ({error.hint})")
        return "driver"
    if obstacle := plugin_obstacle(command):
        print_line(f"gpuwatch: only matrix products are computed: {obstacle}")
        return "driver"
    return "plugin"


def offer_simulation(ctx: click.Context) -> None:
    """Ends the output with this command line on simulated GPUs, where no NVIDIA card is on the PCI bus.

    Not that of ``--json``, which programs read.
    """
    from gpuwatch.machine.sources import system_and_driver_facts

    name = ctx.info_name or ""
    simulated = shape_option_value(ctx) is not None or os.environ.get("GPUWATCH_SIM")
    if simulated or ctx.params.get("as_json") or name not in sys.argv:
        return
    system = system_and_driver_facts.read_system_facts(os.environ)
    if system.cards != () or system.wsl or system.jetson or system.device_files or system.kernel_module is not None:
        return
    index = sys.argv.index(name) + 1
    words = ["gpuwatch", *sys.argv[1:index], "--sim", "2x24GiB", *sys.argv[index:]]
    print_over_progress(f"no NVIDIA card is on the PCI bus; on simulated GPUs: {shlex.join(words)}")


def _file_and_time(value: str) -> tuple[Path, str | None] | None:
    """The file of ``FILE`` or ``FILE@TIME``, with the time; None for the shape of a machine."""
    name, _, moment = value.partition("@")
    # Not of pathlib: those raise for a name that no file can have.
    if os.path.isfile(value):  # noqa: PTH113
        return Path(value), None
    if os.path.isfile(name) or _FILE_NAME_END.search(name):  # noqa: PTH113
        return Path(name), moment or None
    return None


def machine_from_file(path: Path, moment: str | None) -> SimMachine:
    """The machine of a file, made at its first use.

    Raises:
        UsageError: the file tells of no GPU, or of one that cannot be simulated.
    """
    import hashlib

    from gpuwatch.machine.sources.nvidia.encode_answers import simulated_gpus_of
    from gpuwatch.sim.machine_shape import SimShape
    from gpuwatch.sim.simulated_machine import SimMachine

    try:
        snapshot = _snapshot_of(path, moment)
        gpus = simulated_gpus_of(snapshot)
        shape = SimShape(len(gpus), gpus[0].memory_bytes)
    except OSError as error:
        raise UsageError(f"cannot read {printable_path(path)}: {error.strerror or error}") from error
    except UsageError as error:
        raise UsageError(
            f"cannot simulate {printable_path(path)}: {error.message}", hint=error.hint or _FILE_HINT
        ) from error
    digest = hashlib.sha256(repr(gpus).encode()).hexdigest()[:8]
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", path.name.partition(".")[0])[:40]
    return SimMachine.open(shape, name=f"{stem or 'file'}-{digest}", described=gpus)


def _snapshot_of(path: Path, moment: str | None) -> Snapshot:
    from gpuwatch.cli.input_files import is_recording
    from gpuwatch.cli.read_log import read_lines
    from gpuwatch.core.model.json_codec import NotADocument, read
    from gpuwatch.core.model.snapshot import Snapshot
    from gpuwatch.explain.traces.nvidia_smi_q import SmiQueryReader
    from gpuwatch.machine.recording.reader import open_recording
    from gpuwatch.machine.recording.time_expressions import parse_moment

    if path.is_fifo():
        raise UsageError("it is a pipe, and --sim reads its file more than once", hint="save it to a file first")
    if is_recording(path):
        with open_recording(path) as recording:
            assert recording.end is not None
            sample = recording.at(recording.end if moment is None else parse_moment(moment, recording.end))
        if sample is None:
            raise UsageError("nothing was recorded at that time")
        return sample.snapshot
    if moment is not None:
        raise UsageError("it is not a recording, so a time cannot be chosen", hint=f"--sim {path}")
    with path.open("rb", buffering=0) as file:
        if file.read(16).lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"{"):
            try:
                document = read(path)
            except NotADocument as error:
                raise UsageError(str(error)) from error
            if not isinstance(document, Snapshot):
                raise UsageError("it is a gpuwatch document, but not a snapshot")
            return document
        reader = SmiQueryReader()
        file.seek(0)
        for line in read_lines(file.fileno(), path):
            reader.take(line)
    snapshot = reader.snapshot()
    if snapshot is None:
        raise UsageError("it does not contain nvidia-smi -q output")
    return snapshot


def tier_in_use() -> str | None:
    """How the GPUs that this process sees are simulated: ``driver`` or ``plugin``; None if they are real."""
    if not os.environ.get("GPUWATCH_SIM_STATE"):
        return None
    return "plugin" if os.environ.get("TF_PLUGGABLE_DEVICE_LIBRARY_PATH") else "driver"
