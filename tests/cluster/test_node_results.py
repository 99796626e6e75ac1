"""What came home from the nodes becomes one document, whatever they sent."""

from __future__ import annotations

import datetime

from msgspec.structs import replace

from gpuwatch import __version__
from gpuwatch.core.errors import EXIT_FAILED, EXIT_FINDING, EXIT_OK, EXIT_PROBE_BROKEN
from gpuwatch.core.model.doctor import Doctor
from gpuwatch.core.model.json_codec import from_json, to_json
from gpuwatch.core.model.snapshot import Problem
from gpuwatch.fleet.cluster.fan_out import NodeReply
from gpuwatch.fleet.cluster.node_comparison import comparison_of_nodes, exit_code
from gpuwatch.share.reports.report_formats import render
from gpuwatch.share.reports.runs_side_by_side import compare
from tests.cluster.test_odd_nodes import run
from tests.every import every
from tests.reports.documents import bare_snapshot, full_experiment, full_run, full_snapshot

NOW = datetime.datetime(2026, 11, 22, 12, 0, tzinfo=datetime.UTC)


def reply(node: str, document: str = "", **facts: object) -> NodeReply:
    known = {"state": "ok", "exit_code": 0, "version": __version__, "host": node, **facts}
    return NodeReply(node, document=document.encode(), **known)  # type: ignore[arg-type]


def test_runs_carry_their_node_also_for_one_configuration() -> None:
    one, two = replace(full_run(), node=None), replace(full_run(), node="a lie")
    document = comparison_of_nodes("probe", [reply("n1", to_json(one)), reply("n2", to_json(compare([two, two])))])
    assert [one.node for one in document.runs] == ["n1", "n2", "n2"]
    assert [node.runs for node in document.nodes] == [1, 2]
    assert "node" in document.columns
    assert from_json(to_json(document).encode()) == document


def test_the_runs_of_try_and_what_it_answered() -> None:
    document = comparison_of_nodes("try", [reply("n1", to_json(full_experiment()))])
    assert {one.node for one in document.runs} == {"n1"}
    assert document.nodes[0].answer == full_experiment().answer.sentence


@every(
    [
        ({}, "", "failed", "it sent nothing"),
        (
            {"exit_code": 2, "messages": "gpuwatch: no such option: --x\n"},
            "",
            "failed",
            "exit code 2: no such option: --x",
        ),
        ({"exit_code": 7}, "", "failed", "exit code 7"),
        ({}, "{]", "failed", "its answer cannot be read: JSON is malformed"),
        ({"version": "0.0.1"}, '{"schema": "gpuwatch.run/9"}', "failed", f"gpuwatch 0.0.1 there, {__version__} here: "),
        ({}, "RUN", "failed", "it sent a different kind of document"),
        ({"version": "0.0.1"}, "SNAPSHOT", "ok", f"gpuwatch 0.0.1 there, {__version__} here"),
        ({"exit_code": 1}, "BARE", "finding", "no driver"),
        (
            {"state": "no-answer", "reason": "gpuwatch was not found there", "version": None},
            "",
            "no-answer",
            "gpuwatch was not found there",
        ),
        ({"state": "running"}, "", "interrupted", ""),
    ]
)
def test_rows(facts: dict[str, object], text: str, state: str, reason: str) -> None:
    bare = replace(bare_snapshot(), problems=(Problem(source="nvml", reason="x", detail="no driver"),))
    known = {"RUN": to_json(full_run()), "SNAPSHOT": to_json(full_snapshot()), "BARE": to_json(bare)}
    document = comparison_of_nodes("snapshot", [reply("n1", known.get(text, text), **facts)])
    (node,) = document.nodes
    assert node.state == state
    assert node.reason.startswith(reason)
    assert (node.snapshot is not None) == (text in ("SNAPSHOT", "BARE"))


def test_exit_codes() -> None:
    good = reply("n1", to_json(full_run()))
    finding = reply("n2", to_json(full_run()), exit_code=EXIT_FINDING)
    broken = reply("n3", to_json(full_run()), exit_code=EXIT_PROBE_BROKEN)
    lost = reply("n4", state="no-answer")
    assert exit_code(comparison_of_nodes("probe", [good])) == EXIT_OK
    assert exit_code(comparison_of_nodes("probe", [good, finding])) == EXIT_FINDING
    assert exit_code(comparison_of_nodes("probe", [good, finding, broken])) == EXIT_PROBE_BROKEN
    assert exit_code(comparison_of_nodes("probe", [good, broken, lost])) == EXIT_FAILED


def test_what_the_doctors_say_is_compared() -> None:
    def doctor(version: str) -> str:
        return to_json(
            Doctor(
                taken_at=NOW,
                took_seconds=1.0,
                simulated=False,
                versions={"tensorflow": version},
                checks=(),
                primary="healthy",
            )
        )

    document = comparison_of_nodes("doctor", [reply(f"n{n}", doctor("2.20" if n == 3 else "2.21")) for n in range(5)])
    assert [(fact.node, fact.what, fact.value, fact.usual) for fact in document.odd] == [
        ("n3", "tensorflow", "2.20", "2.21")
    ]


def test_a_snapshot_goes_before_old_runs() -> None:
    """A report has runs that were saved before a GPU was lost."""
    snapshots = [full_snapshot() for _ in range(4)]
    snapshots[2] = replace(snapshots[2], devices=snapshots[2].devices[:1])
    document = comparison_of_nodes("snapshot", [reply(f"n{n}", to_json(one)) for n, one in enumerate(snapshots)])
    assert ("n2", "number of GPUs", "1") in {(fact.node, fact.what, fact.value) for fact in document.odd}


def test_secrets_of_nodes_are_masked() -> None:
    secret = "ghp_" + "a1B2" * 9
    one = replace(run(1), verdict_reason=f"token {secret}", log_tail=(f"password={secret}",))
    lost = reply("n2", state="failed", reason=f"token={secret}")
    for name in ("text", "html", "markdown", "json", "csv"):
        assert secret not in render(comparison_of_nodes("probe", [reply("n1", to_json(one)), lost]), name)


def test_a_probe_says_which_gpus_it_left_alone() -> None:
    said = "gpuwatch: compiling the simulated GPUs\ngpuwatch: GPU 0 left alone because in use (--gpu 0,1 takes all)\n"
    document = comparison_of_nodes("probe", [reply("n1", to_json(full_run()), messages=said)])
    assert document.nodes[0].reason == "GPU 0 left alone because in use (--gpu 0,1 takes all)"
    assert document.nodes[0].state == "ok"
