"""Saving and restoring, against TensorFlow's own checkpoints."""
