"""History of a machine: metrics, snapshots, events, runs, and crash reports."""
