"""Units to text: one place for the screen and for files. Imports only :mod:`gpuwatch.model`."""
