"""Finds probe scripts, runs each in a process of its own, and records what it does; watches users' programs.

What `run` records of a program: the script in `probes/_gpuwatch_watch/` that sees it (what samples show:
`experiment/probing/run_draft.py`), `experiment/probing/received_events.py`, `core/model/run.py`. The last line while it
runs: `experiment/probing/status_line.py`. How its end is worded: `Outcome.text` in `core/model/run.py`, the whole
sentence in `experiment/probing/program_end.py`. When a probe is killed: `experiment/probing/probe_scripts.py`.
"""
