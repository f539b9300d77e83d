"""A model whose step has two exchanges: an optimizer call, and state of its own after it."""

from __future__ import annotations

from typing import Any

import keras


class CountsAfterwards(keras.Sequential):
    """Its step does not end with the call of the optimizer, but with state of its own."""

    def build(self, input_shape: Any) -> None:
        super().build(input_shape)
        self.count = self.add_weight(
            shape=(), dtype="int64", initializer="zeros", trainable=False, name="count"
        )

    def train_step(self, data: Any) -> dict[str, Any]:
        logs: dict[str, Any] = super().train_step(data)
        self.count.assign_add(1)
        return logs
