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
    """Wraps a connected TCP socket; the negotiation happens with the first bytes sent over it."""

    def accept(self, sock: socket.socket) -> socket.socket:
        """Return the wrapped socket of a server."""

    def connect(self, sock: socket.socket) -> socket.socket:
        """Return the wrapped socket of a client."""


@dataclass(frozen=True)
class Plain:
    """No encryption; for networks that only the job uses."""

    def accept(self, sock: socket.socket) -> socket.socket:
        return sock

    def connect(self, sock: socket.socket) -> socket.socket:
        return sock


@dataclass(frozen=True)
class TLS:
    """The files for TLS 1.3, in which both sides present a certificate of the job's authority.

    Use it if the network is shared. Host names are not checked, since tasks move between hosts, so
    create an authority for the job only. Certificates with restricted use need both `serverAuth`
    and `clientAuth`. Tasks read ``TFPS_TLS_CERTIFICATE``, ``TFPS_TLS_KEY`` and
    ``TFPS_TLS_AUTHORITY``.

    Args:
        certificate: the PEM file of this task's certificate, followed by intermediate ones.
        key: the PEM file of its private key, without a passphrase.
        authority: the PEM file of the authority that signed every task's certificate.

    Raises:
        ConfigError: a file is missing, or the files do not match.
    """

    certificate: str
    key: str
    authority: str

    def __post_init__(self) -> None:
        # Raise an error for unusable files now, not at the first connection.
        _ = self._server, self._client

    def accept(self, sock: socket.socket) -> socket.socket:
        """Return a server's connected socket with TLS; the handshake comes with the first bytes.

        Args:
            sock: a connected TCP socket.
        """
        return self._server.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)

    def connect(self, sock: socket.socket) -> socket.socket:
        """Return a client's connected socket with TLS; the handshake comes with the first bytes.

        Args:
            sock: a connected TCP socket.
        """
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
            # An encrypted key must not prompt for a passphrase on an unattended terminal.
            context.load_cert_chain(self.certificate, self.key, password=_no_passphrase)
            context.load_verify_locations(self.authority)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{CERTIFICATE_VARIABLE}, {KEY_VARIABLE}, {AUTHORITY_VARIABLE}: received"
                f" {self.certificate!r}, {self.key!r}, {self.authority!r}, expected PEM files and a"
                f" key without a passphrase; replace the file in question ({error})"
            ) from error
        return context


def encryption_from_environment(environment: Mapping[str, str] | None = None) -> Encryption:
    """Return TLS if the three variables name its files, otherwise no encryption.

    Args:
        environment: used instead of ``os.environ``.

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
            f"{' and '.join(missing)}: received nothing, expected the files of TLS;"
            f" set {', '.join(names)}, or none of them"
        )
    return TLS(*(variables[name] for name in names))


def _no_passphrase() -> str:
    raise ValueError("a passphrase protects the key")
