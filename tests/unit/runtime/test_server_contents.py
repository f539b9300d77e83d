"""The contents of a server are freed, also if the server is lost at that moment."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tfps.bridge.variables.named_resource import NamedResource
from tfps.runtime.coordinator.server_contents import ServerContents

DEVICE = "/job:localhost/replica:0/task:0/device:CPU:0"


def _holding(error: tf.errors.OpError) -> ServerContents:
    """One that holds a resource which cannot be opened."""

    def open_by_name(container: str, shared_name: str) -> tf.Tensor:
        raise error

    contents = ServerContents(device=DEVICE, container="job")
    contents.add([NamedResource("job", "a", DEVICE, open_by_name)])
    return contents


def test_what_a_lost_server_held_is_forgotten() -> None:
    contents = _holding(tf.errors.UnavailableError(None, None, "Connection reset by peer"))
    contents.free(contents.records)
    assert not contents.records


def test_another_error_is_raised() -> None:
    contents = _holding(tf.errors.InvalidArgumentError(None, None, "of another kind"))
    with pytest.raises(tf.errors.InvalidArgumentError, match="of another kind"):
        contents.free(contents.records)
