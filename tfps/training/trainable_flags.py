"""The layers and variables that a model trains, as its step was traced first."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

logger = logging.getLogger(__name__)

AS_COMPILED = (
    "%s: trainable was changed after compile() and the first use of the model (%s), and training "
    "continues with the compiled values, as in Keras. Call model.compile() to apply the change."
)


class TrainableFlags:
    """Keeps the trainable flags of a step's first trace, for later traces.

    Keras traces a step once after `compile`. Here it is traced again for other inputs, for example,
    when a layer may have been frozen, or thawed, of which the optimizer knows nothing.

    Args:
        model: whose step it is.
        warns: log a warning where flags have changed.
    """

    def __init__(self, model: Any, *, warns: bool) -> None:
        self._model, self._warns = model, warns
        self._known: dict[int, tuple[Any, bool]] | None = None

    @contextlib.contextmanager
    def apply_first_flags(self) -> Iterator[None]:
        """Set the flags as at the first call, until the end of the block."""
        now = self._flags()
        known = self._known = self._known or now
        changed = {
            key: pair for key, pair in now.items() if key in known and known[key][1] != pair[1]
        }
        if not changed:
            yield
            return
        if self._warns:
            self._warns = False
            names = ", ".join(dict.fromkeys(each.path or each.name for each, _ in changed.values()))
            logger.warning(AS_COMPILED, self._model.name, names)
        _apply_flags({**now, **known})
        try:
            yield
        finally:
            _apply_flags(now)

    def _flags(self) -> dict[int, tuple[Any, bool]]:
        """Return the flags of all layers and variables, by id, outer layers first."""
        # In the order of writing them back: a layer's flag sets those of all that it contains.
        flagged = [*self._model._flatten_layers(), *self._model.variables]
        return {id(each): (each, each.trainable) for each in flagged}


def _apply_flags(flags: dict[int, tuple[Any, bool]]) -> None:
    for each, trainable in flags.values():
        each.trainable = trainable
