"""Keras layers for embedding tables on parameter servers."""

from tfps.keras_backend import check_backend

check_backend()

from tfps.layers.embedding_collection import EmbeddingCollection
from tfps.layers.table import Table

__all__ = ["EmbeddingCollection", "Table"]
