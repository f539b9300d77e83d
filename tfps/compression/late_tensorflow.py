"""TensorFlow, imported when a codec is traced: a job file that names one is checked without it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tensorflow as tf
else:

    class LateTensorFlow:
        """Has what TensorFlow has."""

        def __getattr__(self, name: str) -> Any:
            return getattr(importlib.import_module("tensorflow"), name)

    tf = LateTensorFlow()

__all__ = ["tf"]
