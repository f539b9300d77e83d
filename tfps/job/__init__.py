"""One job from its file to its results: the only place that puts all parts together."""

from tfps.keras_backend import check_backend

check_backend()
