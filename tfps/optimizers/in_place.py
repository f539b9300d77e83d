"""A stand-in for a strategy, for optimizers that update variables of the same task."""

from __future__ import annotations

from typing import Any


class InPlace:
    """Replaces the strategy inside a function of a server or worker: updates without merge call."""

    class extended:  # noqa: D106, N801 - the name that Keras looks for
        @staticmethod
        def update(
            variable: Any,
            function: Any,
            args: Any = (),
            kwargs: Any = None,
            group: bool = True,  # noqa: ARG004 - part of TensorFlow's signature
        ) -> Any:
            return function(variable, *args, **(kwargs or {}))
