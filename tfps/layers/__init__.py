"""Layers of Keras for what parameter servers are good at: embedding tables."""

from tfps.keras_backend import check_backend

check_backend()

from tfps.layers.embedding_collection import EmbeddingCollection
from tfps.layers.table import Table

__all__ = ["EmbeddingCollection", "Table"]
