"""What was: ring buffers now, recordings (SQLite) beside them later. Owned by one thread."""
