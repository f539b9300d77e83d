"""What codecs leave out of a step, before anything starts."""

from __future__ import annotations

import math

from tfps.compression import Both
from tfps.compression.codec import ITEM_BYTES, for_shape
from tfps.compression.directions import Codecs, choice_for
from tfps.placement.forecast import Forecast, Wanted


def bytes_left_out(forecast: Forecast, compression: Both) -> int:
    """How many bytes of a worker's step codecs leave out, up and down.

    Of variables that travel whole; of tables rows travel. A codec counts as if it coded each
    variable alone: together on a server they take a few bytes less.

    Args:
        forecast: the variables.
        compression: the codecs of both directions.

    Example:

    >>> from tfps.compression import Quantize
    >>> from tfps.placement import LeastLoaded
    >>> kernel = Wanted("dense/kernel", (784, 128), "float32", is_pulled=True, is_trained=True)
    >>> forecast = Forecast.of([kernel], servers=1, placement=LeastLoaded())
    >>> bytes_left_out(forecast, Both(up=Quantize(8)))
    299488
    """
    coded = [
        variable
        for variable in forecast.wanted
        if variable.is_trained and variable.rows_per_step is None and variable.dtype == "float32"
    ]
    return sum(
        _left_out(variable, codecs)
        for variable in coded
        for codecs in (compression.up, compression.down)
    )


def _left_out(variable: Wanted, codecs: Codecs) -> int:
    codec = choice_for(codecs, variable.path, size_bytes=variable.size_bytes).codec
    sent = for_shape(codec, variable.shape).size_bytes(math.prod(variable.shape))
    assert variable.size_bytes == ITEM_BYTES * math.prod(variable.shape)
    return max(0, variable.size_bytes - sent)
