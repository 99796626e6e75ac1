"""What the nodes sent, as rows."""

from __future__ import annotations

import datetime

from gpuwatch.cluster.fan_out import NodeReply
from gpuwatch.cluster.gathered import gathered
from gpuwatch.model.codec import to_json
from gpuwatch.model.doctor import Doctor
from gpuwatch.model.findings import Finding


def test_a_nodes_row_has_the_title_of_what_was_found_there() -> None:
    """Not that of its cause: "unknown" has no meaning of its own."""
    title = "GPU:1 was granted 320 MiB less than expected"
    document = Doctor(
        taken_at=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
        took_seconds=3.0,
        simulated=True,
        versions={},
        checks=(),
        findings=(Finding(id="unknown", severity="warning", certainty="fact", title=title),),
        primary="unknown",
    )
    reply = NodeReply(node="a", state="ok", exit_code=0, document=to_json(document).encode())
    assert gathered("doctor", [reply]).nodes[0].answer == title
