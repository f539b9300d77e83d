"""A cluster whose tasks have addresses of their own: each in its own network namespace."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.namespaces import NamespaceNetwork, NoNamespacesError, namespaces
from tests.harness.command import Command

pytestmark = [pytest.mark.rare, pytest.mark.timeout(240)]

DEADLINE_S = 150
TASKS = (("chief", 0), ("worker", 0), ("worker", 1), ("ps", 0))


@pytest.fixture
def network() -> Iterator[NamespaceNetwork]:
    """Each task in its namespace."""
    with contextlib.ExitStack() as stack:
        try:
            made = stack.enter_context(namespaces(TASKS))
        except NoNamespacesError as error:
            pytest.skip(str(error))
        yield made


# Rounds of rows, as TensorFlow optimizes their graphs: tests with --quickly leave that out.
SCRIPT = """
import keras, numpy as np, tfps
from tfps.compression import PushPull, ByPath, Cast, Quantize, TopK
codecs = PushPull(push=ByPath({"embedding": Quantize(8)}, otherwise=TopK(0.1)), pull=Cast())
strategy = tfps.ParameterServerStrategy(consistency="synchronous", compression=codecs)
with strategy.scope():
    layers = [keras.layers.Embedding(50, 3), keras.layers.Flatten(), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((4,), dtype="int32"), *layers])
    model.compile(tfps.optimizers.SparseUpdates(keras.optimizers.SGD(0.1)), "mse")
ids = np.arange(320).reshape(80, 4) % 50
model.fit(ids, np.ones(80, "float32"), batch_size=2, verbose=0)
stats = strategy.stats()
print("transports", *stats.transports)
names = {each.codec.partition("(")[0] for part in stats.traffic for each in part.codecs}
print("codecs", *sorted(names))
print("counted", stats.examples_seen, *stats.worker_steps, flush=True)
"""


@pytest.fixture(params=["plain", "encrypted"])
def encryption(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """Variables of every task."""
    if request.param == "plain":
        return {}
    if shutil.which("openssl") is None:
        pytest.skip("certificates need the command openssl")
    return _certificates(tmp_path)


def _certificates(folder: Path) -> dict[str, str]:
    """An authority and one certificate that it signed, for all tasks."""
    new = ["req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    for arguments in (
        [*new, "-x509", "-subj", "/CN=job", "-keyout", "ca.key", "-out", "ca.pem"],
        [*new, "-subj", "/CN=task", "-keyout", "key.pem", "-out", "request"],
        [
            *("x509", "-req", "-in", "request", "-out", "certificate.pem"),
            *("-CA", "ca.pem", "-CAkey", "ca.key", "-set_serial", "2"),
        ],
    ):
        subprocess.run(
            ["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=60
        )
    return {
        "TFPS_TLS_CERTIFICATE": str(folder / "certificate.pem"),
        "TFPS_TLS_KEY": str(folder / "key.pem"),
        "TFPS_TLS_AUTHORITY": str(folder / "ca.pem"),
    }


def test_tasks_with_different_addresses(
    network: NamespaceNetwork, encryption: dict[str, str], tmp_path: Path
) -> None:
    """Workers and the server meet over TCP, also where every task shows a certificate."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    spec = network.spec
    with contextlib.ExitStack() as stack:
        tasks = {
            task: stack.enter_context(
                Command(
                    network.command(task, [sys.executable, "-m", "tfps", "run", str(script)]),
                    deadline_s=DEADLINE_S,
                    environment={"TF_CONFIG": json.dumps(spec.tf_config(*task)), **encryption},
                )
            )
            for task in TASKS
        }
        assert tasks["chief", 0].wait() == 0, tasks["chief", 0].describe()
        transports, codecs, counted = tasks["chief", 0].output.splitlines()
        assert transports == "transports direct"
        assert codecs == "codecs Cast Quantize TopK none"
        examples, *steps = map(int, counted.removeprefix("counted ").split())
        assert (examples, sum(steps)) == (80, 40)
        assert min(steps) > 0
        for kind, index in TASKS[1:]:
            task = tasks[kind, index]
            assert task.wait() == 0, task.describe()
            assert f"serves at {spec.jobs[kind][index]}" in task.output
