"""Operations on int64 vectors that differ between NumPy and TensorFlow."""

from __future__ import annotations

from typing import Any, Protocol


class Vectors(Protocol):
    """The operations on int64 vectors that differ between NumPy and TensorFlow."""

    def where(self, condition: Any, if_true: Any, if_false: Any) -> Any:
        """Return ``if_true`` where the condition holds, else ``if_false``."""

    def sum(self, values: Any) -> Any:
        """Return the sum, a scalar."""

    def smallest(self, values: Any) -> Any:
        """Return the minimum, a scalar."""

    def largest(self, values: Any) -> Any:
        """Return the maximum, a scalar."""
