"""Replaces the strategy of an optimizer whose variables are on the same task."""

from __future__ import annotations

from typing import Any


class InPlaceStrategy:
    """A strategy for functions on one task: it updates variables directly, without a merge call."""

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
