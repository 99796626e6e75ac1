"""Where data comes from: GPUs (``nvidia/``, behind ``device_source.py``), processes and the host (/proc, /sys)."""
