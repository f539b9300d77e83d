"""The operations on int64 vectors in which NumPy and TensorFlow differ."""

from __future__ import annotations

from typing import Any, Protocol


class Vectors(Protocol):
    """The operations on int64 vectors that differ between NumPy and TensorFlow."""

    def where(self, condition: Any, yes: Any, no: Any) -> Any:
        """``yes`` where the condition holds, else ``no``."""

    def sum(self, values: Any) -> Any:
        """The sum, a scalar."""

    def smallest(self, values: Any) -> Any:
        """The minimum, a scalar."""

    def largest(self, values: Any) -> Any:
        """The maximum, a scalar."""
