"""The operations on vectors of the consistency rules, on arrays."""

from __future__ import annotations

from typing import Any

import numpy as np


class ArrayVectors:
    """`Vectors` of NumPy, for rules that run without TensorFlow."""

    def where(self, condition: Any, yes: Any, no: Any) -> Any:
        return np.where(condition, yes, no)

    def sum(self, values: Any) -> Any:
        return np.sum(values)

    def smallest(self, values: Any) -> Any:
        return np.min(values)

    def largest(self, values: Any) -> Any:
        return np.max(values)
