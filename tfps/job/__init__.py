"""A job from its file to its results; the only package that uses all others."""

from tfps.keras_backend import check_backend

check_backend()
