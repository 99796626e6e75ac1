"""Recordings on disk: samples, means, events, findings and processes in one file; written, read, checked, cut."""
