"""A fresh chief process for one turn of a benchmark.

usage: python -m benchmarks.chief MODULE:FUNCTION ORDER.json RESULT.json

The function is one of `benchmarks` from the order to the result, both JSON. The cluster is the one
of TF_CONFIG; it goes on when this process ends.
"""

from __future__ import annotations

import json
import os
import pkgutil
import sys
from pathlib import Path
from typing import Any

from tfps.launch.parent import end_with_parent


def main(function: str, order_path: str, result_path: str) -> None:
    """Read the order, measure, write the result."""
    end_with_parent()
    order = json.loads(Path(order_path).read_text())
    result = pkgutil.resolve_name(function)(order)
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
