"""A chief leaves the memory of GPUs to workers, unless its user has configured them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import tensorflow as tf

from tfps.strategy import chief


class Gpus:
    """TensorFlow's settings of the GPUs of a process, on a machine without any."""

    def __init__(self, growth: Mapping[str, bool | None], cut: frozenset[str]) -> None:
        self.growth = dict(growth)
        self.cut = cut

    def set_growth(self, gpu: str, enable: bool) -> None:
        self.growth[gpu] = enable


@pytest.mark.parametrize(
    ("growth", "cut", "after"),
    [
        ({"0": None, "1": None}, frozenset(), {"0": True, "1": True}),
        ({"0": False, "1": False}, frozenset(), {"0": False, "1": False}),
        ({"0": None, "1": None}, frozenset("1"), {"0": None, "1": None}),
        ({}, frozenset(), {}),
    ],
    ids=["nothing said", "all of the memory", "logical devices", "no GPU"],
)
@pytest.mark.parametrize("started", [False, True])
def test_memory_grows_unless_the_user_said_otherwise(
    growth: dict[str, bool | None],
    cut: frozenset[str],
    after: dict[str, bool | None],
    started: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpus = Gpus(growth, cut)
    monkeypatch.setattr(chief, "is_initialized", lambda: started)
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: list(gpus.growth))
    monkeypatch.setattr(
        tf.config,
        "get_logical_device_configuration",
        lambda gpu: ["half"] if gpu in gpus.cut else None,
    )
    monkeypatch.setattr(tf.config.experimental, "get_memory_growth", gpus.growth.get)
    monkeypatch.setattr(tf.config.experimental, "set_memory_growth", gpus.set_growth)
    chief.share_gpus()
    assert gpus.growth == (growth if started else after)
