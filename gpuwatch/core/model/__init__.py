"""The data types of gpuwatch, without input or output.

Every type is a frozen :class:`msgspec.Struct` whose field names are those of the published JSON
(``gpuwatch.snapshot/1``, ``gpuwatch.run/1``, ...), so encoding a value writes the document. This package imports only
``msgspec``, the standard library, and of core the errors, limits and printable text.

When a process is idle: `core/model/process_activity.py`.
"""
