"""Certificates for one benchmark, made by the `openssl` command."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tfps.transport.direct.encryption import AUTHORITY_VARIABLE, CERTIFICATE_VARIABLE, KEY_VARIABLE


def can_make_certificates() -> bool:
    """Return whether this machine has the `openssl` command."""
    return shutil.which("openssl") is not None


def make_certificates(folder: Path) -> dict[str, str]:
    """Make an authority and one certificate; return the variables that name them to tasks."""
    new = ("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    authority, certificate = folder / "authority.pem", folder / "certificate.pem"
    signer, key, request = folder / "authority.key", folder / "key.pem", folder / "request"
    signed = ("-CA", authority, "-CAkey", signer, "-set_serial", "2", "-out", certificate)
    for arguments in (
        (*new, "-x509", "-subj", "/CN=bench", "-keyout", signer, "-out", authority),
        (*new, "-subj", "/CN=task", "-keyout", key, "-out", request),
        ("x509", "-req", "-in", request, *signed),
    ):
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
    return {
        CERTIFICATE_VARIABLE: str(certificate),
        KEY_VARIABLE: str(key),
        AUTHORITY_VARIABLE: str(authority),
    }
