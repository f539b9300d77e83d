"""Keras's training loop on a cluster: where batches come from, rounds of tickets, callbacks."""
