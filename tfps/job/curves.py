"""What a training loop measured, epoch by epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Curves:
    """Loss and accuracy after every epoch.

    Args:
        loss: mean loss of the training batches.
        accuracy: of the training batches.
        validation_loss: after the epoch; empty where nothing was held out.
        validation_accuracy: likewise.
        examples_seen: counted by the loop itself; None where the servers count.
    """

    loss: Sequence[float]
    accuracy: Sequence[float]
    validation_loss: Sequence[float] = ()
    validation_accuracy: Sequence[float] = ()
    examples_seen: int | None = None

    @classmethod
    def from_history(cls, history: Mapping[str, Sequence[float]]) -> Curves:
        """Take them from what Keras's `fit` returns.

        Example:

        >>> Curves.from_history({"loss": [1.0], "accuracy": [0.5]}).validation_loss
        ()
        """
        return cls(
            loss=tuple(history["loss"]),
            accuracy=tuple(history["accuracy"]),
            validation_loss=tuple(history.get("val_loss", ())),
            validation_accuracy=tuple(history.get("val_accuracy", ())),
        )

    def with_epoch(
        self, *, loss: float, accuracy: float, validation: Mapping[str, float], examples: int
    ) -> Curves:
        """Return them with one more epoch.

        Args:
            loss: of the epoch.
            accuracy: of the epoch.
            validation: ``val_loss`` and ``val_accuracy``, or nothing.
            examples: that the epoch trained on.
        """
        return Curves(
            loss=(*self.loss, loss),
            accuracy=(*self.accuracy, accuracy),
            validation_loss=(*self.validation_loss, *_one(validation, "val_loss")),
            validation_accuracy=(*self.validation_accuracy, *_one(validation, "val_accuracy")),
            examples_seen=(self.examples_seen or 0) + examples,
        )


def _one(values: Mapping[str, float], name: str) -> tuple[float, ...]:
    return (values[name],) if name in values else ()
