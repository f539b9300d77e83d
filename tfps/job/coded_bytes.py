"""Computes the bytes that codecs save in a step, before anything starts."""

from __future__ import annotations

import math

from tfps.compression import PushPull
from tfps.compression.codec import ITEM_BYTES, Codec
from tfps.compression.delta import is_delta
from tfps.compression.directions import Codecs, choice_for
from tfps.placement.forecast import Forecast, PlannedVariable


def bytes_left_out(forecast: Forecast, compression: PushPull) -> int:
    """Return how many bytes codecs save in the push and the reply of a worker's step.

    Only variables that are sent whole count, since tables are sent by rows. A codec counts as if it
    encoded each variable alone: together on a server they take a few bytes less.

    Args:
        forecast: the variables.
        compression: the codecs of both directions.

    Example:

    >>> from tfps.compression import Quantize
    >>> from tfps.placement import LeastLoaded
    >>> kernel = PlannedVariable("kernel", (784, 128), "float32", is_pulled=True, is_trained=True)
    >>> forecast = Forecast.from_variables([kernel], servers=1, placement=LeastLoaded())
    >>> bytes_left_out(forecast, PushPull(push=Quantize(8)))
    299488
    """
    return sum(
        _bytes_saved(variable, codecs)
        for variable in forecast.variables
        if _is_coded(variable)
        for codecs in (compression.push, compression.pull)
    )


def kept_bytes_per_server(
    forecast: Forecast, compression: PushPull, *, workers: int
) -> tuple[int, ...]:
    """Return the size of each server's copies of the workers' parameters, for `Delta`.

    Args:
        forecast: the variables.
        compression: the codecs of both directions.
        workers: the number of workers.

    Example:

    >>> from tfps.compression import Delta, TopK
    >>> from tfps.placement import LeastLoaded
    >>> kernel = PlannedVariable("kernel", (784, 128), "float32", is_pulled=True, is_trained=True)
    >>> forecast = Forecast.from_variables([kernel], servers=2, placement=LeastLoaded())
    >>> kept_bytes_per_server(forecast, PushPull(pull=Delta(TopK(0.01))), workers=4)
    (1605632, 0)
    """
    totals = [0] * forecast.server_count
    for variable, server in zip(forecast.variables, forecast.server_of_variable, strict=True):
        if _is_coded(variable) and is_delta(_codec_of(variable, compression.pull)):
            totals[server] += workers * variable.size_bytes
    return tuple(totals)


def _is_coded(variable: PlannedVariable) -> bool:
    is_whole = variable.is_trained and variable.rows_per_step is None
    return is_whole and variable.dtype == "float32"


def _codec_of(variable: PlannedVariable, codecs: Codecs) -> Codec:
    return choice_for(codecs, variable.path, size_bytes=variable.size_bytes).codec


def _bytes_saved(variable: PlannedVariable, codecs: Codecs) -> int:
    sent = _codec_of(variable, codecs).size_bytes(math.prod(variable.shape))
    assert variable.size_bytes == ITEM_BYTES * math.prod(variable.shape)
    return max(0, variable.size_bytes - sent)
