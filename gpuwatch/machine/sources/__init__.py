"""Where data comes from: GPUs (``nvidia/``, behind ``base.py``), and the host through /proc, /sys and psutil."""
