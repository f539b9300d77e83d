"""A relay in front of a parameter server that spoils requests on their way.

It is a process of its own: TensorFlow keeps Python's lock while it waits for a server.
"""

from __future__ import annotations

import contextlib
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

# Of a request to run a function: its name, and the device, field 6 of `eager.Operation`, of which
# protobuf asks that it be UTF-8. Nothing else that is sent to a server looks like this.
_REQUEST = re.compile(rb"run_on_server_\d+.{0,2000}?\x32\x25(?=/job:ps/)", re.DOTALL)
_CHUNK_BYTES = 1 << 20


class Relay:
    """Passes on what comes, byte for byte, but for the requests that it is told to spoil.

    Args:
        backend: ``host:port`` of the server.
    """

    def __init__(self, backend: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, backend],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.address = self._read_line()

    def spoil(self, times: int, *, after: int = 0) -> None:
        """Spoil requests from now on.

        Args:
            times: how many.
            after: how many pass before them.
        """
        self._ask(f"{times} {after}")

    @property
    def spoilt(self) -> int:
        """The number of requests spoilt since the last call of `spoil`."""
        return int(self._ask("?"))

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _ask(self, line: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._read_line()

    def _read_line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@contextlib.contextmanager
def relay_to(backend: str) -> Iterator[Relay]:
    """A relay that ends with the block."""
    relay = Relay(backend)
    try:
        yield relay
    finally:
        relay.close()


class _Spoiler:
    """The relay's work in its own process."""

    def __init__(self, backend: str) -> None:
        host, port = backend.rsplit(":", 1)
        self._backend = (host, int(port))
        self._lock = threading.Lock()
        self._passes = self._spoils = self._spoilt = 0

    def serve(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, args=[listener], daemon=True).start()
        print(f"127.0.0.1:{listener.getsockname()[1]}", flush=True)
        for line in sys.stdin:
            with self._lock:
                if line.strip() != "?":
                    self._spoils, self._passes = (int(word) for word in line.split())
                    self._spoilt = 0
                print(self._spoilt, flush=True)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            front, _ = listener.accept()
            try:
                back = socket.create_connection(self._backend)
            except OSError:
                front.close()  # as a server that is not there yet
                continue
            for pair in ((front, back, True), (back, front, False)):
                threading.Thread(target=self._pass_on, args=pair, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, asks: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK_BYTES):
                target.sendall(self._with_spoils(data) if asks else data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)

    def _with_spoils(self, data: bytes) -> bytes:
        for found in _REQUEST.finditer(data):
            with self._lock:
                if self._passes:
                    self._passes -= 1
                elif self._spoils:
                    self._spoils -= 1
                    self._spoilt += 1
                    data = data[: found.end()] + b"\xff" + data[found.end() + 1 :]
        return data


if __name__ == "__main__":
    _Spoiler(sys.argv[1]).serve()
