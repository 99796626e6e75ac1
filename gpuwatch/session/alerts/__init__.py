"""Tells somebody about findings: a command, a webhook, the terminal. Nothing here may delay sampling."""
