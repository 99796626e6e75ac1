"""Text for screens and files: units, durations, shortening. Imports only :mod:`gpuwatch.core.model`."""
