"""Readers of other tools' files: profiles, allocator snapshots, test results."""
