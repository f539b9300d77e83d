"""Fashion-MNIST through tensorflow-datasets, in a process of its own.

The process keeps the library's progress bars and log lines off the terminal, and it can be ended
when a download stalls. It writes the arrays to a file that this process reads.

    python -m fashion_mnist.prepared DATA_DIR ARRAYS.npz
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil

from tfps.errors import DataError

# The smallest file that tensorflow-datasets downloads: if it arrives, the others will.
PROBE_URL = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/t10k-labels-idx1-ubyte.gz"
PROBE_TIMEOUT_S = 4.0  # a response takes half a second; being offline must not cost a minute
STALL_TIMEOUT_S = 30.0  # no byte written and no CPU used: a connection that died
STALL_CPU_S = 0.5  # the progress bars' threads use less than this in that time
LOOK_EVERY_S = 0.5
# The child's own lines say nothing to the user, and it needs neither a device nor a cluster.
CHILD_ENVIRONMENT = {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}


class Unavailable(Exception):
    """tensorflow-datasets cannot give the data now; the message says why."""


def folder(data_dir: str | None) -> Path:
    """Return where tensorflow-datasets keeps the prepared data set, or will keep it."""
    default = os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
    return Path(data_dir or default).expanduser() / "fashion_mnist"


def is_prepared(data_dir: str | None) -> bool:
    """Return whether an earlier run has finished the preparation."""
    versions = folder(data_dir).glob("*/dataset_info.json")
    return any(".incomplete" not in file.parent.name for file in versions)


def read(
    *, data_dir: str | None, say: Callable[[str], None] = print
) -> tuple[dict[str, np.ndarray], Path]:
    """Return the four arrays by name and the folder they come from; download them if needed.

    Args:
        data_dir: of tensorflow-datasets; None takes TFDS_DATA_DIR or its default.
        say: receives a line before a download.

    Raises:
        Unavailable: not prepared, and the download does not work.
        DataError: prepared earlier, but cannot be read any more.
    """
    target = folder(data_dir)
    ready = is_prepared(data_dir)
    if not ready:
        probe(PROBE_URL)
        say(f"Downloading Fashion-MNIST (30 MB) with tensorflow-datasets to {target.parent} ...")
    with tempfile.TemporaryDirectory(prefix="tfps-data-") as scratch:
        arrays_path = Path(scratch) / "arrays.npz"
        try:
            _run(data_dir=target.parent, arrays_path=arrays_path, log_path=Path(scratch) / "log")
        except Unavailable as error:
            if not ready:
                raise
            raise DataError(
                f"{target}: received a folder that tensorflow-datasets cannot read ({error}), "
                "expected the data set that it prepared there; delete the folder to prepare it "
                "again"
            ) from error
        with np.load(arrays_path) as arrays:
            return dict(arrays), target


def probe(url: str) -> None:
    """Ask for the headers of one file; resolving its name has no time limit of its own."""
    outcome: list[str] = []

    def ask() -> None:
        request = urllib.request.Request(url, method="HEAD")
        try:
            # A new opener reads the proxies of now; `urlopen` keeps those of its first use.
            opener = urllib.request.build_opener()
            with opener.open(request, timeout=PROBE_TIMEOUT_S):
                outcome.append("")
        except (OSError, ValueError) as error:
            outcome.append(str(getattr(error, "reason", None) or error))

    thread = threading.Thread(target=ask, name="tfps-network-probe", daemon=True)
    thread.start()
    thread.join(PROBE_TIMEOUT_S + 1)
    host = urllib.parse.urlsplit(url).hostname
    if not outcome:
        raise Unavailable(f"no response from {host} within {PROBE_TIMEOUT_S:g} s")
    if outcome[0]:
        raise Unavailable(f"{host} cannot be reached ({outcome[0]})")


def _run(*, data_dir: Path, arrays_path: Path, log_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    examples = str(Path(__file__).resolve().parents[1])
    paths = [examples, *filter(None, [environment.get("PYTHONPATH")])]
    environment |= {**CHILD_ENVIRONMENT, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", "fashion_mnist.prepared", str(data_dir), str(arrays_path)]
    with log_path.open("wb") as log:
        child = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            status = wait_for(child, written=data_dir)
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
    if status is None:
        raise Unavailable(f"the download stalled for {STALL_TIMEOUT_S:g} s")
    if status != 0:
        lines = log_path.read_text(errors="replace").strip().splitlines()
        raise Unavailable(lines[-1][:300] if lines else f"its process ended with status {status}")


def wait_for(child: subprocess.Popen[bytes], *, written: Path) -> int | None:
    """Return the child's exit status, or None once it neither writes nor computes any more."""
    process = psutil.Process(child.pid)
    moved_at, seen = time.monotonic(), (-1, 0.0)
    while (status := child.poll()) is None:
        time.sleep(LOOK_EVERY_S)
        try:
            used_s = sum(process.cpu_times()[:2])
        except psutil.NoSuchProcess:
            continue
        size = sum(file.stat().st_size for file in written.rglob("*") if file.is_file())
        if size != seen[0] or used_s > seen[1] + STALL_CPU_S:
            moved_at, seen = time.monotonic(), (size, used_s)
        elif time.monotonic() - moved_at > STALL_TIMEOUT_S:
            return None
    return status


def prepare(data_dir: str, arrays_path: str) -> None:
    """Download and prepare the data set if that is still to do, and write it as arrays."""
    import tensorflow_datasets as tfds

    tfds.disable_progress_bar()
    splits = tfds.load(
        "fashion_mnist",
        split=["train", "test"],
        data_dir=data_dir,
        batch_size=-1,
        as_supervised=True,
    )
    (x_train, y_train), (x_test, y_test) = tfds.as_numpy(splits)
    labels = {"y_train": y_train.astype(np.uint8), "y_test": y_test.astype(np.uint8)}
    np.savez(arrays_path, x_train=x_train, x_test=x_test, **labels)


if __name__ == "__main__":
    prepare(*sys.argv[1:])
