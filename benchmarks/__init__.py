"""Benchmarks: each is one module that measures cases and hands them to the report.

`python -m benchmarks NAME` runs `benchmarks.NAME`; results are `DIR/NAME.json` and `DIR/NAME.png`.
The library imports nothing of it, and the wheel does not hold it.
"""

from tfps.keras_backend import check_backend

check_backend()
