"""Evaluation beside the training: a process of its own follows the checkpoints."""
