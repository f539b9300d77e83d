"""Evaluation beside the training: a process of its own follows the checkpoints."""

from tfps.keras_backend import check_backend

check_backend()
