"""Certificates of a job's own authority."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tfps.transport.direct.encryption import TLS

needs_openssl = pytest.mark.skipif(not shutil.which("openssl"), reason="no openssl command")


def openssl(*arguments: str | Path) -> None:
    """Run the command."""
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


def made_tls(folder: Path) -> TLS:
    """An authority and one certificate that it signed."""
    folder.mkdir()
    new = ("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl(
        *new, "-x509", "-subj", "/CN=job", "-keyout", folder / "ca.key", "-out", folder / "ca.pem"
    )
    openssl(*new, "-subj", "/CN=task", "-keyout", folder / "key.pem", "-out", folder / "request")
    openssl(
        *("x509", "-req", "-in", folder / "request", "-CA", folder / "ca.pem"),
        *("-CAkey", folder / "ca.key", "-set_serial", "2", "-out", folder / "certificate.pem"),
    )
    return TLS(*(str(folder / name) for name in ("certificate.pem", "key.pem", "ca.pem")))
