"""What is kept over time: metrics, snapshots, events, runs, and crash reports."""
