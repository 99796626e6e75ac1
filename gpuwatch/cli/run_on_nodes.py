"""``--on``: a command once on each node of a cluster; its options, and the hidden ``gpuwatch node`` that runs there."""

from __future__ import annotations

import functools
import shutil
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from gpuwatch.cli.command_classes import SectionedCommand
from gpuwatch.cli.option_types import Duration
from gpuwatch.cli.progress import progress, progress_wanted
from gpuwatch.cli.shared_options import gpm_option_value, option_set
from gpuwatch.cli.sim_options import SIM_VALUE_KEY
from gpuwatch.core.errors import UsageError
from gpuwatch.core.parsing import word_set

if TYPE_CHECKING:
    from gpuwatch.cli.output import Output
    from gpuwatch.fleet.cluster.fan_out import NodeReply

_ARGV_KEY = "gpuwatch.nodes.arguments"
_OPTIONS_KEY = "gpuwatch.nodes"


class NodeCommand(SectionedCommand):
    """A command that remembers its arguments, to be run on nodes with the same ones."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_ARGV_KEY] = list(args)
        return super().parse_args(ctx, args)


def _remember_option(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value is not None:
        ctx.meta.setdefault(_OPTIONS_KEY, {})[parameter.name] = value


_node_option = functools.partial(click.option, expose_value=False, callback=_remember_option)
nodes_options = option_set(
    _node_option(
        "--on",
        metavar="LAUNCHER",
        help="Run this once on each node: local:N, ssh:a,b,n[1-8], slurm[:PARTITION], ray[:ADDRESS].",
    ),
    _node_option(
        "--remote-command",
        metavar="COMMAND",
        help="With --on: run gpuwatch there with this command, such as /opt/venv/bin/gpuwatch (default: gpuwatch).",
    ),
    _node_option(
        "--launcher-options",
        metavar="OPTIONS",
        help="With --on: pass these options to ssh or srun, such as '--gres=gpu:8'.",
    ),
    _node_option(
        "--node-timeout",
        type=Duration(1, 30 * 86_400),
        help="With --on: give up on a node after this long, such as 10min.",
    ),
)
"""``--on`` and its companions; :func:`run_on_nodes` runs the command there."""


def wants_nodes(ctx: click.Context) -> bool:
    """Whether ``--on`` was given; UsageError for its companions without it."""
    given = ctx.meta.get(_OPTIONS_KEY, {})
    if given and "on" not in given:
        option = next(iter(given)).replace("_", "-")
        raise UsageError(f"--{option} applies only to --on", hint="for example --on ssh:a,b")
    return bool(given)


def refuse_with_nodes(ctx: click.Context, **given: object) -> None:
    """UsageError for an option that has no meaning on several nodes."""
    for name, value in given.items():
        if value and wants_nodes(ctx):
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} and --on cannot be combined", hint=f"omit {option}")


_LOCAL_ONLY = word_set(
    "on remote_command launcher_options node_timeout output format_name redact as_json as_csv quiet no_save"
)
"""Parameters that are for this side only: nodes print JSON, and save nothing."""
_NODE_SECONDS = {"snapshot": 60.0, "doctor": 300.0, "report": 300.0, "probe": 1800.0, "try": 7200.0}
"""How long a node has by default."""
_MAX_LINES = 12


def run_on_nodes(ctx: click.Context, output: Output) -> None:
    """If ``--on`` was given, runs the command on each node, publishes what they found, and exits."""
    if not wants_nodes(ctx):
        return
    from gpuwatch.cli.option_types import split_words
    from gpuwatch.cli.output import print_line
    from gpuwatch.fleet.cluster.fan_out import fan_out
    from gpuwatch.fleet.cluster.launchers import make_launcher
    from gpuwatch.fleet.cluster.node_comparison import comparison_of_nodes, exit_code

    options = ctx.meta[_OPTIONS_KEY]
    name = ctx.command.name or ""
    words = {
        option: split_words(value, option)
        for option in ("--remote-command", "--launcher-options")
        if (value := options.get(option[2:].replace("-", "_"))) is not None
    }
    launcher = make_launcher(
        options["on"],
        remote_command=words.get("--remote-command", ()),
        options=words.get("--launcher-options", ()),
    )
    timeout = options.get("node_timeout")
    shown = _Progress()
    if not progress_wanted():
        progress(f"running on the nodes of {options['on']}")
    try:
        replies, interrupted = fan_out(
            launcher,
            [name, *node_arguments(ctx)],
            seconds=timeout or _NODE_SECONDS[name],
            start_seconds=timeout,
            on_change=shown.show if progress_wanted() else lambda replies: None,
        )
    finally:
        shown.clear()
        progress("")
    if interrupted:
        done = sum(reply.state == "ok" for reply in replies)
        print_line(f"gpuwatch: interrupted; {done} of {len(replies)} nodes had answered")
    if not interrupted or any(reply.state == "ok" for reply in replies):
        document = comparison_of_nodes(name, replies)
        output.publish(document)
    ctx.exit(128 + signal.SIGINT if interrupted else exit_code(document))


@click.command(hidden=True, context_settings={"allow_interspersed_args": False})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def node(ctx: click.Context, arguments: tuple[str, ...]) -> None:
    """Run a gpuwatch command on this node for another machine, where it was given --on."""
    from gpuwatch.fleet.cluster.node_agent import NodeAgent
    from gpuwatch.fleet.cluster.node_comparison import DOCUMENT_TYPES

    if not arguments or arguments[0] not in DOCUMENT_TYPES:
        raise UsageError("gpuwatch node is started by --on", hint="for example gpuwatch snapshot --on ssh:a,b")
    ctx.exit(NodeAgent().run([sys.executable, "-m", "gpuwatch", *arguments]))


def node_arguments(ctx: click.Context) -> list[str]:
    """The arguments with which a node runs the command: those given here, without the options for this side."""
    parser = ctx.command.make_parser(ctx)
    values, _, order = parser.parse_args(list(ctx.meta[_ARGV_KEY]))
    given: list[str] = ["--json"]
    unread_values = {name: list(value) for name, value in values.items() if isinstance(value, (list, tuple))}
    for parameter in order:
        name = parameter.name or ""
        if not isinstance(parameter, click.Option) or name in _LOCAL_ONLY:
            continue
        value = unread_values[name].pop(0) if parameter.multiple else values[name]
        if parameter.is_flag:
            given.append(parameter.opts[0] if value or not parameter.secondary_opts else parameter.secondary_opts[0])
        else:
            given.append(f"{max(parameter.opts, key=len)}={value}")
    names = {parameter.name for parameter in order}
    if SIM_VALUE_KEY in ctx.meta and "sim" not in names:  # before the command
        given.append(f"--sim={ctx.meta[SIM_VALUE_KEY]}")
    accepted = {parameter.name for parameter in ctx.command.params}
    if (gpm := gpm_option_value(ctx)) is not None and "gpm" in accepted - names:
        given.append("--gpm" if gpm else "--no-gpm")
    if "no_save" in accepted:
        given.append("--no-save")
    command = values.get("command") or ()
    return [*given, *(["--", *command] if command else [])]


class _Progress:
    """On a terminal: a line for each node that is done, and below them those that are not."""

    def __init__(self) -> None:
        self._drawn: list[str] = []
        self._done: set[str] = set()

    def show(self, replies: Sequence[NodeReply]) -> None:
        from gpuwatch.core.safe_text import printable, shorten
        from gpuwatch.fleet.cluster.fan_out import UNFINISHED

        width, height = shutil.get_terminal_size((80, 24))
        room = max(min(_MAX_LINES, height - 2), 1)
        names = max((len(reply.node) for reply in replies), default=0)
        names = min(names, max(width // 3, 8))
        ended = [reply for reply in replies if reply.state not in UNFINISHED and reply.node not in self._done]
        waiting = [reply for reply in replies if reply.state in UNFINISHED]
        # Those that work first: what they do is worth a line.
        waiting.sort(key=lambda reply: ("running", "starting", "waiting").index(reply.state))
        lines = [
            shorten(f"  {printable(reply.node)[:names]:<{names}}  {reply.progress or reply.state}", width - 1)
            for reply in waiting[: room if len(waiting) <= room else room - 1]
        ]
        if len(waiting) > len(lines):
            lines.append(f"  and {len(waiting) - len(lines)} more")
        if not ended and lines == self._drawn:
            return
        self.clear()
        for reply in ended:
            self._done.add(reply.node)
            took = "" if reply.took_seconds is None else f"  {reply.took_seconds:.1f} s"
            mark, text = ("●", f"answered{took}") if reply.state == "ok" else ("✖", reply.reason or reply.state)
            sys.stderr.write(shorten(f"{mark} {printable(reply.node)[:names]:<{names}}  {text}", width - 1) + "\n")
        sys.stderr.write("".join(f"{line}\n" for line in lines))
        sys.stderr.flush()
        self._drawn = lines

    def clear(self) -> None:
        if self._drawn:
            sys.stderr.write(f"\x1b[{len(self._drawn)}A\x1b[J")
            sys.stderr.flush()
            self._drawn = []
