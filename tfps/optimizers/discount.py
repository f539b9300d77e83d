"""Discounts of the learning rate for stale gradients. Pure: works on numbers and tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import keras

from tfps.errors import ConfigError

_PACKAGE = "tfps"


class Discount(Protocol):
    """A function from staleness to a factor for the learning rate of one update; 1 for 0."""

    def __call__(self, staleness: Any) -> Any:
        """Return the factor; takes a float32, returns a float32 of the same shape."""


class _Rule:
    """The base class of discounts that are saved with their optimizer."""

    def get_config(self) -> dict[str, Any]:
        return dict(self.__dict__)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        return cls(**config)


@keras.saving.register_keras_serializable(_PACKAGE)
@dataclass(frozen=True)
class Undiscounted(_Rule):
    """No discount; use it to only drop the stalest gradients.

    Example:

    >>> Undiscounted()(3.0)
    1.0
    """

    def __call__(self, staleness: Any) -> Any:
        return 0.0 * staleness + 1.0


@keras.saving.register_keras_serializable(_PACKAGE)
@dataclass(frozen=True)
class Exponential(_Rule):
    """The discount ``exp(-rate * staleness)``, which almost removes very stale gradients.

    Args:
        rate: the rate per update; 0.1 halves the step at a staleness of 7.

    Raises:
        ConfigError: the rate is below 0.

    Example:

    >>> round(float(Exponential(0.1)(7.0)), 3)
    0.497
    """

    rate: float = 0.1

    def __post_init__(self) -> None:
        if not self.rate >= 0:
            raise ConfigError(
                f"rate: received {self.rate!r}, expected a number from 0; a negative rate would "
                "give stale gradients more weight"
            )

    def __call__(self, staleness: Any) -> Any:
        return keras.ops.exp(-self.rate * staleness)


RULES: dict[str, Discount] = {"none": Undiscounted(), "exponential": Exponential()}


def resolve_discount(discount: Any) -> Discount:
    """Return the discount with a name, or the user's own function.

    Raises:
        ConfigError: the name is unknown, the value is not callable, or the function does not
            return 1 for a staleness of 0.
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
            f"discount: received a function that returns {at_zero} for a staleness of 0, expected "
            "1: without staleness the optimizer must do the same as the inner one"
        )
    return discount
