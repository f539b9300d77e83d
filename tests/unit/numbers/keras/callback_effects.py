"""The effects of a callback: numbers of a training, files, posted and printed texts."""

from __future__ import annotations

import contextlib
import http.server
import io
import re
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import h5py
import keras
import numpy as np
import tensorflow as tf

from tests.unit.numbers.comparison import LABELS, STEPS, X, cross_entropy, fit

NUMBER = re.compile(r"(?<![\w#])-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
PRINTED = re.compile(r"Epoch \d+/\d+|\b(?:val_)?loss: ")  # tfps prints more than Keras
VALIDATION = (X[::-1].copy(), LABELS)


def _make() -> keras.Model:
    head = keras.layers.Dense(3, name="dense")
    model = keras.Sequential([keras.Input((8,)), head], name="model")
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9, use_ema=True, ema_momentum=0.5)
    model.compile(optimizer, cross_entropy())
    return model


def program(make: Callable[..., Any], kind: str, parent: Path) -> Any:
    """Return the model of a callback's program, and what trains it and returns the effects.

    It trains twice, with a new callback each time, as a script that is started again does.

    Args:
        make: the callback, of a model, a folder for its files and an address that takes posts.
        kind: of the data: "training", or "not_a_number" with such an example in the second epoch.
        parent: of the folders, which no other program has.
    """

    def use(model: keras.Model) -> dict[str, Any]:
        folder = parent / f"callback-{len(list(parent.iterdir()))}"
        folder.mkdir()
        x = X.copy()
        if kind == "not_a_number":
            x[STEPS * 8] = np.nan
        results: dict[str, Any] = {}
        printed = io.StringIO()
        with _posts() as (url, posts), contextlib.redirect_stdout(printed):
            for epochs in (2, 4):
                made = make(model=model, folder=folder, url=url)
                given = made if isinstance(made, keras.callbacks.CallbackList) else [made]
                history = fit(
                    model, x, epochs=epochs, verbose=2, validation_data=VALIDATION, callbacks=given
                )
                results |= {f"{name} of {epochs}": values for name, values in history.items()}
        for text in [*posts, *PRINTED.findall(printed.getvalue())]:
            results |= _numbers(f"text {len(results)}", text)
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            results |= _contents(file, file.relative_to(folder))
        return results

    return _make, use


@contextlib.contextmanager
def _posts() -> Iterator[tuple[str, list[str]]]:
    """Return an address and a list, which gets what is posted there."""
    received: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            """Print nothing."""

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", received
        server.shutdown()
        thread.join()


def _numbers(name: str, text: str) -> dict[str, Any]:
    """Return the numbers of a text by its words."""
    return {f"{name}: {NUMBER.sub('#', text)}": [float(n) for n in NUMBER.findall(text)]}


def _contents(file: Path, name: Path) -> dict[str, Any]:
    """Return the numbers of a file by the names that it gives them."""
    if "tfevents" in name.name:
        return _summaries(file, name.parent)
    if file.suffix == ".keras":
        with zipfile.ZipFile(file) as archive, archive.open("model.weights.h5") as weights:
            return _arrays(io.BytesIO(weights.read()), name)
    if file.suffix == ".h5":
        with file.open("rb") as weights:
            return _arrays(weights, name)
    return _numbers(str(name), file.read_text())


def _arrays(weights: BinaryIO | io.BytesIO, name: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with h5py.File(weights) as file:
        file.visititems(
            lambda key, item: (
                found.update({f"{name}: {key}": item[()]})
                if isinstance(item, h5py.Dataset)
                else None
            )
        )
    return found


def _summaries(file: Path, run: Path) -> dict[str, Any]:
    """Return what TensorBoard shows of a file, by tag and step."""
    found: dict[str, Any] = {}
    for record in tf.data.TFRecordDataset(str(file)).as_numpy_iterator():
        event = tf.compat.v1.Event.FromString(record)
        for value in event.summary.value:
            array = tf.make_ndarray(value.tensor)
            numbers = array if np.issubdtype(array.dtype, np.number) else []
            found[f"{run}: {value.tag} at {event.step}"] = numbers
    return found
