"""What all rooms speak of: metrics, samples, runs, findings; how they are written; errors."""
