"""The saves of checkpoints in the background."""

from __future__ import annotations

import threading


def join_saves() -> None:
    """Wait until no save is under way; its error, if any, is still to be raised."""
    for thread in threading.enumerate():
        if thread.name == "tfps checkpoint":
            thread.join()
