"""Explanations of small logs against their labels."""

from __future__ import annotations

from gpuwatch.core.model.causes import CAUSES
from gpuwatch.explain.diagnosis.explain_log import explain
from gpuwatch.explain.logs.wrapped_lines import join_wrapped_lines
from tests.every import every
from tests.logs.small_logs import ALL, Small

MIB = 1 << 20


@every(ALL)
def test_it_is_labelled_right(small: Small) -> None:
    found = explain(join_wrapped_lines(small.text.split("\n")))
    assert set(small.causes) <= set(CAUSES)
    assert found.primary in small.causes
    if small.gpus is not None:
        assert len({(entry.framework_device, entry.pci_bus_id) for entry in found.device_map}) == small.gpus
    if small.oom is not None:
        assert bool(found.ooms) == small.oom
    for name in small.libraries:
        assert any(name in library for library in found.missing_libraries)
    if small.granted is not None:
        granted = {int(entry.framework_device[-1]): (entry.granted_bytes or 0) // MIB for entry in found.device_map}
        assert granted == small.granted
