"""The comparison of nodes, as one document: from their replies to a command, or from saved runs and snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from msgspec.structs import replace

from gpuwatch import __version__
from gpuwatch.core.errors import EXIT_FAILED, EXIT_FINDING, EXIT_OK, EXIT_PROBE_BROKEN
from gpuwatch.core.model.causes import CAUSES
from gpuwatch.core.model.comparison import Comparison, Node, NodeState
from gpuwatch.core.model.diagnostic_report import Diagnostic
from gpuwatch.core.model.doctor import Doctor
from gpuwatch.core.model.json_codec import Document, NotADocument, from_json, runs_in
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.core.model.try_results import Experiment
from gpuwatch.core.safe_text import last_line
from gpuwatch.fleet.cluster.fan_out import UNFINISHED, NodeReply, safe_line
from gpuwatch.fleet.cluster.odd_nodes import MIN_EQUAL_NODES, with_odd_nodes
from gpuwatch.share.reports.runs_side_by_side import compare

DOCUMENT_TYPES: dict[str, tuple[type, ...]] = {
    "snapshot": (Snapshot,),
    "doctor": (Doctor,),
    "probe": (Run, Comparison),
    "try": (Experiment,),
    "report": (Diagnostic,),
}
"""The commands that can be run on nodes, and the documents that they print."""

_FINDING_EXIT_CODES = (EXIT_PROBE_BROKEN, EXIT_FINDING)
"""Exit codes that say what was found: the first of them that a node has is that of the whole."""


def comparison_of_nodes(command: str, replies: Sequence[NodeReply]) -> Comparison:
    """The comparison: the runs of all nodes, a row for each node, and which of them are odd."""
    runs: list[Run] = []
    nodes: list[Node] = []
    for reply in replies:
        node, runs_there = _node(command, reply)
        nodes.append(node)
        runs += [replace(run, node=reply.node) for run in runs_there]
    return with_odd_nodes(replace(compare(runs), nodes=tuple(nodes)))


def compare_saved_runs(runs: Sequence[Run], nodes: Sequence[Node]) -> Comparison:
    """Compares saved runs, and the nodes of saved comparisons and snapshots.

    Runs of at least :data:`MIN_EQUAL_NODES` machines are compared like those of a cluster: each machine is a node.
    """
    by_name = {node.node: node for node in nodes}
    machines = {name for run in runs if (name := run.node or run.host) is not None}
    if not by_name and len(machines) < MIN_EQUAL_NODES:
        return compare(runs)
    runs = [replace(run, node=run.node or run.host) for run in runs]
    for run in runs:
        if run.node is not None and run.node not in by_name:
            count = sum(other.node == run.node for other in runs)
            by_name[run.node] = Node(node=run.node, state="ok", host=run.host, runs=count)
    return with_odd_nodes(replace(compare(runs), nodes=tuple(by_name.values())))


def exit_code(document: Comparison) -> int:
    """0 if all nodes did their work and found nothing; as the command itself for what one found; 1 if one failed."""
    if any(node.state not in ("ok", "finding") for node in document.nodes):
        return EXIT_FAILED
    codes = {node.exit_code or EXIT_OK for node in document.nodes}
    otherwise = EXIT_FAILED if codes - {EXIT_OK} else EXIT_OK
    return next((code for code in _FINDING_EXIT_CODES if code in codes), otherwise)


def _node(command: str, reply: NodeReply) -> tuple[Node, Sequence[Run]]:
    node = Node(
        node=reply.node,
        state=cast("NodeState", "interrupted" if reply.state in UNFINISHED else reply.state),
        reason=reply.reason,
        host=reply.host,
        exit_code=reply.exit_code,
        gpuwatch_version=reply.version,
        took_seconds=reply.took_seconds,
    )
    if reply.state != "ok":
        return node, []
    try:
        document = from_json(reply.document)
    except NotADocument as error:
        return replace(node, state="failed", reason=_why_unread(reply, str(error))), []
    if not isinstance(document, DOCUMENT_TYPES[command]):
        return replace(node, state="failed", reason="it sent a different kind of document"), []
    runs = runs_in(document)
    code = reply.exit_code
    note = _version_mismatch(reply) or _probe_note(command, reply)
    reason = note if code == EXIT_OK else _exit_code_meaning(document, code)
    return replace(
        node,
        state="ok" if code == EXIT_OK else "finding",
        reason=reason,
        runs=len(runs),
        answer=_answer_of(document),
        snapshot=document if isinstance(document, Snapshot) else getattr(document, "snapshot", None),
        doctor=document if isinstance(document, Doctor) else getattr(document, "doctor", None),
    ), runs


def _why_unread(reply: NodeReply, error: str) -> str:
    """Why a node that ended sent no document."""
    if not reply.document.strip():
        code = f"exit code {reply.exit_code}" if reply.exit_code else "it sent nothing"
        last = last_line(reply.messages)
        return safe_line(f"{code}: {last.removeprefix('gpuwatch: ')}" if last else code)
    differs = _version_mismatch(reply)
    return safe_line(f"{differs}: {error}" if differs else f"its answer cannot be read: {error}")


def _version_mismatch(reply: NodeReply) -> str:
    return "" if reply.version in (None, __version__) else f"gpuwatch {reply.version} there, {__version__} here"


def _probe_note(command: str, reply: NodeReply) -> str:
    """What a probe had to say, such as which GPUs it left alone: its siblings may have run on others."""
    lines = [line for line in reply.messages.splitlines() if line.startswith("gpuwatch: ") and "compiling" not in line]
    return safe_line(lines[0].removeprefix("gpuwatch: ")) if lines and command == "probe" else ""


def _answer_of(document: Document) -> str:
    if isinstance(document, Experiment):
        return document.answer.sentence
    if isinstance(document, Doctor | Diagnostic) and document.primary is not None:
        named = (finding.title for finding in document.findings if finding.id == document.primary)
        return next(named, CAUSES.get(document.primary, document.primary))
    return ""


def _exit_code_meaning(document: Document, code: int | None) -> str:
    """What an exit code of the command says, in words."""
    if isinstance(document, Snapshot) and document.problems:
        return safe_line(document.problems[0].detail)
    if isinstance(document, Run | Comparison) and code == EXIT_PROBE_BROKEN:
        broken = [run for run in runs_in(document) if run.verdict in ("error", "timeout")]
        return safe_line(", ".join(f"{run.config}: {run.verdict}" for run in broken)) or f"exit code {code}"
    return f"exit code {code}"
