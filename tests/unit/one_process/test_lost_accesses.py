"""An access to a variable of a lost server fails with `UnavailableError`, whatever it met there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import pytest
import tensorflow as tf

import tfps
from tfps.bridge.variables.named_resource import NamedResource

USES: dict[str, Callable[[Any], Any]] = {
    "numpy": lambda variable: variable.numpy(),
    "sparse_read": lambda variable: variable.value.sparse_read([0]),
    "assign_add": lambda variable: variable.value.assign_add([1.0, 2.0]),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_an_access_names_the_lost_server(
    use: Callable[[Any], Any], make_strategy: Callable[..., tfps.ParameterServerStrategy]
) -> None:
    strategy = make_strategy()
    with strategy.scope():
        variable = keras.Variable([0.0, 0.0])
    use(variable)
    device = variable.value.device
    (server,) = [each for each in strategy.runtime.servers if each.device == device]
    native = variable.value
    NamedResource(native.container, native.shared_name, device).destroy()  # as by a new start
    try:
        with pytest.raises(tf.errors.OpError) as failed:
            variable.numpy()
        assert not isinstance(failed.value, tf.errors.UnavailableError)
        server.lost = "the server was started again"
        with pytest.raises(tf.errors.UnavailableError, match="started again"):
            use(variable)
    finally:
        server.lost = None
