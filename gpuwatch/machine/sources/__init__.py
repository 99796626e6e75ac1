"""Where data comes from: GPUs (``nvidia/``, behind ``device_source.py``), and the host through /proc, /sys and psutil."""
