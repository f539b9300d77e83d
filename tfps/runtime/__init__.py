"""One job at work: composes the servers' functions and the workers' loop, and owns their state."""

from tfps.keras_backend import check_backend

check_backend()
