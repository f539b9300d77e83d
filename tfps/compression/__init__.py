"""Codecs that make gradients and parameters smaller on the wire."""

from tfps.compression.by_path import ByPath
from tfps.compression.cast import Cast
from tfps.compression.codec import Codec
from tfps.compression.delta import Delta
from tfps.compression.directions import PushPull
from tfps.compression.identity import Identity
from tfps.compression.quantize import Quantize
from tfps.compression.top_k import TopK

__all__ = ["PushPull", "ByPath", "Cast", "Codec", "Delta", "Identity", "Quantize", "TopK"]
