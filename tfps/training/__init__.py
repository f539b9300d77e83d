"""Keras's training loop on a cluster: where batches come from, ticket runs, callbacks."""

from tfps.keras_backend import check_backend

check_backend()
