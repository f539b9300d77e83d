"""Lines that TensorFlow and its libraries write by themselves, and no user should see."""

from __future__ import annotations

import re

RAW = re.compile(
    r"cuInit|oneDNN|cuda|InitializeLog|connection refused|Failed to remove function|rebuild"
    r"|\[[^]]*\.cc:\d+\]|[IWEF]\d{4} \d\d:\d\d|INFO:tensorflow|WARNING:tensorflow"
    r"|ERROR:tensorflow|GRPC|grpc|device_count|Warning:",
    re.IGNORECASE,
)
