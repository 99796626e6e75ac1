"""What flows through gpuwatch: pure data, no input or output.

Every type here is a frozen :class:`msgspec.Struct`; the field names are those of the published JSON
(``gpuwatch.snapshot/1``, ``gpuwatch.run/1``, ...), so encoding a value *is* writing the document.
This package imports only ``msgspec``, the standard library and :mod:`gpuwatch.errors`.
"""
