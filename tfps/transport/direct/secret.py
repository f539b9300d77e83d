"""The job's secret, by which tasks of the job are recognized."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping
from pathlib import Path

from tfps.errors import ConfigError

SECRET_VARIABLE = "TFPS_JOB_SECRET"
SECRET_FILE_VARIABLE = "TFPS_JOB_SECRET_FILE"


def secret_from_environment(environment: Mapping[str, str] | None = None) -> bytes | None:
    """Return the secret set in the environment, or None, so that the coordinator makes one.

    White space at both ends is removed, since files end with a newline.

    Args:
        environment: used instead of ``os.environ``.

    Raises:
        ConfigError: the secret is empty, both variables are set, or the file cannot be read.

    Example:

    >>> secret_from_environment({"TFPS_JOB_SECRET": "correct horse"})
    b'correct horse'
    """
    variables = os.environ if environment is None else environment
    text = variables.get(SECRET_VARIABLE)
    file = variables.get(SECRET_FILE_VARIABLE)
    if text is not None and file is not None:
        raise ConfigError(
            f"{SECRET_VARIABLE} and {SECRET_FILE_VARIABLE}: received both, expected one; "
            "unset the other"
        )
    if text is not None:
        return _check_secret(os.fsencode(text), SECRET_VARIABLE)
    if file is None:
        return None
    try:
        data = Path(file).read_bytes()
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"received {file!r}, expected a file with the job's secret ({error}); correct the "
            "path, or unset the variable",
            source=SECRET_FILE_VARIABLE,
        ) from error
    return _check_secret(data, f"{SECRET_FILE_VARIABLE} ({file})")


def fingerprint(secret: bytes | None, *, job: int) -> bytes:
    """Return a hash with which tasks compare secrets without sending them; empty for no secret.

    Args:
        secret: the secret of a task.
        job: the job, so that jobs with the same secret have different fingerprints.

    Example:

    >>> fingerprint(b"correct horse", job=1) == fingerprint(b"battery staple", job=1)
    False
    """
    if secret is None:
        return b""
    return hmac.digest(secret, b"fingerprint for job %d" % job, hashlib.sha256).hex().encode()


def _check_secret(data: bytes, source: str) -> bytes:
    secret = data.strip()
    if not secret:
        raise ConfigError(
            "received an empty secret, expected the same random text on all tasks; set it, or "
            "unset the variable",
            source=source,
        )
    return secret
