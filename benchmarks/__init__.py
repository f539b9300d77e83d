"""Benchmarks: each is one module that measures cases and hands them to the report.

`tfps bench NAME` runs `benchmarks.NAME`; results are `DIR/NAME.json` and `DIR/NAME.png`. Nothing
here is imported by training.
"""

from tfps.keras_backend import check_backend

check_backend()
