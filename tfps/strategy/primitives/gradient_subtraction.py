"""Update variables by a push without an optimizer: the servers subtract the gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge.variables.shards import get_all_shards
from tfps.optimizers.gathered_rows import GatheredRows
from tfps.optimizers.server_update import UpdateContext
from tfps.optimizers.update_targets import UpdateTarget


class GradientSubtraction:
    """Subtracts the gradients of a push that names no optimizer.

    Args:
        parameters: the parameters of the push.
    """

    depends_on_sender = False

    def __init__(self, parameters: Sequence[Any]) -> None:
        self._trainable_variables = list(parameters)

    def apply(self, gradients: Mapping[str, tf.Tensor], context: UpdateContext) -> None:
        shards = {shard._value.shared_name: shard for shard in self._shards_on(context.device)}
        slabs = [shard._value.slab for shard in shards.values()]
        natives = {name: shard._value for name, shard in shards.items()}
        natives |= {slab.shared_name: slab for slab in slabs if slab is not None}
        for name, native in natives.items():
            gradient = gradients.get(name)
            if isinstance(gradient, tf.IndexedSlices):
                _subtract_rows(shards[name], gradient)
            elif gradient is not None:
                native.assign_sub(gradient, read_value=False)

    def _shards_on(self, device: str) -> list[Any]:
        shards = get_all_shards(self._trainable_variables)
        return [shard for shard in shards if shard._value.device == device]


def _subtract_rows(shard: Any, gradient: tf.IndexedSlices) -> None:
    """Subtract rows, each of which occurs once."""
    target = UpdateTarget(shard, {}, decays=False, is_slab=False)
    rows = GatheredRows([target], [gradient])
    rows.temporary_target.variable._value.assign_sub(rows.gradient, read_value=False)
    rows.write_back()
