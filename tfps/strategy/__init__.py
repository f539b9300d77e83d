"""The face: the two public subclasses of TensorFlow's pair."""

from tfps.keras_backend import check_backend

check_backend()
