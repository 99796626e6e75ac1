"""Recordings in the formats of other tools: a stretch of a recording in, a stream of bytes out."""
