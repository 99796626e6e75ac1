"""Pure functions from evidence to findings. Imports logs, history, formatting and model only."""
