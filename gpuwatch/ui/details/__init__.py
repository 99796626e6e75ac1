"""Details as lines: one GPU, one process, a finding, missing readings. Pure.

A line of the Process tab: `ui/details/process_sections.py`; an environment variable with its effect:
`ui/details/environment_effects.py`.
"""
