"""Recordings in the formats of other tools: a period of a recording in, a stream of bytes out."""
