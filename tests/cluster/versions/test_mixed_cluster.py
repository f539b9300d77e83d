"""A task with another TensorFlow or Keras than the chief is refused by name before training."""

from __future__ import annotations

from pathlib import Path

import pytest

import tfps
from tests.cluster.launch.another_task import another
from tests.messages import raises
from tfps.errors import ConfigError
from tfps.launch import LocalCluster

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("kind", ["worker", "ps"])
def test_the_chief_refuses_a_task_of_another_row(
    kind: str, other_python: str, tmp_path: Path
) -> None:
    with (
        LocalCluster(2, 2, log_dir=tmp_path) as cluster,
        another(cluster, kind, 1, python=other_python, deadline_s=300),
        raises(ConfigError, f"{kind} 1 at ", received=" (here ", remedy="same minor versions"),
    ):
        tfps.ParameterServerStrategy(cluster.cluster_resolver)
