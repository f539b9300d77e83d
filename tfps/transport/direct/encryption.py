"""Encryption of TCP connections: none, or TLS with certificates of the job's own authority."""

from __future__ import annotations

import functools
import os
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from tfps.errors import ConfigError

CERTIFICATE_VARIABLE = "TFPS_TLS_CERTIFICATE"
KEY_VARIABLE = "TFPS_TLS_KEY"
AUTHORITY_VARIABLE = "TFPS_TLS_AUTHORITY"


class Encryption(Protocol):
    """Wraps a connected TCP socket at once; the first bytes on it begin the negotiation."""

    def accept(self, sock: socket.socket) -> socket.socket:
        """The server's side."""

    def connect(self, sock: socket.socket) -> socket.socket:
        """The client's side."""


@dataclass(frozen=True)
class Plain:
    """No encryption: for networks that the job has to itself."""

    def accept(self, sock: socket.socket) -> socket.socket:
        return sock

    def connect(self, sock: socket.socket) -> socket.socket:
        return sock


@dataclass(frozen=True)
class Tls:
    """TLS 1.3; both sides show a certificate that the job's authority has signed.

    Host names are not checked, since tasks move between hosts: make an authority for the job alone.
    Certificates that restrict their use need both `serverAuth` and `clientAuth`. Tasks take theirs
    from ``TFPS_TLS_CERTIFICATE``, ``TFPS_TLS_KEY`` and ``TFPS_TLS_AUTHORITY``; `tfps.attach` is
    given one.

    Args:
        certificate: PEM file of this task's certificate, with intermediate ones after it.
        key: PEM file of its private key, without a passphrase.
        authority: PEM file of the authority that signed every task's certificate.

    Raises:
        ConfigError: a file is missing, or they do not fit together.
    """

    certificate: str
    key: str
    authority: str

    def __post_init__(self) -> None:
        # Files that cannot be used are an error now, not with the first connection.
        _ = self._server, self._client

    def accept(self, sock: socket.socket) -> socket.socket:
        return self._server.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)

    def connect(self, sock: socket.socket) -> socket.socket:
        return self._client.wrap_socket(sock, do_handshake_on_connect=False)

    @functools.cached_property
    def _server(self) -> ssl.SSLContext:
        return self._context(ssl.PROTOCOL_TLS_SERVER)

    @functools.cached_property
    def _client(self) -> ssl.SSLContext:
        return self._context(ssl.PROTOCOL_TLS_CLIENT)

    def _context(self, protocol: ssl._SSLMethod) -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            # An encrypted key must not ask on a terminal that nobody watches.
            context.load_cert_chain(self.certificate, self.key, password=_no_passphrase)
            context.load_verify_locations(self.authority)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"cannot use the certificate {self.certificate!r} with the key {self.key!r} and"
                f" the authority {self.authority!r}: {error}. Expected PEM files, the key without"
                f" a passphrase; see {CERTIFICATE_VARIABLE}, {KEY_VARIABLE}, {AUTHORITY_VARIABLE}"
            ) from error
        return context


def encryption_from_environment(environment: Mapping[str, str] | None = None) -> Encryption:
    """TLS if the three variables name its files, else none.

    Args:
        environment: instead of ``os.environ``.

    Raises:
        ConfigError: only some of the variables are set, or the files cannot be used.

    Example:

    >>> encryption_from_environment({})
    Plain()
    """
    variables = os.environ if environment is None else environment
    names = (CERTIFICATE_VARIABLE, KEY_VARIABLE, AUTHORITY_VARIABLE)
    missing = [name for name in names if not variables.get(name)]
    if len(missing) == len(names):
        return Plain()
    if missing:
        raise ConfigError(
            f"{' and '.join(missing)} not set, but TLS needs {', '.join(names)}: set all or none"
        )
    return Tls(*(variables[name] for name in names))


def _no_passphrase() -> str:
    raise ValueError("the key is protected by a passphrase")
