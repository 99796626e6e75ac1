"""Settings made too late, or that conflict."""

from __future__ import annotations

from collections.abc import Iterator

from gpuwatch.diagnosis.evidence import Evidence
from gpuwatch.diagnosis.rule_registry import rule
from gpuwatch.diagnosis.rules.stated_errors import stated_error
from gpuwatch.model.findings import Finding

_EARLIER = "Call tf.config right after the import, before any tensor or model is created."
_ALIKE = (
    "Set memory growth alike on every GPU. For growth up to a limit, set only memory_limit, and"
    " TF_FORCE_GPU_ALLOW_GROWTH=true in the environment."
)


@rule("config.too-late")
def too_late(evidence: Evidence) -> Iterator[Finding]:
    """A device setting was changed after the first use of a device."""
    return stated_error(evidence, "config.too-late", _EARLIER)


@rule("config.inconsistent")
def inconsistent(evidence: Evidence) -> Iterator[Finding]:
    """Settings that TensorFlow rejects in combination."""
    return stated_error(evidence, "config.inconsistent", _ALIKE)
