"""Evaluation during training, in a separate process that follows the checkpoints."""

from tfps.keras_backend import check_backend

check_backend()
