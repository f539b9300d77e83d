"""What optimizers take for their strategy where they change variables at hand."""

from __future__ import annotations

from typing import Any


class InPlace:
    """Stands for a strategy inside a function of a server or worker: no merge call."""

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
