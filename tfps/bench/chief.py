"""A fresh chief process for one turn of a benchmark.

usage: python -m tfps.bench.chief MODULE ORDER.json RESULT.json

MODULE is one of `tfps.bench` with a function `measure` from the order to the result, both JSON. The
cluster is the one of TF_CONFIG; it goes on when this process ends.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from tfps.launch.parent import end_with_parent


def main(module: str, order_path: str, result_path: str) -> None:
    """Read the order, measure, write the result."""
    end_with_parent()
    order = json.loads(Path(order_path).read_text())
    result = importlib.import_module(module).measure(order)
    Path(result_path).write_text(json.dumps(result))


def _end(status: int) -> None:
    # TensorFlow's coordinator can hang when Python ends.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _end_after_error(*error: Any) -> None:
    sys.__excepthook__(*error)
    _end(1)


if __name__ == "__main__":
    sys.excepthook = _end_after_error
    main(*sys.argv[1:])
    _end(0)
