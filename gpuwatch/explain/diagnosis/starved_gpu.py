"""What is common to all that is said of a GPU that waits for its input."""

from __future__ import annotations

LOW = 60.0
"""Mean utilization in percent up to which the device waits much of the time."""
_ADVICE = {
    "tensorflow": "Feed it faster: map(f, num_parallel_calls=tf.data.AUTOTUNE), cache(), prefetch(tf.data.AUTOTUNE).",
    "torch": "Feed it faster: DataLoader(num_workers=8, pin_memory=True, persistent_workers=True).",
}


def advice(framework: str) -> str:
    """What to do, by the framework's name; empty if it is not known."""
    return _ADVICE.get(framework, "Prepare the input in more parallel workers, ahead of the step.")
