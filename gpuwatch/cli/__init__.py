"""The command line. Each subcommand imports its code when it runs.

A command is a module here and a line in `cli/main.py` (then `python -m tests.manpages`). Its module has the options and
their defaults; shared ones: `cli/shared_options.py`. The dashboard's defaults: `ui/settings/preferences.py`.
"""
