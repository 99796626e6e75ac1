"""History of a machine: samples of the last hour, metrics, events, energy and saved runs.

An event of a GPU at one moment: `machine/history/device_events.py`; of a process: `machine/history/process_events.py`;
how both name GPU, process and user: `machine/history/process_labels.py`. What lasts (lost, throttled, hot) is an event
with the title of its finding: `explain/diagnosis/conditions/`.
"""
