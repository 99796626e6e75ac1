"""Parsers for framework logs: one pass, constant memory."""
