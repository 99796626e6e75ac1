"""Secrets and names of people and machines, replaced before anything is shown, kept or sent.

A secret: a row of `core/masking/token_shapes.txt` (recognized by its form) or `core/masking/secret_places.txt` (by what
is around it); an option or variable whose name tells (`--x-key=`, `X_TOKEN`): a word in
`core/masking/secret_likelihood.py`; a program's option whose name does not (`-p x`):
`core/masking/program_passwords.txt`. What only `--redact` masks: a name after a word (`pod x`): `FIELD_NOUNS` in
`core/masking/private_names.py`; after an option, or one that only its place in a line tells:
`core/masking/private_names.txt`; an address, path or id: `core/masking/address_and_path_patterns.py`; which part of it
is replaced, and files in commands: `core/masking/redactor.py`.
"""
