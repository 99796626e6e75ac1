"""Parsers of framework logs, shared by probing and diagnosis. One pass, constant memory."""
