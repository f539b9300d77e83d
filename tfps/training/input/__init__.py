"""Batches for the workers, from arrays, datasets and functions."""
