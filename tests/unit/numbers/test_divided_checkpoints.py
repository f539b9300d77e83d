"""Variables in shards on two servers, also in slabs: any rule reads what any has written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import tfps
from tests.cluster.checkpoint.divided import RowsByShard
from tfps.checkpoint.contents import find_contents
from tfps.checkpoint.manifest import Manifest
from tfps.checkpoint.restore import fill, open_restores
from tfps.checkpoint.servers import open_channels
from tfps.checkpoint.snapshot import Snapshot
from tfps.optimizers.slabs import create_slab
from tfps.partitioners.row_rule import RULES
from tfps.placement.slab import SlabLayout

pytestmark = pytest.mark.timeout(180)

ROWS = 41


def _divided(strategy: tfps.ParameterServerStrategy, rule: Any, *, in_slabs: bool) -> RowsByShard:
    """Pieces go to the servers in turn; with slabs, those of a server share one vector."""
    with strategy.scope():
        divided = RowsByShard(rule, lambda shape: keras.Variable(np.zeros(shape, "float32")))
    if in_slabs:
        runtime = strategy.runtime
        for server in range(2):
            mine = [
                shard
                for shard in divided.shards
                if runtime.get_server_index(shard.value.device) == server
            ]
            if mine:
                members = [(shard.value.shared_name, tuple(shard.shape)) for shard in mine]
                layout = SlabLayout.from_variables(server, "float32", members)
                create_slab(layout, mine, storage=runtime)
    return divided


def _save(
    strategy: tfps.ParameterServerStrategy,
    source: RowsByShard,
    folder: Path,
    shared: Sequence[bool],
) -> Manifest:
    contents = find_contents({"model/table": source}, servers=strategy.runtime.topology.servers)
    snapshot = Snapshot(contents, servers=strategy.runtime.servers, shared=shared)
    snapshot.take()
    source.assign(np.zeros(source.shape, "float32"))
    files = snapshot.write(folder)
    snapshot.free()
    snapshot.close()
    return Manifest(number=1, saved_at_s=0.0, tensors=contents.tensors, files=files)


@pytest.mark.slow
@pytest.mark.parametrize("in_slabs", [False, True], ids=["alone", "in slabs"])
@pytest.mark.parametrize("stored", RULES.values(), ids=RULES)
def test_another_rule_and_number(
    stored: Any,
    in_slabs: bool,
    strategy: tfps.ParameterServerStrategy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One of the servers shares the folder, the other does not."""
    monkeypatch.setenv("TFPS_CHUNK_BYTES", "60")
    source = _divided(strategy, stored(ROWS, 4), in_slabs=in_slabs)
    value = np.random.default_rng(0).normal(size=source.shape).astype("float32")
    source.assign(value)
    manifest = _save(strategy, source, tmp_path, (True, False))
    servers = strategy.runtime.servers
    for kind in RULES.values():
        for shards in (1, 3):
            target = _divided(strategy, kind(ROWS, shards), in_slabs=in_slabs)
            with open_channels(servers) as channels:
                with open_restores(servers, channels=channels, shared=(False, True)) as parts:
                    devices = strategy.runtime.topology.servers
                    contents = find_contents({"model/table": target}, servers=devices)
                    fill(contents, manifest, tmp_path, servers=parts)
            np.testing.assert_array_equal(target.numpy(), value)
