"""A cluster whose tasks have addresses of their own: each in its own network namespace."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tfps.cluster import ClusterSpec
from tfps.testing import Command

pytestmark = pytest.mark.timeout(240)

DEADLINE_S = 150
TASKS = (("chief", 0), ("worker", 0), ("worker", 1), ("ps", 0))


def _ip(*arguments: str) -> None:
    subprocess.run(
        ["ip", *arguments], check=True, capture_output=True, text=True, timeout=20, env=_NO_LOCALE
    )


_NO_LOCALE = {**os.environ, "LC_ALL": "C"}


@pytest.fixture
def namespaces() -> Iterator[dict[tuple[str, int], str]]:
    """Yield the namespace of each task; they are connected by a bridge in one more."""
    if shutil.which("ip") is None:
        pytest.skip("network namespaces need the command ip (iproute2)")
    hub = f"tfps{os.getpid()}"
    names = {task: f"{hub}-{task[0]}{task[1]}" for task in TASKS}
    with contextlib.ExitStack() as stack:
        try:
            for name in (hub, *names.values()):
                _ip("netns", "add", name)
                stack.callback(_ip, "netns", "delete", name)
            _ip("-n", hub, "link", "add", "bridge", "type", "bridge")
            _ip("-n", hub, "link", "set", "bridge", "up")
            for number, name in enumerate(names.values(), start=1):
                # Both ends are made in the hub, so that the machine's own network never has them.
                _ip("-n", hub, "link", "add", f"v{number}", "type", "veth", "peer", f"p{number}")
                _ip("-n", hub, "link", "set", f"v{number}", "master", "bridge", "up")
                _ip("-n", hub, "link", "set", f"p{number}", "netns", name)
                _ip("-n", name, "address", "add", f"10.77.0.{number}/24", "dev", f"p{number}")
                _ip("-n", name, "link", "set", f"p{number}", "up")
                _ip("-n", name, "link", "set", "lo", "up")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces are not permitted here: {error.stderr.strip()}")
        yield names


SCRIPT = """
import keras, numpy as np, tfps
strategy = tfps.ParameterServerStrategy()
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1), "mse")
x = np.ones((80, 4), "float32")
model.fit(x, x.sum(axis=1), batch_size=2, verbose=0)
print("carriers", *strategy.stats().carriers)
print("counted", strategy.stats().updates_applied, flush=True)
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


@pytest.mark.quick("encrypted")
def test_tasks_with_different_addresses(
    namespaces: dict[tuple[str, int], str], encryption: dict[str, str], tmp_path: Path
) -> None:
    """Workers and the server meet over TCP, also where every task shows a certificate."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    address = {task: f"10.77.0.{number}:2222" for number, task in enumerate(TASKS, start=1)}
    jobs = {
        kind: tuple(address[task] for task in TASKS if task[0] == kind)
        for kind in ("chief", "worker", "ps")
    }
    spec = ClusterSpec(jobs=jobs)
    with contextlib.ExitStack() as stack:
        tasks = {
            task: stack.enter_context(
                Command(
                    ["ip", "netns", "exec", name, sys.executable, "-m", "tfps", "run", script],
                    deadline_s=DEADLINE_S,
                    environment={"TF_CONFIG": json.dumps(spec.tf_config(*task)), **encryption},
                )
            )
            for task, name in namespaces.items()
        }
        assert tasks["chief", 0].wait() == 0, tasks["chief", 0].describe()
        assert tasks["chief", 0].output == "carriers direct\ncounted 40\n"
        for task in TASKS[1:]:
            assert tasks[task].wait() == 0, tasks[task].describe()
            assert f"serves at {address[task]}" in tasks[task].output
