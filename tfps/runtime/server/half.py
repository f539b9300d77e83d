"""The server's half of a program: of one of `fit`, or of a scheduled function."""

from __future__ import annotations

from typing import Any, TypeAlias

ServerHalf: TypeAlias = Any
