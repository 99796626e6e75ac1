"""The doctor: facts of the system, the environment and the framework in, checks and one primary cause out.

A check is a function: `explain/diagnosis/doctor/driver.py` (kernel module, NVML, CUDA),
`explain/diagnosis/doctor/devices.py` (device files; modes, MIG and MPS of each GPU), one module each for container,
environment and framework. What it looks at: `machine/sources/system_and_driver_facts.py`. Causes that only it sees:
`explain/diagnosis/doctor/doctor_only_causes.py`.
"""
