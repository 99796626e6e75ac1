"""Text for screens and files: units, shortening, masking, redaction. Imports only :mod:`gpuwatch.core.model`."""
