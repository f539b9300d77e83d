"""The line at the end of `fit` about tasks that died in it and were started again."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import keras

from tfps.bridge.keras_private import io_utils
from tfps.recovery.restarts.task_supervisor import describe_restarts, get_supervisor

logger = logging.getLogger(__name__)


class RestartReport(keras.callbacks.Callback):
    """Reports which tasks were started again during a `fit`; writes nothing if there were none.

    Only of tasks that this process keeps: another process that keeps some says it by itself.

    Args:
        addresses: of the tasks, ``host:port``.
    """

    def __init__(self, addresses: Iterable[str]) -> None:
        super().__init__()
        self._addresses = frozenset(addresses)
        self._before = 0

    def on_train_begin(self, logs: Any = None) -> None:
        self._before = len(self._restarts())

    def on_train_end(self, logs: Any = None) -> None:
        text = describe_restarts(self._restarts()[self._before :])
        if text and self.params.get("verbose"):
            io_utils.print_msg(text)
        elif text:
            logger.info("%s", text)

    def _restarts(self) -> list[str]:
        supervisor = get_supervisor(self._addresses)
        return supervisor.restarts if supervisor is not None else []
