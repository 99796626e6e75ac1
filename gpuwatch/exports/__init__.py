"""Recordings in the formats of other tools: a selection of a recording in, a stream of bytes out."""
