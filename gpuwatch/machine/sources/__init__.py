"""Where data comes from: GPUs (``nvidia/``, behind ``device_source.py``); the host, through /proc, /sys and psutil."""
