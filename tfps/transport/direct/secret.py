"""The job's secret: who does not know it is no task of the job."""

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
    """The secret that the operator gave, or None: then the coordinator makes one.

    White space at either end is dropped: files end with a new line.

    Args:
        environment: instead of ``os.environ``.

    Raises:
        ConfigError: an empty secret, both variables, or a file that cannot be read.

    Example:

    >>> secret_from_environment({"TFPS_JOB_SECRET": "correct horse"})
    b'correct horse'
    """
    variables = os.environ if environment is None else environment
    text = variables.get(SECRET_VARIABLE)
    file = variables.get(SECRET_FILE_VARIABLE)
    if text is not None and file is not None:
        raise ConfigError(
            f"{SECRET_VARIABLE} and {SECRET_FILE_VARIABLE} are both set: unset one of them"
        )
    if text is not None:
        return _checked(os.fsencode(text), SECRET_VARIABLE)
    if file is None:
        return None
    try:
        data = Path(file).read_bytes()
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"cannot read {file!r}: {error}. Name a file that holds the job's secret, or unset it",
            source=SECRET_FILE_VARIABLE,
        ) from error
    return _checked(data, f"{SECRET_FILE_VARIABLE} ({file})")


def fingerprint(secret: bytes | None, *, job: int) -> bytes:
    """Tells whether two tasks hold the same secret without telling it; empty for none.

    Args:
        secret: of a task.
        job: two jobs with one secret have different fingerprints.

    Example:

    >>> fingerprint(b"correct horse", job=1) == fingerprint(b"battery staple", job=1)
    False
    """
    if secret is None:
        return b""
    return hmac.digest(secret, b"fingerprint for job %d" % job, hashlib.sha256).hex().encode()


def _checked(data: bytes, source: str) -> bytes:
    secret = data.strip()
    if not secret:
        raise ConfigError(
            "the secret is empty: give the same random text to every task, or unset the variable",
            source=source,
        )
    return secret
