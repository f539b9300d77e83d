"""The operations on vectors that the rules of rounds and gates take, for NumPy arrays."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

VECTORS: Any = SimpleNamespace(where=np.where, sum=np.sum, smallest=np.min, largest=np.max)
