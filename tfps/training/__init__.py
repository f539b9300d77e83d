"""Keras's training loop on a cluster: where batches come from, ticket runs, callbacks."""
