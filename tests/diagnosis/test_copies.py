"""A copy from the host that finds no room on the GPU."""

from __future__ import annotations

import pytest

from gpuwatch.explain.diagnosis.explain_log import explain

_FAILED = (
    "tensorflow.python.framework.errors_impl.InternalError: Failed copying input tensor from"
    " /job:localhost/replica:0/task:0/device:CPU:0 to /job:localhost/replica:0/task:0/device:GPU:0 in order to run {}:"
    " Dst tensor is not initialized."
)


@pytest.mark.parametrize(
    ("line", "title"),
    [
        (_FAILED.format("_EagerConst"), "Data copied from the host"),
        (_FAILED.format("MatMul"), "An input of MatMul"),
        ("tensorflow.python.framework.errors_impl.InternalError: Dst tensor is not initialized.", "Data copied"),
    ],
)
def test_the_data_is_to_stay_on_the_cpu(line: str, title: str) -> None:
    explained = explain(["Traceback (most recent call last):", '  File "a.py", line 3, in <module>', line])
    assert explained.primary == "memory.model-too-large"
    assert title in explained.findings[0].title
    assert "tf.device('/CPU:0')" in explained.findings[0].action
    assert "smaller" not in explained.findings[0].action
