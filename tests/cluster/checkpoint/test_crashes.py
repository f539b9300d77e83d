"""SIGKILL of a task at a random moment of a save: the last committed checkpoint restores."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
import tensorflow as tf

import tfps
from tests.cluster.checkpoint.counting_model import counting_model, updates_of
from tests.cluster.checkpoint.crashing_job import UNAVAILABLE
from tests.harness.command import Command
from tests.harness.leaks import assert_no_leaks
from tfps.checkpoint.commit import Folder

pytestmark = pytest.mark.timeout(280)

ROOT = Path(__file__).resolve().parents[3]
STATUS = {"ps": UNAVAILABLE, "worker": 0, "chief": -signal.SIGKILL}


# Quicker ones: tests/unit/checkpoint/test_commit.py crashes after every operation of a save, and
# tests/cluster/recovery/test_lost_server_returns.py goes back to a checkpoint after a kill.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "victims"),
    [
        pytest.param(0, ["ps"], id="a server"),
        *(pytest.param(seed, list(STATUS), id=f"seed {seed}") for seed in range(10)),
    ],
)
def test_the_last_committed_checkpoint_restores(
    seed: int, victims: list[str], tmp_path: Path
) -> None:
    """One job after the other in the same folder, each on a cluster of its own.

    Each goes on from what the one before has left, and is ended in its turn: by the loss of a
    parameter server, not at all by that of a worker, and by that of the chief. In the end this
    process restores.
    """
    folder = Folder(tmp_path / "checkpoints")
    last = "nothing"
    for position, victim in enumerate(victims):
        command = [
            *(sys.executable, "-m", "tests.cluster.checkpoint.crashing_job"),
            *(str(folder.path), victim, str(10 * seed + position)),
        ]
        environment = {"TFPS_CHUNK_BYTES": "40000"}
        with (
            assert_no_leaks(),
            Command(command, deadline_s=200, environment=environment, folder=ROOT) as job,
        ):
            assert job.wait() == STATUS[victim], job.describe()
            assert f"killing {victim}" in job.output
            assert f"restored {last}\n" in job.output, job.describe()
        last = str(folder.numbers()[-1])
    with tf.device("CPU:0"):
        model = counting_model()
        manifest = tfps.CheckpointManager(model, folder.path).restore_latest()
        assert manifest is not None
        assert str(manifest.number) == last
        assert manifest.counters is not None
        assert updates_of(model) == manifest.counters.versions[0]
