"""The only code that asks the machine: pynvml in ``nvml.py``, psutil and /proc in ``host.py``."""
