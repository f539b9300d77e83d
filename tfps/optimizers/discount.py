"""How much less a gradient counts the staler it is. Pure: numbers and tensors alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import keras

from tfps.errors import ConfigError

_PACKAGE = "tfps"


class Discount(Protocol):
    """A factor for the learning rate of one update; 1 where the gradient is not stale."""

    def __call__(self, staleness: Any) -> Any:
        """The factor; float32 in, a float32 of the same shape out."""


class _Rule:
    """A rule is saved with the optimizer that has it."""

    def get_config(self) -> dict[str, Any]:
        return dict(self.__dict__)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        return cls(**config)


@keras.saving.register_keras_serializable(_PACKAGE)
@dataclass(frozen=True)
class Undiscounted(_Rule):
    """Every gradient counts in full; for who wants to drop the stalest only.

    Example:

    >>> Undiscounted()(3.0)
    1.0
    """

    def __call__(self, staleness: Any) -> Any:
        return 0.0 * staleness + 1.0


@keras.saving.register_keras_serializable(_PACKAGE)
@dataclass(frozen=True)
class Exponential(_Rule):
    """``exp(-rate * staleness)``: very stale gradients all but vanish.

    Args:
        rate: per update; 0.1 halves the step at a staleness of 7.

    Raises:
        ConfigError: a rate below 0.

    Example:

    >>> round(float(Exponential(0.1)(7.0)), 3)
    0.497
    """

    rate: float = 0.1

    def __post_init__(self) -> None:
        if not self.rate >= 0:
            raise ConfigError(
                f"rate: received {self.rate!r}, expected a number from 0: with a negative "
                "one stale gradients would count more"
            )

    def __call__(self, staleness: Any) -> Any:
        return keras.ops.exp(-self.rate * staleness)


RULES: dict[str, Discount] = {"none": Undiscounted(), "exponential": Exponential()}


def resolve(discount: Any) -> Discount:
    """A rule from its name, or a function of the user's own.

    Raises:
        ConfigError: another name, nothing that can be called, or a function that changes a
            gradient which is not stale.
    """
    if isinstance(discount, str) and discount in RULES:
        return RULES[discount]
    if not callable(discount):
        raise ConfigError(
            f"discount: received {discount!r}, expected one of "
            f"{', '.join(repr(name) for name in RULES)}, or a function from staleness to a factor"
        )
    at_zero = float(keras.ops.convert_to_numpy(discount(keras.ops.convert_to_tensor(0.0))))
    if at_zero != 1.0:
        raise ConfigError(
            f"discount: the function answers {at_zero} for a staleness of 0, expected 1: where no "
            "gradient is stale the optimizer must do what the inner one does"
        )
    return discount
