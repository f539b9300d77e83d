"""TensorFlow, imported when a codec is traced: checking a job file does not need it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tensorflow as tf
else:

    class LateTensorFlow:
        """A stand-in for the module, which imports it at the first access."""

        def __getattr__(self, name: str) -> Any:
            return getattr(importlib.import_module("tensorflow"), name)

    tf = LateTensorFlow()

__all__ = ["tf"]
