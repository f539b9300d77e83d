"""Learning rate schedules."""

from tfps.keras_backend import check_backend

check_backend()

from tfps.schedules.scaled_learning_rate import ScaledLearningRate

__all__ = ["ScaledLearningRate"]
