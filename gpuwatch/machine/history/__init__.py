"""History of a machine: samples of the last hour, metrics, events, energy and saved runs.

An event of a GPU or a process at one moment: `machine/history/sample_events.py`; how it names GPU, process and user:
`machine/history/process_labels.py`. What lasts (lost, throttled, hot) is an event with the title of its finding:
`explain/diagnosis/conditions/`.
"""
