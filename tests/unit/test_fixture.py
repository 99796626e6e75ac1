"""The recorded snapshot stays readable, and knows every metric of the table."""

from __future__ import annotations

from pathlib import Path

from gpuwatch.core.model.json_codec import from_json, to_json
from gpuwatch.core.model.metrics import METRICS, Lane
from gpuwatch.core.model.snapshot import Snapshot

FIXTURE = Path(__file__).resolve().parents[1] / "fixtures" / "snapshot.json"


def test_old_documents_stay_readable_and_every_metric_is_in_it() -> None:
    snapshot = from_json(FIXTURE.read_bytes())
    assert isinstance(snapshot, Snapshot)
    assert from_json(to_json(snapshot).encode()) == snapshot
    for device in snapshot.devices:
        always = {spec.id for spec in METRICS if spec.lane is not Lane.GPM}  # the others are opted in to
        assert always <= device.readings.keys() | device.missing.keys()
        assert not device.readings.keys() & device.missing.keys()
