"""Scales a learning rate to another global batch size than the one that it was tuned for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import keras

from tfps.bridge.registered_names import register_class
from tfps.errors import refuse

RULES = ("linear", "square_root")

# The arguments that files of version 0.1 have, and their present names.
EARLIER_ARGUMENTS: Mapping[str, str] = {"warm_up_steps": "warm_up_updates"}


@register_class
class ScaledLearningRate(keras.optimizers.schedules.LearningRateSchedule):
    """A learning rate, or schedule, scaled to another batch size, with a gradual warm-up.

    Use it when more workers make the global batch larger. An update that averages the gradients of
    more examples may take a larger step: proportionally larger by the linear rule, which holds for
    SGD while the batch is not huge, or by the square root of that, which keeps the variance of the
    step and suits adaptive optimizers. At the start of training the weights change too fast for
    both rules, so the factor grows from 1 to its value in the warm-up. A step is an update
    (`optimizer.iterations`).

    Source: Goyal et al., "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour", 2017, for
    the linear rule and the gradual warm-up; Krizhevsky, "One weird trick for parallelizing
    convolutional neural networks", 2014, for the square root.

    Args:
        learning_rate: a number, or a Keras schedule, tuned for ``base_batch_size``.
        base_batch_size: the number of examples per update that the rate was tuned for.
        batch_size: the number of examples per update now; in asynchronous training, per step of one
            worker.
        rule: ``"linear"`` or ``"square_root"``.
        warm_up_updates: the number of updates until the whole factor is reached; 0 for none.

    Raises:
        ConfigError: another rule, a batch size below 1, or a negative warm-up.

    Example:

    >>> rate = ScaledLearningRate(0.1, base_batch_size=256, batch_size=1024, warm_up_updates=100)
    >>> [round(float(rate(step)), 3) for step in (0, 50, 100, 1000)]
    [0.1, 0.25, 0.4, 0.4]
    """

    def __init__(
        self,
        learning_rate: Any,
        *,
        base_batch_size: int,
        batch_size: int,
        rule: str = "linear",
        warm_up_updates: int = 0,
    ) -> None:
        problems = [
            f"{name}: received {value!r}, expected a whole number from {least}"
            for name, value, least in (
                ("base_batch_size", base_batch_size, 1),
                ("batch_size", batch_size, 1),
                ("warm_up_updates", warm_up_updates, 0),
            )
            if isinstance(value, bool) or not isinstance(value, int) or value < least
        ]
        if rule not in RULES:
            names = " or ".join(repr(name) for name in RULES)
            problems.append(f"rule: received {rule!r}, expected {names}")
        refuse(problems, source="ScaledLearningRate")
        self.learning_rate = learning_rate
        self.base_batch_size, self.batch_size = base_batch_size, batch_size
        self.rule, self.warm_up_updates = rule, warm_up_updates

    @property
    def factor(self) -> float:
        """The factor by which the learning rate is multiplied after the warm-up."""
        ratio = self.batch_size / self.base_batch_size
        return ratio if self.rule == "linear" else math.sqrt(ratio)

    def __call__(self, step: Any) -> Any:
        rate = self.learning_rate
        if callable(rate):
            rate = rate(step)
        rate = keras.ops.convert_to_tensor(rate, "float32")
        if not self.warm_up_updates:
            return rate * self.factor
        done = keras.ops.minimum(keras.ops.cast(step, "float32") / self.warm_up_updates, 1.0)
        return rate * (1.0 + (self.factor - 1.0) * done)

    def get_config(self) -> dict[str, Any]:
        return {
            "learning_rate": keras.saving.serialize_keras_object(self.learning_rate),
            "base_batch_size": self.base_batch_size,
            "batch_size": self.batch_size,
            "rule": self.rule,
            "warm_up_updates": self.warm_up_updates,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        rate = keras.saving.deserialize_keras_object(config["learning_rate"])
        present = {EARLIER_ARGUMENTS.get(name, name): value for name, value in config.items()}
        return cls(**{**present, "learning_rate": rate})
