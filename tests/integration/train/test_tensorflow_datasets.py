"""tensorflow-datasets itself prepares the data, downloaded through a proxy of this test.

The original files are rebuilt from Debian's, which differ in the names and times of their gzip
headers only, so that the checksums of tensorflow-datasets hold.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.messages import raises
from tfps.config.bundle import find_example
from tfps.errors import DataError

pytestmark = [pytest.mark.rare, pytest.mark.timeout(280)]

MODIFIED_AT_S = {
    "train-images-idx3-ubyte": 1504176606,
    "train-labels-idx1-ubyte": 1504176606,
    "t10k-images-idx3-ubyte": 1504176627,
    "t10k-labels-idx1-ubyte": 1504176627,
}
GZIP_HEADER_BYTES = 10


def original(folder: Path, stem: str) -> bytes:
    rest = (folder / f"{stem}.gz").read_bytes()[GZIP_HEADER_BYTES:]
    modified = struct.pack("<I", MODIFIED_AT_S[stem])
    return b"\x1f\x8b\x08\x08" + modified + b"\x00\x03" + stem.encode() + b"\0" + rest


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Serves the four files to clients that request them from the real host; lists the requests."""
    folder = find_example("fashion_mnist").module("data").DEBIAN_FOLDER
    if not folder.is_dir():
        pytest.skip(f"needs the original files of dataset-fashion-mnist in {folder}")
    asked: list[str] = []

    class RequestHandler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(f"{self.command} {self.path}")
            stem = self.path.rpartition("/")[2].removesuffix(".gz")
            content = original(folder, stem)
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        def do_HEAD(self) -> None:
            self.do_GET()

        def log_message(self, *args: object) -> None:
            """Keep the test's output free of requests."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), RequestHandler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{server.server_port}")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    yield asked
    server.shutdown()
    server.server_close()
    thread.join()


def test_downloads_once_and_reads_what_it_prepared(proxy, tmp_path, capfd):
    data = find_example("fashion_mnist").module("data")
    said: list[str] = []
    loaded = data.load(source="tensorflow-datasets", path=str(tmp_path), say=said.append)
    assert loaded.source == f"tensorflow-datasets in {tmp_path / 'fashion_mnist'}"
    assert loaded.notice == ""
    assert loaded.x_train.shape == (60_000, 28, 28, 1)
    assert loaded.x_test.shape == (10_000, 28, 28, 1)
    assert {str(array.dtype) for array in (loaded.x_train, loaded.y_train)} == {"uint8"}
    assert said == [f"Downloading Fashion-MNIST (30 MB) with tensorflow-datasets to {tmp_path} ..."]
    assert sum(request.startswith("GET ") for request in proxy) == 4
    assert capfd.readouterr() == ("", "")

    proxy.clear()
    again = data.load(source="tensorflow-datasets", path=str(tmp_path), say=said.append)
    assert proxy == []
    assert len(said) == 1
    assert (again.x_test == loaded.x_test).all()

    (records,) = (tmp_path / "fashion_mnist").rglob("*test*-00000-of-00001")
    records.write_bytes(records.read_bytes()[:1000])
    with raises(DataError, str(tmp_path), received="cannot read", remedy="delete the folder"):
        data.load(source="tensorflow-datasets", path=str(tmp_path))
