"""Connections between tfps's own processes: framed messages over one socket per worker and server.

It uses plain sockets instead of ZeroMQ. The server has one blocking loop per worker, each in its
own thread. A ZeroMQ ROUTER socket belongs to one thread, so one more thread would have to pass
messages to the loops, and ZeroMQ adds an input and output thread to every process. Waking these
threads costs CPU in every exchange, which is scarce on small machines: an echo of 400 KB took 0.19
ms of CPU over a plain socket and 0.07 ms more over ZeroMQ. Its advantages are small for one
connection between two known tasks: frames, a handshake, and detection of lost peers, which TCP has.

No module of this package imports TensorFlow.
"""

from tfps.transport.chunk import CHUNK_BYTES
from tfps.transport.direct.buffers import AlignedBuffers
from tfps.transport.direct.connection import Connection, ConnectionLost, ReceivedMessage
from tfps.transport.direct.connector import connect
from tfps.transport.direct.encryption import TLS, Encryption, Plain, encryption_from_environment
from tfps.transport.direct.endpoint import Endpoint, this_machine
from tfps.transport.direct.frame import Frame, FrameError, FrameLimits
from tfps.transport.direct.handshake import HandshakeError
from tfps.transport.direct.hello import Hello, HelloError
from tfps.transport.direct.link_rate import RATE_VARIABLE
from tfps.transport.direct.listener import PORT_VARIABLE, Listener
from tfps.transport.direct.secret import SECRET_VARIABLE, fingerprint, secret_from_environment

__all__ = [
    "CHUNK_BYTES",
    "PORT_VARIABLE",
    "RATE_VARIABLE",
    "SECRET_VARIABLE",
    "AlignedBuffers",
    "Connection",
    "ConnectionLost",
    "Encryption",
    "Endpoint",
    "Frame",
    "FrameError",
    "FrameLimits",
    "HandshakeError",
    "Hello",
    "HelloError",
    "Listener",
    "Plain",
    "ReceivedMessage",
    "TLS",
    "connect",
    "encryption_from_environment",
    "fingerprint",
    "secret_from_environment",
    "this_machine",
]
