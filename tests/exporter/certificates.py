"""Certificates for tests, made by openssl."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path


class Authority:
    """Signs certificates: ``<path>.crt`` and ``<path>.key`` are its own."""

    def __init__(self, path: Path) -> None:
        self.certificate, self.key = path.with_suffix(".crt"), path.with_suffix(".key")
        self._openssl("req", "-x509", "-subj", f"/CN={path.name}", "-out", self.certificate, "-keyout", self.key)

    def issue(self, name: str, path: Path) -> tuple[Path, Path]:
        """A certificate for a host or program of this name: ``<path>.crt`` and ``<path>.key``."""
        certificate, key = path.with_suffix(".crt"), path.with_suffix(".key")
        signed_by = ("-CA", self.certificate, "-CAkey", self.key)
        alternative = ("-addext", f"subjectAltName=DNS:{name}", "-addext", "basicConstraints=CA:FALSE")
        self._openssl(
            "req", "-x509", "-subj", f"/CN={name}", *signed_by, *alternative, "-out", certificate, "-keyout", key
        )
        return certificate, key

    def trusting(self) -> ssl.SSLContext:
        """How a client connects that trusts this authority alone."""
        return ssl.create_default_context(cafile=str(self.certificate))

    def _openssl(self, command: str, *arguments: str | Path) -> None:
        new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
        subprocess.run(["openssl", command, *new, *map(str, arguments)], check=True, capture_output=True)
