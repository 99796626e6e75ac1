"""A run that has ended: what was expected of it, what fell back, its verdict and findings."""
