"""What every other package uses: metrics, samples, runs, findings; how they are written; errors."""
