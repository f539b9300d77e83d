"""Which optimizers go with codecs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer
from keras.src.optimizers.multi_optimizer import MultiOptimizer

from tfps.compression.codec import corrects_momentum
from tfps.errors import UnsupportedError
from tfps.optimizers.row_updates import RowUpdates
from tfps.optimizers.server_update import ServerUpdate
from tfps.optimizers.wrapped import members
from tfps.runtime.message.coding import CodedVector


def refuse_remembering(updates: Sequence[ServerUpdate]) -> None:
    """Raise an `UnsupportedError` where an optimizer counts on what workers were sent."""
    for update in updates:
        if update.asks_who:
            raise UnsupportedError(
                f"compression: received a codec for down with {type(update.optimizer).__name__}, "
                "which remembers for each worker what it was sent, expected Identity(): a codec "
                "sends something else. Leave down out, or take another optimizer"
            )


def refuse_momentum(optimizer: Any, coded: Sequence[CodedVector]) -> None:
    """Raise an `UnsupportedError` where workers have the momentum, and a server more than SGD.

    Args:
        optimizer: of Keras; another update subtracts what comes.
        coded: gradients of one of its calls.
    """
    codecs = [each.codec for each in coded if corrects_momentum(each.codec)]
    if not codecs or not isinstance(optimizer, keras.optimizers.Optimizer):
        return
    for member in members(optimizer):
        if not _is_plain(member):
            momentum = getattr(member, "momentum", None)
            settings = f"momentum={momentum}" if momentum else ""
            raise UnsupportedError(
                f"compression: received {codecs[0]!r} with {type(member).__name__}({settings}); "
                "expected keras.optimizers.SGD without momentum on the servers: the codec has the "
                "momentum, on the workers. Take keras.optimizers.SGD(learning_rate), or "
                "tfps.compression.TopK with this optimizer"
            )


def _is_plain(member: Any) -> bool:
    if isinstance(member, (LossScaleOptimizer, MultiOptimizer, RowUpdates)):
        return True
    return type(member) is keras.optimizers.SGD and not member.momentum
