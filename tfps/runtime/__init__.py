"""The runtime of a job: the servers' functions, the workers' loop, and their state."""

from tfps.keras_backend import check_backend

check_backend()
